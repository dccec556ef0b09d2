"""How messages leave for good: deleted, or kept for the record where their queue says so."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.acts import thresholds
from qmcore.definitions import OpenSpace
from qmcore.message import Message
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Place
from qmcore.store import Store


def consume_now(
    unit: Unit, opened: OpenSpace, store: Store, queue: Queue, places: Sequence[Place], now: int, *, body: bool
) -> list[Message]:
    """Consume messages that were taken out of `ready` and return them, without their bodies if those are not wanted."""
    space = opened.definitions(unit).space
    if store is unit and queue.definition.retention:
        messages = [message for message, _ in unit.read(space, queue.name, places, body=body)]
        for place in places:
            unit.history.retain(place, now, str(opened.me))
        # The room of what is kept is given back when it is forgotten.
        pages = 0
    else:
        messages, pages = [], 0
        for message, its in store.remove(space, queue.name, places, body=body):
            messages.append(message)
            pages += its
    size = 0
    for place, message in zip(places, messages, strict=True):
        size += message.size
        if message.expires_us is not None:
            store.unmake_expiring(queue.id, place.message_id, message.expires_us)
    # Counted once: each change of a counter leaves a dead row behind on stores that keep old ones for readers.
    store.leave(space.id, queue.id, count=len(messages), pages=pages, size=size, how="dequeued")
    thresholds.note_departure(unit, opened, queue, store)
    return messages
