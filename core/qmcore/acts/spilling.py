"""How a transaction leaves to the store what it enqueues and its process does not keep.

The messages stand there as the transaction's own: nobody sees them, the room that they take is kept for them, and
they go when the transaction ends without a commit. When it commits, they come to stand in their queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from qmcore import numbers
from qmcore.acts import thresholds
from qmcore.acts.enqueue import Accepted, arrival_of
from qmcore.acts.expiry import expire
from qmcore.acts.room import refuse_overflow
from qmcore.acts.stores import store_for, stores
from qmcore.definitions import OpenSpace
from qmcore.message import PLAIN_CONTROL
from qmcore.order import key_before, key_on_top
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Place, Spilled, Standing
from qmcore.store import Store
from qmcore.transitions import TOP

_AT_A_TIME = 500
_EXPIRED_AT_A_TIME = 1000


def spill(unit: Unit, opened: OpenSpace, transaction_id: int, items: Sequence[Accepted]) -> None:
    """Store messages that the transaction enqueues when it commits."""
    known = opened.definitions(unit)
    for item in items:
        store, outgoing = store_for(unit, known, item.delivery), item.outgoing
        store.charge(known.space.id, messages=1, pages=outgoing.pages, size=outgoing.size)
        route, arrival = arrival_of(known, item)
        number = numbers.number(known.space.id, arrival.sequence)
        store.spill(transaction_id, number, route.queue_id, arrival, item.place, lifetime=_lifetime(item))


def stand(
    unit: Unit, opened: OpenSpace, queue: Queue, transaction_id: int, now: int, *, committed: Sequence[Store] = ()
) -> None:
    """Let what a transaction has spilled for a queue come to stand in it, in the order in which it was enqueued.

    What is `committed` stands in one of these stores alone: it already has its room, and is not refused.
    """
    known = opened.definitions(unit)
    brings = [
        store
        for store in committed or stores(unit, known.space.id)
        if store.spilled_use(transaction_id, queue.id).messages
    ]
    orders: Mapping[int, int] = {}
    if len(brings) > 1:
        # The order that messages have together which go to several stores is that of their enqueuing.
        given = sorted(spilled.message_id for store in brings for spilled in _spilled(store, queue, transaction_id))
        orders = dict(zip(given, unit.reserve(known.space.id, len(given)), strict=True))
    for store in brings:
        sequences = _count_in(unit, opened, queue, store, transaction_id, committed=bool(committed))
        if _stand_all(store, queue, transaction_id, sequences, orders, now) and thresholds.is_watched(queue):
            if thresholds.is_reached(unit, opened, queue, store):
                _expire(unit, opened, queue, now)
            thresholds.note_arrival(unit, opened, queue, store, now)


def _count_in(
    unit: Unit, opened: OpenSpace, queue: Queue, store: Store, transaction_id: int, *, committed: bool
) -> Sequence[int]:
    """Give back the room that was kept, count what arrives, and return its sequence numbers."""
    known = opened.definitions(unit)
    space_id, more = known.space.id, store.spilled_use(transaction_id, queue.id)
    store.charge(space_id, messages=-more.messages, pages=-more.pages, size=-more.size)
    arrival = store.arrive(space_id, queue.id, count=more.messages, pages=more.pages, size=more.size)
    if not committed:
        refuse_overflow(unit, known, store, arrival.space, more)
    # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of memory.
    return arrival.sequences if store is unit else unit.reserve(space_id, more.messages)


class _Position(NamedTuple):
    """What the place of a message depends on, and its times."""

    priority: int
    available_us: int | None
    expires_us: int | None
    place: bytes


def _stand_all(
    store: Store,
    queue: Queue,
    transaction_id: int,
    sequences: Sequence[int],
    orders: Mapping[int, int],
    now: int,
) -> bool:
    """Let messages stand; return whether some of them have not expired by now. In a queue that groups they are one."""
    counts, group_id, first = False, None, None
    for sequence, spilled in zip(sequences, _spilled(store, queue, transaction_id), strict=True):
        position = _position(spilled, queue, now)
        if queue.definition.grouping and len(sequences) > 1:
            # The first says when they are available and where they stand.
            group_id, position = (spilled.message_id, position) if first is None else (group_id, first)
            first = position
        key = _key(queue, position, orders.get(spilled.message_id, sequence), now)
        standing = Standing(key, now, position.available_us, position.expires_us, group_id)
        store.settle(spilled.message_id, standing)
        place = Place(spilled.message_id, queue.id, key, 0)
        if position.available_us is not None and position.available_us > now:
            store.make_due(place, position.available_us)
        else:
            store.make_ready(place)
        if position.expires_us is not None:
            store.make_expiring(queue.id, spilled.message_id, position.expires_us)
        counts = counts or position.expires_us is None or position.expires_us > now
    store.forget_spilled(transaction_id, queue.id)
    return counts


def _position(item: Spilled, queue: Queue, now: int) -> _Position:
    available = item.available_us if item.delay is None else now + item.delay
    if item.lifetime == Spilled.DEFAULT:
        expires = PLAIN_CONTROL.expires_at(now, queue.definition.expiration)
    else:
        expires = item.expires_us if item.lifetime is None else now + item.lifetime
    return _Position(item.priority, available, expires, item.place)


def _key(queue: Queue, position: _Position, sequence: int, now: int) -> bytes:
    if position.place == TOP:
        return key_on_top(sequence)
    if position.place:
        return key_before(position.place, sequence)
    return queue.definition.order.key(
        priority=position.priority,
        available_at=now if position.available_us is None else position.available_us,
        expires_at=position.expires_us,
        sequence=sequence,
    )


def _spilled(store: Store, queue: Queue, transaction_id: int) -> Iterator[Spilled]:
    step = store.spilled(transaction_id, queue.id, -1, _AT_A_TIME)
    while step:
        yield from step
        step = store.spilled(transaction_id, queue.id, step[-1].message_id, _AT_A_TIME)


def _expire(unit: Unit, opened: OpenSpace, queue: Queue, now: int) -> None:
    """Remove what has expired, so that it does not count for a capacity limit."""
    for each in stores(unit, queue.space_id):
        while expire(unit, opened, each, queue, now, _EXPIRED_AT_A_TIME) == _EXPIRED_AT_A_TIME:
            pass


def _lifetime(item: Accepted) -> int | None:
    """Return how long the message lives from the commit on; None where it has a time of expiry, or none."""
    control = item.outgoing.control
    if control.lifetime is not None:
        return control.lifetime
    return None if control.expires_us is not None or control.never_expires else Spilled.DEFAULT
