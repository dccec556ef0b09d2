"""Each limit of a queue space: it is reached exactly, refused with its numbers, and free again afterwards."""

import pytest

from qmcore.errors import NoSpaceError, Resource, SystemFailureError
from tests.fix_store import Work, attachment_of, drain, eventually, make_queue
from tests.store.differences import differs


def refused(act):
    with pytest.raises(NoSpaceError) as refusal:
        act()
    error = refusal.value
    assert f"{error.used} of {error.limit} {error.resource.value} in use" in error.message
    return error.resource, error.used, error.limit, error.facts["wanted"]


def test_messages(store):
    space = store.space(messages=3)
    make_queue(space)
    make_queue(space, "OTHER")
    for name in ("Q", "OTHER", "Q"):
        space.enqueue(name, b"")
    assert refused(lambda: space.enqueue("Q", b"")) == (Resource.MESSAGES, 3, 3, 1)
    assert space.usage("Q").enqueued == 2
    space.dequeue("OTHER")
    space.enqueue("Q", b"")


def test_held_and_delayed_messages_count(store):
    space = store.space(messages=3)
    make_queue(space, retries=1)
    space.enqueue("Q", b"")
    space.enqueue("Q", b"", delay=60)
    with space.transaction():
        space.dequeue("Q")
        space.enqueue("Q", b"", transactional=False)
        assert refused(lambda: space.enqueue("Q", b"", transactional=False)) == (Resource.MESSAGES, 3, 3, 1)
    space.enqueue("Q", b"")


def test_messages_of_a_transaction(store):
    space = store.space(messages=5)
    make_queue(space)
    space.enqueue("Q", b"")
    with space.transaction():
        for _ in range(4):
            space.enqueue("Q", b"")
        assert refused(lambda: space.enqueue("Q", b""))[:3:2] == (Resource.MESSAGES, 5)
    assert len(drain(space)) == 5


def test_pages(store):
    space = store.space(pages=31, queues=20)
    make_queue(space)
    capacity = 28 - 21
    space.enqueue("Q", bytes(3 * 4096))
    assert store.device.space_usage("SPACE").pages == 4
    assert refused(lambda: space.enqueue("Q", bytes(3 * 4096))) == (Resource.PAGES, 4, capacity, 4)
    space.enqueue("Q", bytes(3 * 4096 - 256))
    assert refused(lambda: space.enqueue("Q", b"")) == (Resource.PAGES, 7, capacity, 1)
    space.dequeue("Q")
    space.enqueue("Q", b"")
    assert store.device.space_usage("SPACE").pages == 4


def test_a_message_that_can_never_fit_is_refused_as_any_other(store):
    space = store.space(pages=31, queues=20)
    make_queue(space)
    assert refused(lambda: space.enqueue("Q", bytes(100 * 4096))) == (Resource.PAGES, 0, 7, 101)


def test_queues(store):
    space = store.space(queues=3)
    for name in "ABC":
        make_queue(space, name)
    assert refused(lambda: make_queue(space, "D")) == (Resource.QUEUES, 3, 3, 1)
    space.destroy_queue("B")
    make_queue(space, "D")
    assert [queue.name for queue in space.queues()] == ["A", "C", "D"]


def test_transactions_that_hold_messages(store):
    space = store.space(transactions=2)
    make_queue(space, retries=9)
    for _ in range(4):
        space.enqueue("Q", b"")

    def hold():
        transaction = space.transaction()
        transaction.join_context()
        try:
            space.dequeue("Q")
        except NoSpaceError:
            transaction.rollback()
            raise
        return transaction

    first = hold()
    first.leave_context()
    second = hold()
    second.leave_context()
    assert store.device.space_usage("SPACE").transactions == 2
    third = space.transaction()
    with third:
        assert refused(lambda: space.dequeue("Q")) == (Resource.TRANSACTIONS, 2, 2, 1)
        space.enqueue("Q", b"one that only enqueues needs no place")
    first.commit()
    hold().commit()
    second.rollback()
    assert store.device.space_usage("SPACE").transactions == 0
    assert space.usage("Q").messages == 3


