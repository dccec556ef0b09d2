"""A commit that has spilled: limits hold, capacity commands are told the right use, and figures are right."""

import pytest

from qmadmin import capacity
from qmcore.acts import commit, enqueue_in_transaction
from qmcore.errors import NoSpaceError
from qmcore.limits import Threshold, parse_high, parse_low
from tests.fix_store import drain, make_queue


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir, trusted):
    pass


@pytest.fixture
def started(monkeypatch):
    """The uses at which capacity commands would have been started."""
    events = []
    monkeypatch.setattr(capacity, "start", lambda event: events.append(event.value))
    return events


@pytest.fixture
def spills(monkeypatch):
    """Have messages spilled above so many bytes."""
    return lambda size: monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", size)


def threshold(high, low):
    upper = parse_high(high)
    return Threshold(upper, parse_low(low, upper), "notify")


def test_what_a_transaction_keeps_beside_what_it_has_spilled_holds_the_limit_of_messages(store, spills):
    spills(2000)
    space = store.space("SMALL", messages=10)
    make_queue(space)
    with pytest.raises(NoSpaceError), space.transaction() as transaction:
        space.enqueue("Q", b"x" * 3000)
        space.enqueue("Q", b"y")
        space.enqueue("Q", b"y")
        transaction.leave_context()
        space.enqueue_many("Q", [b"z"] * 9)
        transaction.join_context()
    assert drain(space) == ["z"] * 9


def test_what_a_transaction_has_spilled_itself_counts_for_the_next(store):
    """Though it was seen a moment before how full the queue space is."""
    space = store.space("LARGE", pages=8020, messages=5000)
    make_queue(space)
    make_queue(space, "IN")
    space.enqueue("IN", b"request")
    brought = []
    with pytest.raises(NoSpaceError), space.transaction():
        space.dequeue("IN")
        for number in range(20):
            space.enqueue("Q", bytes(5 << 20))
            brought.append(number)
    # Each takes 1281 pages.
    assert len(brought) == 6


def test_what_is_consumed_is_gone_before_a_capacity_limit_is_looked_at(store, spills, started):
    spills(600)
    space = store.space()
    make_queue(space, threshold=threshold("5m", "1m"))
    space.enqueue_many("Q", ["a", "b", "c"])
    with space.transaction():
        assert len(space.dequeue_many("Q", 3)) == 3
        for body in ("x", "y", "z"):
            space.enqueue("Q", body)
    assert not started
    assert drain(space) == ["x", "y", "z"]


def test_a_commit_that_empties_a_queue_and_fills_it_again_starts_its_command_again(store, started):
    space = store.space()
    make_queue(space, threshold=threshold("3m", "1m"))
    space.enqueue_many("Q", ["a", "b", "c"])
    assert started == [3]
    with space.transaction():
        assert len(space.dequeue_many("Q", 3)) == 3
        space.enqueue_many("Q", ["x", "y", "z"])
    assert started == [3, 3]


def test_the_most_messages_there_ever_were_are_not_more_than_that(store, spills):
    spills(1100)
    space = store.space()
    make_queue(space)
    make_queue(space, "R")
    space.enqueue_many("Q", ["a"] * 6)
    with space.transaction():
        assert len(space.dequeue_many("Q", 6)) == 6
        for body in (b"x", b"x", b"y" * 2000, b"z"):
            space.enqueue("R", body)
    assert store.device.space_usage("SPACE").highest.messages <= 10
    assert len(drain(space, "R")) == 4


def test_the_rule_of_a_commit_is_asked_of_what_was_taken_and_not_of_where_a_large_reply_goes(store, monkeypatch):
    space = store.space("LARGE", pages=8020)
    for name in ("Q", "R", "L"):
        make_queue(space, name)
    space.enqueue_many("Q", ["a", "b"])
    space.enqueue("L", "locked")
    asked, consumed_from = [], commit.consumed_from

    def asking(known, queue):
        asked.append(queue.name)
        return consumed_from(known, queue)

    monkeypatch.setattr(commit, "consumed_from", asking)
    for body in (b"small", bytes(9 << 20)):
        asked.clear()
        with space.transaction():
            space.dequeue("Q")
            space.enqueue("R", body)
            space.lock("L")
        assert sorted(asked) == ["L", "Q"]
