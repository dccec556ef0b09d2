"""What becomes of messages whose time is over: they are removed, or go to the error queue where their queue says so."""

from __future__ import annotations

import logging

from qmcore.acts import thresholds
from qmcore.acts.moving import move, name_of, remove
from qmcore.definitions import OpenSpace
from qmcore.message import Reason
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Holding
from qmcore.store import Store

logger = logging.getLogger("qmadmin.engine")


def expire(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, now: int, limit: int) -> int:
    """Do away with at most `limit` messages of a queue whose time is over, and return how many it was."""
    if queue.definition.grouping and store.pending_work(queue.id, now)[1]:
        # Whoever takes one of a group takes the others after it: they are not to expire in between.
        unit.take_alone(queue.id)
    expired = store.take_expired(queue.id, now, limit)
    if expired and queue.definition.keep_expired:
        for holding in expired:
            expire_one(unit, opened, store, queue, holding, now)
    elif expired:
        _remove_all(unit, opened, store, queue, expired)
    return len(expired)


def expire_one(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, now: int) -> None:
    """Do away with a message that was taken out of its state and whose time is over."""
    known = opened.definitions(unit)
    if queue.definition.keep_expired:
        routing = store.routing(holding.place.message_id)
        named = routing.error_queue_from(queue.name)
        target = known.error_queue_for(queue, named)
        if absent := known.error_queues_passed_over(queue, named):
            _tell_passed_over(unit, opened, queue, holding, target, absent)
        if target is not None and target != queue:
            move(unit, opened, store, queue, target, holding, routing, reason=Reason.EXPIRED, now=now)
            return
    remove(unit, opened, store, queue, holding, "expired")
    _tell(unit, opened, queue, 1)


def _remove_all(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, expired: list[Holding]) -> None:
    for holding in expired:
        store.discard(holding.place.message_id)
    pages, size = sum(holding.pages for holding in expired), sum(holding.size for holding in expired)
    store.leave(queue.space_id, queue.id, count=len(expired), pages=pages, size=size, how="expired")
    thresholds.note_departure(unit, opened, queue, store)
    _tell(unit, opened, queue, len(expired))


def _tell_passed_over(
    unit: Unit, opened: OpenSpace, queue: Queue, holding: Holding, target: Queue | None, absent: str
) -> None:
    what = f"message {name_of(unit, opened, holding)} of queue {queue.name!r} in queue space {opened.space.name!r}"
    became = "is removed" if target is None else f"goes to {target.name!r}"
    unit.afterwards(lambda: logger.warning("%s has expired and %s: %s", what, became, absent))


def _tell(unit: Unit, opened: OpenSpace, queue: Queue, count: int) -> None:
    what = "1 message has" if count == 1 else f"{count} messages have"
    unit.afterwards(
        lambda: logger.info("%s expired in queue %r of queue space %r", what, queue.name, opened.space.name)
    )
