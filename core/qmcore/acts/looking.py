"""Looking at what a queue holds, in all of its stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TypeAlias

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
from qmcore.records import Cursor, Listing, Part
from qmcore.selection import FIRST_CHOICE
from qmcore.store import Store
from qmcore.times import LATEST

_Edge: TypeAlias = tuple[bytes, int] | None
STORES = 2
"""How many stores a queue space may have at most."""


def usage(unit: Unit, queue: Queue, now: int) -> QueueUsage:
    """Return what the queue holds and what went through it."""
    on_disk = usage_in(unit, queue, now)
    memory = unit.memory(queue.space_id)
    if memory is None:
        return on_disk
    in_memory = usage_in(memory, queue, now)
    both = {field: getattr(on_disk, field) + getattr(in_memory, field) for field in _ADDED}
    return dataclasses.replace(
        on_disk,
        **both,
        nonpersistent=in_memory.messages,
        memory_pages=in_memory.pages,
        first_us=_first(queue, (unit, on_disk), (memory, in_memory)),
        oldest_us=min((use.oldest_us for use in (on_disk, in_memory) if use.oldest_us is not None), default=None),
    )


def usage_in(store: Store, queue: Queue, now: int) -> QueueUsage:
    """Return what one store holds of the queue, and what went through it there."""
    return dataclasses.replace(store.counters.usage(queue, now), oldest_us=_oldest(store, queue))


def _oldest(store: Store, queue: Queue) -> int | None:
    """Return when the oldest ready message was enqueued, where the order of the queue tells it."""
    if not queue.definition.order.goes_by_age:
        return None
    found = (enqueued for _, enqueued in filter(None, _edges(store, queue)))
    return min((enqueued for enqueued in found if enqueued < LATEST), default=None)


def _edges(store: Store, queue: Queue) -> Iterator[_Edge]:
    """Yield messages of which the oldest is one: those put on top, and two for each priority that there is."""
    edge = store.states.ready_edge(queue.id, b"", BEHIND_ALL, last=False)
    if edge is not None and edge[0] < FIRST_ORDINARY:
        # Of those that were put on top the last is the one that was put there first.
        yield store.states.ready_edge(queue.id, b"", FIRST_ORDINARY, last=True)
        edge = store.states.ready_edge(queue.id, FIRST_ORDINARY, BEHIND_ALL, last=False)
    order = queue.definition.order
    while edge is not None:
        level, behind = order.level(edge[0])
        if order.descends:
            edge = store.states.ready_edge(queue.id, level, behind, last=True) or edge
        yield edge
        beside = order.not_before(edge[0])
        if beside != edge[0]:
            # It was put before another one, out of the order; beside that one may be an older.
            start, end = (level, beside[:-1]) if order.descends else (beside, behind)
            yield store.states.ready_edge(queue.id, start, end, last=order.descends)
        edge = store.states.ready_edge(queue.id, behind, BEHIND_ALL, last=False) if behind < BEHIND_ALL else None


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
    return both[store_number].listing.messages(known.space, known.queue(name), state, after, limit, condition)


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
    return both[store_number].listing.cursors(known.space, known.queue(name), state, after, limit, condition)


def given_back_until(unit: Unit, opened: OpenSpace, name: str, now: int) -> int | None:
    """Return when the last message of a queue is available that a rollback keeps back, not its sender."""
    queue = opened.definitions(unit).queue(name)
    found = (store.states.given_back_until(queue.id, now) for store in stores(unit, queue.space_id))
    return max((until for until in found if until is not None), default=None)


def content(unit: Unit, opened: OpenSpace, listed: MessageInfo) -> Message | None:
    """Return a message that was listed with its body, wherever it stands now; None if it is gone."""
    known = opened.definitions(unit)
    both = stores(unit, known.space.id)
    store_number = int(listed.delivery is Delivery.NONPERSIST)
    queue = known.queues.get(listed.queue)
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


_ADDED = (
    *("messages", "ready", "delayed", "parked", "held", "size"),
    *("enqueued", "dequeued", "expired", "discarded", "moved"),
)


def _first(queue: Queue, *uses: tuple[Store, QueueUsage]) -> int | None:
    """Return when the message was enqueued that is first in order over all stores."""
    keyed = [
        (key, use.first_us) for store, use in uses if (key := store.states.find(queue.id, FIRST_CHOICE)) is not None
    ]
    return min(keyed)[1] if keyed else None
