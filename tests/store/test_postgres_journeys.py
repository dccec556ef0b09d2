"""Journeys to PostgreSQL: what most calls ask for takes one or two, and nothing else of them is another."""

import contextlib
import threading

import pytest

from qmadmin.opening import open_device
from qmcore.errors import BadQueueError, NoSpaceError
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import EnqueueControl
from qmcore.order import QueueOrder
from tests.fix_store import Work, eventually, make_queue, waiting_for
from tests.fix_storm import session_of

ORDERS = ("fifo", "lifo", "priority", "priority,lifo", "time,fifo", "expiration", "expiration,priority,time,lifo")


@pytest.fixture
def space(known_space):
    return known_space


def test_an_enqueue_is_one_journey_and_a_dequeue_two(space, journeys):
    space.enqueue("Q", bytes(1024), headers={"a": "b"}, corrid="c", expires_in=100)
    assert len(journeys) == 1
    journeys.clear()
    assert space.dequeue("Q").size == 1024
    assert len(journeys) == 2


def test_messages_that_come_together_are_two_journeys(space, journeys):
    space.enqueue_many("Q", [b"x"] * 3)
    assert len(journeys) == 2


def test_messages_that_go_together_are_two_journeys_in_their_order_whatever_expires(space, arena, journeys, clock):
    sent = [
        EnqueueControl(priority=priority, lifetime=lifetime) for priority in (1, 9, 5) for lifetime in (None, 10**9)
    ]
    make_queue(space, "ORDERED", order="priority")
    space.put_many([("ORDERED", b"x", control) for control in sent])
    space.dequeue("ORDERED")
    journeys.clear()
    assert [message.priority for message in space.dequeue_many("ORDERED", 4)] == [9, 5, 5, 1]
    assert [message.priority for message in space.dequeue_many("ORDERED", 4)] == [1]
    assert space.dequeue_many("ORDERED", 4) == []
    assert len(journeys) == 6
    assert arena.sql("SELECT count(*) FROM qm.expiring") == [(0,)]
    arena.check_counters()
    assert space.usage("ORDERED").dequeued == 6


def test_somebody_who_waits_is_told_in_a_second_journey_and_from_then_on_in_the_same(space, arena, journeys):
    with contextlib.closing(open_device(arena.url)) as device:
        elsewhere = device.open_space("SPACE")
        waiting = Work(lambda: elsewhere.dequeue("Q", wait=30, corrid=b"never"))
        eventually(lambda: waiting_for(arena.url) == 1, "a wait is recorded")
        counts = [count_of(journeys, lambda: space.enqueue("Q", b"x")) for _ in range(3)]
        space.enqueue("Q", b"x", corrid=b"never")
        waiting.results()
    counts += [count_of(journeys, lambda: space.enqueue("Q", b"x")) for _ in range(2)]
    assert counts == [2, 1, 1, 1, 1]
    assert not session_of(arena.volume).awaited


def test_a_look_at_all_queues_takes_as_many_journeys_however_many_there_are(space, journeys):
    def look():
        return count_of(journeys, space.usages)

    make_queue(space, "LAST", order="priority,lifo")
    space.enqueue("LAST", b"x")
    space.usages()
    few = look()
    for number in range(12):
        make_queue(space, f"MORE{number}", order=("fifo", "priority,fifo", "lifo", "priority,lifo")[number % 4])
        space.put_many([(f"MORE{number}", b"x", EnqueueControl(priority=priority)) for priority in (50, 7)])
    space.usages()
    assert look() == few


def count_of(journeys, act):
    """Return how many journeys of this thread an act takes."""
    before = len(journeys)
    act()
    return journeys[before:].count(threading.get_ident())