def test_processes(file_store):
    space = file_store.space(processes=2)
    again = file_store.device.open_space("SPACE")
    assert file_store.device.space_usage("SPACE").processes == 1, "a process is attached once, however often it opens"
    second = file_store.another().open_space("SPACE")
    third = file_store.another()
    assert refused(lambda: third.open_space("SPACE")) == (Resource.PROCESSES, 2, 2, 1)
    second.close()
    third.open_space("SPACE")
    again.close()
    space.close()
    assert file_store.device.space_usage("SPACE").processes == 1


def test_an_administrator_is_let_in_where_all_places_are_taken(file_store):
    application = file_store.space(processes=1)
    administrator = file_store.another().open_space("SPACE", role="qmadmin")
    assert file_store.device.space_usage("SPACE").processes == 2
    third = file_store.another()
    for role in ("qmadmin", "MIB", "application"):
        assert refused(lambda role=role: third.open_space("SPACE", role=role)) == (Resource.PROCESSES, 1, 1, 1)
    application.close()
    third.open_space("SPACE")
    administrator.close()
    file_store.another().open_space("SPACE", role="MIB")


def test_a_refused_attachment_leaves_no_file(file_store):
    from pathlib import Path

    file_store.space(processes=1)
    before = sorted(Path(file_store.path + "-run").iterdir())
    refused(lambda: file_store.another().open_space("SPACE"))
    assert sorted(Path(file_store.path + "-run").iterdir()) == before


def test_device_pages(store):
    taken = store.device.free_ranges(0)[0].pages
    assert refused(lambda: store.space("BIG", pages=taken + 4))[0] is Resource.PAGES
    assert store.device.spaces() == []
    store.space("BIG", pages=taken)
    assert store.device.free_ranges(0)[0].pages == taken % 4


def test_limits_hold_when_many_threads_run_into_them(store):
    space = store.space(messages=50)
    make_queue(space)

    def fill():
        taken = 0
        while True:
            try:
                space.enqueue("Q", b"")
            except NoSpaceError:
                return taken
            taken += 1

    taken = sum(Work(*[fill] * 8).results())
    assert taken in (range(50, 50 + 7 + 1) if differs(store, "limits") else [50])
    assert space.usage("Q").messages == taken


def test_actions_are_waits_beyond_the_first_of_a_process(store):
    space = store.space(actions=1)
    make_queue(space)
    waiters = Work(*[lambda: space.dequeue("Q", wait=60)] * 2)
    eventually(lambda: store.device.space_usage("SPACE").actions == 1, "two waits")
    with pytest.raises(SystemFailureError, match="1 of 1 actions in use") as refusal:
        space.dequeue("Q", wait=60)
    assert (refusal.value.facts["resource"], refusal.value.facts["used"]) == (Resource.ACTIONS, 1)
    assert space.dequeue("Q") is None, "what does not wait takes no action"
    with pytest.raises(SystemFailureError):
        space.listen(["Q"], wait=60)
    space.enqueue_many("Q", [b"1", b"2"])
    assert sorted(message.body for message in waiters.results()) == [b"1", b"2"]
    assert store.device.space_usage("SPACE").actions == 0


def test_a_process_may_wait_once_without_any_action(store):
    space = store.space(actions=0)
    make_queue(space)
    waiter = Work(lambda: space.dequeue("Q", wait=60))
    volume = attachment_of(space).volume
    eventually(
        lambda: volume.read(lambda unit: sum(unit.waits.of_space(attachment_of(space).opened.space.id).values())) == 1,
        "a wait",
    )
    with pytest.raises(SystemFailureError, match="0 of 0 actions"):
        space.dequeue("Q", wait=60)
    space.enqueue("Q", b"1")
    assert waiter.results()[0].body == b"1"


def test_a_transaction_that_is_refused_a_wait_goes_on(store):
    space = store.space(actions=0)
    make_queue(space)
    make_queue(space, "OTHER")
    waiter = Work(lambda: space.dequeue("Q", wait=60))
    volume = attachment_of(space).volume
    eventually(
        lambda: volume.read(lambda unit: sum(unit.waits.of_space(attachment_of(space).opened.space.id).values())) == 1,
        "a wait",
    )
    with space.transaction():
        space.enqueue("OTHER", b"goes on")
        with pytest.raises(SystemFailureError):
            space.dequeue("OTHER", wait=60)
    assert space.dequeue("OTHER").body == b"goes on"
    space.enqueue("Q", b"1")
    waiter.results()
