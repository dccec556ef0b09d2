"""How messages that a transaction has taken go back to where they stood."""

from __future__ import annotations

from qmcore.acts.expiry import expire_one
from qmcore.definitions import OpenSpace
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Holding, Place, Role
from qmcore.store import Store
from qmcore.times import MICROS


def give_back_locked(
    unit: Unit, opened: OpenSpace, store: Store, queue: Queue, transaction_id: int, now: int, *, delay: int = 0
) -> None:
    """Return what a transaction has only locked; that is no try. It is kept back for `delay` microseconds."""
    for holding in store.give_back(transaction_id, queue.id, Role.LOCKED):
        if is_over(holding, now):
            expire_one(unit, opened, store, queue, holding, now)
        else:
            put_back(store, holding, holding.place.retries, now, delay=delay)


def put_back(store: Store, holding: Holding, retries: int, now: int, *, delay: int = 0) -> None:
    """Let a message stand where it stood, so often tried by now; it is kept back for `delay` microseconds."""
    old = holding.place
    place = Place(old.message_id, old.queue_id, old.order_key, retries)
    if delay:
        store.make_due(place, now + delay)
    else:
        store.make_ready(place)
    if holding.expires_us is not None:
        store.make_expiring(old.queue_id, old.message_id, holding.expires_us)


def is_over(holding: Holding, now: int) -> bool:
    """Return whether a message has expired."""
    return holding.expires_us is not None and holding.expires_us <= now


def retry_delay(queue: Queue) -> int:
    """Return the microseconds for which a queue keeps back what was tried."""
    return queue.definition.retry_delay * MICROS
