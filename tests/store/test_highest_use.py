"""How much of each limit of a queue space was in use at most at one time."""

import contextlib
import dataclasses

import pytest

from qmcore.errors import NoSpaceError
from tests.fix_store import Work, attachment_of, eventually, make_queue, space_definition

PAGE = 4096


@pytest.fixture
def space(store):
    opened = store.space(messages=100, error_queue="ERRORS")
    for name in ("Q", "R", "ERRORS"):
        make_queue(opened, name)
    return opened


def highest(store):
    return store.device.space_usage("SPACE").highest


def waits(space):
    attachment = attachment_of(space)
    return attachment.volume.read(lambda unit: sum(unit.waits.of_space(attachment.opened.space.id).values()))


def one_by_one(space):
    for _ in range(5):
        space.enqueue("Q", b"x")


def together(space):
    space.enqueue_many("Q", [b"x"] * 5)


def in_a_transaction(space):
    with space.transaction():
        space.enqueue_many("Q", [b"x"] * 4)
        space.enqueue("R", b"x")


def delayed_or_large(space):
    for _ in range(4):
        space.enqueue("R", b"x", delay=100)
    space.enqueue("Q", bytes(1_100_000))


def with_options(space):
    for _ in range(5):
        space.enqueue("Q", b"x", expires_in=1000, priority=3, headers={"a": "b"})


def dequeued(space):
    while space.dequeue("Q"):
        pass
    space.purge("R")


def dequeued_together(space):
    space.dequeue_many("Q", 100)
    space.purge("R")


def consumed_in_transactions(space):
    with space.transaction():
        while space.dequeue("Q"):
            pass
    space.purge("R")


def purged(space):
    space.purge("Q")
    space.purge("R")


def destroyed(space):
    for name in ("Q", "R"):
        space.destroy_queue(name, purge=True)
    for name in ("Q", "R"):
        make_queue(space, name)


@pytest.mark.matrix(together=2)
@pytest.mark.parametrize("arrive", [one_by_one, together, in_a_transaction, delayed_or_large, with_options])
@pytest.mark.parametrize("leave", [dequeued, dequeued_together, consumed_in_transactions, purged, destroyed])
def test_messages_by_each_way_in_and_out(store, space, arrive, leave):
    arrive(space)
    assert highest(store).messages == 5, "what there is counts"
    leave(space)
    assert (store.device.space_usage("SPACE").messages, highest(store).messages) == (0, 5)
    space.enqueue_many("Q", [b"x"] * 4)
    leave(space)
    assert highest(store).messages == 5
    space.enqueue_many("R", [b"x"] * 6)
    space.purge("R")
    assert highest(store).messages == 6


def test_messages_of_several_processes_are_counted_together(shared_store):
    space = shared_store.space()
    make_queue(space)
    other = shared_store.another().open_space("SPACE")
    for opened, bodies in ((space, 2), (other, 3), (space, 1)):
        opened.enqueue("Q", b"x", delay=100)
        opened.enqueue_many("Q", [b"x"] * bodies)
    other.purge("Q")
    assert (shared_store.device.space_usage("SPACE").messages, highest(shared_store).messages) == (0, 9)


def test_a_message_that_is_answered_or_moved_is_one(store, space):
    space.enqueue_many("Q", [b"x"] * 2)
    with space.transaction():
        space.enqueue("R", space.dequeue("Q").body)
    with space.transaction():
        space.enqueue_many("R", [space.dequeue("Q").body])
    assert space.move("R", "Q") == 2
    with contextlib.suppress(ZeroDivisionError), space.transaction():
        space.dequeue("Q")
        raise ZeroDivisionError
    assert [space.usage(name).messages for name in ("Q", "R", "ERRORS")] == [1, 0, 1]
    space.purge("Q")
    assert highest(store).messages == 2


def test_what_is_refused_or_undone_does_not_count(store, space):
    space.enqueue_many("Q", [b"x"] * 99)
    for refused in ([b"x"] * 2, [b"x"] * 500):
        with pytest.raises(NoSpaceError):
            space.enqueue_many("Q", refused)
    with contextlib.suppress(ZeroDivisionError), space.transaction():
        space.enqueue("Q", b"x")
        raise ZeroDivisionError
    space.purge("Q")
    assert highest(store).messages == 99


def hold(space):
    transaction = space.transaction()
    transaction.join_context()
    assert space.dequeue("Q")
    transaction.leave_context()
    return transaction


def test_transactions(store, space):
    space.enqueue_many("Q", [b"x"] * 20)
    for together in (1, 1, 3, 2, 1, 3):
        for transaction in [hold(space) for _ in range(together)]:
            transaction.commit()
    assert (store.device.space_usage("SPACE").transactions, highest(store).transactions) == (0, 3)


