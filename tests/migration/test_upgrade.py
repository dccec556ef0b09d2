"""`qmadmin --upgrade`: a device of release 0.1.0 in files becomes one of this release, whole, or stays what it is."""

import contextlib
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

import qmadmin
from qmadmin.opening import plan_upgrade
from qmcore.errors import ReleaseError
from qmstorage import schema
from tests.fix_disk import fill
from tests.fix_release import CONTENT, are_known, contents, environment, set_version, tables, versions

_ATTACHED = """
import qmadmin, sys
space = qmadmin.open_device(sys.argv[1]).open_space("QS")
print("open", flush=True)
sys.stdin.read()
"""
_OPEN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM device").fetchall()
print("open", flush=True)
sys.stdin.read()
"""


def run(*arguments, **given):
    """Run qmadmin with its standard input closed, and return what it did."""
    command = [sys.executable, "-m", "qmadmin.program", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment(), **given
    )


def picture(directory):
    """Return what is in the files of a directory, but for SQLite's own beside them."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


def test_an_older_device_is_refused_with_what_to_type(old_device):
    with pytest.raises(ReleaseError, match=re.escape(f"upgrade it with qmadmin --upgrade {old_device}")):
        qmadmin.open_device(old_device)
    ran = run(old_device, "-c", "lidl")
    assert ran.returncode == 1
    assert f"upgrade it with qmadmin --upgrade {old_device}" in ran.stderr


def test_a_newer_device_is_refused_by_everything(tmp_path):
    qmadmin.create_device(tmp_path / "QUE", 100).close()
    set_version(tmp_path / "QUE", schema.VERSION + 1)
    with pytest.raises(ReleaseError, match="use the release of qmadmin that wrote it, or a newer one"):
        qmadmin.open_device(tmp_path / "QUE")
    ran = run("--upgrade", "-y", tmp_path / "QUE")
    assert ran.returncode == 1
    assert "use the release of qmadmin that wrote it, or a newer one" in ran.stderr
    assert versions(tmp_path / "QUE") == [f"{schema.VERSION + 1:04d}"]


def test_a_plan_says_what_would_be_done_and_changes_nothing(old_device):
    before = picture(old_device.parent)
    ran = run("--upgrade", "--plan", old_device)
    assert ran.returncode == 0, ran.stderr
    assert f"Device {old_device} has schema version 1" in ran.stdout
    assert f"{old_device.parent / 'second'}" in ran.stdout
    assert re.search(r"Backup: +\S+/QUE\.backup-\d{8}-\d{6}: at most 1\.4M bytes, about \d+s\n", ran.stdout)
    assert "Attached:  no process" in ran.stdout
    assert picture(old_device.parent) == before


def test_an_upgraded_device_has_all_that_it_had_and_the_tables_of_a_fresh_one(old_device, tmp_path):
    ran = run("--upgrade", "-y", old_device)
    assert ran.returncode == 0, ran.stderr
    qmadmin.create_device(tmp_path / "fresh", 100).close()
    assert tables(old_device) == tables(old_device.parent / "second") == tables(tmp_path / "fresh")
    assert columns(old_device) == columns(tmp_path / "fresh")
    assert versions(old_device, old_device.parent / "second") == [schema.REVISION] * 2
    with qmadmin.open_device(old_device) as device:
        assert contents(device) == CONTENT
        assert are_known(device)
        # The process that held a message is gone: its transaction rolls back, and counts as no try after a restart.
        (entry, _) = device.audited()
        assert (entry.command, entry.outcome.startswith(f"upgraded from schema version 1 to {schema.VERSION}")) == (
            "qmadmin --upgrade",
            True,
        )
        there = device.space_usage("QS").messages
        with device.open_space("QS") as space:
            assert space.dequeue("Q").body == b"text"
            assert space.dequeue("GROUPS").body == b"one"
            highest = device.space_usage("QS").highest
            assert (highest.messages, highest.processes) == (there, 1)
            (moved,) = space.messages("ERRQ")
            assert moved.origin.queue == "Q"
            space.enqueue("Q", b"new", persistent=False)


