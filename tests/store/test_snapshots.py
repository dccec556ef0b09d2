"""A snapshot has the non-persistent messages too where it is asked for them, and tells what a queue space is like."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from qmcore.acts import enqueue_in_transaction
from qmcore.bulk_rows import BODY, Run, Tally
from qmcore.errors import OperatingSystemError, SystemFailureError
from qmcore.message import State
from qmcore.queue import FOREVER, Delivery
from qmcore.records import Outcome
from tests.fix_store import Store, attachment_of, device_path, make_queue
from tests.space_summary import summary

PAGE = 4096
PERSIST, NONPERSIST = Delivery.PERSIST, Delivery.NONPERSIST


@pytest.fixture(autouse=True)
def memory_here(monkeypatch, tmp_path):
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))


@pytest.fixture
def space(shared_store):
    opened = shared_store.space(error_queue="ERRORS", pages=5_000, memory=2_000 * PAGE)
    for name, definition in {
        "Q": {"retries": 9},
        "KEPT": {"retention": FOREVER, "grouping": True},
        "ERRORS": {},
    }.items():
        make_queue(opened, name, **definition)
    return opened


def volume_of(space):
    return attachment_of(space).volume


def bodies(unit, known, queue, *, memory):
    """Return what a queue has ready in a unit, on disk or in memory; None where the unit knows no memory."""
    store = unit.memory(known.id) if memory else unit
    if store is None:
        return None
    run = Run(queue.name, State.READY, memory, None, None, 0)
    return [row[BODY] for batch in store.bulk_read.rows(known, queue, run) for row in batch]


def in_snapshot(space, snapshot, name="Q", *, memory=True):
    known, queue = attachment_of(space).opened.space, space.queue(name)
    return snapshot.read(lambda unit: bodies(unit, known, queue, memory=memory))


def test_a_snapshot_has_the_nonpersistent_messages_of_its_moment(space):
    space.enqueue("Q", b"in memory", persistent=False)
    space.enqueue("Q", b"on disk")
    with volume_of(space).snapshot(memory=["SPACE", "NO_SUCH"]) as snapshot:
        space.enqueue("Q", b"later", persistent=False)
        space.dequeue("Q")
        assert in_snapshot(space, snapshot) == [b"in memory"]
        assert in_snapshot(space, snapshot, memory=False) == [b"on disk"]
    assert (
        space.dequeue_many(
            "Q",
            9,
        )
        != []
    )


def test_a_snapshot_has_no_memory_that_it_is_not_asked_for(space):
    space.enqueue("Q", b"in memory", persistent=False)
    for named in ([], ["OTHER"]):
        with volume_of(space).snapshot(memory=named) as snapshot:
            assert in_snapshot(space, snapshot) is None


def test_a_snapshot_has_memory_that_this_process_has_not_opened(shared_store, space):
    space.enqueue("Q", b"in memory", persistent=False)
    other = shared_store.another()
    (entry,) = other.entries()
    with other.volume_of(entry.path).snapshot(memory=["SPACE"]) as snapshot:
        assert in_snapshot(space, snapshot) == [b"in memory"]
    # The one that has it open is as it was.
    space.enqueue("Q", b"more", persistent=False)
    assert len(space.dequeue_many("Q", 9)) == 2


def test_a_queue_space_without_memory_has_none_in_a_snapshot(shared_store):
    opened = shared_store.space()
    make_queue(opened, "Q")
    with volume_of(opened).snapshot(memory=["SPACE"]) as snapshot:
        assert in_snapshot(opened, snapshot) is None


def test_to_look_at_memory_makes_none(file_store, tmp_path):
    opened = file_store.space(memory=100 * PAGE)
    make_queue(opened, "Q")
    opened.close()
    volume = file_store.device.volume_of(file_store.path)
    space = volume.read(lambda unit: unit.spaces.find("SPACE"))
    volume.memories.remove(space)
    before = sorted(tmp_path.rglob("*"))
    with volume.snapshot(memory=["SPACE"]) as snapshot:
        assert snapshot.read(lambda unit: unit.memory(space.id)) is None
    assert sorted(tmp_path.rglob("*")) == before


def memory_file(space):
    return volume_of(space).memories.files(attachment_of(space).opened.space)[0][0]


def changed_by_hand(file, statement):
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def test_what_an_earlier_start_of_the_machine_has_left_in_memory_is_not_in_a_snapshot(file_store):
    opened = file_store.space(memory=100 * PAGE)
    make_queue(opened, "Q")
    opened.enqueue("Q", b"in memory", persistent=False)
    file, volume, known = memory_file(opened), volume_of(opened), attachment_of(opened).opened.space
    opened.close()
    changed_by_hand(file, "UPDATE residence SET boot = 'an earlier one'")
    with volume.snapshot(memory=["SPACE"]) as snapshot:
        assert snapshot.read(lambda unit: unit.memory(known.id)) is None


def test_the_memory_of_a_stranger_is_refused_by_name(file_store):
    opened = file_store.space(memory=100 * PAGE)
    make_queue(opened, "Q")
    file, volume = memory_file(opened), volume_of(opened)
    opened.close()
    changed_by_hand(file, "UPDATE residence SET device_id = 'another'")
    with pytest.raises(OperatingSystemError, match="'SPACE' is in use by another device"):
        volume.snapshot(memory=["SPACE"]).__enter__()


def test_a_directory_of_memory_that_others_can_enter_is_refused(file_store):
    opened = file_store.space(memory=100 * PAGE)
    file, volume = memory_file(opened), volume_of(opened)
    opened.close()
    Path(file).parent.chmod(0o755)
    with pytest.raises(OperatingSystemError, match="only the users of device"):
        volume.snapshot(memory=["SPACE"]).__enter__()


def test_more_memories_than_sqlite_can_attach_are_refused(file_store):
    names = [f"S{at}" for at in range(11)]
    for at, name in enumerate(names):
        file_store.space(name, pages=100, memory=10 * PAGE, ipc_key=41_000 + at).close()
    volume = file_store.device.volume_of(file_store.path)
    with volume.snapshot(memory=names[:10]):
        pass
    with pytest.raises(SystemFailureError, match="10 is the most"):
        volume.snapshot(memory=names).__enter__()


def described(space, snapshot, *names):
    known, queues = attachment_of(space).opened.space, [space.queue(name) for name in names]
    return snapshot.read(lambda unit: summary(unit, known, queues))


def test_a_summary_counts_the_messages_of_each_state_and_delivery(space, monkeypatch):
    monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 10)
    consumed = space.enqueue("KEPT", b"c" * 5_000)
    space.dequeue("KEPT")
    for number in range(3):
        space.enqueue("Q", b"x" * 10 * number, persistent=number > 0)
    space.enqueue("Q", b"later", delay=5)
    with space.transaction():
        held = [space.dequeue("Q").msgid, space.lock("Q").msgid]
        space.enqueue("Q", b"is to come" * 5)
        with volume_of(space).snapshot(memory=["SPACE"]) as snapshot:
            found = described(space, snapshot, "Q", "KEPT", "ERRORS")
            space.enqueue("Q", b"too late", transactional=False)
    on_q, kept, errors = found.queues
    first, second = (int(msgid[16:], 16) for msgid in held)
    assert dict(on_q.tallies) == {
        (State.READY, PERSIST): Tally(1, 1, 20, second + 1, second + 1),
        (State.DELAYED, PERSIST): Tally(1, 1, 5, second + 2, second + 2),
        (State.HELD, PERSIST): Tally(1, 1, 10, second, second),
        (State.HELD, NONPERSIST): Tally(1, 1, 0, first, first),
    }
    assert dict(kept.tallies) == {
        (State.CONSUMED, PERSIST): Tally(1, 2, 5_000, int(consumed[16:], 16), int(consumed[16:], 16))
    }
    assert dict(errors.tallies) == {}
    assert on_q.total(State.READY, State.DELAYED) == Tally(2, 2, 25, second + 1, second + 2)
    assert found.total() == Tally(5, 6, 5_035, int(consumed[16:], 16), second + 2)
    (open_one,) = found.transactions
    assert (open_one.state, open_one.dequeued, open_one.locked, open_one.to_enqueue) == (Outcome.ACTIVE, 1, 1, 1)
    assert found.last_sequence >= second + 3
    assert found.has_memory


def test_a_summary_names_the_first_of_a_group_that_is_gone(space):
    with space.transaction():
        first, *_ = space.enqueue_many("KEPT", [b"a", b"b", b"c"])
    space.purge("KEPT", condition=f"msgid = '{first}'")
    space.purge_history("KEPT")
    with volume_of(space).snapshot() as snapshot:
        found = described(space, snapshot, "KEPT")
    sequence = int(first[16:], 16)
    assert found.total() == Tally(2, 2, 2, sequence, sequence + 2)
    assert not found.has_memory


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_a_summary_of_another_queue_space_has_none_of_its_transactions(kind, request, tmp_path, clock):
    store = Store(kind, device_path(kind, request, tmp_path), clock)
    one, other = store.space("ONE", ipc_key=41_000, pages=500), store.space("OTHER", pages=500)
    for opened in (one, other):
        make_queue(opened, "Q", retries=1)
    one.enqueue("Q", b"x")
    with one.transaction():
        one.dequeue("Q")
        with volume_of(one).snapshot() as snapshot:
            assert described(other, snapshot, "Q").transactions == ()
            assert len(described(one, snapshot, "Q").transactions) == 1
    store.close()
