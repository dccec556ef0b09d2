"""How messages come to a queue and go from it, as a store is told: once for each generation of the definitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from qmcore.definitions import Definitions
from qmcore.errors import NoRecipientsError
from qmcore.order import Criterion
from qmcore.queue import FOREVER, Queue
from qmcore.records import TransactionRecord, Use
from qmcore.times import MICROS
from qmcore.transitions import Commit, Guard, Level, Route, Source

_SAME_HEAD: Final = frozenset((Criterion.FIFO, Criterion.LIFO))
"""What an order goes by in which the keys of all messages begin in the same way."""


def route_of(known: Definitions, queue: Queue) -> Route:
    """Return how messages come to a queue, be it started or not; or to one consumer of a queue for several."""
    found = known.routes.get(queue.definition.name)
    if found is None:
        order, groups = queue.definition.order, queue.definition.grouping
        is_same = _SAME_HEAD.issuperset(order.criteria)
        head = order.head(priority=0, available_at=0, expires_at=None) if is_same else None
        expiration, levels = queue.definition.expiration, tuple(_levels(known, queue))
        lifetime = None if expiration is None else expiration * MICROS
        subscribed = (queue,) if queue.parent_id else known.subscribed.get(queue.id, ())
        consumers = tuple(each.id for each in subscribed)
        its = queue.messages_of, head, order.values, order.descends, groups, lifetime, levels, consumers
        found = Route(*its)
        # Where nobody would get a message, whoever lets one arrive has to see that each time.
        if consumers or not queue.definition.multiple_consumers:
            known.routes[queue.definition.name] = found
    return found


def with_recipients(known: Definitions, queue: Queue) -> Route:
    """Return how messages come to a queue, or refuse them where nobody would get one."""
    route = route_of(known, queue)
    if queue.definition.multiple_consumers and not route.consumers:
        raise NoRecipientsError(
            f"queue {queue.name!r} has no subscription, so that nobody would get the message",
            hint="Subscribe a consumer first: qsubscribe, or QueueSpace.subscribe.",
            queue=queue.name,
        )
    return route


def source_of(known: Definitions, queue: Queue) -> Source:
    """Return how messages are taken out of a queue, be it started or not."""
    found = known.sources.get(queue.definition.name)
    if found is None:
        retention = queue.definition.retention
        kept = None if retention == FOREVER else retention * MICROS
        low = tuple(_low_levels(known, queue))
        found = Source(queue.id, queue.definition.grouping, bool(retention), kept, low, queue.parent_id)
        known.sources[queue.definition.name] = found
    return found


def _levels(known: Definitions, queue: Queue) -> list[Level]:
    """Return the high limits of a queue that have capacity commands."""
    return [
        Level(memory, threshold.high.unit.value, threshold.high.value, capacity)
        for memory, threshold, capacity in known.thresholds_of(queue)
        if threshold.command
    ]


def _low_levels(known: Definitions, queue: Queue) -> list[Level]:
    """Return the low limits of a queue that have capacity commands."""
    return [
        Level(memory, threshold.low.unit.value, threshold.low.value, capacity)
        for memory, threshold, capacity in known.thresholds_of(queue)
        if threshold.command
    ]


def commit_by_record(
    known: Definitions, guard: Guard, record: TransactionRecord, taken_from: Iterable[int], brings_to: Iterable[int]
) -> Commit:
    """Return the commit of a transaction of which only the record is known, and where all stands that it has."""
    by_id = known.by_id
    sources = [source_of(known, by_id[queue_id]) for queue_id in taken_from if queue_id in by_id]
    queues = [by_id[queue_id] for queue_id in brings_to if queue_id in by_id]
    # What it brings to a queue for several comes to its consumers by the route of that.
    stored = [route_of(known, queue) for queue in queues if not queue.parent_id]
    return Commit(guard, record.id, record.owner_id, True, sources, Use(0, 0, 0), True, stored, 0, ())
