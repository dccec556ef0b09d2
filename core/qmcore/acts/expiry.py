"""What becomes of messages whose time is over: they are removed, or go to the error queue where their queue says so."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from qmcore.acts.disposing import dispose, name_of, to_error_queue
from qmcore.definitions import OpenSpace
from qmcore.message import Reason
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.records import Holding
from qmcore.store import Store
from qmcore.transitions import Disposition, Removal, Remove

logger = logging.getLogger("qmadmin.engine")


def expire(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, now: int, limit: int) -> int:
    """Do away with at most `limit` messages of a queue whose time is over, and return how many it was."""
    if queue.definition.grouping and store.pending_work(queue.id, now)[1]:
        # Whoever takes one of a group takes the others after it: they are not to expire in between.
        unit.take_alone(queue.id)
    expired = store.take_expired(queue.id, now, limit)
    dispositions = [expired_of(unit, opened, store, queue, each, now) for each in expired]
    dispose(unit, opened, queue, store, dispositions)
    tell_expired(unit, opened, queue, dispositions)
    return len(expired)


def is_over(holding: Holding, now: int) -> bool:
    """Return whether a message has expired."""
    return holding.expires_us is not None and holding.expires_us <= now


def expired_of(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, now: int) -> Disposition:
    """Return what becomes of a message that has expired."""
    if queue.definition.keep_expired:
        return _kept(unit, opened, store, queue, holding, now)
    return Remove(holding, Removal.EXPIRED)


def tell_expired(unit: Unit, opened: OpenSpace, queue: Queue, dispositions: Sequence[Disposition]) -> None:
    """Tell how many messages have expired and are gone."""
    count = sum(isinstance(each, Remove) and each.why is Removal.EXPIRED for each in dispositions)
    if count:
        what = "1 message has" if count == 1 else f"{count} messages have"
        unit.afterwards(
            lambda: logger.info("%s expired in queue %r of queue space %r", what, queue.name, opened.space.name)
        )


def _kept(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, now: int) -> Disposition:
    """Return what becomes of a message of a queue that keeps what has expired, in an error queue if there is one."""
    known = opened.definitions(unit)
    routing = store.routing(holding.place.message_id)
    named = routing.error_queue_from(queue.name)
    target = known.error_queue_for(queue, named)
    if absent := known.error_queues_passed_over(queue, named):
        what = f"message {name_of(known, holding)} of queue {queue.name!r} in queue space {opened.space.name!r}"
        became = "is removed" if target is None else f"goes to {target.name!r}"
        unit.afterwards(lambda: logger.warning("%s has expired and %s: %s", what, became, absent))
    if target is None or target == queue:
        return Remove(holding, Removal.EXPIRED)
    return to_error_queue(known, queue, target, holding, routing, reason=Reason.EXPIRED, now=now)
