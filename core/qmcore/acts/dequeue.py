"""The act of dequeuing, at once or held by a transaction until it ends."""

from __future__ import annotations

import dataclasses

from qmcore import numbers
from qmcore.acts.upkeep import freshen
from qmcore.definitions import OpenSpace
from qmcore.message import Message, sequence_of
from qmcore.port import Place, Unit
from qmcore.queue import Queue


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Which message of a queue is wanted; without either, the first in the order of the queue."""

    msgid: str | None = None
    corrid: bytes | None = None


FIRST = Selection()


@dataclasses.dataclass(frozen=True, slots=True)
class Nothing:
    """No message was there.

    `next_due_us` is when the next one that is kept back becomes available, `held` whether a transaction holds one.
    `unfinished`: there was so much to release or to remove that only a step was done, and it should be tried again.
    """

    queue_id: int
    next_due_us: int | None
    held: bool = False
    unfinished: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """A message that was taken out of `ready`, and what a transaction has to know to hold it."""

    message: Message
    place: Place
    pages: int


def dequeue(unit: Unit, opened: OpenSpace, name: str, selection: Selection, now: int) -> Message | Nothing:
    """Delete a message from its queue and return it."""
    known = opened.definitions(unit)
    queue = known.queue(name)
    place = _take(unit, opened, queue, selection, now)
    if isinstance(place, Nothing):
        return place
    message, pages = unit.remove(known.space, name, place)
    if message.expires_us is not None:
        unit.unmake_expiring(queue.id, place.message_id, message.expires_us)
    unit.leave(known.space.id, queue.id, count=1, pages=pages, size=message.size, how="dequeued")
    return message


def take(unit: Unit, opened: OpenSpace, name: str, selection: Selection, now: int) -> Taken | Nothing:
    """Take a message out of `ready` and return it; it stays stored, for a transaction to hold."""
    known = opened.definitions(unit)
    queue = known.queue(name)
    place = _take(unit, opened, queue, selection, now)
    if isinstance(place, Nothing):
        return place
    message, pages = unit.read(known.space, name, place)
    if message.expires_us is not None:
        unit.unmake_expiring(queue.id, place.message_id, message.expires_us)
    return Taken(message, place, pages)


def _take(unit: Unit, opened: OpenSpace, queue: Queue, selection: Selection, now: int) -> Place | Nothing:
    if not freshen(unit, queue, now):
        return Nothing(queue.id, None, unfinished=True)
    place: Place | None
    if selection.msgid is not None:
        sequence = sequence_of(selection.msgid, opened.space.incarnation)
        place = None
        if sequence is not None:
            place = unit.take_by_id(queue.id, numbers.number(queue.space_id, sequence))
    elif selection.corrid is not None:
        place = unit.take_by_corrid(queue.id, selection.corrid)
    else:
        place = unit.take_first(queue.id)
    return place if place is not None else Nothing(queue.id, unit.next_due(queue.id), held=unit.held_in(queue.id))
