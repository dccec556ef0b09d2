"""The act of removing messages that were carried away: exactly those, and only where they are as they were then."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from qmcore import numbers
from qmcore.acts.moving import put_back, remove
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.port import Unit
from qmcore.records import Holding


@dataclasses.dataclass(frozen=True, slots=True)
class CarriedMessage:
    """A message as it stood when it was carried: its sequence number, its place, and how often it had come back."""

    sequence: int
    order_key: bytes
    retries: int


def remove_carried(
    unit: Unit, opened: OpenSpace, name: str, carried: Sequence[CarriedMessage], now: int, *, memory: bool = False
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
    removed = 0
    for each in carried:
        found = store.withdraw(queue.id, numbers.number(queue.space_id, each.sequence))
        if found is None:
            continue
        if (found.place.order_key, found.place.retries) != (each.order_key, each.retries):
            put_back(store, found, now)
            continue
        remove(unit, opened, store, queue, Holding(found.place, found.pages, found.size, found.expires_us), "moved")
        removed += 1
    return removed
