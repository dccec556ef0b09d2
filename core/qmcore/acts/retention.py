"""Messages that are kept for the record after they were consumed, and how long."""

from __future__ import annotations

from typing import Final

from qmcore.acts import thresholds
from qmcore.acts.identifying import numbers_of
from qmcore.condition import Condition
from qmcore.definitions import OpenSpace
from qmcore.message import ConsumedMessage, Message
from qmcore.port import Unit
from qmcore.queue import FOREVER, Queue
from qmcore.records import Cursor, Part
from qmcore.times import LATEST, MICROS

EARLIEST: Final = -(2**63)
"""A number before all times, and before all numbers of messages."""


def forget_outlived(unit: Unit, opened: OpenSpace, queue: Queue, now: int, limit: int) -> int:
    """Delete at most `limit` retained messages of a queue whose retention is over, and return how many it was."""
    before = kept_from(queue.definition.retention, now)
    if before is None or not unit.history.has_outlived(queue.id, before):
        return 0
    return forget(unit, opened, queue, before, limit)


def has_outlived(unit: Unit, queue: Queue, now: int) -> bool:
    """Return whether the queue has retained messages whose retention is over."""
    before = kept_from(queue.definition.retention, now)
    return before is not None and unit.history.has_outlived(queue.id, before)


def forget(unit: Unit, opened: OpenSpace, queue: Queue, before: int, limit: int) -> int:
    """Delete at most `limit` messages of a queue that were consumed before a time, and return how many it was."""
    count, pages = unit.history.forget(queue.id, before, limit)
    if count:
        # They were counted out when they were consumed, but for the room that they took.
        unit.leave(queue.space_id, queue.id, count=0, pages=pages, size=0, how="dequeued")
        thresholds.note_departure(unit, opened, queue, unit)
    return count


def history(
    unit: Unit, opened: OpenSpace, name: str, after: Cursor | None, limit: int, condition: Condition | None, now: int
) -> Part[ConsumedMessage]:
    """Return at most `limit` retained messages of a queue whose retention is not over."""
    known = opened.definitions(unit)
    queue = known.queue(name)
    return unit.history.of_queue(known.space, queue, after or (_since(queue, now), EARLIEST), limit, condition)


def recall(unit: Unit, opened: OpenSpace, name: str, msgid: str, now: int) -> Message | None:
    """Return a retained message of a queue with its body, if its retention is not over."""
    known = opened.definitions(unit)
    queue = known.queue(name)
    for number in numbers_of(unit, known.space, queue, msgid):
        if found := unit.history.recall(known.space, queue, number, _since(queue, now)):
            return found
    return None


def _since(queue: Queue, now: int) -> int:
    since = kept_from(queue.definition.retention, now)
    return EARLIEST if since is None else since


def kept_from(retention: int, now: int) -> int | None:
    """Return the time of consumption from which messages are kept for so many seconds; None where none ever goes."""
    if retention == FOREVER:
        return None
    # What a queue has retained that retains no more is to go, whatever the clock says.
    return now - retention * MICROS if retention else LATEST
