"""A device whose upgrade is killed is old or new, in all of its files, and the next one finishes it."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import qmadmin
from qmstorage import schema
from tests import doom
from tests.fix_release import CONTENT, contents, environment, versions

PROGRAM = [sys.executable, "-m", "qmadmin.program", "--upgrade", "-y"]


def states_of(directory, process):
    """Return copies of the files as a process that is stopped again and again has left them, as a kill would."""
    found, last = [], None
    while process.poll() is None and not list(directory.glob("*backup*")):
        # Before the backup has its name nothing is changed.
        os.sched_yield()
    while process.poll() is None:
        os.kill(process.pid, signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        seen = {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in directory.glob("[Qs]*[!n]")}
        if "QUE-journal" in seen and seen != last:
            last = seen
            state = directory.parent / f"state-{len(found)}"
            shutil.copytree(directory, state, symlinks=True, ignore=shutil.ignore_patterns("*backup*", "*-run"))
            found.append(state)
        os.kill(process.pid, signal.SIGCONT)
    return found


def test_all_files_are_old_or_new_wherever_the_program_stands_in_the_commit(old_device):
    place = old_device.parent
    process = subprocess.Popen([*PROGRAM, old_device], stdout=subprocess.DEVNULL, env=environment())
    states = states_of(place, process)
    assert process.wait() == 0
    assert versions(old_device, place / "second") == [schema.REVISION] * 2
    for state in states:
        # SQLite's journals name each other by their paths, so that each state is looked at where it was.
        shutil.rmtree(place)
        shutil.copytree(state, place, symlinks=True)
        assert versions(old_device, place / "second") in (["0001"] * 2, [schema.REVISION] * 2)


def test_a_killed_upgrade_is_done_by_the_next_one(old_device, tmp_path):
    death = doom.Doom("qmstorage.sqlite.upgrading:_Group.commit")
    settings = doom.environment_of(death, tmp_path / "mark", tmp_path / "site")
    settings["PYTHONPATH"] = f"{tmp_path / 'site'}{os.pathsep}{Path(__file__).parents[2]}"
    killed = subprocess.run([*PROGRAM, old_device], check=False, env=environment() | settings)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "mark").exists()
    finished = subprocess.run([*PROGRAM, old_device], check=False, env=environment(), stdout=subprocess.DEVNULL)
    assert finished.returncode == 0
    with qmadmin.open_device(old_device) as device:
        assert contents(device) == CONTENT
