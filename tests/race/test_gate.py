"""The gate in front of SQLite's single writer: who writes much, and again and again, goes behind those who wait."""

import signal
import sys

import pytest

from qmcore.probe import Point
from qmcore.purpose import Purpose
from qmstorage.sqlite import group_commit, writer_gate
from qmstorage.sqlite.files import run_directory
from tests.fix_store import Work, drain, noted
from tests.interrupts import at_every_line

TELLING = """
from qmstorage.sqlite import writer_gate

wait = writer_gate.WakeupPipe.wait


def told(calls, seconds):
    if writer_gate.WakeupPipe.wait is told:
        writer_gate.WakeupPipe.wait = wait
        say("waits")
    wait(calls, seconds)
"""
"""What says that the process is announced at the gate, and about to sleep there for the first time."""

ARRIVING = """
from qmcore.purpose import Purpose

_, path, purpose, seconds = sys.argv
writer_gate._BEHIND_SECONDS = float(seconds)
with open_device(path) as device, device.open_space("SPACE") as space:
    attachment = space.probe.attachments["SPACE"]
    say("ready")
    heard()
    writer_gate.WakeupPipe.wait = told

    def numbered(unit):
        return unit.counters.reserve(attachment.opened.space.id, 1)

    # Whoever is first has the lower number.
    say(attachment.volume.write(numbered, Purpose[purpose])[0])
    heard()
"""

WAITING = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("ready")
    heard()
    # So long that nobody looks by himself before the test is over.
    writer_gate._PAUSE_FIRST = writer_gate._PAUSE_MOST = 60
    writer_gate.WakeupPipe.wait = told
    # What is small would be left to whoever is inside.
    space.enqueue_many("Q", [sys.argv[2].ljust(5000)] * 2)
    say("done")
    heard()
"""

HOLDING = """
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    with space.probe.attachments["SPACE"].volume.quiesced(10):
        say("holds")
        heard()
    say("let go")
    heard()
"""


@pytest.fixture
def arriving(start, file_device):
    def arrives(purpose, seconds):
        child = start(TELLING + ARRIVING, file_device.path, purpose.name, seconds)
        child.expect("ready")
        return child

    return arrives


@pytest.fixture
def holding(start, file_device):
    def holds():
        child = start(HOLDING, file_device.path)
        child.expect("holds")
        return child

    return holds


def test_patient_work_goes_behind_those_who_wait(arriving, holding, file_device):
    patient, other = arriving(Purpose.BULK, 60), arriving(Purpose.HOLDING, 60)
    holder = holding()
    patient.say()
    other.say()
    other.expect("waits")
    holder.say()
    other.expect("1")
    patient.expect("2")


def test_patient_work_is_not_kept_back_by_a_process_that_waits_and_stands_still(arriving, holding, file_device):
    other, patient = arriving(Purpose.HOLDING, 0), arriving(Purpose.BULK, 0.01)
    holder = holding()
    other.say()
    other.expect("waits")
    other.freeze()
    holder.say()
    holder.expect("let go")
    patient.say()
    patient.expect("1")
    other.signal(signal.SIGCONT)
    other.expect("2")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each who waits looks by himself")
def test_who_leaves_the_gate_calls_one_who_waits_and_that_one_the_next(start, holding, file_device):
    names = ["first", "second", "third"]
    children = [start(TELLING + WAITING, file_device.path, name) for name in names]
    for child in children:
        child.expect("ready")
    holder = holding()
    for child in children:
        child.say()
    for child in children:
        child.expect("waits")
    holder.say()
    for child in children:
        child.expect("done")
    with file_device.open_space("SPACE") as space:
        assert sorted(text.strip() for text in drain(space)) == sorted(names * 2)


LOOKING = """
import fcntl

with open(sys.argv[1], "r+b") as file:
    say("ready")
    while heard():
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            fcntl.lockf(file, fcntl.LOCK_UN, 1, 0)
            say("open")
        except OSError:
            say("closed")
"""


@pytest.mark.parametrize("module", [writer_gate, group_commit], ids=lambda module: module.__name__)
def test_the_gate_is_open_and_work_is_done_wherever_a_call_is_interrupted(start, file_device, module):
    with file_device.open_space("SPACE") as space:
        looking = start(LOOKING, run_directory(file_device.path) / "gate")
        looking.expect("ready")
        queued = noted(space.probe, Point.QUEUED)
        for _ in at_every_line(module, lambda: space.enqueue("Q", "mine")):
            looking.say("look")
            looking.expect("open")
            queued.clear()
            space.enqueue("Q", "next")
            assert queued == [1], "who was interrupted does not stand in line"
            assert Work(lambda: space.enqueue("Q", "another's")).results()
            drain(space)
