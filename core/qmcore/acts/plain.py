"""What most transactions are: messages of one queue that are consumed, and at most one that is brought.

Where the store has a short way, such a call goes it; all others, and those that are turned back, go the ordinary one,
here or where the caller is told so.
"""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.acts import thresholds
from qmcore.acts.enqueue import Accepted, Outgoing, accepted, arrival_of
from qmcore.acts.transaction_part import NO_USE, Branch, adds
from qmcore.definitions import Definitions
from qmcore.errors import QueueError
from qmcore.port import Volume
from qmcore.queue import Delivery, Queue
from qmcore.shortcut import PlainEnd
from qmcore.transitions import Enqueue


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


def _plain_queue(known: Definitions, name: str) -> Queue | None:
    """Return the queue if it is there, has no messages in memory, and no capacity command hangs on its use."""
    queue = known.queues.get(name)
    if queue is None or known.space.definition.memory or thresholds.is_watched(queue):
        return None
    return queue
