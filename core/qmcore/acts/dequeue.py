"""The act of dequeuing: taking messages out of `ready` and consuming them at once, or looking at them.

What a transaction takes it holds until it ends (`qmcore.acts.transactions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from qmcore.acts.consuming import consume_now
from qmcore.acts.enqueue import stopped
from qmcore.acts.housekeeping import freshen
from qmcore.acts.identifying import choices
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.message import Message
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Nothing, Place
from qmcore.selection import FIRST_CHOICE, Choice, Selection
from qmcore.space import Space
from qmcore.store import Store


class Taken(NamedTuple):
    """A message that was taken out of `ready`, and the store that it stays in."""

    store: Store
    place: Place


def dequeue(
    unit: Unit, opened: OpenSpace, name: str, selection: Selection, limit: int, now: int, *, body: bool = True
) -> list[Message] | Nothing:
    """Consume at most `limit` messages of a queue, in its order; of a queue that groups them, of one group."""
    queue = reserved_queue(unit, opened, name)
    if not freshen(unit, opened, queue, now):
        return Nothing((queue.id,), None, unfinished=True)
    taken = take(unit, opened, queue, selection, limit)
    if not taken:
        return nothing(unit, queue)
    if len(taken) == 1 or all(item.store is taken[0].store for item in taken):
        return consume_now(unit, opened, taken[0].store, queue, [item.place for item in taken], now, body=body)
    return [
        message
        for item in taken
        for message in consume_now(unit, opened, item.store, queue, [item.place], now, body=body)
    ]


def peek(unit: Unit, opened: OpenSpace, name: str, selection: Selection) -> Message | Nothing:
    """Return a message that stays where it is, as it would be dequeued now."""
    queue = dequeuable(unit, opened, name)
    space = opened.definitions(unit).space
    for choice in choices(unit, space, queue, selection):
        first = _first(unit, space, queue, choice)
        message = first and first[1].peek(space, name, queue.id, first[0])
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
        if first_ready(unit, opened.space, queue, FIRST_CHOICE) is not None:
            return name
        empty.append(nothing(unit, queue))
    return Nothing(
        tuple(queue_id for found in empty for queue_id in found.queue_ids),
        min((found.next_due_us for found in empty if found.next_due_us is not None), default=None),
        held=any(found.held for found in empty),
    )


def dequeuable(unit: Unit, opened: OpenSpace, name: str) -> Queue:
    """Return the queue of that name, if messages may be dequeued from it."""
    queue = opened.definitions(unit).queue(name)
    if not queue.dequeue_enabled:
        raise stopped(queue, "dequeuing")
    return queue


def reserved_queue(unit: Unit, opened: OpenSpace, name: str) -> Queue:
    """Return the queue of that name, to take messages out of it; of one that groups them nobody else takes any.

    Two that take of one group would each wait for what the other has; so that nothing is taken before this.
    """
    queue = dequeuable(unit, opened, name)
    if queue.definition.grouping:
        unit.take_alone(queue.id)
    return queue


def take(unit: Unit, opened: OpenSpace, queue: Queue, selection: Selection, limit: int) -> list[Taken]:
    """Take at most `limit` messages of a reserved queue out of `ready`, in its order, of one group if it has groups."""
    space = opened.definitions(unit).space
    taken: list[Taken] = []
    for choice in choices(unit, space, queue, selection):
        if len(taken) < limit:
            taken += _take_chosen(unit, space, queue, choice, limit - len(taken))
    return taken


def rest_of_group(store: Store, queue: Queue, place: Place) -> list[Place]:
    """Take the others of the group of a message out of `ready`."""
    group_id = store.group_of(place.message_id) if queue.definition.grouping else None
    return [] if group_id is None else store.take_group(queue.id, group_id)


def first_ready(unit: Unit, space: Space, queue: Queue, choice: Choice) -> bytes | None:
    """Return the order key of the first ready message of a queue that is chosen."""
    found = _first(unit, space, queue, choice)
    return found and found[0]


def nothing(unit: Unit, queue: Queue) -> Nothing:
    """Return that there was no message, and what is known of when there may be one."""
    both = stores(unit, queue.space_id)
    due = [moment for store in both if (moment := store.next_due(queue.id)) is not None]
    return Nothing((queue.id,), min(due, default=None), held=any(store.held_in(queue.id) for store in both))


def _take_chosen(unit: Unit, space: Space, queue: Queue, choice: Choice, limit: int) -> list[Taken]:
    if limit > 1 and queue.definition.grouping:
        return _take_of_group(unit, space, queue, choice, limit)
    if limit > 1 and unit.memory(queue.space_id) is None:
        return [Taken(unit, place) for place in unit.take_many(space, queue.id, choice, limit)]
    taken: list[Taken] = []
    while len(taken) < limit and (one := _take_one(unit, space, queue, choice)):
        taken.append(one)
    return taken


def _take_one(unit: Unit, space: Space, queue: Queue, choice: Choice) -> Taken | None:
    if unit.memory(queue.space_id) is None:
        place = unit.take(space, queue.id, choice)
        return None if place is None else Taken(unit, place)
    for _, store in _found(unit, space, queue, choice):
        # Somebody else may have taken it meanwhile.
        place = store.take(space, queue.id, choice)
        if place is not None:
            return Taken(store, place)
    return None


def _first(unit: Unit, space: Space, queue: Queue, choice: Choice) -> tuple[bytes, Store] | None:
    """Return the lowest order key of what is chosen, and the store that it is in."""
    return next(iter(_found(unit, space, queue, choice)), None)


def _found(unit: Unit, space: Space, queue: Queue, choice: Choice) -> list[tuple[bytes, Store]]:
    """Return the lowest order key of what is chosen in each store that has any, and the store, the lowest first."""
    keys = [(store.find(space, queue.id, choice), store) for store in stores(unit, queue.space_id)]
    return sorted(((key, store) for key, store in keys if key is not None), key=lambda found: found[0])


def _take_of_group(unit: Unit, space: Space, queue: Queue, choice: Choice, limit: int) -> list[Taken]:
    """Take messages of the group of the first one that is chosen.

    Messages that are grouped stand on disk only. What came there from a queue without groups may stand in memory.
    """
    first = _take_one(unit, space, queue, choice)
    if first is None:
        return []
    if choice != FIRST_CHOICE:
        group_id = first.store.group_of(first.place.message_id)
        return [first, *_others_chosen(unit, space, queue, choice, limit - 1, group_id)]
    rest = rest_of_group(first.store, queue, first.place)
    for place in rest[limit - 1 :]:
        first.store.make_ready(place)
    return [first, *(Taken(first.store, place) for place in rest[: limit - 1])]


def _others_chosen(
    unit: Unit, space: Space, queue: Queue, choice: Choice, limit: int, group_id: int | None
) -> Iterator[Taken]:
    """Take what is chosen next, as long as it is of the group."""
    for _ in range(limit if group_id is not None else 0):
        place = unit.take(space, queue.id, choice)
        if place is None:
            return
        if unit.group_of(place.message_id) != group_id:
            unit.make_ready(place)
            return
        yield Taken(unit, place)
