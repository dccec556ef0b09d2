"""How a message leaves its queue for another one: the error queue, or where an administrator sends it."""

from __future__ import annotations

from qmcore import numbers
from qmcore.acts import thresholds
from qmcore.definitions import OpenSpace
from qmcore.message import Origin, Reason, message_id
from qmcore.port import Holding, Place, Store, Unit
from qmcore.queue import Queue


def name_of(opened: OpenSpace, holding: Holding) -> str:
    """Return the identifier of a message."""
    return message_id(opened.space.incarnation, numbers.sequence(holding.place.message_id))


def move(
    unit: Unit,
    opened: OpenSpace,
    store: Store,
    queue: Queue,
    target: Queue,
    holding: Holding,
    *,
    priority: int,
    reason: Reason,
    now: int,
    error: str = "",
) -> None:
    """Move a message that was taken out of its state. It may be consumed at once, and does not expire any more."""
    space_id, place = opened.space.id, holding.place
    origin = Origin(queue.name, name_of(opened, holding), reason, now, error)
    store.leave(space_id, queue.id, count=1, pages=holding.pages, size=holding.size, how="moved")
    arrival = store.arrive(space_id, target.id, count=1, pages=holding.pages, size=holding.size)
    sequence = arrival.sequence if store is unit else unit.reserve(space_id, 1)
    key = target.definition.order.key(priority=priority, available_at=now, expires_at=None, sequence=sequence)
    new_id = numbers.number(space_id, sequence)
    store.move(place.message_id, new_id=new_id, queue_id=target.id, order_key=key, origin=origin)
    store.make_ready(Place(new_id, target.id, key, 0))
    thresholds.note_departure(unit, opened, queue, store)
    thresholds.note_arrival(unit, opened, target, store, now)


def remove(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, how: str) -> None:
    """Delete a message that was taken out of its state; `how` is the counter that grows."""
    store.discard(holding.place.message_id)
    store.leave(queue.space_id, queue.id, count=1, pages=holding.pages, size=holding.size, how=how)
    thresholds.note_departure(unit, opened, queue, store)
