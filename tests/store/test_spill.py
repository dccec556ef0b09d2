"""A transaction that enqueues much leaves it to the store, where nobody sees it before the commit."""

import dataclasses
import threading

import pytest

from qmcore.acts.enqueue_in_transaction import SPILL_BYTES
from qmcore.errors import InUseError, NoSpaceError, Resource
from qmcore.message import State
from tests.fix_store import attachment_of, count_rows, drain, make_queue, queue_definition

MIB = 1024 * 1024
MUCH = SPILL_BYTES // MIB + 3
"""Messages of a mebibyte that are more than a transaction keeps."""


@pytest.fixture
def space(store):
    opened = store.space(pages=19_000)
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "OTHER")
    return opened


def fill(space, count=MUCH, queue="Q", **how):
    return [space.enqueue(queue, bytes([at]) * MIB, **how) for at in range(count)]


def kept(transaction, space):
    """Return how many bytes of bodies the process keeps for an open transaction."""
    return sum(item.outgoing.size for item in transaction.branch(attachment_of(space)).pending)


def test_what_is_above_the_limit_is_not_kept_by_the_process(space):
    with space.transaction() as transaction:
        for at in range(3 * MUCH):
            space.enqueue("Q", bytes([at]) * MIB)
            assert kept(transaction, space) <= SPILL_BYTES
        space.enqueue("OTHER", b"x" * (2 * SPILL_BYTES))
        assert kept(transaction, space) == 0


def test_nobody_sees_it_before_the_commit_and_all_of_it_afterwards_in_order(space):
    with space.transaction():
        ids = fill(space)
        assert space.usage("Q").messages == 0
        assert list(space.messages("Q")) == []
        assert space.dequeue("Q", transactional=False) is None
        assert space.dequeue("Q", msgid=ids[0], transactional=False) is None
        assert space.peek("Q") is None
    assert [info.msgid for info in space.messages("Q")] == ids
    assert [space.dequeue("Q").body[0] for _ in ids] == list(range(MUCH))


def test_the_room_that_it_takes_is_kept_for_it_and_given_back_by_a_rollback(space, store):
    empty = store.device.space_usage("SPACE")
    with pytest.raises(ZeroDivisionError), space.transaction():
        fill(space)
        usage = store.device.space_usage("SPACE")
        assert usage.messages > 0
        assert usage.pages > SPILL_BYTES // 4096
        _ = 1 / 0
    assert dataclasses.replace(store.device.space_usage("SPACE"), highest=empty.highest) == empty
    assert space.usage("Q").enqueued == 0
    assert drain(space) == []


def test_after_the_commit_the_books_say_what_they_would_say_without_it(space, store):
    with space.transaction():
        ids = fill(space)
    usage = space.usage("Q")
    assert (usage.messages, usage.enqueued, usage.size) == (len(ids), len(ids), len(ids) * MIB)
    assert store.device.space_usage("SPACE").pages == usage.pages == sum(257 for _ in ids)
    assert len(space.dequeue_many("Q", 100)) == len(ids)
    assert (store.device.space_usage("SPACE").pages, store.device.space_usage("SPACE").messages) == (0, 0)


def test_what_does_not_fit_is_refused_when_it_is_enqueued_and_the_rest_commits(store):
    opened = store.space("SMALL", pages=3000)
    make_queue(opened, "Q")
    with opened.transaction():
        ids = fill(opened, 11)
        with pytest.raises(NoSpaceError) as caught:
            opened.enqueue("Q", b"x" * MIB)
        assert caught.value.resource is Resource.PAGES
    assert [info.msgid for info in opened.messages("Q")] == ids


def test_what_the_transaction_consumes_makes_room_for_what_it_brings(store):
    opened = store.space("SMALL", pages=3000)
    make_queue(opened, "Q")
    fill(opened, 11)
    with opened.transaction():
        while opened.dequeue("Q"):
            pass
        ids = fill(opened, 11)
    assert [info.msgid for info in opened.messages("Q")] == ids


def test_times_that_count_from_the_commit_do(space, clock):
    with space.transaction():
        fill(space, delay=10, expires_in=60)
        clock.advance(100)
    committed = clock.now()
    (state,) = {info.state for info in space.messages("Q")}
    assert state is State.DELAYED
    infos = list(space.messages("Q"))
    assert {info.enqueued_us for info in infos} == {committed}
    assert {info.available_us for info in infos} == {committed + 10_000_000}
    assert {info.expires_us for info in infos} == {committed + 60_000_000}
    clock.advance(60)
    assert space.usage("Q").expired == MUCH


