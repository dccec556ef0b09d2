"""What becomes of what transactions hold and bring: admission, spilling, and the parts of a commit.

Messages that are spilled stand in the store as the transaction's own: nobody sees them, the room that they take is
kept for them, and they go when the transaction ends without a commit.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from qmcore import numbers
from qmcore.order import LAST, SEQUENCE_TOP, head_before, head_of, head_on_top
from qmcore.purpose import WrongPurposeError
from qmcore.records import Place, Role, Spilled, Standing, Use
from qmcore.refusals import STALE, Reason, Refused
from qmcore.transitions import (
    NEVER,
    NO_LIMIT,
    TOP,
    Admit,
    Admitted,
    Arrival,
    Commit,
    Enqueue,
    Enqueued,
    Guard,
    Holder,
    Reached,
    Route,
    Source,
    Terms,
)
from qmcore.two_phase import Begin, Begun, Prepare, Prepared
from qmstorage.claiming import Store, begin_holding, stores_of
from qmstorage.disposing import Stands, stand, stand_by
from qmstorage.refused import RefusedError
from qmstorage.rows import Position
from qmstorage.unit import SqlUnit

logger = logging.getLogger("qmadmin.storage")

U = TypeVar("U", bound=SqlUnit)

_AT_A_TIME = 500
_NOTHING = Use(0, 0, 0)


class _Brought(NamedTuple):
    """What a transaction has spilled in one store for one queue: how much, and what gives the messages."""

    store: Store
    use: Use
    items: Callable[[], Iterable[Spilled]]
    for_several: bool
    """Whether each has consumers of its own."""


def admit(unit: SqlUnit, command: Admit, level: Use) -> Admitted | Refused:
    """Return whether there is room for what a transaction enqueues, and give it numbers.

    `level` is what the queue space holds on disk.
    """
    guard, _, more, count, before = command
    places = []
    for queue_id, candidates in before:
        place = unit.place_of(guard.space_id, queue_id, candidates)
        if place is None:
            return Refused(Reason.NO_SUCH_MESSAGE, queue_id, wanted=candidates[0])
        places.append(place)
    in_memory = unit.memory_level(guard.space_id) if guard.memory_pages else _NOTHING
    if more[1].messages and unit.memory(guard.space_id) is None:
        return Refused(Reason.NO_MEMORY)
    refused = overflow(command, level, in_memory)
    if refused is not None:
        return refused
    return Admitted(unit.counters.reserve(guard.space_id, count) if count else (), places, level)


def overflow(command: Admit, level: Use, in_memory: Use) -> Refused | None:
    """Return what limit would be exceeded, as much as there is on disk and in memory; None where there is room."""
    guard, has, more, _, _ = command
    wanted = more[0].messages + more[1].messages
    messages = level.messages + in_memory.messages + has[0].messages + has[1].messages
    pages, memory_pages = level.pages + has[0].pages, in_memory.pages + has[1].pages
    if wanted and messages + wanted > guard.messages:
        return Refused(Reason.MESSAGES, messages, guard.messages, wanted)
    if more[0].messages and pages + more[0].pages > guard.pages:
        return Refused(Reason.PAGES, pages, guard.pages, more[0].pages)
    if more[1].messages and memory_pages + more[1].pages > guard.memory_pages:
        return Refused(Reason.MEMORY, memory_pages, guard.memory_pages, more[1].pages)
    return None


def spill(unit: U, command: Enqueue, begin_holding: Callable[[U, Guard, Holder], int | Refused]) -> Enqueued | Refused:
    """Store messages that a transaction enqueues when it commits. `admit`, before this, looks whether there is room.

    `begin_holding` makes the transaction known, or sees that it still is.
    """
    guard, route, arrivals, holder = command
    assert holder is not None  # noqa: S101 - who has none does not spill
    if unit.generation(guard.space_id) != guard.generation:
        return STALE
    memory = unit.memory(guard.space_id) if guard.memory_pages else None
    if memory is None and any(arrival.terms.memory for arrival in arrivals):
        return Refused(Reason.NO_MEMORY)
    begun = begin_holding(unit, guard, holder)
    if isinstance(begun, Refused):
        return begun
    for store in stores_of(unit, guard):
        its = [arrival for arrival in arrivals if arrival.terms.memory is store.in_memory]
        _spill(store, holder.transaction_id, guard.space_id, route, its)
    return Enqueued([arrival.sequence for arrival in arrivals], transactions=begun)


def begin(unit: SqlUnit, command: Begin) -> Begun | Refused:
    """Make a transaction known before it holds anything, and by an identifier where it has one."""
    guard, holder, xid = command
    if unit.generation(guard.space_id) != guard.generation:
        return STALE
    if xid is not None and unit.transactions.find(guard.space_id, xid) is not None:
        return Refused(Reason.XID, what=str(xid))
    begun = begin_holding(unit, guard, holder, xid)
    return begun if isinstance(begun, Refused) else Begun(begun)


def prepare(unit: SqlUnit, command: Prepare) -> Prepared | Refused:
    """Promise the commit of a transaction. What it brings is spilled by now, and its room is kept."""
    if not unit.purpose.always:
        raise WrongPurposeError(unit.purpose, "promises a commit")
    guard = command.guard
    if unit.generation(guard.space_id) != guard.generation:
        return STALE
    memory = unit.memory(guard.space_id)
    in_memory = 0 if memory is None else sum(_messages_of(memory, command))
    if not unit.transactions.prepare(command, unit.clock.now(), in_memory):
        return Refused(Reason.GIVEN_UP)
    if command.held or command.spilled:
        # Nobody ends it any more, who would take away what is looked at.
        dequeued, brought = _messages_of(unit, command)
        if dequeued < command.held or brought < command.spilled:
            # The crash of a server takes the last steps with it.
            raise RefusedError(Refused(Reason.LOST))
    return Prepared()


def lacks_spilled(unit: SqlUnit, command: Commit) -> bool:
    """Return whether the disk lacks messages that were spilled: the crash of a server takes the last steps with it."""
    return _spilled_use(unit, command).messages < command.spilled


def consume_in_memory(command: Commit, store: Store, source: Source) -> None:
    """Consume all that the transaction has dequeued in memory from a queue."""
    use = store.holdings.consume(command.transaction_id, source.queue_id)
    if use.messages:
        where = command.guard.space_id, source.queue_id
        store.counters.leave(*where, count=use.messages, pages=use.pages, size=use.size, how="dequeued")


def rearm_levels(unit: SqlUnit, command: Commit) -> None:
    """Arm the capacity commands again whose low limit the commit has reached."""
    for source in command.sources:
        if source.levels:
            in_memory = bool(command.guard.memory_pages)
            unit.capacity_commands.rearm_reached(command.guard, source, on_disk=True, in_memory=in_memory)


def give_back_locked(command: Commit, store: Store, now: int) -> None:
    """Return what the transaction has only locked, as it was before. What has expired by now goes as all that has."""
    for source in command.sources:
        its = store.holdings.give_back_locked(command.transaction_id, source.queue_id)
        standing = [Stands(each.place, None, each.expires_us) for each in its]
        stand(store, source.queue_id, standing, now, expires=not source.parent_id)
        for each in its if source.parent_id else ():
            # Where all others have expired meanwhile, nobody would look at this one any more.
            store.shares.expire_again(source.parent_id, each)


def overflow_of_spilled(unit: SqlUnit, command: Commit, freed: Use, freed_in_memory: Use) -> Refused | None:
    """Return what limit is exceeded by what was spilled, with the room that is freed by then; None where none is.

    The room was kept for it, but limits may be lower now, and nobody has looked at them while it was spilled.
    """
    guard = command.guard
    if guard.messages >= NO_LIMIT:
        return None
    level = unit.counters.level(guard.space_id)
    in_memory = unit.memory_level(guard.space_id) if guard.memory_pages else _NOTHING
    more, more_in_memory = _spilled_use(unit, command), _NOTHING
    memory = unit.memory(guard.space_id) if guard.memory_pages else None
    if memory is not None:
        more_in_memory = _spilled_use(memory, command)
    messages = level.messages - freed.messages + in_memory.messages - freed_in_memory.messages
    limits = []
    if more.messages or more_in_memory.messages:
        limits.append((Reason.MESSAGES, messages, guard.messages, more.messages + more_in_memory.messages))
    if more.messages:
        limits.append((Reason.PAGES, level.pages - freed.pages, guard.pages, more.pages))
    if more_in_memory.messages:
        used = in_memory.pages - freed_in_memory.pages
        limits.append((Reason.MEMORY, used, guard.memory_pages, more_in_memory.pages))
    return next((Refused(reason, used - its, most, its) for reason, used, most, its in limits if used > most), None)


def keep_with_spilled(
    unit: SqlUnit, command: Commit, brings: Sequence[tuple[Route, Sequence[Arrival]]]
) -> list[tuple[Route, Sequence[Arrival]]]:
    """Spill what comes to queues for which something is spilled already, and return the others.

    So all of it stands together: in queues that group messages or have a capacity command, which counts all that comes,
    and where the messages of two stores have one order.
    """
    spilled = {route.queue_id for route in command.stored}
    for route, arrivals in brings:
        if route.queue_id in spilled:
            _spill(unit, command.transaction_id, command.guard.space_id, route, arrivals)
    return [(route, arrivals) for route, arrivals in brings if route.queue_id not in spilled]


def stand_spilled(
    unit: SqlUnit, command: Commit, route: Route, now: int, *, committed: Sequence[Store] = ()
) -> Sequence[Reached]:
    """Let what the transaction has spilled for a queue come to stand in it, in the order in which it was enqueued.

    What is `committed` stands in one of these stores alone. Return the capacity commands to start.
    """
    guard, transaction_id = command.guard, command.transaction_id
    stores = committed or stores_of(unit, guard)
    found = [_brought(store, transaction_id, route.queue_id) for store in stores]
    brings = [each for each in found if each.use.messages]
    orders: Mapping[int, int] = {}
    if len(brings) > 1:
        # The order that messages have together which go to several stores is that of their enqueuing.
        given = sorted(item.message_id for each in brings for item in each.items())
        orders = dict(zip(given, unit.counters.reserve(guard.space_id, len(given)), strict=True))
    for store, use, items, for_several in brings:
        sequences = store.counters.arrive_charged(guard.space_id, route.queue_id, use)
        if for_several:
            _stand_for_several(unit, command, route, zip(sequences, items(), strict=True), now)
            store.holdings.forget_spilled(transaction_id, route.queue_id)
            continue
        if store is not unit:
            # Numbers are given by the store on disk alone: one that was used is not used again, whatever becomes of
            # memory.
            sequences = unit.counters.reserve(guard.space_id, use.messages)
        _stand_all(store, route, zip(sequences, items(), strict=True), len(sequences), orders, now)
        store.holdings.forget_spilled(transaction_id, route.queue_id)
    if not (brings and route.levels):
        return ()
    on_disk, in_memory = (any(each.store.in_memory is memory for each in brings) for memory in (False, True))
    return unit.capacity_commands.claim_reached(guard, route, now, on_disk=on_disk, in_memory=in_memory)


def follow(unit: SqlUnit, command: Commit, now: int) -> Sequence[Reached]:
    """Do in memory what a commit meant that the disk has seen alone; return the capacity commands to start."""
    memory = unit.memory(command.guard.space_id)
    if memory is None:
        return ()
    for source in command.sources:
        consume_in_memory(command, memory, source)
        if source.levels:
            unit.capacity_commands.rearm_reached(command.guard, source, on_disk=False, in_memory=True)
    give_back_locked(command, memory, now)
    return [each for route in command.stored for each in stand_spilled(unit, command, route, now, committed=(memory,))]


# ---- steps -----------------------------------------------------------------------------------------------------------


def _messages_of(store: Store, command: Prepare) -> tuple[int, int]:
    """Return how many messages a transaction has dequeued in a store, and how many it brings."""
    queue_ids = {*command.taken_from, *command.brings_to}
    counts = [store.holdings.counts(command.transaction_id, queue_id) for queue_id in queue_ids]
    dequeued, brought = (sum(each.get(role, 0) for each in counts) for role in (Role.DEQUEUED, Role.ENQUEUED))
    return dequeued, brought


def _spilled_use(store: Store, command: Commit) -> Use:
    its = (store.holdings.spilled_use(command.transaction_id, route.queue_id) for route in command.stored)
    return functools.reduce(Use.plus, its, _NOTHING)


def _spill(store: Store, transaction_id: int, space_id: int, route: Route, its: Sequence[Arrival]) -> None:
    if not its:
        return
    pages, size = sum(each.pages for each in its), sum(each.size for each in its)
    store.counters.charge(space_id, messages=len(its), pages=pages, size=size)
    for each in its:
        number, terms = numbers.number(space_id, each.sequence), each.terms
        store.holdings.spill(transaction_id, number, route, each, terms.place, lifetime=_lifetime(terms))


def _lifetime(terms: Terms) -> int | None:
    """Return how long the message lives from the commit on; None where it has a time of expiry, or none."""
    times = terms.times
    if times is None or (times.lifetime is None and times.expires_us is None):
        return Spilled.DEFAULT
    return None if times.lifetime == NEVER else times.lifetime


def _stand_all(
    store: Store,
    route: Route,
    numbered: Iterable[tuple[int, Spilled]],
    count: int,
    orders: Mapping[int, int],
    now: int,
) -> None:
    """Let so many messages stand, each with its sequence number. In a queue that groups they are one."""
    group_id, first = None, None
    for sequence, item in numbered:
        position = _position_of(item, route, now)
        if route.grouping and count > 1:
            # The first says when they are available and where they stand.
            group_id, position = (item.message_id, position) if first is None else (group_id, first)
            first = position
        _stand_one(store, route, item, position, orders.get(item.message_id, sequence), now, group_id)


def _stand_for_several(
    unit: SqlUnit, command: Commit, route: Route, numbered: Iterable[tuple[int, Spilled]], now: int
) -> None:
    """Let messages stand, each with its sequence number, for those that they are for and that have subscribed.

    What is left with nobody is discarded, and counted: of what was prepared that is no reason for a refusal.
    """
    space_id, lost, places = command.guard.space_id, _NOTHING, dict[int, Use]()
    subscribed = frozenset(route.consumers)
    for sequence, item in numbered:
        its = Use(1, item.pages, item.size)
        consumers = tuple(each for each in item.consumers or () if each in subscribed)
        if not consumers:
            unit.messages.discard(item.message_id)
            lost = lost.plus(its)
            continue
        for each in consumers:
            places[each] = places.get(each, _NOTHING).plus(its)
        _stand_one(unit, route._replace(consumers=consumers), item, _position_of(item, route, now), sequence, now)
    for each in sorted(places):
        count, pages, size = places[each]
        unit.counters.come_to_places(space_id, (each,), count=count, pages=pages, size=size)
    if lost.messages:
        count, pages, size = lost
        unit.counters.leave(space_id, route.queue_id, count=count, pages=pages, size=size, how="discarded")
        what = "1 message of a transaction is" if count == 1 else f"{count} messages of a transaction are"
        text = "%s discarded: nobody that they were for has a subscription any more"
        unit.afterwards(functools.partial(logger.warning, text, what))


def _stand_one(
    store: Store, route: Route, item: Spilled, position: Position, number: int, now: int, group_id: int | None = None
) -> None:
    key = position.head + (SEQUENCE_TOP - number if position.descends else number).to_bytes(8) + LAST
    store.messages.settle(item.message_id, Standing(key, now, position.available_us, position.expires_us, group_id))
    place = Place(item.message_id, route.queue_id, key, 0)
    stand_by(store, route, [Stands(place, position.available_us, position.expires_us)], now)


def _position_of(item: Spilled, route: Route, now: int) -> Position:
    available = item.available_us if item.delay is None else now + item.delay
    lifetime = route.lifetime if item.lifetime == Spilled.DEFAULT else item.lifetime
    expires = item.expires_us if lifetime is None else now + lifetime
    if item.place:
        return Position(available, expires, *(head_on_top() if item.place == TOP else head_before(item.place)))
    moment = now if available is None else available
    head = head_of(route.criteria, priority=item.priority, available_at=moment, expires_at=expires)
    return Position(available, expires, head, route.descends)


def _brought(store: Store, transaction_id: int, queue_id: int) -> _Brought:
    few = store.holdings.spilled(transaction_id, queue_id, -1, _AT_A_TIME)
    for_several = any(each.consumers is not None for each in few)
    if len(few) < _AT_A_TIME:
        use = Use(len(few), sum(each.pages for each in few), sum(each.size for each in few))
        return _Brought(store, use, few.copy, for_several)
    use = store.holdings.spilled_use(transaction_id, queue_id)
    return _Brought(store, use, functools.partial(_items, store, transaction_id, queue_id), for_several)


def _items(store: Store, transaction_id: int, queue_id: int) -> Iterator[Spilled]:
    after, is_more = -1, True
    while is_more:
        step = store.holdings.spilled(transaction_id, queue_id, after, _AT_A_TIME)
        yield from step
        is_more = len(step) == _AT_A_TIME
        after = step[-1].message_id if is_more else after
