"""What goes in with a message comes out with it; what cannot go in is refused and leaves nothing behind."""

import array
import itertools
import math
import mmap
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qmcore.errors import BadQueueError, InvalidArgumentError, NoSpaceError, Resource
from qmcore.message import BODY_MAX, PLAIN_CONTROL, State
from tests.fix_store import drain, make_queue


def test_a_message_comes_out_as_it_went_in(space):
    msgid = space.enqueue("Q", b"this is a q example")
    message = space.dequeue("Q")
    assert message.msgid == msgid
    assert (message.body, message.size, message.queue) == (b"this is a q example", 19, "Q")
    assert space.dequeue("Q") is None


def test_everything_that_the_sender_says_travels_with_the_message(space, clock):
    msgid = space.enqueue(
        "Q",
        b"body",
        priority=77,
        corrid="order-17",
        expires_in=60,
        reply_queue="REPLIES",
        failure_queue="FAILURES",
        urcode=-42,
        headers={"trace": "ä/1", "empty": ""},
    )
    message = space.dequeue("Q")
    assert (message.msgid, message.priority, message.corrid) == (msgid, 77, b"order-17")
    assert (message.reply_queue, message.failure_queue, message.urcode) == ("REPLIES", "FAILURES", -42)
    assert message.headers == {"trace": "ä/1", "empty": ""}
    assert (message.enqueued_at, message.expires_at) == (clock.moment(), clock.moment(60))
    assert (message.retries, message.origin, message.available_at) == (0, None, None)


def test_what_the_sender_leaves_out_is_absent(space):
    space.enqueue("Q", b"")
    message = space.dequeue("Q")
    assert (message.priority, message.corrid, message.urcode) == (50, None, 0)
    assert (message.reply_queue, message.failure_queue, message.headers, message.expires_at) == (None, None, {}, None)


def test_no_body_is_not_the_same_as_an_empty_one(space):
    space.enqueue("Q", None)
    space.enqueue("Q", b"")
    absent, empty = space.dequeue("Q"), space.dequeue("Q")
    assert (absent.body, absent.size, absent.text) == (None, 0, "")
    assert (empty.body, empty.size, empty.text) == (b"", 0, "")


def test_a_str_is_kept_as_utf_8_and_of_type_string(space):
    space.enqueue("Q", "Grüße ☃\0")
    message = space.dequeue("Q")
    assert (message.body, message.text, message.type) == ("Grüße ☃\0".encode(), "Grüße ☃\0", "STRING")
    space.enqueue("Q", b"x")
    assert space.dequeue("Q").type == "CARRAY"


@pytest.mark.parametrize("body", [bytearray(b"abcd"), memoryview(b"abcd"), memoryview(b"aXbXcXdX")[::2]])
def test_every_bytes_like_body_is_taken(space, body):
    space.enqueue("Q", body)
    assert space.dequeue("Q").body == b"abcd"


def test_changing_a_buffer_afterwards_does_not_change_the_message(space):
    body = bytearray(b"before")
    with space.transaction():
        space.enqueue("Q", body)
        body[:] = b"after!"
    assert space.dequeue("Q").body == b"before"


PLAIN_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@pytest.mark.parametrize("wrong", [{"a": "x\0"}, {"a\0": "x"}, {"a": "\ud800"}, {"\ud800": "x"}])
def test_headers_that_not_every_store_can_keep_are_refused(space, wrong):
    with pytest.raises(InvalidArgumentError, match="header"):
        space.enqueue("Q", b"", headers=wrong)
    assert space.usage("Q").messages == 0


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    body=st.binary(max_size=10_000),
    corrid=st.binary(max_size=32),
    headers=st.dictionaries(PLAIN_TEXT, PLAIN_TEXT, max_size=5),
    priority=st.integers(1, 100),
    urcode=st.integers(-(2**63), 2**63 - 1),
)
def test_any_bytes_and_any_headers_come_through(space, body, corrid, headers, priority, urcode):
    space.enqueue("Q", body, corrid=corrid, headers=headers, priority=priority, urcode=urcode)
    message = space.dequeue("Q")
    assert message.body == body
    assert message.corrid == corrid.rstrip(b"\0")
    assert message.headers == headers
    assert (message.priority, message.urcode) == (priority, urcode)


@pytest.mark.parametrize("size", [2**16, 2**20, 2**20 + 1])
def test_large_bodies_come_through(store, size):
    space = store.space(pages=2_000)
    make_queue(space)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    space.enqueue("Q", body)
    with space.transaction():
        assert space.dequeue("Q").body == body
        space.enqueue("Q", body)
    assert space.dequeue("Q").body == body


def test_a_body_of_more_than_64_mib_is_refused(space):
    with pytest.raises(InvalidArgumentError, match="the limit is 67108864"):
        space.enqueue("Q", bytes(BODY_MAX + 1))
    assert space.usage("Q").enqueued == 0


