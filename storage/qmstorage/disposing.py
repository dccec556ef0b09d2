"""What becomes of messages, which are taken out of their states for that: they stand again, are moved, or go."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from qmcore import numbers
from qmcore.message import PARKED_UNTIL
from qmcore.order import head_of, ordinary_key
from qmcore.records import Holding, Place, Use
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import (
    Change,
    Dispose,
    Disposed,
    Guard,
    Move,
    NewTerms,
    Park,
    PutBack,
    Reached,
    Removal,
    Remove,
    Route,
    Source,
)
from qmstorage.claiming import Store
from qmstorage.unit import SqlUnit

_CONSUMERS_OF: Final = attrgetter("terms.route.consumers")


class Stands(NamedTuple):
    """A message that is to stand in its queue, until when it is kept back, when it expires, and whose doing that is.

    `given_back`: a consumer keeps it back, not its sender or an administrator.
    """

    place: Place
    until_us: int | None
    expires_us: int | None
    given_back: bool = False


def dispose(unit: SqlUnit, command: Dispose, now: int) -> Disposed | Refused:
    """Dispose of messages of a queue that were looked at just now."""
    guard, source, in_memory, dispositions, _ = command
    if unit.generation(guard.space_id) != guard.generation:
        return STALE
    store: Store | None = unit.memory(guard.space_id) if in_memory else unit
    if store is None:
        return Refused(Reason.NO_MEMORY)
    if not _takes_out(store, command):
        return Refused(Reason.GONE)
    standing, removed, moves = list[Stands](), dict[Removal, list[Holding]](), list[Move]()
    for each in dispositions:
        if isinstance(each, PutBack):
            holding, retries, until, expires = each
            standing.append(Stands(holding.place._replace(retries=retries), until, expires, given_back=True))
        elif isinstance(each, Park):
            # What others have of a message is none of this one's doing.
            if not source.parent_id:
                store.messages.note_error(each.holding.place.message_id, each.why)
            standing.append(Stands(each.holding.place, PARKED_UNTIL, each.holding.expires_us, given_back=True))
        elif isinstance(each, Remove):
            removed.setdefault(each.why, []).append(each.holding)
        elif isinstance(each, Change):
            standing.append(_changed(store, each))
        else:
            moves.append(each)
    stand(store, source.queue_id, standing, now, expires=not source.parent_id)
    for why, its in removed.items():
        _remove(unit, store, command, why, its, now)
    reached = [each for its in _in_runs(moves) for each in _move(unit, store, command, its, now)]
    if source.levels and (removed or moves):
        unit.capacity_commands.rearm_reached(guard, source, on_disk=not in_memory, in_memory=in_memory)
    return Disposed(reached)


def _takes_out(store: Store, command: Dispose) -> bool:
    """Take the messages out of their states; return whether all were there."""
    _, source, _, dispositions, transaction_id = command
    its = [each.holding for each in dispositions]
    if transaction_id is None:
        return store.states.take(source.queue_id, its, expires=not source.parent_id)
    return store.holdings.let_go(transaction_id, source.queue_id, its)


def _remove(unit: SqlUnit, store: Store, command: Dispose, why: Removal, its: Sequence[Holding], now: int) -> None:
    """Delete messages, or keep them for the record."""
    if command.source.parent_id:
        _remove_places(store, command, why, its)
        return
    if why is Removal.DEQUEUED and command.source.retains and store is unit:
        for holding in its:
            unit.history.retain(holding.place, now, command.guard.consumer)
        # The room of what is kept is given back when it is forgotten.
        pages = 0
    else:
        for holding in its:
            store.messages.discard(holding.place.message_id)
        pages = sum(holding.pages for holding in its)
    where, size = (command.guard.space_id, command.source.queue_id), sum(holding.size for holding in its)
    # Counted once: each change of a counter leaves a dead row behind on stores that keep old ones for readers.
    store.counters.leave(*where, count=len(its), pages=pages, size=size, how=why.value)


def _remove_places(store: Store, command: Dispose, why: Removal, its: Sequence[Holding]) -> None:
    """Delete what a consumer has of messages, and those of which no other has anything."""
    source, ids = command.source, [each.place.message_id for each in its]
    gone = set(store.shares.part(source.queue_id, ids, why))
    last = [each for each in its if each.place.message_id in gone]
    for each in last:
        _forget_expiry(store, source, each)
        store.messages.discard(each.place.message_id)
    count_places_out(store, command.guard, source, _use_of(its), _use_of(last), why.value)


def count_places_out(store: Store, guard: Guard, source: Source, its: Use, last: Use, how: str) -> None:
    """Count messages out for a consumer, and the last ones of them for their queue, too."""
    messages, pages, size = its
    store.counters.leave_place(guard.space_id, source.queue_id, count=messages, pages=pages, size=size, how=how)
    if last.messages:
        messages, pages, size = last
        store.counters.leave(guard.space_id, source.parent_id, count=messages, pages=pages, size=size, how=how)


def _forget_expiry(store: Store, source: Source, holding: Holding) -> None:
    if holding.expires_us is not None:
        store.shares.forget_expiry(source.parent_id, holding.place.message_id, holding.expires_us)


def _use_of(its: Sequence[Holding]) -> Use:
    return Use(len(its), sum(each.pages for each in its), sum(each.size for each in its))


def _changed(store: Store, its: Change) -> Stands:
    """Give a message new terms; return where it stands by them in its queue."""
    holding, until, terms, sequence = its
    place = holding.place._replace(order_key=_key(terms, sequence))
    store.messages.amend(place.message_id, place.order_key, terms.priority, terms.available_us, terms.expires_us)
    # One that was tried before waits for another try, whoever says when that is.
    return Stands(place, until, terms.expires_us, place.retries > 0 or until != terms.available_us)


def _in_runs(moves: Sequence[Move]) -> Iterator[list[Move]]:
    """Yield moves that go together, for each queue in their order.

    In a queue for several those do that follow each other and are for the same consumers: all have one order.
    """
    by_queue: dict[int, list[Move]] = {}
    for each in moves:
        by_queue.setdefault(each.terms.route.queue_id, []).append(each)
    for its in by_queue.values():
        for _, run in itertools.groupby(its, _CONSUMERS_OF):
            yield list(run)


def _move(unit: SqlUnit, store: Store, command: Dispose, moves: Sequence[Move], now: int) -> Sequence[Reached]:
    """Let messages stand in another queue, by the same route; return the capacity commands to start."""
    guard, in_memory, route, standing = command.guard, command.memory, moves[0].terms.route, list[Stands]()
    copied = set[int]()
    if command.source.parent_id:
        ours = [each.holding.place.message_id for each in moves]
        copied = set(ours).difference(store.shares.part(command.source.queue_id, ours, None))
    for sequence, (holding, until, terms, origin) in zip(
        _count_over(unit, store, command, moves, copied), moves, strict=True
    ):
        number, key = numbers.number(guard.space_id, sequence), _key(terms, sequence)
        if holding.place.message_id in copied:
            store.shares.split(holding.place.message_id, number)
        elif command.source.parent_id:
            _forget_expiry(store, command.source, holding)
        moved = number if holding.place.message_id in copied else holding.place.message_id
        store.messages.move(moved, (number, route.queue_id, key), origin, now)
        if (terms.available_us, terms.expires_us) != (None, None):
            store.messages.amend(number, key, terms.priority, terms.available_us, terms.expires_us)
        place = Place(number, route.queue_id, key, 0)
        standing.append(Stands(place, until, terms.expires_us, until != terms.available_us))
    stand_by(store, route, standing, now)
    if not route.levels:
        return ()
    return unit.capacity_commands.claim_reached(guard, route, now, on_disk=not in_memory, in_memory=in_memory)


def _count_over(
    unit: SqlUnit, store: Store, command: Dispose, moves: Sequence[Move], copied: Collection[int]
) -> Sequence[int]:
    """Count messages out of their queue and into another one; return the sequence numbers that they get there.

    Those that are `copied` stay, for other consumers.
    """
    space_id, count = command.guard.space_id, len(moves)
    pages, size = sum(its.holding.pages for its in moves), sum(its.holding.size for its in moves)
    if command.source.parent_id:
        its = [each.holding for each in moves]
        last = [each for each in its if each.place.message_id not in copied]
        count_places_out(store, command.guard, command.source, _use_of(its), _use_of(last), "moved")
    # In this order: the queue space never holds more than it does.
    else:
        store.counters.leave(space_id, command.source.queue_id, count=count, pages=pages, size=size, how="moved")
    route = moves[0].terms.route
    arrival = store.counters.arrive(space_id, route.queue_id, count=count, pages=pages, size=size)
    if route.consumers:
        store.counters.come_to_places(space_id, route.consumers, count=count, pages=pages, size=size)
    # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of memory.
    return arrival.sequences if store is unit else unit.counters.reserve(space_id, count)


def _key(terms: NewTerms, sequence: int) -> bytes:
    route, head = terms.route, terms.route.head
    if head is None:
        times = terms.moment_us, terms.expires_us
        head = head_of(route.criteria, priority=terms.priority, available_at=times[0], expires_at=times[1])
    return ordinary_key(head, sequence, descends=route.descends)


def stand_by(store: Store, route: Route, its: Sequence[Stands], now: int) -> None:
    """Let messages that have come to a queue stand there, or for each of its consumers."""
    if not route.consumers:
        stand(store, route.queue_id, its, now)
        return
    for each in route.consumers:
        stand(store, each, its, now, expires=False)
    for (number, *_), _, expires_us, _ in its:
        if expires_us is not None:
            store.states.make_expiring(route.queue_id, number, expires_us)
    store.shares.add([each.place.message_id for each in its], len(route.consumers))


def stand(store: Store, queue_id: int, its: Sequence[Stands], now: int, *, expires: bool = True) -> None:
    """Let messages of a queue be dequeued, or keep them back until a time that is to come; note when they expire.

    Not where `expires` is false: a message of several consumers expires by itself, wherever it stands.
    """
    available = list[tuple[int, bytes, int]]()
    for (number, _, key, retries), until, expires_us, given_back in its:
        if until is not None and until > now:
            store.states.make_due(Place(number, queue_id, key, retries), until, given_back=given_back)
        else:
            available.append((number, key, retries))
        if expires and expires_us is not None:
            store.states.make_expiring(queue_id, number, expires_us)
    store.states.make_ready(queue_id, available)
