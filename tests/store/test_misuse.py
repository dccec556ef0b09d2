"""What goes wrong beside the engine: wrong values, interrupts, names that are used again. Nothing is lost by it."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

import qmadmin
from qmadmin import BadQueueError, InvalidArgumentError, QueueDefinition, SpaceDefinition
from qmadmin.opening import create_device
from qmcore.probe import Point
from qmcore.purpose import Purpose
from tests.fix_store import attachment_of, noted


def definition(name, **changes):
    values = {"ipc_key": 40_000, "pages": 100, "queues": 5, "transactions": 5, "processes": 5, "messages": 50}
    return SpaceDefinition(name=name, **(values | changes))


@pytest.mark.matrix
@pytest.mark.parametrize(
    "options",
    [
        {"corrid": 42},
        {"delay": "1"},
        {"expires_in": "1"},
        {"available_at": "tomorrow"},
        {"reply_queue": 5},
        {"failure_queue": b"Q"},
        {"headers": ["a"]},
        {"headers": {"a": 1}},
        {"priority": True},
        {"priority": 51.0},
        {"urcode": "0"},
        {"persistent": "yes"},
        {"reply_persistent": 1},
        {"top": "yes"},
    ],
    ids=str,
)
def test_a_value_of_another_kind_is_refused_and_nothing_is_enqueued(space, options):
    with pytest.raises(InvalidArgumentError):
        space.enqueue("Q", b"", **options)
    assert space.usage("Q").messages == 0


def test_a_number_is_no_correlation_identifier_of_a_dequeue(space):
    space.enqueue("Q", b"", corrid=b"")
    with pytest.raises(InvalidArgumentError, match="got 7"):
        space.dequeue("Q", corrid=7)


@pytest.mark.parametrize(
    "wrong", [{"order": 5}, {"out_of_order": ["top"]}, {"threshold": "80%"}, {"delivery": True}], ids=str
)
def test_a_definition_of_another_kind_is_refused_before_it_can_spoil_the_queue_space(wrong):
    with pytest.raises(InvalidArgumentError, match="must be a"):
        QueueDefinition(name="Z", **wrong)


def test_a_dequeue_that_finds_nothing_brings_nothing_to_the_disk(tmp_path):
    with create_device(tmp_path / "QUE", 1000) as device:
        synced = noted(device.probe, Point.AFTER_SYNC)
        device.create_space(definition("S"))
        with device.open_space("S") as space:
            space.create_queue(QueueDefinition(name="Q"))
            before = len(synced)
            assert space.dequeue("Q") is None
            assert len(synced) == before
            space.enqueue("Q", b"")
            assert len(synced) == before + 1


def test_a_waiter_whose_wake_up_cannot_be_removed_still_gets_its_message(space, monkeypatch):
    found = []
    attachment = attachment_of(space)
    write = attachment.volume.write

    def write_until_forgetting(work, purpose):
        if work.__name__ == "forget":
            raise qmadmin.OperatingSystemError("no room left on the disk")
        return write(work, purpose)

    monkeypatch.setattr(attachment.volume, "write", write_until_forgetting)
    waiter = threading.Thread(target=lambda: found.append(space.dequeue("Q", wait=60)))
    waiter.start()
    space.enqueue("Q", b"data")
    waiter.join()
    assert found[0].body == b"data"


def test_a_queue_space_that_exists_on_another_file_is_not_touched_by_one_of_the_same_name(tmp_path):
    """The second creation plans before the first is listed, as when it allocates its disk meanwhile."""
    with create_device(tmp_path / "QUE", 27) as device:
        device.create_entry(tmp_path / "OTHER", 0, 1000)

        def create_the_first(percent):
            if percent == 100:
                device.create_space(definition("S"))
                with device.open_space("S") as space:
                    space.create_queue(QueueDefinition(name="Q"))
                    space.enqueue("Q", b"data")

        with pytest.raises(InvalidArgumentError, match="exists already"):
            device.create_space(definition("S"), initialize=True, progress=create_the_first)
        with device.open_space("S") as space:
            assert space.dequeue("Q").body == b"data"


def test_each_queue_space_that_is_initialized_has_disk_of_its_own(tmp_path):
    path = tmp_path / "QUE"
    with create_device(path, 10_000) as device:
        for number in range(3):
            device.create_space(definition(f"S{number}", pages=1000), initialize=True)
    assert path.stat().st_size >= 3 * 1000 * 4096


def test_a_device_in_an_empty_file_that_was_there_is_as_private_as_a_new_one(tmp_path):
    path = tmp_path / "QUE"
    path.touch(mode=0o644)
    create_device(path, 100).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_group_that_does_not_exist_is_refused_and_no_file_is_left(tmp_path):
    with pytest.raises(InvalidArgumentError, match="no group 'nosuchgroup'"):
        create_device(tmp_path / "QUE", 100, group="nosuchgroup")
    assert list(tmp_path.iterdir()) == []


def test_who_was_taken_for_dead_is_told_so_once_and_then_works_again(space):
    """As when somebody empties the directory of locks while the process lives."""
    space.enqueue("Q", b"data")
    attachment = attachment_of(space)
    lost = attachment.owner
    attachment.volume.write(lambda unit: unit.owners.remove(lost.id), Purpose.TIDY)
    with pytest.raises(qmadmin.AbortedError), space.transaction():
        space.dequeue("Q")
    with space.transaction():
        assert space.dequeue("Q").body == b"data"


def test_a_queue_space_that_was_destroyed_and_made_again_opens_again_beside_an_old_handle(device, space):
    space.enqueue("Q", b"data")
    device.destroy_space(space.name, force=True)
    device.create_space(definition(space.name))
    with device.open_space(space.name) as again:
        again.create_queue(QueueDefinition(name="Q"))
        assert again.dequeue("Q") is None


def test_a_thread_that_dies_in_a_transaction_gives_its_messages_back_soon(space, clock):
    space.create_queue(QueueDefinition(name="TRIED", retries=1))
    space.enqueue("TRIED", b"data")

    def take_and_die():
        space.transaction().join_context()
        assert space.dequeue("TRIED").body == b"data"

    thread = threading.Thread(target=take_and_die)
    thread.start()
    thread.join()
    gc.collect()
    clock.advance(2)
    message = space.dequeue("TRIED")
    assert message is not None
    assert message.retries == 1


def test_a_transaction_that_was_refused_something_is_gone_when_it_is_dropped_and_not_when_python_looks_for_rings(space):
    gc.disable()
    try:
        with space.transaction() as transaction:
            for refused in (lambda: space.enqueue("NONE", b"data"), lambda: space.dequeue("NONE")):
                with pytest.raises(BadQueueError):
                    refused()
        dropped = weakref.ref(transaction)
        del transaction
        assert dropped() is None
    finally:
        gc.enable()


def test_a_dequeue_that_was_interrupted_behind_its_commit_is_found_by_the_rollback(space, monkeypatch):
    space.create_queue(QueueDefinition(name="TRIED", retries=5))
    space.enqueue("TRIED", b"data")
    volume = attachment_of(space).volume
    act = volume.run

    def interrupted(*arguments, **how):
        act(*arguments, **how)
        raise KeyboardInterrupt

    with pytest.raises(qmadmin.AbortedError, match="KeyboardInterrupt"), space.transaction():
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(volume, "run", interrupted)
            space.dequeue("TRIED")
        space.dequeue("TRIED")
    assert space.usage("TRIED").ready == 1
