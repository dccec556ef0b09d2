"""A device whose upgrade is killed is old or new, in all of its files, and the next one finishes it."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import qmadmin
from qmadmin.opening import plan_upgrade, upgrade_device
from qmcore.errors import OperatingSystemError, QueueError, ReleaseError
from qmstorage import schema
from qmstorage.sqlite import upgrading
from tests import doom
from tests.fix_release import CONTENT, are_known, contents, environment, tables, versions

PROGRAM = [sys.executable, "-m", "qmadmin.program", "--upgrade", "-y"]


GROUP = "qmstorage.sqlite.upgrading:_Group"


def meeting(end, directory):
    """Return the environment in which the program comes to its end, or to a halt."""
    settings = doom.environment_of(end, directory / "mark", directory / "site")
    settings["PYTHONPATH"] = f"{directory / 'site'}{os.pathsep}{Path(__file__).parents[2]}"
    return environment() | settings


def states_of(directory, process):
    """Return copies of the files as a process that is stopped again and again has left them, as a kill would."""
    found, last = [], None
    # As long as there is a journal; on a slow machine each stop leaves it little time, and it has to come to its end.
    for _ in range(20_000):
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        seen = {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in directory.glob("[Qs]*[!n]")}
        if seen != last:
            last = seen
            state = directory.parent / f"state-{len(found)}"
            shutil.copytree(directory, state, symlinks=True, ignore=shutil.ignore_patterns("*backup*", "*-run"))
            found.append(state)
        if "QUE-journal" not in seen:
            break
        os.kill(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGCONT)
    return found


def test_all_files_are_old_or_new_wherever_the_program_stands_in_the_commit(old_device, tmp_path):
    place = old_device.parent
    # It stops by itself before the commit, and is stopped in it from then on.
    stopping = meeting(doom.Doom(f"{GROUP}.commit", number=signal.SIGSTOP), tmp_path)
    process = subprocess.Popen([*PROGRAM, old_device], stdout=subprocess.DEVNULL, env=stopping)
    states = states_of(place, process)
    assert process.wait() == 0
    assert versions(old_device, place / "second") == [schema.REVISION] * 2
    assert states
    for state in states:
        # SQLite's journals name each other by their paths, so that each state is looked at where it was.
        shutil.rmtree(place)
        shutil.copytree(state, place, symlinks=True)
        assert versions(old_device, place / "second") in (["0001"] * 2, [schema.REVISION] * 2)


# ---- more files than SQLite commits together -------------------------------------------------------------------------


OTHERS = range(2, 13)
"""The indexes of the files beside the device and its second one: two groups of files."""


@pytest.fixture
def large_device(old_device):
    """The device of the release with 13 files, in each of which but the first is a queue space with a message."""
    with contextlib.closing(sqlite3.connect(old_device)) as main:
        for index in OTHERS:
            path = old_device.parent / f"volume-{index}"
            shutil.copy(old_device.parent / "second", path)
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("UPDATE space SET name = ?, incarnation = ?", (f"OTHER{index}", f"{index:016x}"))
                connection.commit()
            main.execute("INSERT INTO entry VALUES (?, ?, 0, 500)", (index, str(path)))
            main.execute("INSERT INTO extent VALUES (?, 0, ?, 0, 400)", (f"OTHER{index}", index))
        main.commit()
    return old_device


def files_of(device):
    return [device, device.parent / "second", *(device.parent / f"volume-{index}" for index in OTHERS)]


WHERE = {
    "before the device says so": (doom.Doom(f"{GROUP}.say"), ["0001"] * 13),
    "before the first group": (doom.Doom(f"{GROUP}.commit", time=2), ["9001", *["0001"] * 12]),
    "after the first group": (
        doom.Doom(f"{GROUP}.commit", "return", 2),
        ["9001", *["0001"] * 10, *[schema.REVISION] * 2],
    ),
    "after all": (doom.Doom(f"{GROUP}.commit", "return", 3), [schema.REVISION] * 13),
}


@pytest.mark.parametrize("where", WHERE)
def test_a_large_device_that_was_killed_is_old_or_new_or_refused_until_the_same_command_has_finished_it(
    large_device, where, tmp_path
):
    end, expected = WHERE[where]
    killed = subprocess.run(
        [*PROGRAM, large_device], check=False, env=meeting(end, tmp_path), stdout=subprocess.DEVNULL
    )
    assert killed.returncode == -signal.SIGKILL
    assert versions(*files_of(large_device)) == expected
    if expected[0] == "9001":
        with pytest.raises(ReleaseError, match=f"was cut short: finish it with qmadmin --upgrade {large_device}"):
            qmadmin.open_device(large_device)
    finished = subprocess.run([*PROGRAM, large_device], check=False, env=environment(), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert ("made before the upgrade began" in finished.stdout) == (expected[0] == "9001")
    assert len(list(large_device.parent.glob("QUE.backup-*"))) == 1 + (expected[0] == "0001")
    assert versions(*files_of(large_device)) == [schema.REVISION] * 13
    assert len({str(tables(path)) for path in files_of(large_device)}) == 1
    with qmadmin.open_device(large_device) as device:
        assert contents(device) == CONTENT | {(f"OTHER{index}", "Q2"): [b"elsewhere"] for index in OTHERS}
        assert are_known(device)


def test_a_backup_from_before_the_kill_has_all_of_a_large_device_as_it_was(large_device, tmp_path):
    end, _ = WHERE["after the first group"]
    command = [*PROGRAM, "--backup", tmp_path / "saved", large_device]
    subprocess.run(command, check=False, env=meeting(end, tmp_path), stdout=subprocess.DEVNULL)
    saved = [tmp_path / "saved" / name for name in ("device", *(f"volume-{at}" for at in range(1, 13)))]
    assert versions(*saved) == ["0001"] * 13
    assert subprocess.run(command, check=False, env=environment(), stdout=subprocess.DEVNULL).returncode == 0
    assert versions(*files_of(large_device)) == [schema.REVISION] * 13


def test_the_plan_says_in_how_many_groups_a_large_device_is_upgraded(large_device):
    command = [*PROGRAM, "--plan", large_device]
    told = subprocess.run(command, check=True, env=environment(), capture_output=True, text=True).stdout
    assert "in 2 groups of volumes, one after the other; if it is cut short between two, every release" in told
    assert "together or none" not in told


def test_what_is_in_the_way_of_a_later_group_leaves_a_large_device_as_it_was(large_device):
    plan = plan_upgrade(large_device)
    journal = large_device.parent / "volume-12-journal"
    journal.mkdir()
    with pytest.raises(QueueError):
        upgrade_device(large_device, plan, None)
    journal.rmdir()
    assert versions(*files_of(large_device)) == ["0001"] * 13
    upgrade_device(large_device, plan, None)
    assert versions(*files_of(large_device)) == [schema.REVISION] * 13


def test_a_later_group_that_fails_in_its_commit_is_told_and_done_by_the_next_upgrade(large_device, monkeypatch):
    commit, calls = upgrading._Group.commit, []

    def fails(group):
        calls.append(group)
        if len(calls) == 2:
            raise OperatingSystemError("there is no room left on the disk")
        commit(group)

    monkeypatch.setattr(upgrading._Group, "commit", fails)
    with pytest.raises(OperatingSystemError, match="is not finished: there is no room left on the disk") as refusal:
        upgrade_device(large_device, plan_upgrade(large_device), None)
    assert "which goes on from here" in refusal.value.hint
    assert versions(*files_of(large_device)) == ["9001", *["0001"] * 12]
    plan = plan_upgrade(large_device)
    assert (plan.version, plan.under_way) == (1, True)
    upgrade_device(large_device, plan, None)
    assert versions(*files_of(large_device)) == [schema.REVISION] * 13


def test_a_killed_upgrade_is_done_by_the_next_one(old_device, tmp_path):
    killed = subprocess.run([*PROGRAM, old_device], check=False, env=meeting(doom.Doom(f"{GROUP}.commit"), tmp_path))
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "mark").exists()
    finished = subprocess.run([*PROGRAM, old_device], check=False, env=environment(), stdout=subprocess.DEVNULL)
    assert finished.returncode == 0
    with qmadmin.open_device(old_device) as device:
        assert contents(device) == CONTENT