def test_transactions_of_a_process_that_has_known_less(shared_store):
    space = shared_store.space()
    make_queue(space)
    space.enqueue_many("Q", [b"x"] * 20)
    other = shared_store.another().open_space("SPACE")
    hold(other).commit()
    for transaction in [hold(space) for _ in range(3)]:
        transaction.commit()
    for most, count in ((3, 2), (3, 3), (4, 4)):
        for transaction in [hold(other) for _ in range(count)]:
            transaction.rollback()
        assert highest(shared_store).transactions == most
    hold(space).commit()
    assert highest(shared_store).transactions == 4


def test_a_transaction_that_is_refused_does_not_count(store):
    space = store.space(transactions=2)
    make_queue(space)
    space.enqueue_many("Q", [b"x"] * 3)
    held = [hold(space) for _ in range(2)]
    with pytest.raises(NoSpaceError), space.transaction():
        space.dequeue("Q")
    for transaction in held:
        transaction.commit()
    assert highest(store).transactions == 2


def test_processes(shared_store):
    space = shared_store.space()
    others = [shared_store.another().open_space("SPACE") for _ in range(2)]
    assert highest(shared_store).processes == 3
    for opened in (*others, space):
        opened.close()
    shared_store.another().open_space("SPACE")
    assert (shared_store.device.space_usage("SPACE").processes, highest(shared_store).processes) == (1, 3)


def test_queues(store, space):
    make_queue(space, "ONE MORE")
    for name in ("ONE MORE", "R"):
        space.destroy_queue(name)
    make_queue(space, "R")
    assert (store.device.space_usage("SPACE").queues, highest(store).queues) == (3, 4)


def test_actions(store, space):
    waiting = []
    for at in range(3):
        waiting.append(Work(lambda: space.dequeue("Q", wait=60)))
        eventually(lambda at=at: waits(space) == at + 1, "one more waits")
    assert store.device.space_usage("SPACE").actions == 2
    space.enqueue_many("Q", [b"x"] * 3)
    assert all(message for work in waiting for message in work.results())
    assert (store.device.space_usage("SPACE").actions, highest(store).actions) == (0, 2)


def all_used(space):
    space.enqueue_many("Q", [b"x"] * 3)
    for transaction in [hold(space) for _ in range(2)]:
        transaction.commit()
    space.dequeue("Q")


def test_it_stays_when_nobody_is_attached_and_through_changes_of_the_limits(shared_store):
    space = shared_store.space()
    make_queue(space)
    all_used(space)
    space.close()
    shared_store.device.change_space(space_definition("SPACE", transactions=50))
    found = shared_store.another().space_usage("SPACE").highest
    assert dataclasses.asdict(found) == {
        "messages": 3, "transactions": 2, "processes": 1, "queues": 1, "actions": 0,
    }  # fmt: skip


@pytest.mark.parametrize("memory", [0, 100 * PAGE])
def test_cleaning_begins_it_again_also_for_those_that_are_attached(store, memory):
    space = store.space(memory=memory)
    make_queue(space)
    all_used(space)
    if memory:
        for _ in range(4):
            space.enqueue("Q", b"x", persistent=False)
        assert highest(store).messages == 4
    space.enqueue("Q", b"x")
    store.device.clear_memory("SPACE", force=True)
    found = highest(store)
    assert (found.messages, found.transactions, found.processes, found.queues) == (1, 0, 1, 1)
    hold(space).commit()
    space.enqueue_many("Q", [b"x"] * 2)
    space.purge("Q")
    assert (highest(store).messages, highest(store).transactions) == (2, 1)


def test_another_queue_space_under_the_same_number_has_its_own(store):
    space = store.space()
    make_queue(space)
    all_used(space)
    store.device.destroy_space("SPACE", force=True)
    store.space()
    assert dataclasses.asdict(highest(store)) == {
        "messages": 0, "transactions": 0, "processes": 1, "queues": 0, "actions": 0,
    }  # fmt: skip


class TestWithMemory:
    @pytest.fixture
    def space(self, store):
        opened = store.space(memory=100 * PAGE)
        make_queue(opened)
        return opened

    def bring(self, space, count, *, persistent):
        for _ in range(count):
            space.enqueue("Q", b"x", persistent=persistent)

    def test_each_kind_is_exact(self, store, space):
        for count, persistent in ((3, True), (5, False)):
            self.bring(space, count, persistent=persistent)
            assert len(space.dequeue_many("Q", 10)) == count
            assert highest(store).messages == count

    def test_both_together_are_what_a_look_has_found(self, store, space):
        self.bring(space, 3, persistent=True)
        self.bring(space, 4, persistent=False)
        assert highest(store).messages == 7
        attachment_of(space).do_housekeeping(now=True)
        space.dequeue_many("Q", 10)
        assert (store.device.space_usage("SPACE").messages, highest(store).messages) == (0, 7)

    def test_a_change_of_the_memory_forgets_nothing(self, store, space):
        self.bring(space, 4, persistent=False)
        store.device.change_space(space_definition("SPACE", memory=50 * PAGE))
        assert (store.device.space_usage("SPACE").messages, highest(store).messages) == (0, 4)