@pytest.mark.parametrize(("messages", "count"), [(100, 4), (5000, 3)])
def test_a_transaction_that_answers_a_message_is_three_journeys_and_another_where_room_is_short(
    arena, journeys, messages, count
):
    """Two for the message, which must be seen before it is held, one for the commit, one to see that there is room."""
    space = arena.space(messages=messages, pages=10_000)
    for name in ("Q", "R"):
        make_queue(space, name)
    space.enqueue_many("Q", [b"x"] * 3)
    for _ in range(2):
        with space.transaction():
            space.enqueue("R", space.dequeue("Q").body)
    journeys.clear()
    with space.transaction():
        space.enqueue("R", space.dequeue("Q").body)
    assert len(journeys) == count


def test_a_dequeue_from_an_empty_queue_is_two_journeys_alone_and_in_a_transaction(space, journeys):
    assert space.dequeue("Q") is None
    assert len(journeys) == 2
    journeys.clear()
    with space.transaction():
        assert space.dequeue("Q") is None
        assert len(journeys) == 2


@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_only_seems_to_be_an_empty_queue_is_seen_to(space, journeys, clock, in_transaction):
    def dequeued():
        with space.transaction() if in_transaction else contextlib.nullcontext():
            return space.dequeue("Q")

    space.enqueue("Q", bytes(2_000_000))
    assert dequeued().size == 2_000_000
    space.enqueue("Q", b"later", delay=10)
    journeys.clear()
    assert dequeued() is None
    assert len(journeys) == 2
    clock.advance(11)
    assert dequeued().body == b"later"
    assert len(journeys) > 4
    space.enqueue("Q", b"expires", expires_in=10)
    clock.advance(11)
    assert dequeued() is None
    assert space.usage("Q").expired == 1
    space.destroy_queue("Q")
    with pytest.raises(BadQueueError):
        dequeued()


def test_a_message_that_comes_alone_is_as_those_that_come_together(space, clock):
    control = EnqueueControl(
        corrid=b"\0c\xff", priority=3, urcode=-(2**31), appkey=2**31 - 1, reply_queue="R", failure_queue="F",
        error_queue="E", client_id="me", type="STRING", subtype="s", headers={"a": "\u20ac"}, lifetime=10**9,
        available_us=clock.now() - 5,
    )  # fmt: skip
    for body in (b"", b"body", None, bytearray(b"\0\xff"), memoryview(b"view")):
        space.put("Q", body, control)
        space.put_many([("Q", body, control)] * 2)
        plain, other, last = (space.dequeue("Q") for _ in range(3))
        assert plain.body == (None if body is None else bytes(body))
        known = {"msgid": None, "body": None}
        for message in (other, last):
            assert {**facts(message), **known} == {**facts(plain), **known}


def facts(message):
    return {name: getattr(message, name) for kind in type(message).__mro__ for name in getattr(kind, "__slots__", ())}


@pytest.mark.parametrize("order", ORDERS)
def test_the_server_makes_the_order_key_that_the_order_says(space, arena, journeys, order):
    make_queue(space, "ORDERED", order=order)
    space.enqueue("ORDERED", b"x")
    journeys.clear()
    for priority, lifetime in ((1, 10**9), (100, None), (50, 5 * 10**9)):
        space.put("ORDERED", b"x", EnqueueControl(priority=priority, lifetime=lifetime))
    assert len(journeys) == 3
    told = "SELECT order_key, priority, enqueued_at, expires_at, id FROM qm.message"
    for key, priority, enqueued, expires, number in arena.sql(told):
        fields = {"priority": priority, "available_at": enqueued, "expires_at": expires}
        assert bytes(key) == QueueOrder.parse(order).key(**fields, sequence=number & (2**48 - 1))


def test_what_a_queue_counts_is_what_is_there(space, arena):
    for at in range(7):
        space.enqueue("Q", bytes(at * 1000))
    for _ in range(3):
        space.dequeue("Q")
    arena.check_counters()
    usage = space.usage("Q")
    assert (usage.messages, usage.enqueued, usage.dequeued, usage.size) == (4, 9, 5, 3000 + 4000 + 5000 + 6000)


