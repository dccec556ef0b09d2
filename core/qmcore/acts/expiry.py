"""What has expired is removed, or goes to the error queue where its queue says so; what was retained is forgotten.

All of that goes before something is refused for want of room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from qmcore.acts import sweeping, thresholds
from qmcore.acts.disposing import back, dispose, name_of, to_error_queue
from qmcore.acts.identifying import numbers_of
from qmcore.acts.stores import stores
from qmcore.condition import Condition
from qmcore.damage import is_damage
from qmcore.definitions import OpenSpace
from qmcore.errors import NoSpaceError, SystemFailureError
from qmcore.message import ConsumedMessage, Message, Reason
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import FOREVER, Queue
from qmcore.records import Cursor, Holding, Part
from qmcore.store import Store
from qmcore.times import LATEST, MICROS
from qmcore.transitions import Disposition, Removal, Remove

logger = logging.getLogger("qmadmin.engine")


def expire(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, now: int, limit: int) -> int:
    """Do away with at most `limit` messages of a queue whose time is over, and return how many it was."""
    if queue.messages_of != queue.id or queue.definition.multiple_consumers:
        return _expire_places(unit, opened, store, opened.definitions(unit).by_id[queue.messages_of], now, limit)
    if queue.definition.grouping and store.states.pending_work(queue.id, queue.id, now)[1]:
        # Whoever takes one of a group takes the others after it: they are not to expire in between.
        unit.states.take_alone(queue.id)
    expired = store.states.expired(queue.id, now, limit)
    dispositions = [expired_of(unit, opened, store, queue, each, now) for each in expired]
    dispose(unit, opened, queue, store, dispositions)
    tell_expired(unit, opened, queue, dispositions)
    return len(expired)


def _expire_places(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, now: int, limit: int) -> int:
    """Do away with the places of at most `limit` messages of a queue for several whose time is over; return how many.

    All places of a message that nobody holds go together, the last of them as the message itself: what a transaction
    holds sees to its own when it ends.
    """
    known = opened.definitions(unit)
    expired = store.shares.expiring(queue.id, now, limit)
    if not expired:
        return 0
    left = store.shares.locked(list(expired))
    consumers = [each for each in known.by_id.values() if each.parent_id == queue.id]
    # Those who have unsubscribed come first: the last place, which may be kept, is one of a consumer that is there.
    for consumer in sorted(consumers, key=lambda each: not each.going):
        dispositions: list[Disposition] = []
        for holding in store.shares.places_of(consumer.id, queue.id, expired):
            number = holding.place.message_id
            left[number] = max(left[number], 1) - 1
            its_last = left[number] == 0
            dispositions.append(
                expired_of(unit, opened, store, consumer, holding, now)
                if its_last or consumer.going
                else Remove(holding, Removal.EXPIRED)
            )
        dispose(unit, opened, consumer, store, dispositions)
        tell_expired(unit, opened, consumer, dispositions)
    # Where others have places of all of them, the next one looks again.
    return len(expired) if store.shares.no_longer_expiring(queue.id, expired) else 0


def is_over(holding: Holding, now: int) -> bool:
    """Return whether a message has expired."""
    return holding.expires_us is not None and holding.expires_us <= now


def expired_of(unit: Unit, opened: OpenSpace, store: Store, queue: Queue, holding: Holding, now: int) -> Disposition:
    """Return what becomes of a message that has expired; one of a consumer that has unsubscribed is never kept."""
    if queue.going:
        return Remove(holding, Removal.DISCARDED)
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
    try:
        routing = store.messages.routing(holding.place.message_id)
    except SystemFailureError as error:
        if not is_damage(error):
            raise
        words = f"{error.message}; it stays in queue {queue.name!r} of queue space {opened.space.name!r}"
        unit.afterwards(lambda: logger.warning("%s, and does not expire", words))
        return back(holding)._replace(expires_us=None)
    named = routing.error_queue_from(queue.name)
    target = known.error_queue_for(queue, named)
    if absent := known.error_queues_passed_over(queue, named):
        what = f"message {name_of(known, holding)} of queue {queue.name!r} in queue space {opened.space.name!r}"
        became = "is removed" if target is None else f"goes to {target.name!r}"
        unit.afterwards(lambda: logger.warning("%s has expired and %s: %s", what, became, absent))
    if target is None or target == queue:
        return Remove(holding, Removal.EXPIRED)
    return to_error_queue(known, queue, target, holding, routing, reason=Reason.EXPIRED, now=now)


EARLIEST: Final = -(2**63)
"""A number before all times, and before all numbers of messages."""


def forget_outlived(unit: Unit, opened: OpenSpace, queue: Queue, now: int, limit: int) -> int:
    """Delete at most `limit` retained messages of a queue whose retention is over, and return how many it was."""
    before = kept_from(queue.definition.retention, now)
    if before is None or not unit.history.has_outlived(queue.id, before):
        return 0
    return forget(unit, opened, queue, before, limit)


def has_outlived(unit: Unit, queue: Queue, now: int) -> bool:
    """Return whether the queue has retained messages whose retention is over."""
    before = kept_from(queue.definition.retention, now)
    return before is not None and unit.history.has_outlived(queue.id, before)


def forget(unit: Unit, opened: OpenSpace, queue: Queue, before: int, limit: int) -> int:
    """Delete at most `limit` messages of a queue that were consumed before a time, and return how many it was."""
    count, pages = unit.history.forget(queue.id, before, limit)
    if count:
        # They were counted out when they were consumed, but for the room that they took.
        unit.counters.leave(queue.space_id, queue.id, count=0, pages=pages, size=0, how="dequeued")
        thresholds.note_departure(unit, opened, queue, unit)
    return count


def history(
    unit: Unit, opened: OpenSpace, name: str, after: Cursor | None, limit: int, condition: Condition | None, now: int
) -> Part[ConsumedMessage]:
    """Return at most `limit` retained messages of a queue whose retention is not over."""
    known = opened.definitions(unit)
    queue = known.taker(name)
    return unit.history.of_queue(known.space, queue, after or (_since(queue, now), EARLIEST), limit, condition)


def recall(unit: Unit, opened: OpenSpace, name: str, msgid: str, now: int) -> Message | None:
    """Return a retained message of a queue with its body, if its retention is not over."""
    known = opened.definitions(unit)
    queue = known.taker(name)
    for number in numbers_of(unit, known.space, queue, msgid):
        if found := unit.history.recall(known.space, queue, number, _since(queue, now)):
            return found
    return None


def _since(queue: Queue, now: int) -> int:
    since = kept_from(queue.definition.retention, now)
    return EARLIEST if since is None else since


def kept_from(retention: int, now: int) -> int | None:
    """Return the time of consumption from which messages are kept for so many seconds; None where none ever goes."""
    if retention == FOREVER:
        return None
    # What a queue has retained that retains no more is to go, whatever the clock says.
    return now - retention * MICROS if retention else LATEST


T = TypeVar("T")

_STEP = 1000


def with_room(volume: Volume, spaces: Sequence[OpenSpace], now: int, act: Callable[[], T], on: object = None) -> T:
    """Do what needs room; where there is none, remove what has expired and do it again.

    It is removed in database transactions of its own, or in the transaction of the application's connection `on`.
    """
    try:
        return act()
    except NoSpaceError:
        if sum(make_room(volume, opened, now, on) for opened in spaces) == 0:
            raise
        return act()


def make_room(volume: Volume, opened: OpenSpace, now: int, on: object = None) -> int:
    """Remove all that has expired or outlived its retention, and that no consumer has a place of, a step at a time.

    Return how many messages it was. With `on`, a connection of the application, what has expired is removed in the
    transaction of that: removing it may have to wait for what that has done.
    """

    def step(unit: Unit) -> int:
        return sum(_clean(unit, opened, queue, now) for queue in opened.definitions(unit).queues.values())

    def run() -> int:
        if on is not None:
            return volume.write_on(on, step)
        return volume.write(step, Purpose.TIDY)

    total = sweeping.sweep(volume, opened)
    while count := run():
        total += count
    return total


def _clean(unit: Unit, opened: OpenSpace, queue: Queue, now: int) -> int:
    expired = sum(expire(unit, opened, store, queue, now, _STEP) for store in stores(unit, queue.space_id))
    return expired + forget_outlived(unit, opened, queue, now, _STEP)
