"""What most calls are: one message, to or from a queue of which nothing special is asked.

Where the store has a short way, such a call goes it; all others, and those that are turned back, go the ordinary one,
here or where the caller is told so.
"""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import numbers
from qmcore.acts import dequeue as dequeuing
from qmcore.acts import thresholds
from qmcore.acts.enqueue import Accepted, Outgoing
from qmcore.acts.stores import delivery_of
from qmcore.acts.transaction_part import NO_USE, RESERVED_AT_A_TIME, Branch, adds, record_of
from qmcore.definitions import Definitions, OpenSpace
from qmcore.message import PLAIN_CONTROL, TEXT_CONTROL, EnqueueControl, Message, message_id
from qmcore.port import Volume
from qmcore.queue import Delivery, Queue
from qmcore.records import NewMessage, Nothing, Standing, is_nothing
from qmcore.selection import FIRST, Selection
from qmcore.shortcut import (
    PlainArrival,
    PlainArrivals,
    PlainDeparture,
    PlainEnd,
    PlainHeld,
    PlainHold,
    PlainTerms,
    Shortcut,
)


def enqueue(volume: Volume, opened: OpenSpace, outgoing: Outgoing, now: int) -> str | None:
    """Put a message on its queue and return its identifier; None: nothing was done, the ordinary way is to be taken.

    So it is where the store has no short way, for what asks for more than that does, and for what is to be refused.
    """
    if volume.shortcut is None:
        return None
    arrival = _plain_arrival(opened, outgoing, now)
    sequence = None if arrival is None else volume.shortcut.arrive(arrival)
    return None if sequence is None else message_id(opened.space.incarnation, sequence)


def enqueue_together(volume: Volume, opened: OpenSpace, outgoing: Sequence[Outgoing], now: int) -> list[str] | None:
    """Put messages on one queue and return their identifiers; None: nothing was done, as with `enqueue`."""
    terms = None if volume.shortcut is None else _terms_for_all(opened, outgoing, now)
    if volume.shortcut is None or terms is None:
        return None
    _, bodies, _, _, sizes, pages = zip(*outgoing, strict=True)
    sequences = volume.shortcut.arrive_together(
        PlainArrivals(terms, now, outgoing[0].control.type, bodies, sizes, pages)
    )
    incarnation = opened.space.incarnation
    return None if sequences is None else [message_id(incarnation, sequence) for sequence in sequences]


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
        concurrent=True,
        repeatable=is_nothing,
    )


# ---- in a transaction -----------------------------------------------------------------------------------------------


def accept(
    volume: Volume, branch: Branch, outgoing: Sequence[Outgoing], reserved: Sequence[int], now: int
) -> list[Accepted]:
    """Return messages as their queues accept them, to be enqueued when the transaction commits; none if not so."""
    known = branch.opened.known
    if volume.shortcut is None or known is None or known.space.definition.memory:
        return []
    accepted = []
    for item, sequence in zip(outgoing, reserved, strict=False):
        queue = known.queues.get(item.queue)
        if queue is None or not _takes(queue, item.control):
            return []
        accepted.append(Accepted(item, queue.id, Delivery.PERSIST, b"", sequence))
    more = adds(branch, Delivery.PERSIST)
    for item in outgoing:
        more = more.plus(item.use)
    limits = known.space.definition
    if branch.seen is not None and branch.seen.has_room(more, limits, now):
        return accepted
    generation, level = volume.shortcut.level(known.space.id)
    after = level.plus(more)
    fits = after.messages <= limits.messages and after.pages <= limits.capacity
    return accepted if fits and generation == known.generation else []


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
        if item.place or item.sequence is None:
            return False
        number = numbers.number(known.space.id, item.sequence)
        brings = _plain_arrival(branch.opened, item.outgoing, now, number)
        if brings is None:
            return False
    return shortcut.end(PlainEnd(known.space, known.generation, branch.id, branch.owner.id, queue_id, holds, brings))


# ---- steps -----------------------------------------------------------------------------------------------------------


def _departed(shortcut: Shortcut, departure: PlainDeparture, limit: int) -> list[Message] | Nothing | None:
    if limit > 1:
        return shortcut.depart_together(departure, limit)
    found = shortcut.depart(departure)
    return found if found is None or isinstance(found, Nothing) else [found]


def _plain_arrival(opened: OpenSpace, item: Outgoing, now: int, number: int = 0) -> PlainArrival | None:
    control, known = item.control, opened.known
    if known is None:
        return None
    # The first two have it too; to see that takes longer.
    is_usual = control is PLAIN_CONTROL or control is TEXT_CONTROL or control.has_usual_place
    terms = known.plain.get(item.queue) if is_usual else None
    if terms is not None:
        return _arrival(terms, item, Standing(b"", now, None, None), number)
    queue, available = _plain_queue(known, item.queue), control.available_at(now)
    if queue is None or not _takes(queue, control) or (available is not None and available > now):
        return None
    expires = control.expires_at(now, queue.definition.expiration)
    order, limits = queue.definition.order, known.space.definition
    head = order.head(
        priority=control.priority, available_at=now if available is None else available, expires_at=expires
    )
    terms = PlainTerms(known.space, known.generation, queue.id, head, order.descends, limits.messages, limits.capacity)
    if is_usual and expires is None and not order.goes_by_times:
        known.plain[item.queue] = terms
    return _arrival(terms, item, Standing(b"", now, available, expires), number)


def _terms_for_all(opened: OpenSpace, outgoing: Sequence[Outgoing], now: int) -> PlainTerms | None:
    """Return the terms on which all the messages come, which have no options; None where they have not the same."""
    first, known = outgoing[0], opened.known
    if known is None or not (first.control is PLAIN_CONTROL or first.control is TEXT_CONTROL):
        return None
    if any(item.control is not first.control or item.queue != first.queue for item in outgoing):
        return None
    terms = known.plain.get(first.queue)
    if terms is None:
        # It is noted with the first.
        _plain_arrival(opened, first, now)
        terms = known.plain.get(first.queue)
    # What comes together to such a queue stays together.
    return None if terms is None or known.queues[first.queue].definition.grouping else terms


def _arrival(terms: PlainTerms, item: Outgoing, standing: Standing, number: int) -> PlainArrival:
    """Return how a message is to come; its key is given by the store, and its number where that is 0."""
    _, body, control, headers, size, pages = item
    return PlainArrival(terms, NewMessage(number, terms.queue_id, standing, pages, size, headers, control, body))


def _plain_queue(known: Definitions, name: str) -> Queue | None:
    """Return the queue if it is there, has no messages in memory, and no capacity command hangs on its use."""
    queue = known.queues.get(name)
    if queue is None or known.space.definition.memory or thresholds.is_watched(queue):
        return None
    return queue


def _takes(queue: Queue, control: EnqueueControl) -> bool:
    """Tell whether the queue takes messages on these terms, on disk and in its order."""
    is_in_order = not control.top and control.before is None
    return queue.enqueue_enabled and is_in_order and delivery_of(queue, control) is Delivery.PERSIST
