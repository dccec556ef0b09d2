"""Who lives, where a process has closed a descriptor of the files that tell it, and so has lost its locks on them."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.fix_store import drain

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere such a process is taken for dead")

READING = """
from pathlib import Path

def read_all(device):
    "Read all that is beside the device, as a backup or a program that hashes files does."
    path = Path(device)
    for found in (*path.parent.glob(path.name + "*"), *path.with_name(path.name + "-run").iterdir()):
        if found.is_file():
            found.read_bytes()
"""

HOLDING = (
    READING
    + """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    with space.transaction():
        space.dequeue("Q")
        read_all(device.path)
        say("holds")
        HELD
    say("committed")
    heard()
"""
)

LOOKING = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say(space.dequeue("Q"))
"""


@pytest.fixture
def space(file_device):
    with file_device.open_space("SPACE") as opened:
        opened.enqueue("Q", "job")
        yield opened


def test_a_process_that_has_read_what_is_beside_its_device_is_not_taken_for_dead(space, file_device, start):
    path = file_device.path
    child = start(HOLDING.replace("HELD", "heard()"), path)
    child.expect("holds")
    space.close()
    file_device.close()
    # Whoever leaves seems to SQLite to be the last one.
    for _ in range(2):
        looker = start(LOOKING, path)
        looker.expect("None")
        looker.finish()
        assert Path(f"{path}-wal").exists()
    child.say()
    child.expect("committed")
    start(LOOKING, path).expect("None")
    child.say()
    child.finish()


@pytest.mark.parametrize("how", ["is killed", "becomes another program"])
def test_it_is_dead_all_the_same_when_it(space, file_device, start_fresh, how):
    becoming = "os.execv(sys.executable, [sys.executable, '-c', 'print(\"another\", flush=True); input()'])"
    child = start_fresh(HOLDING.replace("HELD", "heard()" if how == "is killed" else becoming), file_device.path)
    child.expect("holds")
    if how == "is killed":
        # Nobody asks about it yet, so that it is a zombie.
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    else:
        child.expect("another")
    assert drain(space) == ["job"]


FORKING = """import ctypes
        # As programs in C do, which tell Python nothing of it.
        forked = ctypes.CDLL(None).fork()
        if not forked:
            signal.pause()
        say(forked)
        heard()"""


def test_it_is_dead_when_only_a_fork_has_its_files(space, file_device, start):
    child = start(HOLDING.replace("HELD", FORKING), file_device.path)
    child.expect("holds")
    forked = int(child.line())
    try:
        child.process.kill()
        child.process.wait()
        assert drain(space) == ["job"]
    finally:
        os.kill(forked, signal.SIGKILL)
