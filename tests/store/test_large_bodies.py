"""Bodies that are large, and bodies of every kind: what was given when the call was made is what comes out."""

import array
import ctypes

import pytest

from qmcore.acts import enqueue_in_transaction
from qmcore.errors import InvalidArgumentError
from qmcore.message import BODY_MAX
from qmcore.queue import FOREVER
from tests.fix_store import count_rows, make_queue

MIB = 1024 * 1024
SPILL = 2 * MIB + 5
"""What a transaction keeps here, so that more than that is soon reached."""

SIZES = [MIB - 1, MIB, MIB + 1, 2 * MIB, 3 * MIB + 7, SPILL, SPILL + 1]


def body(size, seed=1):
    """Return bytes of which no chunk is like another."""
    block = bytes((at * at * seed + at) % 251 for at in range(4099))
    return (block * (size // len(block) + 1))[:size]


@pytest.fixture(autouse=True)
def spill_soon(monkeypatch):
    monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", SPILL)


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS", pages=19_900)
    make_queue(opened, "Q", retries=1)
    make_queue(opened, "KEPT", retention=FOREVER)
    make_queue(opened, "ERRORS")
    return opened


def rows(space):
    return sum(count_rows(space, "message", "chunk", "ready", "held", "history"))


def once(space, action):
    with space.transaction():
        return action()


WAYS_IN = {
    "enqueue": lambda space, data: space.enqueue("Q", data),
    "enqueue_many": lambda space, data: space.enqueue_many("Q", [data])[0],
    "in a transaction": lambda space, data: once(space, lambda: space.enqueue("Q", data)),
    "many in a transaction": lambda space, data: once(space, lambda: space.enqueue_many("Q", [data]))[0],
}
WAYS_OUT = {
    "dequeue": lambda space: space.dequeue("Q"),
    "dequeue_many": lambda space: space.dequeue_many("Q", 1)[0],
    "peek": lambda space: space.peek("Q"),
    "browse": lambda space: next(space.browse("Q")),
    "in a transaction": lambda space: once(space, lambda: space.dequeue("Q")),
    "lock": lambda space: once(space, lambda: space.lock("Q")),
}


@pytest.mark.parametrize("way", WAYS_IN)
@pytest.mark.parametrize("size", [MIB, MIB + 1, SPILL + 1])
def test_it_goes_in_every_way(space, way, size):
    data = body(size)
    msgid = WAYS_IN[way](space, data)
    message = space.dequeue("Q", msgid=msgid)
    assert (message.size, message.body) == (size, data)
    assert rows(space) == 0


@pytest.mark.parametrize("way", WAYS_OUT)
@pytest.mark.parametrize("size", [MIB, 3 * MIB + 7])
def test_it_comes_out_every_way(space, way, size):
    data = body(size)
    space.enqueue("Q", data)
    assert WAYS_OUT[way](space).body == data
    space.purge("Q")
    assert rows(space) == 0


@pytest.mark.parametrize("size", SIZES)
def test_every_size_around_the_limits_is_whole(space, size):
    data = body(size)
    space.enqueue("Q", data)
    usage = space.usage("Q")
    assert (usage.size, usage.pages) == (size, -(-(size + 256) // 4096))
    assert space.dequeue("Q").body == data


def test_the_largest_goes_in_and_out_and_a_larger_one_is_refused(space):
    data = bytes(BODY_MAX)
    space.enqueue("Q", data)
    with pytest.raises(InvalidArgumentError, match="limit is 67108864"):
        space.enqueue("Q", bytes(BODY_MAX + 1))
    assert space.remove("Q").size == BODY_MAX
    assert rows(space) == 0


def test_it_goes_through_rollbacks_the_error_queue_and_its_move_whole(space):
    data = body(3 * MIB)
    space.enqueue("Q", data)
    for _ in range(2):
        with space.transaction() as transaction:
            assert space.dequeue("Q").body == data
            transaction.rollback()
    message = space.dequeue("ERRORS")
    assert (message.body, message.origin.queue) == (data, "Q")
    assert rows(space) == 0


@pytest.mark.parametrize("in_transaction", [True, False])
def test_it_is_kept_and_recalled_whole(space, in_transaction):
    data = body(3 * MIB)
    msgid = space.enqueue("KEPT", data)
    if in_transaction:
        once(space, lambda: space.remove("KEPT"))
    else:
        space.remove("KEPT")
    assert space.recall("KEPT", msgid).body == data
    assert space.purge_history("KEPT") == 1
    assert rows(space) == 0


def test_several_at_once_are_not_mixed_up(space):
    bodies = [body(2 * MIB + at, at + 1) for at in range(4)]
    space.enqueue_many("Q", bodies)
    assert [message.body for message in space.browse("Q")] == bodies
    assert [message.body for message in space.dequeue_many("Q", 9)] == bodies


def test_others_read_and_write_while_it_is_there(file_store):
    space = file_store.space(pages=19_900)
    make_queue(space)
    other = file_store.another().open_space("SPACE")
    data = body(5 * MIB)
    with space.transaction():
        space.enqueue("Q", data)
        other.enqueue("Q", b"small")
    assert other.dequeue("Q").body == b"small"
    assert other.dequeue("Q").body == data


class TestKinds:
    """Everything that has bytes may be a body."""

    @pytest.mark.matrix(together=2)
    @pytest.mark.parametrize("transactional", [True, False])
    @pytest.mark.parametrize("size", [0, 10, 2 * MIB, SPILL + 1])
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_bytes_of_any_kind_come_out_as_bytes(self, space, kind, size, transactional):
        data = body(size)
        with space.transaction():
            space.enqueue("Q", kind(data), transactional=transactional)
        message = space.dequeue("Q")
        assert (type(message.body), message.body, message.type) == (bytes, data, "CARRAY")

    @pytest.mark.parametrize("size", [10, 2 * MIB, SPILL + 1])
    def test_a_text_is_kept_as_utf_8(self, space, size):
        text = "\N{GREEK SMALL LETTER OMEGA}" * (size // 2)
        space.enqueue("Q", text)
        message = space.dequeue("Q")
        assert (message.text, message.type, message.size) == (text, "STRING", size // 2 * 2)

    @pytest.mark.matrix
    @pytest.mark.parametrize(
        "view",
        [
            memoryview(body(3 * MIB))[::2],
            memoryview(b"abcdef")[::-1],
            memoryview(array.array("d", [1.5, 2.5])),
            memoryview(array.array("i")),
            memoryview((ctypes.c_int * 3)(1, 2, 3)),
            memoryview(array.array("H", range(12)))[::3],
            memoryview(bytes(12)).cast("B", (3, 4)),
            memoryview(body(4 * MIB)).cast("I"),
            memoryview(b"one")[1:1],
        ],
        ids=lambda view: f"{view.format} {view.shape} {view.strides}",
    )
    @pytest.mark.parametrize("transactional", [True, False])
    def test_a_view_is_what_its_elements_are_in_their_order(self, space, view, transactional):
        with space.transaction():
            space.enqueue("Q", view, transactional=transactional)
        message = space.dequeue("Q")
        assert message.body == view.tobytes()
        assert message.size == view.nbytes

    @pytest.mark.parametrize("many", [True, False])
    @pytest.mark.parametrize("size", [10, 2 * MIB, SPILL - 1, SPILL, SPILL + 1])
    def test_what_was_given_counts_whatever_becomes_of_it_before_the_commit(self, space, size, many):
        data = bytearray(body(size))
        wanted = bytes(data)
        with space.transaction():
            if many:
                space.enqueue_many("Q", [data, memoryview(data)])
            else:
                space.enqueue("Q", data)
                space.enqueue("Q", memoryview(data))
            data[:5] = b"wrong"
            del data[6:]
        assert [message.body for message in space.dequeue_many("Q", 2)] == [wanted, wanted]

    def test_an_array_may_grow_after_the_call(self, space):
        data = bytearray(10)
        space.enqueue("Q", data)
        data.extend(b"more")
        with space.transaction():
            space.enqueue("Q", data)
            data.extend(b"and more")
        assert [message.size for message in space.dequeue_many("Q", 2)] == [10, 14]

    @pytest.mark.parametrize("bad", [{5}, [b"1"], object()])
    def test_what_has_no_plain_bytes_is_refused(self, space, bad):
        with pytest.raises(InvalidArgumentError):
            space.enqueue("Q", bad)
