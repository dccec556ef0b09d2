"""Processes that meet before the gate of a device: one that is inside, and others that leave it their works."""

from __future__ import annotations

import contextlib

import pytest

from qmadmin.opening import open_device
from qmcore.acts.plain import departure_from

SERVING = """
from qmstorage.sqlite import wal, handoff, handoff_requests, handoff_memory

def pause(where):
    if where == step:
        say(where)
        if heard() == "interrupt":
            raise KeyboardInterrupt

def around(owner, name, before="", after=""):
    does = getattr(owner, name)
    def paused(*arguments):
        pause(before)
        found = does(*arguments)
        pause(after)
        return found
    setattr(owner, name, paused)

looks = handoff.Desk.has_posts

def pauses_and_looks(its):
    handoff.Desk.has_posts = looks
    say("inside")
    heard()
    return looks(its)

def fails(_):
    raise OSError(5, "Input/output error")

def undoes(unit, request):
    import sqlite3
    unit._cursor.execute("ROLLBACK")
    raise sqlite3.OperationalError("database or disk is full")

_, path, step, *act = sys.argv
with open_device(path) as device, device.open_space("SPACE") as space:
    around(handoff_memory.Places, "asked", after="read")
    around(handoff_requests, "run", after="taken")
    around(handoff.Desk, "serve", after="answered")
    around(handoff.Desk, "note_committed", before="committed", after="noted")
    around(handoff.Desk, "tell", before="synced")
    say("ready")
    heard()
    handoff.Desk.has_posts = pauses_and_looks
    if step == "undone":
        handoff_requests.run = undoes
    if step == "sync fails":
        wal._sync = fails
    try:
        if act:
            say(space.dequeue("Q").text)
        else:
            space.enqueue("Q", "server's")
            say("done")
    except QueueError as error:
        say(error.name)
    except KeyboardInterrupt:
        say("interrupted")
    heard()
"""
"""Enqueues a message, or dequeues one; pauses before it looks what was posted, and again at a step of doing that."""

OWNING = """
import sqlite3
import time
import types
from qmstorage.sqlite import handoff, handoff_requests, writer_gate, translate
from qmstorage.sqlite.unit import SqliteUnit

rest = handoff.Desk._rest

def tells_and_rests(its):
    handoff.Desk._rest = rest
    say("posted")
    rest(its)

def tells_and_is_late(its):
    handoff.Desk._rest = rest
    say("posted")
    heard()
    # As if it had stood still for so long.
    handoff.time = types.SimpleNamespace(monotonic=lambda: time.monotonic() + 1000, sleep=time.sleep)

def tells_and_forks(its):
    handoff.Desk._rest = rest
    say("posted")
    heard()
    global forked
    forked = os.fork()

def forks_and_enters(its):
    handoff.Desk._rest = rest
    say("posted")
    heard()
    writer_gate.Gate.enters_at_once = enters
    global forked
    forked = os.fork()
    if forked:
        say("child", os.waitpid(forked, 0)[1] >> 8)
    return enters(its)

def is_posted(its):
    if space._attachment.volume._beside.desk.asked:
        return forks_and_enters(its)
    return enters(its)

def is_interrupted(its):
    handoff.Desk.withdraw = withdraw
    raise KeyboardInterrupt

def fails(*_):
    raise sqlite3.OperationalError("disk I/O error")

_, path, act, *how = sys.argv
with open_device(path) as device, device.open_space("SPACE") as space:
    space.enqueue("ERRORS", "something else")
    if "impatient" in how:
        translate.BUSY_SECONDS = 0.3
    if "garbage" in how:
        handoff_requests.packed = lambda errand: b"\\xc1"
    if "too short" in how:
        packed = handoff_requests.packed
        unpackb, packb = handoff_requests.unpackb, handoff_requests.packb
        handoff_requests.packed = lambda errand: packb([*unpackb(packed(errand))[:-1], [0, 1, b""]])
    handoff.Desk._rest = {"forks": tells_and_forks, "late": tells_and_is_late}.get("".join(how[:1]), tells_and_rests)
    enters, withdraw = writer_gate.Gate.enters_at_once, handoff.Desk.withdraw
    if "forks at the gate" in how:
        writer_gate.Gate.enters_at_once = is_posted
    if "twice" in how:
        handoff.Desk.withdraw = is_interrupted
    if "counts unread" in how:
        SqliteUnit.errands_committed = fails
    say("ready")
    heard()
    try:
        if act == "enqueue":
            space.enqueue("Q", "owner's")
            say("done")
        else:
            say(space.dequeue("Q").text)
    except QueueError as error:
        if how[:1] in (["forks"], ["forks at the gate"]) and forked == 0:
            os._exit(7 if error.name == "QMENOTOPEN" else 8)
        say(error.name)
    except KeyboardInterrupt:
        say("interrupted")
    if "forks" in how:
        say("child", os.waitpid(forked, 0)[1] >> 8)
    if heard() == "dequeue":
        say(space.dequeue("Q").text)
"""
"""Enqueues a message, or dequeues one, and says when that is posted."""

FIRST = "first"


@pytest.fixture
def meeting(start, file_device):
    """Let a process be inside, and others post a work; the first goes on then, as far as a step."""

    def meets(step, act="enqueue", *how, served_by=(), owners=1):
        with file_device.open_space("SPACE") as space:
            space.enqueue("Q", FIRST)
        server = start(SERVING, file_device.path, step, *served_by)
        children = server, *(start(OWNING, file_device.path, act, *how) for _ in range(owners))
        for child in children:
            child.expect("ready")
        server.say()
        server.expect("inside")
        for owner in children[1:]:
            owner.say()
            owner.expect("posted")
        return children

    return meets


@pytest.fixture
def two(file_device):
    """A desk whose process posts, as it asks its queue space for a message; the queue space of another device on it."""
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(open_device(file_device.path)) for _ in range(2))
        posting, serving = (stack.enter_context(device.open_space("SPACE")) for device in (first, second))
        departure = departure_of(posting)
        serving.enqueue("Q", FIRST)
        yield posting._attachment.volume._beside.desk, departure, serving


def departure_of(space):
    """Return how the first message of the queue is to go."""
    space.enqueue("Q", "makes the definitions known")
    assert space.dequeue("Q")
    departure = departure_from(space._attachment.opened, "Q", 0)
    assert departure is not None
    return departure


class Closed:
    """The gate as it is while another is inside."""

    def enters_at_once(self):
        return False