def test_the_last_message_that_has_room_is_taken_and_the_next_one_refused_with_the_limit(space, journeys):
    for _ in range(100):
        space.enqueue("Q", b"x")
    assert len(journeys) == 100
    with pytest.raises(NoSpaceError) as caught:
        space.enqueue("Q", b"x")
    assert (caught.value.facts["used"], caught.value.facts["limit"], caught.value.facts["wanted"]) == (100, 100, 1)
    assert space.usage("Q").messages == 100


def test_what_another_process_has_changed_holds_at_once(space, arena):
    space.enqueue("Q", b"x")
    with contextlib.closing(open_device(arena.url)) as device:
        device.open_space("SPACE").stop_queue("Q", enqueue=True, dequeue=True)
    with pytest.raises(BadQueueError, match="is stopped for enqueuing"):
        space.enqueue("Q", b"y")
    with pytest.raises(BadQueueError, match="is stopped for dequeuing"):
        space.dequeue("Q")
    assert space.usage("Q").messages == 1


def test_what_is_due_or_has_expired_is_seen_to_before_a_message_is_taken(space, clock):
    space.enqueue("Q", "late", delay=10)
    space.enqueue("Q", "short", expires_in=5)
    space.enqueue("Q", "last")
    clock.advance(20)
    assert [space.dequeue("Q").text for _ in range(2)] == ["late", "last"]
    assert space.dequeue("Q") is None
    assert space.usage("Q").expired == 1


def test_a_body_that_is_kept_apart_keeps_its_place(space):
    bodies = [b"1", bytes(3_000_000), b"3"]
    for body in bodies:
        space.enqueue("Q", body)
    assert [space.dequeue("Q").body for _ in bodies] == bodies


def test_nothing_is_left_of_several_of_which_one_has_its_body_kept_apart(space, arena):
    bodies = [b"1", bytes(3_000_000), b"3", b"4"]
    for body in bodies:
        space.enqueue("Q", body, expires_in=100)
    assert [message.body for message in space.dequeue_many("Q", 3)] == bodies[:3]
    assert [message.body for message in space.dequeue_many("Q", 3)] == bodies[3:]
    assert arena.sql("SELECT (SELECT count(*) FROM qm.chunk) + (SELECT count(*) FROM qm.expiring)") == [(0,)]
    arena.check_counters()


def test_what_was_tried_before_says_so_where_several_go(space):
    for body in (b"1", b"2"):
        space.enqueue("Q", body)
    with space.transaction() as transaction:
        space.dequeue("Q")
        transaction.rollback()
    assert [(message.body, message.retries) for message in space.dequeue_many("Q", 9)] == [(b"1", 1), (b"2", 0)]


HIGH = parse_high("10m")
QUEUES = {
    "groups": ({"grouping": True}, 6),
    "retains": ({"retention": 10}, 2),
    "has a command": ({"threshold": Threshold(HIGH, parse_low("1m", HIGH), "true")}, 4),
    "has memory beside it": ({}, 8),
    "is plain": ({}, 2),
}


@pytest.mark.parametrize("kind", QUEUES)
def test_a_queue_that_asks_for_more_takes_more_journeys(arena, journeys, kind):
    attributes, count = QUEUES[kind]
    space = arena.space(memory=1_000_000 if kind == "has memory beside it" else 0)
    make_queue(space, "Q", **attributes)
    space.enqueue_many("Q", [b"x"] * 3)
    assert space.dequeue("Q").body == b"x"
    journeys.clear()
    assert space.dequeue("Q").body == b"x"
    assert len(journeys) <= count


@pytest.mark.parametrize(("how", "count"), [({"corrid": "c"}, 6), ({"condition": "priority > 1"}, 6), (None, 2)])
def test_a_message_that_is_asked_for_by_something_is_looked_for_before(space, journeys, how, count):
    for text in ("x", "y"):
        space.enqueue("Q", text, corrid="c")
    for text in ("x", "y"):
        journeys.clear()
        if how is None:
            assert space.remove("Q").size == 1
        else:
            assert space.dequeue("Q", **how).text == text
    assert len(journeys) <= count
