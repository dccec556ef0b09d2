"""How messages leave for good: deleted, or kept for the record where their queue says so."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.acts import thresholds
from qmcore.acts.returning import give_back_locked
from qmcore.definitions import OpenSpace
from qmcore.message import Message
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Place, Use
from qmcore.store import Store

_NONE = Use(0, 0, 0)


def consume_taken(
    unit: Unit, opened: OpenSpace, queue: Queue, taken: Sequence[tuple[Store, Place]], now: int, *, body: bool
) -> list[Message]:
    """Consume messages that were taken out of `ready`, each with its store, and return them in that order.

    They come without their bodies if those are not wanted.
    """
    used: dict[Store, Use] = {}
    messages = []
    for store, place in taken:
        message, pages = _consumed(unit, opened, store, queue, place, now, body=body)
        messages.append(message)
        before = used.get(store, _NONE)
        used[store] = Use(before.messages + 1, before.pages + pages, before.size + message.size)
    # Counted once: each change of a counter leaves a dead row behind on stores that keep old ones for readers.
    for store, use in used.items():
        store.leave(queue.space_id, queue.id, count=use.messages, pages=use.pages, size=use.size, how="dequeued")
        thresholds.note_departure(unit, opened, queue, store)
    return messages


def _consumed(
    unit: Unit, opened: OpenSpace, store: Store, queue: Queue, place: Place, now: int, *, body: bool
) -> tuple[Message, int]:
    """Consume a message; return it, and the pages that it gives back."""
    space = opened.definitions(unit).space
    if store is unit and queue.definition.retention:
        message, _ = unit.read(space, queue.name, place, body=body)
        unit.retain(place, now, str(opened.me))
        # The room of what is kept is given back when it is forgotten.
        pages = 0
    else:
        message, pages = store.remove(space, queue.name, place, body=body)
    if message.expires_us is not None:
        store.unmake_expiring(queue.id, place.message_id, message.expires_us)
    return message, pages


def consume(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, transaction_id: int, now: int) -> None:
    """Consume all that a transaction has dequeued from a queue, and return what it has only locked."""
    if store is unit and queue.definition.retention:
        use = unit.retain_held(transaction_id, queue.id, now, str(opened.me))
        pages = 0
    else:
        use = store.consume(transaction_id, queue.id)
        pages = use.pages
    if use.messages:
        store.leave(queue.space_id, queue.id, count=use.messages, pages=pages, size=use.size, how="dequeued")
    give_back_locked(unit, opened, store, queue, transaction_id, now)
    thresholds.note_departure(unit, opened, queue, store)
