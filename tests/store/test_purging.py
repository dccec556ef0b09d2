"""Purging: messages are given up by condition or all of them, and those that a transaction holds stay."""

import pytest

from qmcore.acts import enqueue_in_transaction
from qmcore.errors import BadQueueError, InvalidArgumentError
from qmcore.message import EnqueueControl
from qmcore.queue import FOREVER, Delivery
from tests.fix_store import attachment_of, bodies_held, drain, make_queue, rows_of

MIB = 1024 * 1024


@pytest.fixture
def space(store, monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = store.space(memory=40_000_000, pages=15_000, messages=15_000)
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "OTHER")
    return opened


def rows(space):
    """Return how many rows there are in the tables of messages and of their states, on disk and in memory."""

    def count(unit):
        stores = (unit, unit.memory(attachment_of(space).opened.space.id))
        names = ("message", "chunk", "ready", "due", "expiring", "held")
        return sum(rows_of(each, name) for each in stores for name in names)

    return attachment_of(space).volume.read(count)


def test_all_go_from_disk_and_from_memory_ready_and_delayed(space, store):
    for persistent in (True, False):
        for how in ({}, {"delay": 5}, {"expires_in": 50}, {"delay": 5, "expires_in": 50}):
            space.enqueue("Q", "x", persistent=persistent, **how)
    space.enqueue("OTHER", "stays")
    assert space.purge("Q") == 8
    usage = space.usage("Q")
    assert (usage.messages, usage.discarded, usage.pages, usage.memory_pages, usage.size) == (0, 8, 0, 0, 0)
    assert drain(space, "OTHER") == ["stays"]
    assert rows(space) == 0
    assert store.device.space_usage("SPACE").memory == 0
    assert space.purge("Q") == 0


@pytest.mark.parametrize("persistent", [True, False])
def test_only_those_go_that_fulfil_the_condition(space, clock, persistent):
    for at in range(10):
        space.enqueue("Q", str(at), priority=at + 1, delay=at % 2 * 5, headers={"at": str(at)}, persistent=persistent)
    assert space.purge("Q", condition="priority IN (2, 3) OR header.at = '9'") == 3
    assert bodies_held(space) == (4, 3, 0)
    clock.advance(5)
    assert sorted(drain(space)) == ["0", "3", "4", "5", "6", "7", "8"]


def test_a_condition_sees_when_a_message_that_is_kept_back_comes(space, clock):
    make_queue(space, "SLOW", retries=3, retry_delay=100)
    space.enqueue("SLOW", "tried")
    space.enqueue("SLOW", "never tried", delay=50)
    with space.transaction() as transaction:
        space.dequeue("SLOW")
        transaction.rollback()
    until = clock.now() // 1_000_000 + 60
    assert space.purge("SLOW", condition=f"available_at > {until}") == 1
    assert [info.size for info in space.messages("SLOW")] == [len("never tried")]
    assert space.purge("SLOW", condition="retries > 0") == 0


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("spill_bytes", [1, 100_000])
def test_what_transactions_hold_lock_or_bring_stays(space, monkeypatch, persistent, spill_bytes):
    monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", spill_bytes)
    for text in ("held", "locked", "gone", "gone too"):
        space.enqueue("Q", text, persistent=persistent)
    with space.transaction() as transaction:
        assert space.dequeue("Q").text == "held"
        assert space.lock("Q").text == "locked"
        assert space.purge("Q") == 2
        assert bodies_held(space) == (0, 0, 2)
        transaction.rollback()
    assert drain(space) == ["held", "locked"]
    with space.transaction():
        space.enqueue("Q", "brought", persistent=persistent)
        assert space.purge("Q", condition="size > 0") == 0
    assert drain(space) == ["brought"]


def test_it_is_no_part_of_a_transaction(space):
    space.enqueue("Q", "x")
    with space.transaction() as transaction:
        assert space.purge("Q") == 1
        transaction.rollback()
    assert drain(space) == []


@pytest.mark.parametrize("persistent", [True, False])
def test_more_than_a_step_go_in_steps(space, persistent):
    delivery = Delivery.PERSIST if persistent else Delivery.NONPERSIST
    for delay in (None, 5_000_000):
        space.enqueue_many("Q", ["x"] * 1_600, EnqueueControl(delay=delay, delivery=delivery, lifetime=10**9))
        space.enqueue_many("Q", ["y"] * 50, EnqueueControl(delay=delay, delivery=delivery, priority=9))
    assert space.purge("Q", condition="priority > 10") == 3_200
    assert bodies_held(space) == (50, 50, 0)
    assert space.purge("Q") == 100
    assert rows(space) == 0


def test_large_bodies_go_with_their_messages(space, store):
    for persistent in (True, False):
        space.enqueue("Q", b"x" * (3 * MIB), persistent=persistent)
    assert space.purge("Q", condition=f"size > {MIB}") == 2
    assert rows(space) == 0
    assert store.device.space_usage("SPACE").pages == 0


def test_what_has_expired_before_counts_as_expired(space, clock):
    space.enqueue("Q", "expired", expires_in=5)
    space.enqueue("Q", "purged")
    clock.advance(5)
    assert space.purge("Q") == 1
    assert (space.usage("Q").expired, space.usage("Q").discarded) == (1, 1)


def test_the_record_of_consumed_messages_stays(space):
    make_queue(space, "KEPT", retention=FOREVER)
    for text in "ab":
        space.enqueue("KEPT", text)
    space.dequeue("KEPT")
    assert space.purge("KEPT", condition="size = 1") == 1
    assert [consumed.info.size for consumed in space.history("KEPT")] == [1]


def test_others_see_it_and_a_stopped_queue_can_be_purged(file_store):
    space = file_store.space()
    make_queue(space)
    other = file_store.another().open_space("SPACE")
    other.enqueue("Q", "x")
    space.stop_queue("Q")
    assert space.purge("Q") == 1
    assert other.usage("Q").messages == 0


@pytest.mark.parametrize(
    "condition", ["", "priority", "size > 'x'", "1 = 1; DELETE FROM message", "unknown = 1", 5, b"size > 9", ()]
)
def test_a_condition_that_is_none_purges_nothing(space, condition):
    space.enqueue("Q", "x")
    with pytest.raises(InvalidArgumentError):
        space.purge("Q", condition=condition)
    assert drain(space) == ["x"]


def test_a_queue_that_is_not_there_is_refused(space):
    with pytest.raises(BadQueueError):
        space.purge("NONE")


def test_whoever_asks_is_told_how_many_are_gone(space):
    space.enqueue_many("Q", [b"x"] * 2500)
    told = []
    assert space.purge("Q", progress=told.append) == 2500
    assert told == [1000, 2000, 2500]
