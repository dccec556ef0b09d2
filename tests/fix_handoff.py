"""Processes that meet before the gate of a device: one that is inside, and others that leave it their works."""

from __future__ import annotations

import contextlib

import pytest

from qmadmin.opening import open_device
from qmcore import selection
from qmcore.acts.dequeue import Wanted, claims_for
from qmstorage.sqlite import files, handoff, handoff_memory
from tests.fix_store import attachment_of

SERVING = """
from qmcore.probe import Point
from qmstorage.sqlite import handoff, handoff_requests, handoff_memory

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

looks = handoff_memory.Places.any_posted

def pauses_and_looks(its):
    handoff_memory.Places.any_posted = looks
    say("inside")
    heard()
    return looks(its)

def fails(_commit):
    raise OSError(5, "Input/output error")

def undoes(unit, request):
    import sqlite3
    from sqlalchemy import text
    unit.run(text("ROLLBACK"))
    raise sqlite3.OperationalError("database or disk is full")

_, path, step, *act = sys.argv
with open_device(path) as device, device.open_space("SPACE") as space:
    around(handoff_memory.Places, "asked", after="read")
    around(handoff_requests, "run", after="taken")
    around(handoff.Handoff, "serve", after="answered")
    around(handoff.Handoff, "note_committed", before="committed", after="noted")
    around(handoff.Handoff, "tell", before="synced")
    say("ready")
    heard()
    handoff_memory.Places.any_posted = pauses_and_looks
    if step == "undone":
        handoff_requests.run = undoes
    if step == "sync fails":
        space.probe.at(Point.BEFORE_SYNC, fails)
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
from qmstorage.sqlite.counters import ExclusiveCounters

post, enters = handoff.Handoff.post, writer_gate.WriterGate.try_enter
posted = []

def notes_and_posts(its, request):
    left = post(its, request)
    if left:
        posted.append(request)
    return left

def enters_or_tells(its):
    "Try to enter; do what is to be done where that fails the first time after something was posted."
    if posted and "forks at the gate" in how:
        writer_gate.WriterGate.try_enter = enters
        forks()
        if forked:
            say("child", os.waitpid(forked, 0)[1] >> 8)
        return enters(its)
    inside = enters(its)
    if posted and not inside:
        writer_gate.WriterGate.try_enter = enters
        {"forks": forks, "late": is_late}.get("".join(how[:1]), lambda: say("posted"))()
    return inside

def is_late():
    say("posted")
    heard()
    # As if it had stood still for so long.
    handoff.time = types.SimpleNamespace(monotonic=lambda: time.monotonic() + 1000, sleep=time.sleep)

def forks():
    say("posted")
    heard()
    global forked
    forked = os.fork()

def is_interrupted(its):
    handoff.Handoff.withdraw = withdraw
    raise KeyboardInterrupt

def fails(*_):
    raise sqlite3.OperationalError("disk I/O error")

_, path, act, *how = sys.argv
with open_device(path) as device, device.open_space("SPACE") as space:
    space.enqueue("ERRORS", "something else")
    if "impatient" in how:
        translate.BUSY_SECONDS = 0.3
    if "garbage" in how:
        handoff_requests.packed = lambda request: b"\\xc1"
    if "too short" in how:
        packed = handoff_requests.packed
        unpackb, packb = handoff_requests.unpackb, handoff_requests.packb
        handoff_requests.packed = lambda request: packb([*unpackb(packed(request))[:-1], [0, 1, b""]])
    handoff.Handoff.post, writer_gate.WriterGate.try_enter = notes_and_posts, enters_or_tells
    withdraw = handoff.Handoff.withdraw
    if "twice" in how:
        handoff.Handoff.withdraw = is_interrupted
    if "counts unread" in how:
        ExclusiveCounters.handoff_commit = fails
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


KNOWING = """
from qmcore.acts.dequeue import Wanted, claims_for
from qmcore.selection import FIRST
from qmstorage.sqlite import files, handoff_memory, wal

claim, open_handoff = handoff_memory.Places.claim, wal.open_handoff
handoffs, claimed = [], []

def notes_and_claims(*arguments):
    claimed.append(claim(*arguments))
    return claimed[-1]

def notes_and_opens(*arguments):
    handoffs.append(open_handoff(*arguments))
    return handoffs[-1]

handoff_memory.Places.claim, wal.open_handoff = notes_and_claims, notes_and_opens
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
# So that the definitions are known.
space.enqueue("ERRORS", "message")
(handoff,) = handoffs
opened = space.probe.attachments["SPACE"].opened
assert handoff.post(claims_for(opened, opened.known, Wanted("Q", FIRST, 1))[0])
handoff.withdraw()
((place, number),) = claimed
"""
"""Opens a queue space, takes a place, and knows its handoff, the place, and the number that was used there last."""


def places_of(path):
    """Return the places of a device's handoff, in which its processes leave each other works."""
    return handoff_memory.open_places(files.surroundings(path))


class Posting:
    """A handoff of its own on the file of a device, as another process has one, and the places that all share."""

    def __init__(self, path, file=None):
        self.places = places_of(path)
        self.handoff = handoff.Handoff(self.places, path, file or files.identity(path))

    @property
    def place(self):
        """The place that it has; it has posted something."""
        ((place, _),) = self.places.posts()
        return place

    def word(self):
        """Return how far its work is, in two bits."""
        return self.places.taken[self.place] & 3

    def close(self):
        self.handoff.close()


@pytest.fixture
def posts(file_device):
    """Opens a handoff whose process posts, and names the file that it says to have open."""
    with contextlib.ExitStack() as stack:
        yield lambda file=None: stack.enter_context(contextlib.closing(Posting(file_device.path, file)))


@pytest.fixture
def serving(file_device):
    """A queue space with a message, in which the work that was posted is done."""
    with open_device(file_device.path) as device, device.open_space("SPACE") as space:
        yield space


@pytest.fixture
def departure(serving):
    """A work to be posted: a dequeue of the first message."""
    found = departure_of(serving)
    serving.enqueue("Q", FIRST)
    return found


def departure_of(space):
    """Return how the first message of the queue is to go."""
    space.enqueue("Q", "makes the definitions known")
    assert space.dequeue("Q")
    opened = attachment_of(space).opened
    (claim,) = claims_for(opened, opened.known, Wanted("Q", selection.FIRST, 1))
    return claim


class Closed:
    """The gate as it is while another is inside."""

    def try_enter(self):
        return False
