"""How a transaction that ends without a commit gives its messages back.

A rollback counts as a try. A message that is out of tries goes to the error queue and remembers where it came from;
without an error queue it is discarded. A process that died, or left with a transaction open, counts as a try too, so
that a message that kills its consumer reaches the error queue; but it never discards. The restart of a machine does
not count.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable

from qmcore.acts.expiry import expire_one
from qmcore.acts.moving import move, name_of, remove
from qmcore.acts.stores import stores
from qmcore.definitions import OpenSpace
from qmcore.message import Reason
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Holding, Place, Role
from qmcore.store import Store
from qmcore.times import MICROS

logger = logging.getLogger("qmadmin.engine")


class Cause(enum.Enum):
    """Why a transaction ends without a commit."""

    ROLLBACK = "it was rolled back"
    TIMEOUT = "its time was over"
    DEATH = "its process died"
    LEFT = "its process closed the queue space"
    RESTART = "the machine was restarted"
    ABORTED = "an administrator aborted it"
    UNTRIED = "its messages were not tried"

    @property
    def counts(self) -> bool:
        """Whether the end counts as a try of the messages that were held."""
        return self not in (Cause.RESTART, Cause.UNTRIED)

    @property
    def discards(self) -> bool:
        """Whether messages that are out of tries may be discarded, where there is no error queue."""
        return self in (Cause.ROLLBACK, Cause.TIMEOUT)


def give_back(
    unit: Unit,
    opened: OpenSpace,
    transaction_id: int,
    queue_ids: Iterable[int],
    now: int,
    cause: Cause,
    error: str = "",
) -> None:
    """Return what a transaction held of these queues to where it belongs now, and delete what it would have brought.

    `error` is the last error text of whoever tried, and is kept with a message that goes to the error queue.
    """
    known = opened.definitions(unit)
    for store in stores(unit, known.space.id):
        for queue_id in queue_ids:
            queue = known.by_id.get(queue_id)
            if queue is None:
                # It was destroyed after an administrator had given up what the transaction held of it.
                continue
            drop_spilled(opened, store, queue, transaction_id)
            tried = store.give_back(transaction_id, queue_id, Role.DEQUEUED)
            # The rest of a group waits as long as those of it that were tried.
            waits = queue.definition.grouping and cause.counts and bool(tried)
            give_back_locked(unit, opened, store, queue, transaction_id, now, waits=waits)
            for holding in tried:
                _give_back_one(unit, opened, store, queue, holding, now, cause, error)


def give_back_locked(
    unit: Unit,
    opened: OpenSpace,
    store: Store,
    queue: Queue,
    transaction_id: int,
    now: int,
    *,
    waits: bool = False,
) -> None:
    """Return what a transaction has only locked; that is no try. `waits` for the retry delay all the same."""
    for holding in store.give_back(transaction_id, queue.id, Role.LOCKED):
        if _is_over(holding, now):
            expire_one(unit, opened, store, queue, holding, now)
        else:
            _return(store, queue, holding, holding.place.retries, now, waits=waits)


def drop_spilled(opened: OpenSpace, store: Store, queue: Queue, transaction_id: int) -> None:
    """Delete what a transaction has spilled for a queue, and give back the room that was kept for it."""
    use = store.discard_spilled(transaction_id, queue.id)
    if use.messages:
        store.charge(opened.space.id, messages=-use.messages, pages=-use.pages, size=-use.size)


def _give_back_one(
    unit: Unit,
    opened: OpenSpace,
    store: Store,
    queue: Queue,
    holding: Holding,
    now: int,
    cause: Cause,
    error: str,
) -> None:
    place = holding.place
    if _is_over(holding, now):
        expire_one(unit, opened, store, queue, holding, now)
        return
    tries = place.retries + 1 if cause.counts else place.retries
    if not cause.counts or tries <= queue.definition.retries:
        _return(store, queue, holding, tries, now)
        return
    routing = store.routing(place.message_id)
    target = opened.definitions(unit).error_queue_for(queue, routing.error_queue)
    if target == queue:
        _return(store, queue, holding, tries, now)
        return
    what = f"message {name_of(opened, holding)} of queue {queue.name!r} in queue space {opened.space.name!r}"
    spent = f"{what} is out of retries ({queue.definition.retries})"
    if target is not None:
        move(
            unit,
            opened,
            store,
            queue,
            target,
            holding,
            priority=routing.priority,
            reason=Reason.RETRIES,
            now=now,
            error=error,
        )
        _tell(unit, f"{spent} and went to {target.name!r}")
    elif not cause.discards:
        _return(store, queue, holding, tries, now)
        _tell(unit, f"{spent}, and stays because {cause.value}")
    else:
        remove(unit, opened, store, queue, holding, "discarded")
        _tell(unit, f"{spent} and was discarded: there is no error queue")


def _return(store: Store, queue: Queue, holding: Holding, retries: int, now: int, *, waits: bool = False) -> None:
    old = holding.place
    place = Place(old.message_id, old.queue_id, old.order_key, retries)
    waits = waits or retries > old.retries
    if waits and queue.definition.retry_delay:
        store.make_due(place, now + queue.definition.retry_delay * MICROS)
    else:
        store.make_ready(place)
    if holding.expires_us is not None:
        store.make_expiring(old.queue_id, old.message_id, holding.expires_us)


def _is_over(holding: Holding, now: int) -> bool:
    return holding.expires_us is not None and holding.expires_us <= now


def _tell(unit: Unit, event: str) -> None:
    unit.afterwards(lambda: logger.warning("%s", event))
