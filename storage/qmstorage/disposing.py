"""What becomes of messages, which are taken out of their states for that: they stand again, are moved, or go."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import numbers
from qmcore.order import head_of, ordinary_key
from qmcore.records import Place, Use
from qmcore.transitions import (
    STALE,
    Change,
    Dispose,
    Disposed,
    Move,
    NewTerms,
    PutBack,
    Reached,
    Reason,
    Refused,
    Removal,
    Remove,
)
from qmstorage.claiming import Store
from qmstorage.unit import SqlUnit

_NOTHING = Use(0, 0, 0)


def dispose(unit: SqlUnit, command: Dispose, now: int) -> Disposed | Refused:
    """Dispose of messages of a queue that were looked at just now."""
    guard, source, in_memory, dispositions, transaction_id = command
    if unit.generation(guard.space_id) != guard.generation:
        return STALE
    store: Store | None = unit.memory(guard.space_id) if in_memory else unit
    if store is None:
        return Refused(Reason.NO_MEMORY)
    if transaction_id is None and not store.take(source.queue_id, [each.holding for each in dispositions]):
        return Refused(Reason.GONE)
    removed, moves, reached = dict[Removal, Use](), dict[int, list[Move]](), list[Reached]()
    for each in dispositions:
        if isinstance(each, PutBack):
            holding, retries, until, expires = each
            stand(store, holding.place._replace(retries=retries), until, expires, now)
        elif isinstance(each, Remove):
            removed[each.why] = removed.get(each.why, _NOTHING).plus(_remove(unit, store, command, each, now))
        elif isinstance(each, Change):
            _change(store, each, now)
        else:
            moves.setdefault(each.terms.route.queue_id, []).append(each)
    # Counted once: each change of a counter leaves a dead row behind on stores that keep old ones for readers.
    for why, (count, pages, size) in removed.items():
        store.leave(guard.space_id, source.queue_id, count=count, pages=pages, size=size, how=why.value)
    for its in moves.values():
        reached += _move(unit, store, command, its, now)
    if source.levels and (removed or moves):
        unit.capacity_commands.rearm_reached(guard, source, on_disk=not in_memory, in_memory=in_memory)
    return Disposed(reached)


def _remove(unit: SqlUnit, store: Store, command: Dispose, its: Remove, now: int) -> Use:
    """Delete a message, or keep it for the record; return the room that it gives back."""
    (place, pages, size, _, _), why = its
    if why is Removal.DEQUEUED and command.source.retains and store is unit:
        unit.history.retain(place, now, command.guard.consumer)
        # The room of what is kept is given back when it is forgotten.
        return Use(1, 0, size)
    store.discard(place.message_id)
    return Use(1, pages, size)


def _change(store: Store, its: Change, now: int) -> None:
    """Let a message stand by new terms in its queue."""
    holding, until, terms, sequence = its
    place = holding.place._replace(order_key=_key(terms, sequence))
    store.amend(place.message_id, place.order_key, terms.priority, terms.available_us, terms.expires_us)
    stand(store, place, until, terms.expires_us, now)


def _move(unit: SqlUnit, store: Store, command: Dispose, moves: Sequence[Move], now: int) -> Sequence[Reached]:
    """Let messages stand in another queue, the same for all; return the capacity commands to start."""
    guard, in_memory, route = command.guard, command.memory, moves[0].terms.route
    for sequence, (holding, until, terms, origin) in zip(_count_over(unit, store, command, moves), moves, strict=True):
        number, key = numbers.number(guard.space_id, sequence), _key(terms, sequence)
        store.move(holding.place.message_id, (number, route.queue_id, key), origin, now)
        if (terms.available_us, terms.expires_us) != (None, None):
            store.amend(number, key, terms.priority, terms.available_us, terms.expires_us)
        stand(store, Place(number, route.queue_id, key, 0), until, terms.expires_us, now)
    if not route.levels:
        return ()
    return unit.capacity_commands.claim_reached(guard, route, now, on_disk=not in_memory, in_memory=in_memory)


def _count_over(unit: SqlUnit, store: Store, command: Dispose, moves: Sequence[Move]) -> Sequence[int]:
    """Count messages out of their queue and into another one; return the sequence numbers that they get there."""
    space_id, count = command.guard.space_id, len(moves)
    pages, size = sum(its.holding.pages for its in moves), sum(its.holding.size for its in moves)
    # In this order: the queue space never holds more than it does.
    store.leave(space_id, command.source.queue_id, count=count, pages=pages, size=size, how="moved")
    arrival = store.arrive(space_id, moves[0].terms.route.queue_id, count=count, pages=pages, size=size)
    # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of memory.
    return arrival.sequences if store is unit else unit.reserve(space_id, count)


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
