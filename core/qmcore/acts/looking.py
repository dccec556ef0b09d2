"""Looking at what a queue holds, in all of its stores."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from qmcore.acts.identifying import numbers_of
from qmcore.acts.stores import stores
from qmcore.condition import Condition
from qmcore.damage import has_no_record
from qmcore.definitions import OpenSpace
from qmcore.errors import SystemFailureError
from qmcore.message import Message, MessageInfo, State
from qmcore.order import BEHIND_ALL, FIRST_ORDINARY
from qmcore.port import Unit
from qmcore.queue import Delivery, Queue, QueueUsage
from qmcore.records import Cursor, Edge, Figures, Listing, Part
from qmcore.store import Store
from qmcore.times import LATEST

STORES = 2
"""How many stores a queue space may have at most."""

NOTHING: Final = Figures()


def usage(unit: Unit, queue: Queue, now: int) -> QueueUsage:
    """Return what the queue holds and what went through it."""
    return usages(unit, [queue], now)[0]


def usages(unit: Unit, queues: Sequence[Queue], now: int) -> list[QueueUsage]:
    """Return what each of these queues, which are of one queue space, holds and what went through it."""
    return usages_in(stores(unit, queues[0].space_id), queues, now) if queues else []


def usages_in(its: Sequence[Store], queues: Sequence[Queue], now: int) -> list[QueueUsage]:
    """Return what these stores of the queue space, of which that on disk is the first, hold of each queue."""
    told = [(store, store.counters.figures(queues, now), _edges(store, queues)) for store in its]
    return [
        _usage(
            [figures.get(queue.id, NOTHING) for _, figures, _ in told],
            [edge for _, _, edges in told for edge in edges[queue.id].firsts],
            min(
                (at for store, _, edges in told for at in _oldest(store, queue, edges[queue.id]) if at < LATEST),
                default=None,
            ),
        )
        for queue in queues
    ]


def _usage(in_stores: Sequence[Figures], firsts: Iterable[Edge], oldest: int | None) -> QueueUsage:
    both = functools.reduce(Figures.plus, in_stores)
    in_memory = functools.reduce(Figures.plus, in_stores[1:], NOTHING)
    first = min(firsts, default=None)
    return QueueUsage(
        messages=both.messages,
        ready=both.messages - both.delayed - both.parked - both.held,
        delayed=both.delayed,
        parked=both.parked,
        held=both.held,
        pages=both.pages - in_memory.pages,
        size=both.size,
        enqueued=both.enqueued,
        dequeued=both.dequeued,
        expired=both.expired,
        discarded=both.discarded,
        moved=both.moved,
        nonpersistent=in_memory.messages,
        memory_pages=in_memory.pages,
        first_us=None if first is None or first.enqueued_us == LATEST else first.enqueued_us,
        oldest_us=oldest,
    )


class _Edges(NamedTuple):
    """The first ready message of each level of a queue's keys, and the last of each; no last ones where none counts."""

    firsts: Sequence[Edge]
    lasts: Sequence[Edge]


def _edges(store: Store, queues: Sequence[Queue]) -> dict[int, _Edges]:
    firsts = store.states.level_edges(queues, last=False)
    lasts: dict[int, list[Edge]] = {}
    if any(_goes_by_last(queue, edge) for queue in queues for edge in firsts[queue.id]):
        lasts = store.states.level_edges(queues, last=True)
    return {number: _Edges(its, lasts.get(number, ())) for number, its in firsts.items()}


def _goes_by_last(queue: Queue, edge: Edge) -> bool:
    """Return whether the last message of a level is the oldest one there: so it is where they descend, and on top."""
    order = queue.definition.order
    return order.goes_by_age and (order.descends or edge.order_key < FIRST_ORDINARY)


def _oldest(store: Store, queue: Queue, edges: _Edges) -> Iterator[int]:
    """Yield when messages were enqueued of which the oldest is one, where the order of the queue tells it."""
    order = queue.definition.order
    if not order.goes_by_age:
        return
    firsts = [edge for edge in edges.firsts if not _goes_by_last(queue, edge)]
    lasts = [edge for edge in edges.lasts if _goes_by_last(queue, edge)]
    for edge in (*firsts, *lasts):
        yield edge.enqueued_us
        beside = order.not_before(edge.order_key)
        if beside != edge.order_key and FIRST_ORDINARY <= edge.order_key < BEHIND_ALL:
            # It was put before another one, out of the order; beside that one may be an older.
            level, behind = order.level(edge.order_key)
            start, end = (level, beside[:-1]) if order.descends else (beside, behind)
            found = store.states.ready_edge(queue.id, start, end, last=order.descends)
            if found is not None:
                yield found.enqueued_us


def listing(
    unit: Unit,
    opened: OpenSpace,
    store_number: int,
    name: str,
    state: State,
    after: Cursor | None,
    limit: int,
    condition: Condition | None,
) -> Listing:
    """Return a part of the messages of a queue in one of its stores."""
    known = opened.definitions(unit)
    both = stores(unit, known.space.id)
    if store_number >= len(both):
        return Part()
    return both[store_number].listing.messages(known.space, known.taker(name), state, after, limit, condition)


def cursors(
    unit: Unit,
    opened: OpenSpace,
    store_number: int,
    name: str,
    state: State,
    after: Cursor | None,
    limit: int,
    condition: Condition | None,
) -> list[Cursor]:
    """Return the cursors of a part of the messages of a queue in one of its stores, which is much quicker."""
    known = opened.definitions(unit)
    both = stores(unit, known.space.id)
    if store_number >= len(both):
        return []
    return both[store_number].listing.cursors(known.space, known.taker(name), state, after, limit, condition)


def given_back_until(unit: Unit, opened: OpenSpace, name: str, now: int) -> int | None:
    """Return when the last message of a queue is available that a rollback keeps back, not its sender."""
    queue = opened.definitions(unit).taker(name)
    found = (store.states.given_back_until(queue.id, now) for store in stores(unit, queue.space_id))
    return max((until for until in found if until is not None), default=None)


def content(unit: Unit, opened: OpenSpace, listed: MessageInfo) -> Message | None:
    """Return a message that was listed with its body, wherever it stands now; None if it is gone."""
    known = opened.definitions(unit)
    both = stores(unit, known.space.id)
    store_number = int(listed.delivery is Delivery.NONPERSIST)
    queue = known.takers.get(listed.queue)
    if queue is None or store_number >= len(both):
        return None
    for message_id in numbers_of(unit, known.space, queue, listed.msgid):
        try:
            return both[store_number].messages.stored(
                known.space, listed.queue, message_id, listed.state, listed.retries
            )
        except SystemFailureError as error:
            if not has_no_record(error):
                raise
    return None