def test_an_upgraded_device_knows_which_messages_wait_for_another_try(old_device):
    with contextlib.closing(sqlite3.connect(old_device)) as volume, volume:
        (number, queue), *_ = volume.execute("SELECT message_id, queue_id FROM ready ORDER BY message_id").fetchall()
        later = 4_000_000_000_000_000
        volume.execute(
            "INSERT INTO due SELECT queue_id, ?, message_id, order_key, 1 FROM ready WHERE message_id = ?",
            [later, number],
        )
        volume.execute("DELETE FROM ready WHERE message_id = ?", [number])
        ((name,),) = volume.execute("SELECT name FROM queue WHERE id = ?", [queue]).fetchall()
    assert run("--upgrade", "-y", old_device).returncode == 0
    with qmadmin.open_device(old_device) as device, device.open_space("QS") as space:
        assert space.given_back_until(name) == later


def columns(path):
    """Return the columns of each table, in their order."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in sorted(names)}


def test_the_backup_that_is_made_can_be_restored_and_the_way_back_is_told(old_device, tmp_path):
    ran = run("--upgrade", "-y", "--backup", tmp_path / "saved", old_device)
    assert ran.returncode == 0, ran.stderr
    assert f"Saved as {tmp_path / 'saved'}\n" in ran.stdout
    assert f"and with qmadmin 0.1.0: qmadmin {old_device} -c 'qrestore -y {tmp_path / 'saved'}'" in ran.stdout
    assert versions(tmp_path / "saved" / "device", tmp_path / "saved" / "volume-1") == ["0001", "0001"]
    # This release makes a device of its own of it.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    qmadmin.restore_device(tmp_path / "saved", elsewhere / "QUE")
    with qmadmin.open_device(elsewhere / "QUE") as device:
        assert are_known(device)
        persistent = {queue: [body for body in bodies if body != b"in memory"] for queue, bodies in CONTENT.items()}
        assert contents(device) == persistent


def test_what_is_up_to_date_is_left_alone(old_device):
    assert run("--upgrade", "-y", old_device).returncode == 0
    before = picture(old_device.parent)
    ran = run("--upgrade", "-y", old_device)
    assert (ran.returncode, ran.stdout) == (
        0,
        f"Device {old_device} has schema version {schema.VERSION} already, that of this release.\n",
    )
    assert picture(old_device.parent) == before


def test_an_upgrade_without_anybody_to_ask_has_to_be_confirmed(old_device):
    ran = run("--upgrade", old_device)
    assert ran.returncode == 1
    assert "Confirm it with -y." in ran.stderr
    assert versions(old_device, old_device.parent / "second") == ["0001", "0001"]


@pytest.mark.parametrize(
    ("answer", "status", "version"), [("y", 0, schema.REVISION), ("", 1, "0001"), ("maybe", 1, "0001")]
)
def test_an_upgrade_asks_at_a_terminal_and_takes_all_but_yes_for_no(old_device, answer, status, version):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "qmadmin.program", "--upgrade", old_device]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, text=True, env=environment()) as ran:
        os.write(ours, f"{answer}\n".encode())
        out = ran.communicate()[0]
    os.close(ours)
    os.close(theirs)
    assert "Upgrade the device? (y, n [default=n]): " in out
    assert ran.returncode == status
    assert versions(old_device) == [version]


def test_processes_that_are_attached_are_named_and_keep_the_device_as_it_is(tmp_path):
    path = tmp_path / "QUE"
    with qmadmin.create_device(path, 400) as device:
        device.create_space(
            qmadmin.SpaceDefinition(
                name="QS", ipc_key=42_000, pages=200, queues=2, transactions=2, processes=2, messages=10
            )
        )
    holder = subprocess.Popen(
        [sys.executable, "-c", _ATTACHED, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "open\n"
        set_version(path, 1)
        ran = run("--upgrade", "-y", path)
        holder.stdin.close()
    assert ran.returncode == 1
    assert f"has processes attached: application {holder.pid} on " in ran.stderr
    assert versions(path) == ["0001"]
    assert [entry.name for entry in tmp_path.iterdir() if "backup" in entry.name] == []


def test_a_program_that_only_has_a_file_open_keeps_the_device_as_it_is(old_device):
    holder = subprocess.Popen(
        [sys.executable, "-c", _OPEN, old_device.parent / "second"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "open\n"
        ran = run("--upgrade", "-y", old_device)
        holder.stdin.close()
    assert ran.returncode == 1
    assert f"{str(old_device.parent / 'second')!r} is open in another program: process {holder.pid}" in ran.stderr
    assert versions(old_device, old_device.parent / "second") == ["0001", "0001"]
    assert run("--upgrade", "-y", old_device).returncode == 0


def test_a_missing_file_is_named_and_nothing_is_changed(old_device):
    (old_device.parent / "second").rename(old_device.parent / "moved")
    ran = run("--upgrade", "-y", old_device)
    assert ran.returncode == 1
    assert f"file {str(old_device.parent / 'second')!r} of device {str(old_device)!r} is missing" in ran.stderr
    assert versions(old_device) == ["0001"]


def test_a_file_of_another_device_is_named_and_nothing_is_changed(old_device):
    second = old_device.parent / "second"
    with contextlib.closing(sqlite3.connect(second)) as connection:
        connection.execute("UPDATE device SET id = 'another'")
        connection.commit()
    ran = run("--upgrade", "-y", old_device)
    assert ran.returncode == 1
    assert f"{str(second)!r} belongs to another device than {str(old_device)!r}" in ran.stderr
    assert versions(old_device, second) == ["0001", "0001"]


def test_a_hard_link_to_a_device_is_not_upgraded(old_device):
    link = old_device.parent / "LINK"
    link.hardlink_to(old_device)
    ran = run("--upgrade", "-y", link)
    assert ran.returncode == 1
    assert "is a hard link" in ran.stderr
    assert versions(old_device, old_device.parent / "second") == ["0001", "0001"]


def test_a_damaged_device_is_not_upgraded(old_device):
    data = bytearray(old_device.read_bytes())
    # The content of a table's page in the middle; the header and the catalogue are whole.
    data[len(data) // 2 : len(data) // 2 + 4096 * 20] = bytes(4096 * 20)
    old_device.write_bytes(data)
    ran = run("--upgrade", "-y", old_device)
    assert ran.returncode == 1
    assert "the store is damaged" in ran.stderr
    assert versions(old_device, old_device.parent / "second") == ["0001", "0001"]
    assert not list(old_device.parent.glob("*backup*"))


def test_a_full_disk_for_the_backup_leaves_the_device_as_it_is(old_device, small_disk):
    fill(small_disk)
    ran = run("--upgrade", "-y", "--backup", small_disk / "saved", old_device)
    assert ran.returncode == 1
    assert "no room left" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert versions(old_device, old_device.parent / "second") == ["0001", "0001"]
    assert [path.name for path in small_disk.iterdir()] == ["filling"]


def test_a_full_disk_of_the_device_leaves_it_as_it_is(old_device, small_disk, tmp_path):
    place = small_disk / "QUE"
    shutil.copy(old_device, place)
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.execute("UPDATE entry SET path = ? WHERE dlindex = 0", (str(place),))
        connection.commit()
    fill(small_disk)
    ran = run("--upgrade", "-y", "--backup", tmp_path / "saved", place)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    (small_disk / "filling").unlink()
    assert versions(place, old_device.parent / "second") == ["0001", "0001"]


def test_a_backup_is_never_overwritten(old_device, tmp_path):
    (tmp_path / "saved").mkdir()
    ran = run("--upgrade", "-y", "--backup", tmp_path / "saved", old_device)
    assert ran.returncode == 1
    assert "exists already" in ran.stderr
    assert versions(old_device) == ["0001"]


def test_a_backup_that_cannot_be_made_is_named(old_device, tmp_path):
    ran = run("--upgrade", "-y", "--backup", tmp_path / "absent" / "saved", old_device)
    assert ran.returncode == 1
    assert f"making the backup '{tmp_path}/absent/saved' failed: No such file or directory" in ran.stderr
    assert versions(old_device) == ["0001"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--plan"], "Option --plan belongs to --upgrade, which is missing"),
        (["--backup", "X"], "Option --backup belongs to --upgrade, which is missing"),
        (["--upgrade", "-c", "lidl"], "Options -c and --upgrade exclude each other"),
        (["--upgrade", "--backup", "X", "--backed-up"], "Options --backup and --backed-up exclude each other"),
    ],
)
def test_options_that_make_no_sense_are_refused(old_device, arguments, sentence):
    ran = run(*arguments, old_device)
    assert ran.returncode == 2
    assert sentence in ran.stderr


@pytest.mark.parametrize("name", ["absent", "."])
def test_what_is_not_a_device_is_refused_in_a_sentence(tmp_path, name):
    ran = run("--upgrade", "-y", tmp_path / name)
    assert ran.returncode in (1, 2)
    assert "Traceback" not in ran.stderr
    assert str(tmp_path) in ran.stderr


def test_a_plan_counts_bytes_and_time_of_all_volumes(old_device):
    plan = plan_upgrade(old_device)
    assert (plan.version, plan.target) == (1, schema.VERSION)
    assert plan.size == sum((old_device.parent / name).stat().st_size for name in ("QUE", "second"))
    assert plan.seconds >= 1
