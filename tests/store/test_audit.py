"""Destructive commands are recorded before they happen, with who and when, and what came of them."""

import os
import pwd
import sqlite3

import pytest

from qmadmin.opening import open_device
from qmcore import audit
from qmcore.errors import InvalidArgumentError, NotOpenError
from qmcore.probe import Point
from tests.fix_store import Store, noted


def commands(device, limit=None):
    return [(entry.command, entry.outcome) for entry in device.audited(limit)]


def test_an_entry_says_who_gave_which_command_when_and_about_what(store, clock):
    entry = store.device.audit("qdestroy -f q1", "queue QS/q1")
    assert store.device.audited() == [entry]
    assert (entry.command, entry.target, entry.outcome) == ("qdestroy -f q1", "queue QS/q1", None)
    assert (entry.user, entry.uid) == (pwd.getpwuid(os.getuid()).pw_name, os.getuid())
    assert (entry.host, entry.pid, entry.at) == (os.uname().nodename, os.getpid(), clock.moment())


def test_the_outcome_is_told_afterwards_and_the_newest_entry_comes_first(store):
    first = store.device.audit("qdeletemsg -y", "queue QS/q1")
    second = store.device.audit("qspacedestroy -f QS", "queue space QS")
    store.device.audit_outcome(first, "3 messages deleted")
    assert commands(store.device) == [("qspacedestroy -f QS", None), ("qdeletemsg -y", "3 messages deleted")]
    store.device.audit_outcome(second, "ERROR: in use")
    assert commands(store.device, 1) == [("qspacedestroy -f QS", "ERROR: in use")]


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3"])
def test_a_limit_that_is_no_number_of_entries_is_refused(store, limit):
    with pytest.raises(InvalidArgumentError):
        store.device.audited(limit)


def test_the_newest_entries_are_kept_and_their_numbers_go_on(store, monkeypatch):
    monkeypatch.setattr("qmstorage.auditing.KEPT", 3)
    entries = [store.device.audit(f"command {at}", "it") for at in range(5)]
    assert store.device.audited() == entries[:1:-1]
    assert [entry.id for entry in entries] == [1, 2, 3, 4, 5]
    store.device.audit_outcome(entries[0], "too late to be kept")
    assert store.device.audited() == entries[:1:-1]


def test_whatever_was_typed_can_be_kept(store):
    entry = store.device.audit("qdestroy \udcff\n\0é", "x" * 10_000)
    (kept,) = store.device.audited()
    assert kept == entry
    assert kept.command == "qdestroy \\udcff\n\\x00é"
    assert kept.target == "x" * (audit.TEXT_MAX - 3) + "..."
    store.device.audit_outcome(entry, "\ud800")
    assert store.device.audited()[0].outcome == "\\ud800"


def test_entries_belong_to_the_device_and_not_to_one_of_its_files(file_store, tmp_path):
    device = file_store.device
    device.create_entry(tmp_path / "MORE", 0, 500)
    device.audit("qdestroy q1", "queue QS/q1")
    assert commands(file_store.another()) == [("qdestroy q1", None)]
    device.close()
    with sqlite3.connect(tmp_path / "MORE") as connection:
        assert connection.execute("SELECT count(*) FROM audit").fetchone() == (0,)
    connection.close()


def test_a_crash_between_leaves_an_entry_without_an_outcome(tmp_path, clock, start):
    store = Store("file", str(tmp_path / "QUE"), clock)
    child = start(
        "device = open_device(sys.argv[1])\n"
        "entry = device.audit('qspacedestroy -f QS', 'queue space QS')\n"
        "say('recorded')\n"
        "heard()\n"
        "device.audit_outcome(entry, 'done')\n",
        store.path,
    )
    child.expect("recorded")
    child.kill()
    (entry,) = store.device.audited()
    assert (entry.pid, entry.command, entry.outcome) == (child.pid, "qspacedestroy -f QS", None)
    store.close()


def test_a_record_is_on_the_disk_before_the_command_may_begin(file_store):
    synced = noted(file_store.device.probe, Point.AFTER_SYNC)
    entry = file_store.device.audit("qdestroy q1", "queue QS/q1")
    assert len(synced) == 1
    file_store.device.audit_outcome(entry, "done")
    assert len(synced) == 2


def test_a_device_that_is_open_for_reading_only_records_nothing(file_store, monkeypatch):
    file_store.device.audit("before", "it")
    monkeypatch.setattr("qmstorage.sqlite.opening.os.access", lambda path, mode: mode == os.R_OK)
    with open_device(file_store.path) as reader:
        assert reader.readonly
        entry = reader.audit("qdestroy q1", "queue QS/q1")
        reader.audit_outcome(entry, "refused")
        assert (entry.id, commands(reader)) == (0, [("before", None)])


def test_a_device_that_is_closed_records_nothing(store):
    store.device.close()
    for act in (lambda: store.device.audit("x", "y"), store.device.audited):
        with pytest.raises(NotOpenError):
            act()


def test_the_outcome_is_recorded_though_the_connection_is_lost_while_that_is_committed(store):
    if store.kind != "postgres":
        pytest.skip("no connection can be lost")
    import psycopg

    entry = store.device.audit("qdestroy -f q1", "queue QS/q1")
    lost = [psycopg.OperationalError("the connection is closed")]

    def lose(_works):
        if lost:
            raise lost.pop()

    store.device.probe.at(Point.BEFORE_COMMIT, lose)
    store.device.audit_outcome(entry, "done")
    assert (commands(store.device), lost) == ([("qdestroy -f q1", "done")], [])
