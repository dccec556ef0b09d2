"""The act of purging a queue: messages that no transaction holds are given up."""

from __future__ import annotations

from collections.abc import Callable

from qmcore.acts.moving import remove
from qmcore.acts.retention import forget
from qmcore.acts.stores import stores
from qmcore.acts.upkeep import STEP
from qmcore.condition import Condition
from qmcore.definitions import OpenSpace
from qmcore.port import Unit, Volume
from qmcore.queue import Delivery, Queue
from qmcore.records import Holding, Place
from qmcore.selection import Choice
from qmcore.space import Space
from qmcore.store import Store


def purge(
    volume: Volume,
    opened: OpenSpace,
    name: str,
    condition: Condition | None,
    delivery: Delivery | None = None,
    progress: Callable[[int], None] = lambda _count: None,
) -> int:
    """Give up the messages of a queue that fulfil the condition, ready and delayed; return how many it was.

    With `delivery` only the persistent or the non-persistent ones are meant. `progress` is told how many are gone.

    They go a thousand at a time, so that others are not held up; an error leaves those that are gone.
    """

    def step(unit: Unit) -> int:
        queue = opened.definitions(unit).queue(name)
        kinds = zip((Delivery.PERSIST, Delivery.NONPERSIST), stores(unit, queue.space_id), strict=False)
        meant = [store for kind, store in kinds if delivery in (None, kind)]
        return sum(_purge_step(unit, opened, store, queue, condition) for store in meant)

    return _in_steps(volume, step, progress)


def purge_retained(volume: Volume, opened: OpenSpace, name: str, before: int) -> int:
    """Give up the messages of a queue that were consumed before a time; return how many it was."""
    return _in_steps(volume, lambda unit: forget(unit, opened, opened.definitions(unit).queue(name), before, STEP))


def _purge_step(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, condition: Condition | None) -> int:
    space = opened.definitions(unit).space
    places = store.take_many(space, queue.id, Choice(condition=condition), STEP)
    places += store.take_due(space, queue.id, condition, STEP)
    for place in places:
        remove(unit, opened, store, queue, _holding(space, store, queue, place), "discarded")
    return len(places)


def _holding(space: Space, store: Store, queue: Queue, place: Place) -> Holding:
    ((message, pages),) = store.read(space, queue.name, [place], body=False)
    if message.expires_us is not None:
        store.unmake_expiring(queue.id, place.message_id, message.expires_us)
    return Holding(place, pages, message.size, message.expires_us)


def _in_steps(
    volume: Volume, step: Callable[[Unit], int], progress: Callable[[int], None] = lambda _count: None
) -> int:
    total = 0
    while count := volume.write(step, concurrent=True):
        total += count
        progress(total)
    return total
