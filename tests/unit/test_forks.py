"""A fork of the process, and what its threads are doing then."""

import os
import subprocess
import sys
import threading

import pytest

from qmstorage.forks import FORKS
from tests.fix_process import environment
from tests.fix_store import DEADLINE


@pytest.fixture
def at_next_fork():
    """Have something done at the beginning of the next fork, before anything of ours is."""
    acts = []
    # It stays registered: there is no way back.
    os.register_at_fork(before=lambda: acts and acts.pop()())
    yield acts.append
    acts.clear()


def forked(ask):
    """Return what a forked child says of itself, in a word."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, ask().encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_inherits_no_lock_of_a_library_that_another_thread_is_calling(at_next_fork):
    shared, called, go_on = threading.Lock(), threading.Event(), threading.Event()

    def call():
        with FORKS.held_off(), shared:
            called.set()
            assert go_on.wait(DEADLINE)

    thread = threading.Thread(target=call)
    thread.start()
    assert called.wait(DEADLINE)
    at_next_fork(go_on.set)
    assert forked(lambda: "held" if shared.locked() else "free") == "free"
    thread.join()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_call_that_does_not_return_and_one_of_the_thread_that_forks_keep_no_fork_waiting_for_ever():
    called, go_on = threading.Event(), threading.Event()

    def call():
        with FORKS.held_off():
            called.set()
            assert go_on.wait(DEADLINE)

    thread = threading.Thread(target=call)
    thread.start()
    assert called.wait(DEADLINE)
    with FORKS.held_off(), FORKS.held_off():
        assert forked(lambda: "forked") == "forked"
    go_on.set()
    thread.join()
    assert forked(lambda: "forked again") == "forked again"


ENDING = """
import os, threading
from pathlib import Path

number, found = 0, []
# Registered before ours, and so called after it.
os.register_at_fork(before=lambda: found.append(Path(f"/proc/self/task/{number}").exists()))

from qmstorage.forks import FORKS

def call():
    global number
    with FORKS.held_off():
        number = threading.get_native_id()

for _ in range(200):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print(sum(found))
"""


def test_a_thread_that_has_called_the_library_has_ended_before_a_fork_and_not_for_python_alone():
    done = subprocess.run([sys.executable, "-c", ENDING], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