@pytest.mark.parametrize("body", [{"x"}, object(), timedelta(1), 1j])
def test_a_body_that_is_neither_bytes_nor_json_is_refused(space, body):
    with pytest.raises(InvalidArgumentError, match="must be bytes, another buffer, str, None, a value of JSON"):
        space.enqueue("Q", body)
    assert space.usage("Q").enqueued == 0


@pytest.mark.matrix
@pytest.mark.parametrize(
    "wrong",
    [
        {"body": "\ud800"},
        {"corrid": "\ud800"},
        {"corrid": b"x" * 33},
        {"reply_queue": "\ud800"},
        {"reply_queue": ""},
        {"failure_queue": "x" * 128},
        {"priority": 0},
        {"priority": 101},
        {"priority": 50.5},
        {"urcode": 2**63},
        {"headers": {"a": 1}},
        {"headers": {1: "a"}},
        {"delay": -1},
        {"delay": float("inf")},
        {"delay": float("nan")},
        {"delay": 1e12},
        {"delay": 1e15},
        {"delay": timedelta(days=-1)},
        {"expires_in": -1},
        {"expires_in": float("nan")},
        {"expires_in": float("-inf")},
        {"expires_in": 1e12},
        {"expires_in": 1e15},
        {"delay": 1, "available_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"expires_in": 1, "expires_at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"available_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - it is what is refused
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - it is what is refused
    ],
    ids=repr,
)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a transaction"])
def test_what_makes_no_sense_is_refused_at_once_and_leaves_nothing(space, wrong, inside):
    arguments = {"body": b"x"} | wrong
    with pytest.raises(InvalidArgumentError):
        if inside:
            with space.transaction():
                space.enqueue("Q", **arguments)
        else:
            space.enqueue("Q", **arguments)
    assert space.usage("Q").enqueued == 0
    assert list(space.messages("Q")) == []


def test_a_refused_enqueue_does_not_spoil_its_transaction(space):
    with space.transaction():
        space.enqueue("Q", b"one")
        with pytest.raises(InvalidArgumentError):
            space.enqueue("Q", b"two", priority=0)
        with pytest.raises(BadQueueError):
            space.enqueue("NONE", b"three")
        space.enqueue("Q", b"four")
    assert drain(space) == ["one", "four"]


@pytest.mark.parametrize("name", ["NONE", "q", "", "Q ", "x" * 500, "\ud800"])
def test_a_queue_that_is_not_there_is_named(space, name):
    for act in (lambda: space.enqueue(name, b""), lambda: space.dequeue(name), lambda: space.usage(name)):
        with pytest.raises(BadQueueError) as refusal:
            act()
        assert "in queue space 'SPACE'" in refusal.value.message
        assert refusal.value.facts == {"queue": name, "space": "SPACE"}


def test_a_message_without_persistence_is_refused_where_there_is_no_memory_and_a_persistent_one_is_taken(space):
    space.enqueue("Q", b"", persistent=True)
    with pytest.raises(NoSpaceError) as caught:
        space.enqueue("Q", b"", persistent=False)
    assert (caught.value.resource, caught.value.limit) == (Resource.MEMORY, 0)
    assert space.usage("Q").enqueued == 1


def test_message_ids_are_never_used_twice(space):
    seen = set()
    for _ in range(5):
        seen |= {space.enqueue("Q", b"") for _ in range(10)}
        with space.transaction():
            seen |= {space.enqueue("Q", b"") for _ in range(10)}
        drain(space)
    assert len(seen) == 100
    assert {len(msgid) for msgid in seen} == {32}


def test_the_id_that_a_transaction_gives_out_is_the_one_that_the_message_has(space):
    with space.transaction():
        given_out = [space.enqueue("Q", str(at)) for at in range(20)]
    assert [message.msgid for message in space.messages("Q")] == given_out
    assert space.dequeue("Q", msgid=given_out[7]).text == "7"


def test_messages_are_listed_with_everything_but_their_bodies(space, clock):
    space.enqueue("Q", b"abc", priority=3, corrid="c", urcode=9, headers={"a": "b"}, expires_in=5)
    (info,) = space.messages("Q")
    assert (info.size, info.priority, info.corrid, info.urcode) == (3, 3, b"c", 9)
    assert (info.headers, info.state, info.expires_at) == ({"a": "b"}, State.READY, clock.moment(5))
    assert not hasattr(info, "body")
    assert space.usage("Q").messages == 1


def test_a_listing_may_be_left_at_any_message(space):
    for at in range(5):
        space.enqueue("Q", str(at))
    for _ in range(5):
        space.enqueue("Q", b"", delay=60)
    assert len(list(space.messages("Q"))) == 10
    assert [info.state for info in itertools.islice(space.messages("Q"), 3)] == [State.READY] * 3
    assert drain(space) == list("01234")


def test_a_listing_goes_on_over_what_happens_meanwhile(store):
    space = store.space(messages=5_000, pages=6_000)
    make_queue(space, retries=1)
    with space.transaction():
        given_out = [space.enqueue("Q", b"") for _ in range(2_500)]
    listing = space.messages("Q")
    seen = [next(listing).msgid]
    for _ in range(100):
        space.dequeue("Q")
    seen += [info.msgid for info in listing]
    assert seen[0] == given_out[0]
    assert set(seen) <= set(given_out)
    assert set(given_out[100:]) <= set(seen)


ASKED = {
    "priority": ({"priority": 99}, {"priority": 99}),
    "delay": ({"delay": 10}, {"available_at": 10}),
    "available_at": ({"available_at": 20}, {"available_at": 20}),
    "expires_in": ({"expires_in": 5}, {"expires_at": 5}),
    "expires_at": ({"expires_at": 7}, {"expires_at": 7}),
    "no expiry": ({"expires_in": math.inf}, {"expires_at": None}),
    "top": ({"top": True}, {}),
}


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize(("asked", "given"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("usual", [{}, {"corrid": "c"}], ids=["plain", "corrid"])
@pytest.mark.parametrize("expiration", [None, 60])
def test_what_one_message_asks_for_holds_for_none_before_or_behind(space, clock, expiration, usual, asked, given):
    def moment(value):
        return None if value is None else clock.moment(value)

    facts = {"priority": 50, "available_at": None, "expires_at": expiration}
    asked = {name: moment(value) if name.endswith("_at") else value for name, value in asked.items()}
    for queue, ways in (("ONE", (usual, asked, usual)), ("OTHER", (asked, usual, asked))):
        make_queue(space, queue, order="priority,fifo", out_of_order="top", expiration=expiration)
        msgids = [space.enqueue(queue, b"x", **way) for way in ways]
        infos = {info.msgid: info for info in space.messages(queue)}
        for msgid, way in zip(msgids, ways, strict=True):
            expected = facts | given if way is asked else facts
            assert infos[msgid].priority == expected["priority"]
            assert infos[msgid].available_at == moment(expected["available_at"])
            assert infos[msgid].expires_at == moment(expected["expires_at"])
        if {"priority", "top"} & asked.keys():
            assert ways[msgids.index(next(iter(infos)))] is asked


def test_a_message_stands_before_another_one_also_behind_such_as_ask_for_nothing(space):
    make_queue(space, "BEFORE", out_of_order="msgid")
    for text in "ac":
        msgid = space.enqueue("BEFORE", text)
    space.enqueue("BEFORE", "b", before=msgid)
    assert drain(space, "BEFORE") == ["a", "b", "c"]


class NumberOfNumpy:
    """What numpy.int64 is to others: a whole number that is not an int."""

    def __init__(self, value):
        self._value = value

    def __index__(self):
        return self._value

    __int__ = __index__

    def __float__(self):
        return float(self._value)


class NumberOfHalf:
    """What numpy.float32 is to others."""

    def __float__(self):
        return 0.5


class TestNumbersAndBuffersOfDataPrograms:
    def test_whole_numbers_of_other_types_are_taken_and_kept_as_int(self, space):
        seven = NumberOfNumpy(7)
        space.enqueue("Q", "x", priority=seven, urcode=seven, expires_in=seven)
        (message,) = space.dequeue_many("Q", NumberOfNumpy(3))
        assert (message.priority, message.urcode, type(message.priority)) == (7, 7, int)
        made = make_queue(space, "OTHER", retries=seven, retry_delay=seven).definition
        assert (made.retries, type(made.retries), made.retry_delay) == (7, int, 7)

    @pytest.mark.parametrize("body", [array.array("B", b"abcd"), array.array("i", [1, 2]), mmap.mmap(-1, 4)], ids=repr)
    def test_every_buffer_is_a_body(self, space, body):
        space.enqueue("Q", body)
        with space.transaction():
            space.enqueue("Q", body)
        assert [message.body for message in space.dequeue_many("Q", 9)] == [bytes(memoryview(body))] * 2

    def test_a_wait_may_be_a_timedelta(self, space):
        assert space.dequeue("Q", wait=timedelta(0)) is None
        assert space.dequeue("Q", wait=NumberOfNumpy(0)) is None
        with pytest.raises(InvalidArgumentError, match="or a timedelta"):
            space.dequeue("Q", wait=timedelta(seconds=-1))

    def test_other_numbers_are_spans(self, space, clock):
        space.enqueue("Q", "x", delay=NumberOfHalf())
        assert space.dequeue("Q") is None
        clock.advance(0.5)
        assert space.dequeue("Q").text == "x"

    @pytest.mark.parametrize(
        "control",
        [{"priority": "7"}, {"priority": 7.0}, {"priority": True}, {"delay": "7"}, {"urcode": NumberOfHalf()}],
    )
    def test_what_is_no_number_is_refused(self, space, control):
        with pytest.raises(InvalidArgumentError):
            space.enqueue("Q", "x", **control)
        assert space.usage("Q").messages == 0


def test_a_text_that_passes_as_a_body_is_its_utf_8(space):
    space.put("Q", "grün", PLAIN_CONTROL)
    assert space.dequeue("Q").body == "grün".encode()
    with pytest.raises(InvalidArgumentError, match="the body has no UTF-8 form"):
        space.put("Q", "\ud800", PLAIN_CONTROL)
    assert space.usage("Q").messages == 0
