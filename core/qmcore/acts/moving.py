"""How a message leaves its queue for another one: the error queue, or where an administrator sends it."""

from __future__ import annotations

import dataclasses

from qmcore import numbers
from qmcore.acts import thresholds
from qmcore.definitions import OpenSpace
from qmcore.message import Origin, Reason
from qmcore.names import storable
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Holding, Place, Routing, Withdrawn
from qmcore.store import Store


def name_of(unit: Unit, opened: OpenSpace, holding: Holding) -> str:
    """Return the identifier of a message."""
    return opened.definitions(unit).space.msgid(numbers.sequence(holding.place.message_id))


def move(
    unit: Unit,
    opened: OpenSpace,
    store: Store,
    queue: Queue,
    target: Queue,
    holding: Holding,
    routing: Routing,
    *,
    reason: Reason,
    now: int,
    error: str = "",
) -> None:
    """Move a message that was taken out of its state to an error queue. It can be consumed at once.

    There it does not expire; it remembers when it would have.
    """
    place = holding.place
    origin = Origin(queue.name, name_of(unit, opened, holding), reason, now, storable(error))
    sequence = _count_over(unit, opened, store, queue, target, holding)
    key = target.definition.order.key(priority=routing.priority, available_at=now, expires_at=None, sequence=sequence)
    new_id = numbers.number(opened.space.id, sequence)
    before = routing.expires_before_us if holding.expires_us is None else holding.expires_us
    store.move(
        place.message_id, new_id=new_id, queue_id=target.id, order_key=key, origin=origin, expires_before_us=before
    )
    store.make_ready(Place(new_id, target.id, key, 0))
    thresholds.note_departure(unit, opened, queue, store)
    thresholds.note_arrival(unit, opened, target, store, now)


def move_as_it_is(
    unit: Unit, opened: OpenSpace, store: Store, queue: Queue, target: Queue, found: Withdrawn, now: int
) -> bool:
    """Move a message for an administrator: it keeps its terms, and its tries begin again.

    In an error queue it does not expire; from there it has its expiry back. Return whether that was over by now: then
    it has none any more.
    """
    holding = Holding(found.place, found.pages, found.size, found.expires_us)
    origin = Origin(queue.name, name_of(unit, opened, holding), Reason.ADMIN, now)
    has_outlived = False
    before = found.expires_before_us if found.expires_us is None else found.expires_us
    if opened.definitions(unit).is_error_queue(target):
        found = dataclasses.replace(found, expires_us=None)
    else:
        has_outlived = found.expires_us is None and before is not None and before <= now
        found = dataclasses.replace(found, expires_us=None if has_outlived else before)
        before = None
    sequence = _count_over(unit, opened, store, queue, target, holding)
    new = Place(numbers.number(opened.space.id, sequence), target.id, _key(target, found, sequence), 0)
    store.move(
        found.place.message_id,
        new_id=new.message_id,
        queue_id=target.id,
        order_key=new.order_key,
        origin=origin,
        expires_before_us=before,
    )
    _stand(store, dataclasses.replace(found, place=new), now)
    thresholds.note_departure(unit, opened, queue, store)
    thresholds.note_arrival(unit, opened, target, store, now)
    return has_outlived


def stand(store: Store, queue: Queue, found: Withdrawn, now: int) -> None:
    """Let a message that was withdrawn stand where its terms, which may be new ones, put it among its equals."""
    place = found.place
    # A damaged file may have no key there: the message has its place by the number that it was stored with.
    is_key = isinstance(place.order_key, bytes)
    order = queue.definition.order
    key = _key(queue, found, order.sequence_in(place.order_key) if is_key else numbers.sequence(place.message_id))
    _stand(store, dataclasses.replace(found, place=place._replace(order_key=key)), now)


def put_back(store: Store, found: Withdrawn, now: int) -> None:
    """Let a message that was withdrawn stand where it stood."""
    _stand(store, found, now)


def remove(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, how: str) -> None:
    """Delete a message that was taken out of its state; `how` is the counter that grows."""
    store.discard(holding.place.message_id)
    store.leave(queue.space_id, queue.id, count=1, pages=holding.pages, size=holding.size, how=how)
    thresholds.note_departure(unit, opened, queue, store)


def _count_over(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, target: Queue, holding: Holding) -> int:
    """Count a message out of one queue and into another, and return the sequence number that it gets there."""
    space_id = opened.space.id
    store.leave(space_id, queue.id, count=1, pages=holding.pages, size=holding.size, how="moved")
    arrival = store.arrive(space_id, target.id, count=1, pages=holding.pages, size=holding.size)
    return (arrival.sequences if store is unit else unit.reserve(space_id, 1))[0]


def _key(queue: Queue, found: Withdrawn, sequence: int) -> bytes:
    return queue.definition.order.key(
        priority=found.priority,
        available_at=found.enqueued_us if found.available_us is None else found.available_us,
        expires_at=found.expires_us,
        sequence=sequence,
    )


def _stand(store: Store, found: Withdrawn, now: int) -> None:
    place = found.place
    store.amend(
        place.message_id,
        order_key=place.order_key,
        priority=found.priority,
        available_us=found.available_us,
        expires_us=found.expires_us,
    )
    if found.until_us is not None and found.until_us > now:
        store.make_due(place, found.until_us)
    else:
        store.make_ready(place)
    if found.expires_us is not None:
        store.make_expiring(place.queue_id, place.message_id, found.expires_us)