def test_the_expiration_of_the_queue_and_absolute_times_hold(space, clock):
    space.create_queue(queue_definition("SHORT", expiration=5))
    with space.transaction():
        fill(space, queue="SHORT")
        space.enqueue("SHORT", b"x" * MIB, expires_at=clock.moment(500))
        clock.advance(20)
    assert space.usage("SHORT").messages == MUCH + 1
    clock.advance(5)
    assert space.usage("SHORT").messages == 1


def test_priority_and_places_out_of_order_hold(space):
    space.create_queue(queue_definition("FREE", order="priority,fifo", out_of_order="top,msgid"))
    first = space.enqueue("FREE", "first")
    with space.transaction():
        fill(space, queue="FREE", priority=10)
        space.enqueue("FREE", "before", before=first)
        space.enqueue("FREE", "top", top=True)
        fill(space, queue="FREE", priority=90)
    order = [(message.text if message.size < MIB else message.priority) for message in space.browse("FREE")]
    assert order == ["top", *[90] * MUCH, "before", "first", *[10] * MUCH]


def test_everything_else_travels_with_it(space):
    with space.transaction():
        fill(space)
        msgid = space.enqueue(
            "OTHER",
            None,
            priority=7,
            corrid="c",
            reply_queue="R",
            failure_queue="F",
            error_queue="E",
            urcode=5,
            headers={"h": "\u00e9"},
            type="JSON",
            subtype="x",
        )
        space.enqueue("OTHER", b"")
        fill(space)
    message = space.dequeue("OTHER")
    assert (message.msgid, message.body, message.priority, message.corrid) == (msgid, None, 7, b"c")
    assert (message.reply_queue, message.failure_queue, message.error_queue) == ("R", "F", "E")
    assert (message.urcode, message.headers, message.type, message.subtype) == (5, {"h": "\u00e9"}, "JSON", "x")
    assert space.dequeue("OTHER").body == b""


def test_a_queue_for_which_something_is_spilled_is_not_destroyed(space):
    with space.transaction():
        fill(space)
        with pytest.raises(InUseError):
            space.destroy_queue("Q", force=True)
    assert space.usage("Q").messages == MUCH


def test_a_transaction_that_is_out_of_time_leaves_nothing(space, store, clock):
    transaction = space.transaction(timeout=5)
    with pytest.raises(Exception, match="timeout"), transaction:
        fill(space)
        clock.advance(6)
    assert store.device.space_usage("SPACE").pages == 0
    assert space.usage("Q").messages == 0


def test_a_transaction_that_others_gave_up_leaves_nothing_and_its_commit_is_refused(file_store, clock):
    opened = file_store.space(pages=19_000)
    make_queue(opened, "Q")
    with pytest.raises(Exception, match="rolled back"), opened.transaction(timeout=50):
        fill(opened)
        with file_store.another() as other:
            clock.advance(60)
            with other.open_space("SPACE") as seen:
                assert seen.usage("Q").messages == 0
                assert other.space_usage("SPACE").pages == 0
    assert opened.usage("Q").messages == 0


def test_nothing_is_left_in_the_tables_when_all_is_consumed(space):
    with space.transaction():
        fill(space)
        space.enqueue("OTHER", b"y" * (5 * MIB))
    with pytest.raises(ZeroDivisionError), space.transaction():
        fill(space)
        space.enqueue("OTHER", b"y" * (5 * MIB))
        _ = 1 / 0
    assert len(space.dequeue_many("Q", 100)) == MUCH
    assert space.dequeue("OTHER").body == b"y" * (5 * MIB)
    assert set(count_rows(space, "message", "chunk", "ready", "due", "expiring", "held", "trans")) == {0}


@pytest.fixture
def waiting_beside(space):
    """Let another thread enqueue in a transaction that is open until the test calls what it gets."""
    has_begun, may_end = threading.Event(), threading.Event()

    def transact():
        with space.transaction():
            space.enqueue("OTHER", "beside")
            has_begun.set()
            may_end.wait()

    thread = threading.Thread(target=transact)
    thread.start()
    has_begun.wait()

    def end():
        may_end.set()
        thread.join()

    yield end
    end()


@pytest.mark.parametrize("grouping", [False, True])
def test_messages_stand_in_their_order_whatever_numbers_others_have_left(space, waiting_beside, grouping):
    make_queue(space, "ORDERED", grouping=grouping)
    with space.transaction():
        space.enqueue("ORDERED", b"000")
        waiting_beside()
        space.enqueue("ORDERED", b"001" + bytes(SPILL_BYTES))
        space.enqueue_many("ORDERED", [b"%03d" % number for number in range(2, 33)])
    assert [text[:3] for text in drain(space, "ORDERED")] == [f"{number:03}" for number in range(33)]
