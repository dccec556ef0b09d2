"""An application under gevent, as gunicorn and Celery run it: its greenlets are threads to it."""

import subprocess
import sys

import pytest

from tests.fix_process import environment
from tests.fix_store import drain

pytest.importorskip("gevent")

BEGIN = """
from gevent import monkey
monkey.patch_all()
import os, signal, sys
import gevent
from gevent.event import Event
import qmadmin
device = qmadmin.open_device(sys.argv[1])
space = device.open_space("SPACE")

def together(act, count):
    done = [gevent.spawn(act, number) for number in range(count)]
    gevent.joinall(done, timeout=240)
    return [each.get(block=False) for each in done]
"""


def run(device, script):
    """Run a script under gevent to its end; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, device.path],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_greenlets_that_wait_for_messages_let_others_go_on(real_device):
    script = """
waiting = [gevent.spawn(lambda: space.dequeue("Q", wait=60).text) for _ in range(5)]
gevent.sleep(0)
for body in "abcde":
    space.enqueue("Q", body)
gevent.joinall(waiting, timeout=240)
print(*sorted(each.get(block=False) for each in waiting))
"""
    assert run(real_device, script) == ["a", "b", "c", "d", "e"]


def test_each_greenlet_has_its_own_transaction(real_device):
    script = """
begun, ended = Event(), Event()

def inside():
    with space.transaction() as transaction:
        space.enqueue("Q", "inside")
        begun.set()
        ended.wait(60)
        transaction.rollback()

task = gevent.spawn(inside)
begun.wait(60)
space.enqueue("Q", "outside")
ended.set()
task.get(timeout=240)
print(*(message.text for message in iter(lambda: space.dequeue("Q"), None)))
"""
    assert run(real_device, script) == ["outside"]


def test_many_greenlets_and_another_process_lose_and_double_nothing(real_device):
    script = """
def move(greenlet):
    for number in range(10):
        with space.transaction():
            space.enqueue("Q", f"{greenlet}-{number}")
            gevent.sleep(0)

together(move, 10)
print("done")
"""
    with (
        real_device.open_space("SPACE") as space,
        subprocess.Popen(
            [sys.executable, "-c", BEGIN + script, real_device.path],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        for number in range(50):
            space.enqueue("Q", f"plain-{number}")
        assert other.communicate(timeout=120)[0] == "done\n"
        taken = drain(space)
    assert (len(taken), len(set(taken))) == (150, 150)


def test_signals_still_reach_it(real_device):
    script = """
heard = Event()
signal.signal(signal.SIGUSR1, lambda *_: heard.set())
os.kill(os.getpid(), signal.SIGUSR1)
print(heard.wait(60))
"""
    assert run(real_device, script) == ["True"]
