"""The acts by which messages that no transaction holds are given up: those of a queue, and those carried elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qmcore import numbers
from qmcore.acts import thresholds
from qmcore.acts.disposing import dispose
from qmcore.acts.expiry import forget
from qmcore.acts.housekeeping import STEP
from qmcore.acts.stores import stores
from qmcore.condition import Condition
from qmcore.damage import is_damage
from qmcore.definitions import OpenSpace
from qmcore.errors import SystemFailureError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, Queue
from qmcore.records import Place
from qmcore.selection import Choice
from qmcore.store import Store
from qmcore.transitions import Removal, Remove
from qmcore.values import dataclass


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

    They go a thousand at a time, so that others are not held up; an error leaves those that are gone. Where all are
    meant, damaged ones go too.
    """
    gone = [0]

    def told(count: int) -> None:
        gone[0] = count
        progress(count)

    def step(unit: Unit) -> int:
        queue = opened.definitions(unit).taker(name)
        kinds = zip((Delivery.PERSIST, Delivery.NONPERSIST), stores(unit, queue.space_id), strict=False)
        meant = [store for kind, store in kinds if delivery in (None, kind)]
        return sum(_purge_step(unit, opened, store, queue, condition) for store in meant)

    while True:
        try:
            return _in_steps(volume, step, told, gone[0])
        except SystemFailureError as error:
            if condition is not None or not is_damage(error):
                raise
            # What was done of the steps before is done; the damaged ones are looked for with nobody beside us.
            removed = purge_damaged(volume, opened, name)
            if not removed:
                raise
            gone[0] += removed


def purge_damaged(volume: Volume, opened: OpenSpace, name: str) -> int:
    """Remove the messages of a queue that are damaged, and count those that it has again; return how many it was.

    What is retained is looked at too. Messages that a transaction holds stay.
    """

    def act(unit: Unit) -> int:
        known = opened.definitions(unit)
        queue = known.taker(name)
        return sum(_remove_damaged(unit, opened, store, queue) for store in stores(unit, queue.space_id))

    return volume.write(act, Purpose.ADMINISTRATION)


def purge_retained(volume: Volume, opened: OpenSpace, name: str, before: int) -> int:
    """Give up the messages of a queue that were consumed before a time; return how many it was."""
    return _in_steps(volume, lambda unit: forget(unit, opened, opened.definitions(unit).taker(name), before, STEP))


def _purge_step(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, condition: Condition | None) -> int:
    choice = Choice(condition=condition, space=opened.definitions(unit).space)
    found = store.states.standing(queue.id, queue.messages_of, choice, STEP)
    dispose(unit, opened, queue, store, [Remove(each, Removal.DISCARDED) for each in found])
    return len(found)


def _remove_damaged(unit: Unit, opened: OpenSpace, store: Store, queue: Queue) -> int:
    space = opened.definitions(unit).space
    found = store.damage.found(space, queue)
    store.damage.expunge(queue, found)
    store.counters.leave(space.id, queue.id, count=len(found), pages=0, size=0, how="discarded")
    missing = store.damage.uncounted(space, queue)
    store.bulk_load.adjust(space.id, queue.id, missing)
    store.counters.charge(space.id, **missing._asdict())
    thresholds.note_departure(unit, opened, queue, store)
    return len(found)


def _in_steps(
    volume: Volume,
    step: Callable[[Unit], int],
    progress: Callable[[int], None] = lambda _count: None,
    total: int = 0,
) -> int:
    while count := volume.write(step, Purpose.MESSAGES):
        total += count
        progress(total)
    return total


@dataclass(frozen=True, slots=True)
class CarriedMessage:
    """A message as it stood when it was carried: its sequence number, its place, and how often it had come back."""

    sequence: int
    order_key: bytes
    retries: int


def remove_carried(
    unit: Unit, opened: OpenSpace, name: str, carried: Sequence[CarriedMessage], *, memory: bool = False
) -> int:
    """Remove messages of a queue that are as they were when they were carried, and return how many it was.

    What was dequeued, moved, changed or tried since then, or is held by a transaction, stays as it is. `memory`: they
    are non-persistent. They count as moved.
    """
    queue = opened.definitions(unit).queue(name)
    kept_in = stores(unit, queue.space_id)
    if memory >= len(kept_in):
        return 0
    store = kept_in[memory]
    places = [
        Place(numbers.number(queue.space_id, each.sequence), queue.id, each.order_key, each.retries) for each in carried
    ]
    removed = store.bulk_load.remove_unchanged(queue.id, places)
    if removed.messages:
        store.counters.leave(
            queue.space_id, queue.id, count=removed.messages, pages=removed.pages, size=removed.size, how="moved"
        )
        thresholds.note_departure(unit, opened, queue, store)
    return removed.messages
