"""Threads that wait beside the one that asks, and what is done where there are none."""

import subprocess
import sys
import threading

import pytest

from qmadmin.side_threads import SideThreads


class Done:
    """Acts that note which thread has done them."""

    def __init__(self):
        self.by = []

    def act(self):
        self.by.append(threading.get_ident())


@pytest.fixture
def threads():
    made = SideThreads()
    yield made
    made.stop()


def test_acts_are_done_beside_the_one_that_asks(threads):
    both = threading.Barrier(2, timeout=60)
    threads.do([both.wait], [both.wait], [])
    threads.do([], [], [both.wait, both.wait])


def test_what_one_of_them_raises_is_raised_when_all_are_done(threads):
    done = Done()

    def fails():
        raise ValueError("it fails")

    with pytest.raises(ValueError, match="it fails"):
        threads.do([fails, done.act], [], [])
    assert len(done.by) == 1


@pytest.mark.parametrize("used", [False, True])
def test_after_the_end_of_them_the_one_that_asks_does_all_of_it(threads, used):
    done = Done()
    if used:
        threads.do([lambda: None], [], [])
    threads.stop()
    threads.do([done.act], [done.act], [done.act, done.act])
    assert done.by == [threading.get_ident()] * 4


@pytest.mark.parametrize("used", [False, True])
def test_so_it_does_after_the_main_thread_has_ended(used):
    program = f"""
import threading
from qmadmin.side_threads import SideThreads

threads = SideThreads()
if {used}:
    threads.do([lambda: None], [], [])

def work():
    threading.main_thread().join()
    threads.do([lambda: print("beside")], [lambda: print("here")], [lambda: print("then")] * 2)

threading.Thread(target=work).start()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.stdout.split(), ended.stderr) == (["beside", "here", "then", "then"], "")
