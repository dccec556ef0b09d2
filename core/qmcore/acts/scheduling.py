"""The act of making the messages of schedules that are due.

Whoever looks after a queue space does it, so exactly one process has to be the one: a moment belongs to whoever has
advanced the schedule past it, in the database transaction in which its message is enqueued.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from qmcore.acts.enqueue import enqueue_in, prepare
from qmcore.acts.expiry import with_room
from qmcore.definitions import OpenSpace
from qmcore.errors import QueueError, may_pass
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.schedule import Missed, Schedule
from qmcore.times import MICROS, Clock

logger = logging.getLogger("qmadmin.engine")

LATE_US: Final = 60 * MICROS
"""How late a message may be made, in microseconds: a moment that is further back was missed."""


def due(unit: Unit, opened: OpenSpace, now: int) -> list[str]:
    """Return the names of the schedules that have a due moment, the longest due first."""
    return [] if opened.following is None else unit.schedules.due(opened.space.id, now)


def make_due(volume: Volume, opened: OpenSpace, names: Iterable[str], clock: Clock) -> None:
    """Make the messages of schedules for their due moments, each in a database transaction of its own.

    What cannot be made now, because its queue is stopped or gone or there is no room, is put off until the next look:
    it is missed in the end. The log tells so once.
    """
    for name in names:
        try:
            while _make(volume, opened, name, clock.now()):
                pass
        except QueueError as error:
            _tell_once(opened, name, error)
        else:
            opened.put_off.discard(name)


def _make(volume: Volume, opened: OpenSpace, name: str, now: int) -> bool:
    """Make the message for one due moment of a schedule; return whether there is another one by now."""
    work = partial(_make_in, opened=opened, name=name, now=now)
    return with_room(volume, [opened], now, lambda: volume.write(work, Purpose.MESSAGES))


def _make_in(unit: Unit, opened: OpenSpace, name: str, now: int) -> bool:
    space = opened.definitions(unit).space
    found = unit.schedules.find(space.id, name)
    if found is None or found.next_us is None or found.next_us > now or opened.following is None:
        # Another process was first, or it was changed.
        return False
    moment = found.next_us
    is_missed = now - moment > LATE_US
    next_us = opened.following(found, _until(found, now) if is_missed else moment)
    if not unit.schedules.advance(space.id, name, moment, next_us):
        return False
    if not is_missed or found.missed is Missed.ONCE:
        outgoing = prepare([(found.queue, found.body, found.control_at(moment))], opened.page_size)
        (msgid,) = enqueue_in(unit, opened, outgoing)
        unit.schedules.note_made(space.id, name, moment, msgid)
    return next_us is not None and next_us <= now


def _until(schedule: Schedule, now: int) -> int:
    """Return until when all moments are settled by what is done about the missed ones."""
    return now if schedule.missed is Missed.ONCE else now - LATE_US - 1


def _tell_once(opened: OpenSpace, name: str, error: QueueError) -> None:
    """Log why a message is put off, but not again at each look."""
    if name in opened.put_off or may_pass(error):
        return
    opened.put_off.add(name)
    logger.warning("the message of schedule %r in queue space %r is put off: %s", name, opened.space.name, error)
