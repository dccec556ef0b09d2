"""A device whose upgrade is killed is old or new, in all of its files, and the next one finishes it."""

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


def meeting(end, directory):
    """Return the environment in which the program comes to its end, or to a halt, before it commits."""
    settings = doom.environment_of(
        doom.Doom("qmstorage.sqlite.upgrading:_Group.commit", number=end), directory / "mark", directory / "site"
    )
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
    stopping = meeting(signal.SIGSTOP, tmp_path)
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


def test_a_killed_upgrade_is_done_by_the_next_one(old_device, tmp_path):
    killed = subprocess.run([*PROGRAM, old_device], check=False, env=meeting(signal.SIGKILL, tmp_path))
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "mark").exists()
    finished = subprocess.run([*PROGRAM, old_device], check=False, env=environment(), stdout=subprocess.DEVNULL)
    assert finished.returncode == 0
    with qmadmin.open_device(old_device) as device:
        assert contents(device) == CONTENT
