"""What most calls are: one message, to or from a queue of which nothing special is asked, outside of a transaction.

Where the store has a short way, such a call goes it; all others, and those that are turned back, go the ordinary one.
"""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.acts import dequeue as dequeuing
from qmcore.acts import enqueue as enqueuing
from qmcore.acts import thresholds
from qmcore.acts.dequeue import Nothing, is_nothing
from qmcore.acts.enqueue import Outgoing
from qmcore.acts.stores import delivery_of
from qmcore.definitions import Definitions, OpenSpace
from qmcore.message import Message, message_id
from qmcore.port import Volume
from qmcore.queue import Delivery, Queue
from qmcore.records import NewMessage, Standing
from qmcore.selection import FIRST, Selection
from qmcore.shortcut import PlainArrival, PlainDeparture


def enqueue(volume: Volume, opened: OpenSpace, outgoing: Sequence[Outgoing], now: int) -> list[str]:
    """Put messages on their queues, all or none, and return their identifiers in the same order."""
    if volume.shortcut is not None and len(outgoing) == 1:
        arrival = _plain_arrival(opened, outgoing[0], now)
        sequence = None if arrival is None else volume.shortcut.arrive(arrival)
        if arrival is not None and sequence is not None:
            return [message_id(arrival.space.incarnation, sequence)]
    return volume.write(lambda unit: enqueuing.enqueue(unit, opened, outgoing, now), concurrent=True)


def dequeue(
    volume: Volume, opened: OpenSpace, name: str, selection: Selection, limit: int, now: int, *, body: bool = True
) -> list[Message] | Nothing:
    """Consume at most `limit` messages of a queue, in its order; of a queue that groups them, of one group."""
    if volume.shortcut is not None and limit == 1 and body and selection == FIRST:
        departure = _plain_departure(opened, name, now)
        message = None if departure is None else volume.shortcut.depart(departure)
        if message is not None:
            return [message]
    return volume.write(
        lambda unit: dequeuing.dequeue(unit, opened, name, selection, limit, now, body=body),
        concurrent=True,
        repeatable=is_nothing,
    )


def _plain_arrival(opened: OpenSpace, item: Outgoing, now: int) -> PlainArrival | None:
    control, known = item.control, opened.known
    queue = known and _plain_queue(known, item.queue)
    if not known or not queue or not queue.enqueue_enabled or control.top or control.before is not None:
        return None
    available = control.available_at(now)
    if delivery_of(queue, control) is not Delivery.PERSIST or (available is not None and available > now):
        return None
    expires = control.expires_at(now, queue.definition.expiration)
    order, limits = queue.definition.order, known.space.definition
    head = order.head(
        priority=control.priority, available_at=now if available is None else available, expires_at=expires
    )
    # Its number and its key are given by the store.
    standing = Standing(b"", now, available, expires)
    new = NewMessage(0, queue.id, standing, item.pages, item.size, item.headers, control, item.body)
    return PlainArrival(known.space, known.generation, new, head, order.descends, limits.messages, limits.capacity)


def _plain_departure(opened: OpenSpace, name: str, now: int) -> PlainDeparture | None:
    known = opened.known
    queue = known and _plain_queue(known, name)
    if not known or not queue or not queue.dequeue_enabled:
        return None
    if queue.definition.grouping or queue.definition.retention:
        return None
    return PlainDeparture(known.space, known.generation, queue.id, name, now)


def _plain_queue(known: Definitions, name: str) -> Queue | None:
    """Return the queue if it is there, has no messages in memory, and no capacity command hangs on its use."""
    queue = known.queues.get(name)
    if queue is None or known.space.definition.memory or thresholds.is_watched(queue):
        return None
    return queue
