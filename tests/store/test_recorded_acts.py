"""Each destructive act is recorded once, before it happens and with what came of it, whoever calls."""

import contextlib
import contextvars
import dataclasses
import inspect
import logging
import os
import sys

import pytest
import sqlalchemy

from qmadmin import Device, QueueSpace, audit, open_device, restore_device
from qmcore.condition_parser import parse
from qmcore.errors import OperatingSystemError, ProtocolError, QueueError
from qmcore.queue import Delivery
from tests.fix_store import make_queue
from tests.ways import transitions
from tests.ways.transitions import FORGET, MOVE

PAGE = 4096


def begun(space):
    """Let another process's transaction hold a message, as its handle is another one; return its identifier."""
    (info,) = space.transactions()
    return info.id


def end_of_a_subscription(space):
    """Let a consumer unsubscribe from a queue for several."""
    space.create_queue("TOPIC", multiple_consumers=True)
    space.subscribe("TOPIC", "one")
    space.unsubscribe("TOPIC", "one")


ACTS = {
    "unsubscribe": (lambda space, _: end_of_a_subscription(space), "subscription SPACE/TOPIC:one", "done"),
    "change_priority": (
        lambda space, _: space.change_priority("Q", 9, condition="priority = 50"),
        "queue SPACE/Q, messages where priority = 50: priority 9",
        "priority of 3 messages changed",
    ),
    "unpark": (
        lambda space, _: space.unpark("Q"),
        "queue SPACE/Q: make parked messages available",
        "0 messages unparked",
    ),
    "change_availability": (
        lambda space, _: space.change_availability("Q", 60),
        "queue SPACE/Q: available 60 seconds from now",
        "time of availability of 3 messages changed",
    ),
    "change_expiry": (
        lambda space, _: space.change_expiry("Q", None),
        "queue SPACE/Q: expires never",
        "time of expiry of 3 messages changed",
    ),
    "move": (lambda space, _: space.move("Q", "OTHER"), "queue SPACE/Q: to queue OTHER", "3 messages moved"),
    "requeue": (
        lambda space, _: space.requeue("Q"),
        "queue SPACE/Q: back to the queues they came from",
        "0 messages moved back",
    ),
    "purge": (lambda space, _: space.purge("Q"), "queue SPACE/Q", "3 messages deleted"),
    "purge_damaged": (
        lambda space, _: space.purge_damaged("Q"),
        "queue SPACE/Q: damaged messages",
        "0 messages deleted",
    ),
    "purge_history": (
        lambda space, _: space.purge_history("Q"),
        "queue SPACE/Q: retained messages",
        "0 retained messages deleted",
    ),
    "destroy_queue": (
        lambda space, _: space.destroy_queue("Q", purge=True),
        "queue SPACE/Q",
        "destroyed with 3 messages",
    ),
    "destroy_space": (
        lambda _, device: device.destroy_space("SPACE", force=True),
        "queue space SPACE",
        "destroyed with 2 queues and 3 messages",
    ),
    "create_schedule": (
        lambda space, _: space.create_schedule("tea", "OTHER", "every 10m", paused=True),
        "schedule SPACE/tea",
        "created paused: every 10m for queue OTHER",
    ),
    "clear_memory": (
        lambda _, device: device.clear_memory("SPACE", force=True),
        "memory of queue space SPACE",
        "done",
    ),
}

REFUSED = {
    "commit_transaction": (
        lambda space, _: space.commit_transaction("0" * 16),
        f"transaction SPACE/{'0' * 16}",
        f"ERROR: queue space 'SPACE' has no transaction {'0' * 16}; it may have ended meanwhile",
    ),
    "remove_entry": (
        lambda _, device: device.remove_entry(0),
        "device list entry 0",
        "ERROR: ",
    ),
    "destroy_queue": (
        lambda space, _: space.destroy_queue("Q"),
        "queue SPACE/Q",
        "ERROR: queue 'Q' holds 3 messages",
    ),
    "destroy_space": (lambda _, device: device.destroy_space("NONE"), "queue space NONE", "ERROR: "),
    "change_priority": (
        lambda space, _: space.change_priority("Q", 101),
        "queue SPACE/Q: priority 101",
        "ERROR: ",
    ),
}

