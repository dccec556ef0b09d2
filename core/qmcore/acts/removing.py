"""The act of removing messages that were carried away: exactly those, and only where they are as they were then."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore import numbers
from qmcore.acts import thresholds
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.port import Unit
from qmcore.records import Place
from qmcore.values import dataclass


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
        store.leave(
            queue.space_id, queue.id, count=removed.messages, pages=removed.pages, size=removed.size, how="moved"
        )
        thresholds.note_departure(unit, opened, queue, store)
    return removed.messages
