"""What becomes of messages that were taken out of their states: they stand again, come to another queue, or go."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import numbers
from qmcore.order import head_of, ordinary_key
from qmcore.records import Holding, Place, Use
from qmcore.transitions import (
    STALE,
    Dispose,
    Disposed,
    Disposition,
    Fate,
    MoveOrigin,
    NewTerms,
    Reached,
    Reason,
    Refused,
)
from qmstorage.claiming import Store
from qmstorage.unit import SqlUnit

_COUNTERS = {Fate.DEQUEUED: "dequeued", Fate.EXPIRED: "expired", Fate.DISCARDED: "discarded"}
"""Which counter of a queue grows when a message is deleted."""
_NOTHING = Use(0, 0, 0)


def dispose(unit: SqlUnit, command: Dispose, now: int) -> Disposed | Refused:
    """Dispose of messages that were taken out of their states in a queue."""
    guard, source, in_memory, its = command
    if unit.generation(guard.space_id) != guard.generation:
        return STALE
    store: Store | None = unit.memory(guard.space_id) if in_memory else unit
    if store is None:
        return Refused(Reason.NO_MEMORY)
    gone, reached, moves = dict[Fate, Use](), list[Reached](), False
    for each in its:
        fate, holding, retries, until, terms, origin = each
        if fate == Fate.BACK:
            stand(store, holding.place._replace(retries=retries), until, holding.expires_us, now)
        elif terms is None:
            gone[fate] = gone.get(fate, _NOTHING).plus(_remove(unit, store, command, each, now))
        elif origin is None:
            _change(store, each, terms, now)
        else:
            reached += _move(unit, store, command, each, terms, origin, now)
            moves = True
    # Counted once: each change of a counter leaves a dead row behind on stores that keep old ones for readers.
    for fate, (count, pages, size) in gone.items():
        store.leave(guard.space_id, source.queue_id, count=count, pages=pages, size=size, how=_COUNTERS[fate])
    if source.levels and (gone or moves):
        unit.capacity_commands.rearm_reached(guard, source, on_disk=not in_memory, in_memory=in_memory)
    return Disposed(reached)


def _remove(unit: SqlUnit, store: Store, command: Dispose, its: Disposition, now: int) -> Use:
    """Delete a message, or keep it for the record; return the room that it gives back."""
    (number, *_), pages, size, _ = its.holding
    if its.fate == Fate.DEQUEUED and command.source.retains and store is unit:
        unit.history.retain(its.holding.place, now, command.guard.consumer)
        # The room of what is kept is given back when it is forgotten.
        return Use(1, 0, size)
    store.discard(number)
    return Use(1, pages, size)


def _change(store: Store, its: Disposition, terms: NewTerms, now: int) -> None:
    """Let a message stand by new terms in its queue."""
    place = its.holding.place._replace(order_key=_key(terms, terms.sequence), retries=its.retries)
    store.amend(place.message_id, place.order_key, terms.priority, terms.available_us, terms.expires_us)
    stand(store, place, its.until_us, terms.expires_us, now)


def _move(
    unit: SqlUnit, store: Store, command: Dispose, its: Disposition, terms: NewTerms, origin: MoveOrigin, now: int
) -> Sequence[Reached]:
    """Let a message stand in another queue; return the capacity commands to start."""
    guard, route, in_memory = command.guard, terms.route, command.memory
    sequence = _count_over(unit, store, command, its.holding, route.queue_id)
    number, key = numbers.number(guard.space_id, sequence), _key(terms, sequence)
    store.move(its.holding.place.message_id, (number, route.queue_id, key), origin, now)
    if (terms.available_us, terms.expires_us) != (None, None):
        store.amend(number, key, terms.priority, terms.available_us, terms.expires_us)
    stand(store, Place(number, route.queue_id, key, its.retries), its.until_us, terms.expires_us, now)
    if not route.levels:
        return ()
    return unit.capacity_commands.claim_reached(guard, route, now, on_disk=not in_memory, in_memory=in_memory)


def _count_over(unit: SqlUnit, store: Store, command: Dispose, holding: Holding, to: int) -> int:
    """Count a message out of its queue and into another one; return the sequence number that it gets there."""
    space_id, pages, size = command.guard.space_id, holding.pages, holding.size
    # In this order: the queue space never holds one more than it does.
    store.leave(space_id, command.source.queue_id, count=1, pages=pages, size=size, how="moved")
    arrival = store.arrive(space_id, to, count=1, pages=pages, size=size)
    # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of memory.
    return (arrival.sequences if store is unit else unit.reserve(space_id, 1))[0]


def _key(terms: NewTerms, sequence: int) -> bytes:
    route, head = terms.route, terms.route.head
    if head is None:
        times = terms.moment_us, terms.expires_us
        head = head_of(route.criteria, priority=terms.priority, available_at=times[0], expires_at=times[1])
    return ordinary_key(head, sequence, descends=route.descends)


def stand(store: Store, place: Place, until_us: int | None, expires_us: int | None, now: int) -> None:
    """Let a message be dequeued, or keep it back until a time that is to come, and note when it expires."""
    if until_us is not None and until_us > now:
        store.make_due(place, until_us)
    else:
        store.make_ready(place)
    if expires_us is not None:
        store.make_expiring(place.queue_id, place.message_id, expires_us)