UNRECORDED = {
    # The definition is what is changed, and the shell asks nothing.
    "change_queue",
    # It is an act where it takes the memory.
    "change_space",
}
"""What forgets messages and is no destructive act."""


@pytest.fixture
def space(store):
    opened = store.space()
    make_queue(opened)
    make_queue(opened, "OTHER")
    for body in "abc":
        opened.enqueue("Q", body)
    return opened


def recorded(device):
    return [(entry.target, entry.outcome) for entry in device.audited()[::-1]]


@pytest.mark.parametrize("name", ACTS)
def test_each_act_leaves_one_record(store, space, name, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/opt/x/app.py"])
    act, target, outcome = ACTS[name]
    act(space, store.device)
    assert recorded(store.device) == [(target, outcome)]
    (entry,) = store.device.audited()
    owner = "QueueSpace" if hasattr(QueueSpace, name) else "Device"
    assert entry.command.startswith(f"app.py: {owner}.{name}(")


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_recorded_with_the_reason(store, space, name):
    act, target, outcome = REFUSED[name]
    with pytest.raises(QueueError):
        act(space, store.device)
    ((found, came),) = recorded(store.device)
    assert found == target
    assert came.startswith(outcome)


def test_the_end_of_another_transaction_is_recorded(shared_store):
    space = shared_store.space()
    make_queue(space)
    space.enqueue("Q", "x")
    with shared_store.another().open_space("SPACE") as other, other.transaction() as transaction:
        assert other.dequeue("Q")
        name = begun(space)
        space.abort_transaction(name)
        transaction.rollback()
    assert recorded(shared_store.device) == [(f"transaction SPACE/{name}", "rolled back with 1 message")]


def test_whatever_is_done_to_a_schedule_is_recorded(store, space):
    space.create_schedule("tea", "Q", "every 10m", "hello")
    space.change_schedule("tea", rule="0 4 * * *", queue="OTHER")
    space.pause_schedule("tea")
    space.resume_schedule("tea")
    space.delete_schedule("tea")
    with pytest.raises(QueueError):
        space.pause_schedule("tea")
    outcomes = [
        "created: every 10m for queue Q",
        "changed: 0 4 * * * for queue OTHER",
        "paused",
        "resumed",
        "done",
        "ERROR: there is no schedule 'tea' in queue space 'SPACE'",
    ]
    assert recorded(store.device)[:5] == [("schedule SPACE/tea", outcome) for outcome in outcomes[:5]]
    assert recorded(store.device)[5][1].startswith(outcomes[5])


def test_what_a_scheduled_message_contains_is_not_recorded(store, space):
    space.create_schedule("tea", "Q", "every 10m", "a secret")
    command = store.device.audited()[0].command
    assert "secret" not in command
    assert command.endswith("(name='tea', queue='Q', rule='every 10m', body='...')")


def test_the_end_of_a_queue_is_recorded_with_the_schedules_that_it_leaves(store, space):
    for name, queue in (("tea", "Q"), ("coffee", "Q"), ("milk", "OTHER")):
        space.create_schedule(name, queue, "every 10m")
    space.destroy_queue("Q", purge=True)
    outcome = "destroyed with 3 messages; left without a queue: schedule coffee, schedule tea"
    assert recorded(store.device)[-1] == ("queue SPACE/Q", outcome)
    assert [schedule.name for schedule in space.schedules()] == ["coffee", "milk", "tea"]


def test_the_end_of_an_entry_is_recorded_with_what_it_was(file_store, tmp_path):
    file_store.device.create_entry(tmp_path / "MORE", 0, 500)
    file_store.device.remove_entry(1)
    assert recorded(file_store.device) == [("device list entry 1", f"removed: {tmp_path / 'MORE'}, offset 0, size 500")]


def test_the_end_of_memory_is_recorded_with_what_it_held(shared_store, memory_dir):
    with shared_store.space(memory=100 * PAGE) as space:
        make_queue(space, "M", delivery=Delivery.NONPERSIST)
        space.enqueue("M", "x")
    shared_store.device.clear_memory("SPACE", force=True)
    assert recorded(shared_store.device) == [
        ("memory of queue space SPACE", f"removed with {PAGE} bytes of non-persistent messages")
    ]


def test_another_memory_is_recorded_with_what_was_lost_and_any_other_change_is_not(shared_store, memory_dir):
    space = shared_store.space(memory=100 * PAGE)
    make_queue(space)
    space.enqueue("Q", "kept")
    for body in "ab":
        space.enqueue("Q", body, persistent=False)
    device = shared_store.device
    definition = device.space("SPACE").definition
    device.change_space(dataclasses.replace(definition, messages=77))
    assert recorded(device) == []
    device.change_space(dataclasses.replace(definition, memory=50 * PAGE))
    target = f"memory of queue space SPACE: {50 * PAGE} bytes"
    assert recorded(device) == [(target, "removed with 2 non-persistent messages")]
    (entry,) = device.audited()
    assert entry.command.endswith(f": Device.change_space(name='SPACE', memory={50 * PAGE})")


def test_every_method_that_forgets_or_moves_messages_for_good_is_a_destructive_act():
    listed = {
        name
        for methods in (transitions.DEVICE, transitions.SPACE)
        for name, made in methods.items()
        if made & (FORGET | MOVE)
    }
    of_schedules = {f"{verb}_schedule" for verb in ("create", "change", "pause", "resume", "delete")}
    acts = {"abort_transaction", "commit_transaction", "remove_entry"} | of_schedules
    assert acts | listed - UNRECORDED == {
        name for owner in (Device, QueueSpace) for name, method in vars_of(owner) if is_destructive(method)
    }
    assert acts | listed - UNRECORDED == ACTS.keys() | REFUSED.keys() | acts


def vars_of(owner):
    return [(name, getattr(owner, name)) for name in dir(owner) if not name.startswith("_")]


def is_destructive(method):
    return inspect.unwrap(method) is not method


def test_a_dry_run_and_what_only_looks_or_carries_messages_leave_no_record(store, space):
    space.destroy_queue("Q", force=True, dry_run=True)
    store.device.destroy_space("SPACE", force=True, dry_run=True)
    space.count("Q")
    space.dequeue("Q")
    space.remove("Q")
    with space.transaction() as transaction:
        space.dequeue("Q")
        transaction.rollback()
    assert recorded(store.device) == []


def test_a_call_is_recorded_with_what_was_given_and_with_nothing_that_was_not(store, space):
    space.purge("Q", condition=parse("priority > 3"), delivery=Delivery.PERSIST, progress=print)
    (entry,) = store.device.audited()
    call = entry.command.partition(": ")[2]
    assert call == "QueueSpace.purge(queue='Q', condition='priority > 3', delivery='persist')"
    assert entry.target == "queue SPACE/Q, messages where priority > 3, delivery persist"


@pytest.mark.parametrize(
    ("argument", "program"),
    [("/opt/x/worker.py", "worker.py"), ("/opt/x/tool/__main__.py", "tool"), ("-c", "python"), ("", "python")],
)
def test_a_program_is_called_by_its_name(store, space, monkeypatch, argument, program):
    monkeypatch.setattr(sys, "argv", [argument, "secret"])
    space.purge("Q")
    assert store.device.audited()[0].command == f"{program}: QueueSpace.purge(queue='Q')"


def test_a_call_with_wrong_arguments_is_refused_by_name_and_not_recorded(store, space):
    with pytest.raises(TypeError, match=r"^QueueSpace\.purge\(\): missing a required argument: '\w+'$"):
        space.purge()
    with pytest.raises(TypeError, match=r"^Device\.destroy_space\(\): got an unexpected keyword argument 'forced'$"):
        store.device.destroy_space("SPACE", forced=True)
    assert not [*store.device.audited()]


def test_the_words_of_a_face_take_the_place_of_the_call(store, space):
    with audit.recorded_as("qdeletemsg -y"):
        space.purge("Q")
    space.purge("Q")
    assert store.device.audited()[1].command == "qdeletemsg -y"
    assert store.device.audited()[0].command.endswith("QueueSpace.purge(queue='Q')")


def test_acts_in_an_act_are_parts_of_it(store, space):
    with audit.act(store.device, "both", "call"):
        space.purge("Q")
        space.purge_history("Q")
    space.purge("Q")
    assert recorded(store.device) == [
        ("both", "3 messages deleted; 0 retained messages deleted"),
        ("queue SPACE/Q", "0 messages deleted"),
    ]


def test_what_is_called_later_in_a_copy_of_the_context_is_an_act_of_its_own(store, space):
    with audit.act(store.device, "first", "call"):
        later = contextvars.copy_context()
    later.run(space.purge, "Q")
    assert recorded(store.device) == [("first", "done"), ("queue SPACE/Q", "3 messages deleted")]


def test_the_record_is_there_before_the_first_message_goes(store, space):
    seen = []
    space.purge("Q", progress=lambda _count: seen.extend(recorded(store.device)))
    assert seen == [("queue SPACE/Q", None)]


def test_what_was_done_before_it_failed_is_recorded(store, space):
    def broken_off(_count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        space.purge("Q", progress=broken_off)
    assert recorded(store.device) == [("queue SPACE/Q", "interrupted; done before: 3 messages deleted")]


# ---- records that cannot be written ---------------------------------------------------------------------------------


def test_what_cannot_be_recorded_is_not_done(shared_store):
    space = shared_store.space()
    make_queue(space)
    space.enqueue("Q", "x")
    shared_store.by_hand("ALTER TABLE audit RENAME COLUMN target TO object")
    with pytest.raises(QueueError, match=r"nothing was done to queue SPACE/Q, because device .* could not record"):
        space.purge("Q")
    assert space.usage("Q").messages == 1


def test_what_was_done_is_not_taken_for_failed_because_its_outcome_cannot_be_recorded(shared_store, caplog):
    space = shared_store.space()
    make_queue(space)
    space.enqueue("Q", "x")
    with caplog.at_level(logging.WARNING, "qmadmin"):
        assert (
            space.purge(
                "Q", progress=lambda _count: shared_store.by_hand("ALTER TABLE audit RENAME COLUMN outcome TO came")
            )
            == 1
        )
    assert "which is '1 message deleted', could not be recorded" in caplog.text


def test_nothing_is_done_on_a_device_that_is_open_for_reading_only(file_store, monkeypatch):
    make_queue(file_store.space())
    monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda _path, mode: mode == os.R_OK)
    with open_device(file_store.path) as reader:
        with pytest.raises(OperatingSystemError, match="is open for reading only"):
            reader.destroy_space("SPACE", force=True)
        assert [space.name for space in reader.spaces()] == ["SPACE"]


# ---- applications' own transactions ---------------------------------------------------------------------------------


def test_nothing_is_done_where_the_application_has_the_file_in_a_transaction_of_its_own(file_store):
    space = file_store.space()
    make_queue(space)
    engine = sqlalchemy.create_engine(f"sqlite:///{file_store.path}")
    sqlalchemy.event.listen(engine, "connect", lambda made, _: made.execute("PRAGMA synchronous = FULL"))
    with engine.begin() as connection:
        space.enqueue("Q", "x", connection=connection)
        with pytest.raises(ProtocolError):
            space.purge("Q")
    engine.dispose()
    assert recorded(file_store.device) == []
    assert space.usage("Q").messages == 1


# ---- restores -------------------------------------------------------------------------------------------------------


def test_a_restored_device_has_the_record_from_the_start_and_a_replaced_one_takes_its_own_with_it(file_store, tmp_path):
    make_queue(file_store.space())
    file_store.device.backup(tmp_path / "B")
    restore_device(tmp_path / "B", tmp_path / "NEW")
    for force in (False, True):
        if force:
            restore_device(tmp_path / "B", tmp_path / "NEW", force=True)
        with open_device(tmp_path / "NEW") as device:
            (entry,) = device.audited()
        assert entry.target == f"device {tmp_path / 'NEW'}"
        assert entry.outcome.startswith("restored from the backup made at ")
        assert f"restore_device(backup='{tmp_path / 'B'}', path_or_url='{tmp_path / 'NEW'}', force={force})" in (
            entry.command
        )


def test_a_device_that_stays_has_the_record_of_why(file_store, tmp_path):
    make_queue(file_store.space())
    file_store.device.backup(tmp_path / "B")
    with pytest.raises(QueueError):
        restore_device(tmp_path / "B", file_store.path, force=True)
    ((target, outcome),) = recorded(file_store.device)
    assert target == f"device {file_store.path}"
    assert outcome.startswith("ERROR: ")
    with contextlib.suppress(QueueError):
        restore_device(tmp_path / "B", file_store.path)
    assert len(recorded(file_store.device)) == 1


def test_a_restore_that_is_killed_leaves_the_device_as_it_was_or_with_an_unfinished_record(file_store, start, tmp_path):
    make_queue(file_store.space())
    file_store.device.backup(tmp_path / "B")
    for event, records in ("call", None), ("return", [(f"device {tmp_path / 'NEW'}", None)]):
        child = start(
            "from pathlib import Path\n"
            "from qmadmin import restore_device\n"
            "from tests.doom import Doom, meet\n"
            "_, event, backup, path, mark = sys.argv\n"
            "meet(Doom('qmstorage.sqlite.restoring:_put_in_place', event), Path(mark))\n"
            "restore_device(backup, path)\n",
            event,
            tmp_path / "B",
            tmp_path / "NEW",
            tmp_path / f"mark-{event}",
        )
        child.lines_left()
        assert (tmp_path / f"mark-{event}").exists()
        assert (tmp_path / "NEW").exists() == (records is not None)
    with open_device(tmp_path / "NEW") as device:
        assert recorded(device) == records


# ---- kills ----------------------------------------------------------------------------------------------------------

_KILLED = """
from pathlib import Path
from tests.doom import Doom, meet
from tests.store.test_recorded_acts import ACTS

_, place, event, config, name, mark = sys.argv
with open_device(config) as device, device.open_space("SPACE") as space:
    meet(Doom(place, event), Path(mark))
    ACTS[name][0](space, device)
"""


@pytest.fixture
def killed(real_device, start, tmp_path):
    """Kill a process in the middle of an act."""
    with real_device.open_space("SPACE") as space:
        make_queue(space, "OTHER")
        for body in "abc":
            space.enqueue("Q", body)

    def kill(name, place, event):
        child = start(_KILLED, place, event, real_device.config, name, tmp_path / "mark")
        child.lines_left()
        assert (tmp_path / "mark").exists()
        return child.pid

    return kill


@pytest.mark.parametrize("name", ACTS)
def test_a_kill_before_the_act_leaves_its_record_without_an_outcome(real_device, killed, name):
    pid = killed(name, "qmadmin.audit:_begin", "return")
    ((target, outcome),) = recorded(real_device)
    assert (real_device.audited()[0].pid, target, outcome) == (pid, ACTS[name][1], None)
    with real_device.open_space("SPACE") as space:
        assert space.usage("Q").messages == 3


@pytest.mark.parametrize("name", ["purge", "destroy_queue"])
def test_a_kill_after_the_act_leaves_its_record_without_an_outcome(real_device, killed, name):
    killed(name, "qmadmin.audit:_end", "call")
    assert recorded(real_device) == [(ACTS[name][1], None)]
    with real_device.open_space("SPACE") as space:
        assert "Q" not in {queue.name for queue in space.queues()} or space.usage("Q").messages == 0
