"""Processes that meet over a schedule: each due moment has one message, whoever is killed in the middle of it."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from qmadmin.opening import open_device
from qmcore.purpose import Purpose
from qmcore.times import MICROS
from tests.fix_store import attachment_of

DUE = 40
"""Moments that are due, each a second behind the other, none of them missed."""

LOOKING = """
from pathlib import Path
from qmcore.probe import Point
from tests.doom import Doom, meet, meet_at_point
from tests.fix_store import attachment_of

_, path, mark, *place = sys.argv
device = open_device(path)
space = device.open_space("SPACE")
say("ready")
heard()
if place:
    # What looks for the definitions, and notes the attachment, is done.
    doom = Doom(place[0], event=place[1], time=3)
    (meet_at_point if place[0] in Point.__members__ else meet)(doom, Path(mark))
attachment_of(space).do_housekeeping(now=True)
say("looked")
"""

WAITING = """
device = open_device(sys.argv[1])
space = device.open_space("SPACE")
say("ready")
while (message := space.dequeue("Q", wait=60)) is not None:
    late = message.enqueued_at - datetime.fromisoformat(message.headers["scheduled_at"])
    say(message.headers["scheduled_at"], late.total_seconds())
"""


@pytest.fixture
def space(real_device):
    with real_device.open_space("SPACE") as opened:
        yield opened


@pytest.fixture
def due(space):
    """A schedule with moments that are due, which nobody has looked after."""

    def create():
        attachment = attachment_of(space)
        made = space.create_schedule("s", "Q", "every 1s")
        first = made.created_us - DUE * MICROS
        earlier = dataclasses.replace(made, counted_from_us=first, next_us=first + MICROS)
        space_id = attachment.opened.space.id
        attachment.volume.write(lambda unit: unit.schedules.change(space_id, earlier), Purpose.ADMINISTRATION)
        return [earlier.counted_from_us + number * MICROS for number in range(1, DUE + 1)]

    return create


def made(path):
    """Look once more, as whoever comes next, and return the moments for which there is a message, as often as it is."""
    with open_device(path) as device, device.open_space("SPACE") as space:
        attachment_of(space).do_housekeeping(now=True)
        space.pause_schedule("s")
        found = space.dequeue_many("Q", 1000)
        return [round(_moment(message) * MICROS) for message in found]


def _moment(message):
    from datetime import datetime

    return datetime.fromisoformat(message.headers["scheduled_at"]).timestamp()


def test_processes_that_look_at_the_same_time_make_one_message_for_each_moment(real_device, due, start, tmp_path):
    children = [start(LOOKING, real_device.path, tmp_path / "mark") for _ in range(3)]
    for child in children:
        child.expect("ready")
    wanted = due()
    for child in children:
        child.say()
    for child in children:
        child.expect("looked")
    found = made(real_device.path)
    assert found[:DUE] == wanted
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "place",
    [
        ("qmcore.acts.enqueue:enqueue_in", "call"),
        ("qmcore.acts.enqueue:enqueue_in", "return"),
        ("qmstorage.schedules:Schedules.note_made", "return"),
        ("BEFORE_COMMIT", ""),
        ("AFTER_COMMIT", ""),
    ],
)
def test_one_that_is_killed_while_it_makes_messages_leaves_none_out_and_makes_none_twice(
    real_device, due, start, tmp_path, place
):
    child = start(LOOKING, real_device.path, tmp_path / "mark", *place)
    child.expect("ready")
    wanted = due()
    child.say()
    child.process.wait()
    assert (tmp_path / "mark").exists()
    found = made(real_device.path)
    assert found[:DUE] == wanted
    assert len(set(found)) == len(found)


def test_a_consumer_that_waits_is_woken_at_each_moment(real_device, space, start):
    child = start("from datetime import datetime\n" + WAITING, real_device.path)
    child.expect("ready")
    space.create_schedule("s", "Q", "every 1s")
    said = [child.line().split() for _ in range(3)]
    assert len({moment for moment, _ in said}) == 3
    child.signal(signal.SIGKILL)
