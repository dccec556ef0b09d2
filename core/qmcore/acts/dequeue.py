"""The act of dequeuing: messages of a queue are claimed, to be consumed at once or to be held by a transaction.

Whatever is taken out of a queue passes `source_from`, where it is refused if its queue gives nothing; the store does
the rest. What is due or has expired in the queue is seen to before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from qmcore import numbers
from qmcore.acts.enqueue import stopped
from qmcore.acts.housekeeping import freshen
from qmcore.acts.routes import source_of
from qmcore.acts.sending import send
from qmcore.acts.stores import stores
from qmcore.acts.transaction_part import RESERVED_AT_A_TIME, Branch, holder_of
from qmcore.definitions import Definitions, OpenSpace
from qmcore.message import Message
from qmcore.message_rows import message_of
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, Queue
from qmcore.records import Nothing, Role
from qmcore.selection import FIRST, FIRST_CHOICE, Choice, Selection
from qmcore.space import Space
from qmcore.store import Store
from qmcore.transitions import Claim, Claimed, Empty, Source

_DELIVERIES: Final = (Delivery.PERSIST, Delivery.NONPERSIST)
"""Where a message was kept, by whether it was in memory."""


class Wanted(NamedTuple):
    """What a consumer asks for; a `branch` of a transaction is to hold it, to consume it later or to lock it.

    `is_tidy`: what is due or has expired was seen to just now.
    """

    queue: str
    selection: Selection
    limit: int
    body: bool = True
    branch: Branch | None = None
    role: Role = Role.DEQUEUED
    is_tidy: bool = False


def dequeue(volume: Volume, opened: OpenSpace, wanted: Wanted, on: object = None) -> list[Message] | Nothing:
    """Consume at most so many messages of a queue, in its order; of a queue that groups them, of one group.

    `on` is a connection of the application, in whose transaction it is done.
    """
    claimed = claim(volume, opened, wanted, on)
    return claimed if isinstance(claimed, Nothing) else messages_of(opened, wanted.queue, claimed)


def claim(volume: Volume, opened: OpenSpace, wanted: Wanted, on: object = None) -> Claimed | Nothing:
    """Have a store claim messages; what is due or has expired is seen to before, a step of it."""
    while True:
        purpose = Purpose.MESSAGES if wanted.branch is None else Purpose.HOLDING
        (result,) = send(volume, opened, claims_for, wanted, on, purpose=purpose)
        if isinstance(result, Claimed):
            return result
        assert isinstance(result, Empty)  # noqa: S101 - a claim has no other result
        if not result.is_untidy:
            return Nothing((result.queue_id,), result.next_due_us, held=result.held)
        if not _tidied(volume, opened, wanted.queue, on):
            return Nothing((result.queue_id,), None, unfinished=True)
        wanted = wanted._replace(is_tidy=True)


def claims_for(opened: OpenSpace, known: Definitions, wanted: Wanted) -> list[Claim]:
    """Return what the store is asked to do."""
    name, selection, limit, body, branch, role, is_tidy = wanted
    source = source_from(known, name)
    chosen = () if selection is FIRST else choices_of(known.space, selection)
    holder = None
    if branch is not None:
        numbers_wanted = 0 if branch.reserved else RESERVED_AT_A_TIME
        holder = holder_of(branch, known.space, role, numbers_wanted)
        # A rollback looks there for what is held.
        branch.queue_ids.add(source.queue_id)
    return [Claim(opened.guard(known), source, chosen, limit, body, is_tidy, holder)]


def messages_of(opened: OpenSpace, queue: str, claimed: Claimed) -> list[Message]:
    """Return the messages of a queue that were claimed."""
    space = opened.space if opened.known is None else opened.known.space
    messages = []
    for row, retries, memory in claimed.taken:
        messages.append(message_of(Message, row, space, queue, _DELIVERIES[memory], retries))
    return messages


def source_from(known: Definitions, name: str) -> Source:
    """Return how messages are taken out of a queue, or refuse that where it gives none.

    Whoever dequeues asks here, once for each queue.
    """
    queue = known.takers.get(name)
    if queue is None or not queue.dequeue_enabled:
        raise stopped(known.taker(name), "dequeuing")
    return known.sources.get(name) or source_of(known, queue)


def choices_of(space: Space, selection: Selection) -> Sequence[Choice]:
    """Return what a store looks for, one after the other; () for the first ones.

    An identifier that no message here can have is one of the number 0. Raises BadMessageIdError for what is none.
    """
    if selection is FIRST:
        return ()
    if selection.msgid is not None:
        found = space.sequences_of(selection.msgid)
        return [Choice(numbers.number(space.id, sequence)) for sequence in found] or (_NO_MESSAGE,)
    by_words = selection.corrid_like is not None or selection.condition is not None
    return [Choice(None, selection.corrid, selection.corrid_like, selection.condition, space if by_words else None)]


_NO_MESSAGE = Choice(0)


def peek(unit: Unit, opened: OpenSpace, name: str, selection: Selection) -> Message | Nothing:
    """Return a message that stays where it is, as it would be dequeued now."""
    queue = dequeuable(unit, opened, name)
    space = opened.definitions(unit).space
    for choice in choices_of(space, selection) or (FIRST_CHOICE,):
        first = _first(unit, queue, choice)
        message = first and first[1].messages.peek(space, name, queue.id, first[0])
        if message:
            return message
    return nothing(unit, queue)


def listen(unit: Unit, opened: OpenSpace, names: Sequence[str], now: int) -> str | Nothing:
    """Return the first of the queues that has a message; nothing is taken."""
    empty: list[Nothing] = []
    for name in names:
        queue = dequeuable(unit, opened, name)
        if not freshen(unit, opened, queue, now):
            return Nothing((queue.id,), None, unfinished=True)
        if first_ready(unit, queue, FIRST_CHOICE) is not None:
            return name
        empty.append(nothing(unit, queue))
    return Nothing(
        tuple(queue_id for found in empty for queue_id in found.queue_ids),
        min((found.next_due_us for found in empty if found.next_due_us is not None), default=None),
        held=any(found.held for found in empty),
    )


def dequeuable(unit: Unit, opened: OpenSpace, name: str) -> Queue:
    """Return the queue of that name, if messages may be dequeued from it."""
    known = opened.definitions(unit)
    return known.by_id[source_from(known, name).queue_id]


def first_ready(unit: Unit, queue: Queue, choice: Choice) -> bytes | None:
    """Return the order key of the first ready message of a queue that is chosen."""
    found = _first(unit, queue, choice)
    return found and found[0]


def nothing(unit: Unit, queue: Queue) -> Nothing:
    """Return that there was no message, and what is known of when there may be one."""
    both = stores(unit, queue.space_id)
    due = [moment for store in both if (moment := store.states.next_due(queue.id)) is not None]
    return Nothing((queue.id,), min(due, default=None), held=any(store.holdings.held_in(queue.id) for store in both))


# ---- steps -----------------------------------------------------------------------------------------------------------


def _tidied(volume: Volume, opened: OpenSpace, name: str, on: object) -> bool:
    """Release and remove what is due and what has expired in a queue; return whether that is all of it."""

    def tidy(unit: Unit) -> bool:
        queue = dequeuable(unit, opened, name)
        if queue.definition.grouping:
            # Who takes of a group at the same time takes the whole of it.
            unit.states.take_alone(queue.id)
        return freshen(unit, opened, queue, volume.clock.now())

    if on is not None:
        return volume.write_on(on, tidy)
    return volume.write(tidy, Purpose.TIDY)


def _first(unit: Unit, queue: Queue, choice: Choice) -> tuple[bytes, Store] | None:
    """Return the lowest order key of what is chosen, and the store that it is in."""
    its = queue.id, queue.messages_of, choice
    keys = [(store.states.find(*its), store) for store in stores(unit, queue.space_id)]
    return min(((key, store) for key, store in keys if key is not None), key=lambda found: found[0], default=None)
