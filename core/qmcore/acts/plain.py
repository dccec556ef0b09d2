"""What most calls are: one message, to or from a queue of which nothing special is asked.

Where the store has a short way, such a call goes it; all others, and those that are turned back, go the ordinary one,
here or where the caller is told so.
"""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.acts import dequeue as dequeuing
from qmcore.acts import thresholds
from qmcore.acts.enqueue import Accepted, Outgoing, accepted, arrival_of
from qmcore.acts.transaction_part import NO_USE, RESERVED_AT_A_TIME, Branch, adds, record_of
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import QueueError
from qmcore.message import Message
from qmcore.port import Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, Queue
from qmcore.records import Nothing
from qmcore.selection import FIRST, Selection
from qmcore.shortcut import PlainDeparture, PlainEnd, PlainHeld, PlainHold, Shortcut
from qmcore.transitions import Enqueue


def dequeue(
    volume: Volume, opened: OpenSpace, name: str, selection: Selection, limit: int, now: int, *, body: bool = True
) -> list[Message] | Nothing:
    """Consume at most `limit` messages of a queue, in its order; of a queue that groups them, of one group."""
    if volume.shortcut is not None and body and selection is FIRST:
        departure = departure_from(opened, name, now)
        found = None if departure is None else _departed(volume.shortcut, departure, limit)
        if found is not None:
            return found
    return volume.write(
        lambda unit: dequeuing.dequeue(unit, opened, name, selection, limit, now, body=body),
        Purpose.MESSAGES,
    )


# ---- in a transaction -----------------------------------------------------------------------------------------------


def accept(
    volume: Volume, branch: Branch, outgoing: Sequence[Outgoing], reserved: Sequence[int], now: int
) -> list[Accepted]:
    """Return messages as their queues accept them, to be enqueued when the transaction commits; none if not so."""
    known = branch.opened.known
    if volume.shortcut is None or known is None or known.space.definition.memory:
        return []
    try:
        items = accepted(None, known, outgoing, reserved)
    except QueueError:
        return []
    more = adds(branch, Delivery.PERSIST)
    for item in outgoing:
        more = more.plus(item.use)
    limits = known.space.definition
    if branch.seen is not None and branch.seen.has_room(more, limits, now):
        return items
    generation, level = volume.shortcut.level(known.space.id)
    after = level.plus(more)
    fits = after.messages <= limits.messages and after.pages <= limits.capacity
    return items if fits and generation == known.generation else []


def departure_from(opened: OpenSpace, name: str, now: int) -> PlainDeparture | None:
    """Return how the first message of the queue is to go; None where that takes more than the short way does."""
    known = opened.known
    if known is None:
        return None
    queue_id = known.plain_sources.get(name)
    if queue_id is None:
        queue = _plain_queue(known, name)
        if queue is None or not queue.dequeue_enabled or queue.definition.grouping or queue.definition.retention:
            return None
        queue_id = known.plain_sources[name] = queue.id
    return PlainDeparture(known.space, known.generation, queue_id, name, now)


def hold(volume: Volume, branch: Branch, departure: PlainDeparture) -> PlainHeld | Nothing | None:
    """Let a transaction that the volume does not know yet hold the first message of a queue.

    One that would be more than there ever were at one time goes the ordinary way, where that is noted.
    """
    if volume.shortcut is None:
        return None
    return volume.shortcut.hold(
        PlainHold(
            departure,
            record_of(branch, departure.space),
            min(departure.space.definition.transactions, branch.opened.highest.get("transactions", 0)),
            0 if branch.reserved else RESERVED_AT_A_TIME,
        )
    )


def end(volume: Volume, branch: Branch, now: int) -> bool:
    """Commit a transaction that holds messages of one queue and brings at most one; False: nothing was done."""
    known, shortcut = branch.opened.known, volume.shortcut
    if shortcut is None or known is None or not branch.recorded or branch.may_lock or branch.may_spill:
        return False
    holds = branch.holds.get(Delivery.PERSIST, NO_USE)
    if len(branch.queue_ids) != 1 or len(branch.pending) > 1 or len(branch.holds) != 1 or not holds.messages:
        return False
    (queue_id,) = branch.queue_ids
    queue = known.by_id.get(queue_id)
    if queue is None or queue.definition.retention or _plain_queue(known, queue.name) is None:
        return False
    brings = None
    for item in branch.pending:
        if item.place or item.outgoing.queue not in known.queues:
            return False
        route, arrival = arrival_of(known, item)
        available = item.outgoing.control.available_at(now)
        if arrival.terms.memory or route.levels or (available is not None and available > now):
            return False
        brings = Enqueue(branch.opened.guard(known), route, (arrival,))
    return shortcut.end(PlainEnd(known.space, known.generation, branch.id, branch.owner.id, queue_id, holds, brings))


# ---- steps -----------------------------------------------------------------------------------------------------------


def _departed(shortcut: Shortcut, departure: PlainDeparture, limit: int) -> list[Message] | Nothing | None:
    if limit > 1:
        return shortcut.depart_together(departure, limit)
    found = shortcut.depart(departure)
    return found if found is None or isinstance(found, Nothing) else [found]


def _plain_queue(known: Definitions, name: str) -> Queue | None:
    """Return the queue if it is there, has no messages in memory, and no capacity command hangs on its use."""
    queue = known.queues.get(name)
    if queue is None or known.space.definition.memory or thresholds.is_watched(queue):
        return None
    return queue
