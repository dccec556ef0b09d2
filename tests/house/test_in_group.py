"""scripts/in_group.py leaves nothing of a command running."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

IN_GROUP = Path(__file__).parents[2] / "scripts" / "in_group.py"


def start(script):
    """Run a shell script in a group; return the process and the number that the script printed."""
    process = subprocess.Popen(
        [sys.executable, IN_GROUP, "/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    return process, int(process.stdout.readline())


def is_running(number):
    """Return whether the process is there and no zombie, whose parent may be slow to notice."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not Path("/proc/self").exists()


def assert_ends(number):
    deadline = time.monotonic() + 240
    while is_running(number):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_status_of_the_command_is_passed_on():
    assert subprocess.run([sys.executable, IN_GROUP, "/bin/sh", "-c", "exit 7"], check=False).returncode == 7


def test_a_command_that_is_not_there_is_named():
    done = subprocess.run([sys.executable, IN_GROUP, "/no/such"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "/no/such: No such file or directory\n")


def test_what_a_command_leaves_behind_is_ended():
    process, left = start("sleep 1000 >/dev/null & echo $!")
    assert process.wait(timeout=240) == 0
    process.stdout.close()
    assert_ends(left)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_whole_group(number):
    process, left = start("sleep 1000 >/dev/null & echo $!; wait")
    os.kill(process.pid, number)
    assert process.wait(timeout=240) == 128 + number
    process.stdout.close()
    assert_ends(left)
