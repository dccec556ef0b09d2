"""The act of enqueuing, at once or when a transaction commits."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from qmcore import numbers
from qmcore.acts.upkeep import make_room
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import NoSpaceError, ReleaseError, Resource
from qmcore.message import EnqueueControl, checked_body, message_id, pages_of
from qmcore.port import Level, NewMessage, Place, Unit, Volume
from qmcore.queue import Delivery, Queue

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that is to be enqueued: checked, and its pages counted."""

    queue: str
    body: bytes | None
    control: EnqueueControl
    headers: str | None
    size: int
    pages: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pending:
    """A message that a transaction enqueues when it commits, with the sequence number of its identifier."""

    outgoing: Outgoing
    sequence: int


def prepare(queue: str, body: bytes | None, control: EnqueueControl, page_size: int) -> Outgoing:
    """Return a message ready to be enqueued."""
    size = len(checked_body(body) or b"")
    headers = json.dumps(dict(control.headers), separators=(",", ":")) if control.headers else None
    return Outgoing(queue, body, control, headers, size, pages_of(size, headers, page_size))


def enqueue(volume: Volume, opened: OpenSpace, outgoing: Outgoing, now: int) -> str:
    """Put a message on its queue and return its identifier."""

    def put(unit: Unit) -> str:
        known = opened.definitions(unit)
        queue = _accepting(known, outgoing)
        level = unit.arrive(known.space.id, queue.id, count=1, pages=outgoing.pages, size=outgoing.size)
        _refuse_overflow(known, level, 1, outgoing.pages)
        _place(unit, known, queue, outgoing, id_sequence=level.sequence, order_sequence=level.sequence, now=now)
        return message_id(known.space.incarnation, level.sequence)

    return with_room(volume, [opened], now, lambda: volume.write(put))


def with_room(volume: Volume, spaces: Sequence[OpenSpace], now: int, act: Callable[[], T]) -> T:
    """Do what needs room; where there is none, remove what has expired and do it again."""
    try:
        return act()
    except NoSpaceError:
        if sum(make_room(volume, opened, now) for opened in spaces) == 0:
            raise
        return act()


def check(unit: Unit, opened: OpenSpace, outgoing: Outgoing, more: Level) -> None:
    """Refuse now what could not be enqueued when the transaction commits.

    `more` is what the whole transaction will add to the queue space, this message included; less than nothing where
    it takes more away.
    """
    known = opened.definitions(unit)
    _accepting(known, outgoing)
    level = unit.level(known.space.id)
    after = Level(level.sequence, level.messages + more.messages, level.pages + more.pages)
    _refuse_overflow(known, after, 1, outgoing.pages)


def enqueue_pending(unit: Unit, known: Definitions, pending: Iterable[Pending], now: int) -> None:
    """Put the messages of a transaction on their queues; they take the places that the commit gives them."""
    by_queue: dict[str, list[Pending]] = {}
    for item in pending:
        by_queue.setdefault(item.outgoing.queue, []).append(item)
    for items in by_queue.values():
        queue = _accepting(known, items[0].outgoing)
        pages = sum(item.outgoing.pages for item in items)
        size = sum(item.outgoing.size for item in items)
        level = unit.arrive(known.space.id, queue.id, count=len(items), pages=pages, size=size)
        _refuse_overflow(known, level, len(items), pages)
        first = level.sequence - len(items) + 1
        for at, item in enumerate(items):
            _place(unit, known, queue, item.outgoing, id_sequence=item.sequence, order_sequence=first + at, now=now)


def _accepting(known: Definitions, outgoing: Outgoing) -> Queue:
    queue = known.queue(outgoing.queue)
    if (outgoing.control.delivery or queue.definition.delivery) is Delivery.NONPERSIST:
        raise ReleaseError(
            f"a non-persistent message for queue {queue.name!r} cannot be kept: this release has no memory store",
            hint="Send it as a persistent message.",
            queue=queue.name,
        )
    return queue


def _place(
    unit: Unit,
    known: Definitions,
    queue: Queue,
    outgoing: Outgoing,
    *,
    id_sequence: int,
    order_sequence: int,
    now: int,
) -> None:
    control = outgoing.control
    available = control.available_at(now)
    expires = control.expires_at(now, queue.definition.expiration)
    key = queue.definition.order.key(
        priority=control.priority,
        available_at=now if available is None else available,
        expires_at=expires,
        sequence=order_sequence,
    )
    new = NewMessage(
        id=numbers.number(known.space.id, id_sequence),
        queue_id=queue.id,
        order_key=key,
        enqueued_us=now,
        available_us=available,
        expires_us=expires,
        pages=outgoing.pages,
        size=outgoing.size,
        headers=outgoing.headers,
        control=control,
        body=outgoing.body,
    )
    unit.put(new)
    place = Place(new.id, queue.id, key, 0)
    if available is not None and available > now:
        unit.make_due(place, available)
    else:
        unit.make_ready(place)
    if expires is not None:
        unit.make_expiring(queue.id, new.id, expires)


def _refuse_overflow(known: Definitions, after: Level, count: int, pages: int) -> None:
    limits = known.space.definition
    owner = f"queue space {limits.name!r}"
    if after.messages > limits.messages:
        raise NoSpaceError(owner, Resource.MESSAGES, used=after.messages - count, limit=limits.messages, wanted=count)
    if after.pages > limits.capacity:
        raise NoSpaceError(owner, Resource.PAGES, used=after.pages - pages, limit=limits.capacity, wanted=pages)
