"""How a transaction that ends without a commit gives its messages back.

A rollback counts as a try. A message that is out of tries goes to the error queue and remembers where it came from;
without an error queue it is discarded. A process that died, or left with a transaction open, counts as a try too, so
that a message that kills its consumer reaches the error queue; but it never discards. The restart of a machine does
not count.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from qmcore import numbers
from qmcore.definitions import Definitions
from qmcore.message import Origin, Reason, message_id
from qmcore.port import Holding, Place, Unit
from qmcore.queue import Queue
from qmcore.times import MICROS


class Cause(enum.Enum):
    """Why a transaction ends without a commit."""

    ROLLBACK = "it was rolled back"
    TIMEOUT = "its time was over"
    DEATH = "its process died"
    LEFT = "its process closed the queue space"
    RESTART = "the machine was restarted"
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
    known: Definitions,
    transaction_id: int,
    queue_ids: Iterable[int],
    now: int,
    cause: Cause,
    error: str = "",
) -> list[str]:
    """Return what a transaction held of these queues to where it belongs now; tell what should be logged.

    `error` is the last error text of whoever tried, and is kept with a message that goes to the error queue.
    """
    events = []
    for queue_id in queue_ids:
        for holding in unit.give_back(transaction_id, queue_id):
            event = _give_back_one(unit, known, known.by_id[queue_id], holding, now, cause, error)
            if event:
                events.append(event)
    return events


def _give_back_one(
    unit: Unit, known: Definitions, queue: Queue, holding: Holding, now: int, cause: Cause, error: str
) -> str:
    place = holding.place
    if holding.expires_us is not None and holding.expires_us <= now:
        _remove(unit, queue, holding, "expired")
        return ""
    if not cause.counts:
        _return(unit, queue, holding, place.retries, now)
        return ""
    tries = place.retries + 1
    if tries <= queue.definition.retries or queue == known.error_queue:
        _return(unit, queue, holding, tries, now)
        return ""
    name = message_id(known.space.incarnation, numbers.sequence(place.message_id))
    where = f"message {name} of queue {queue.name!r} in queue space {known.space.name!r}"
    if known.error_queue is not None:
        _move(unit, known, queue, known.error_queue, holding, Origin(queue.name, name, Reason.RETRIES, now, error))
        return f"{where} is out of retries ({queue.definition.retries}) and went to {known.error_queue.name!r}"
    if not cause.discards:
        _return(unit, queue, holding, tries, now)
        return f"{where} is out of retries ({queue.definition.retries}), and stays because {cause.value}"
    _remove(unit, queue, holding, "discarded")
    return f"{where} is out of retries ({queue.definition.retries}) and was discarded: there is no error queue"


def _return(unit: Unit, queue: Queue, holding: Holding, retries: int, now: int) -> None:
    old = holding.place
    place = Place(old.message_id, old.queue_id, old.order_key, retries)
    counted = retries > old.retries
    if counted and queue.definition.retry_delay:
        unit.make_due(place, now + queue.definition.retry_delay * MICROS)
    else:
        unit.make_ready(place)
    if holding.expires_us is not None:
        unit.make_expiring(old.queue_id, old.message_id, holding.expires_us)


def _move(unit: Unit, known: Definitions, queue: Queue, target: Queue, holding: Holding, origin: Origin) -> None:
    space_id, place = known.space.id, holding.place
    priority = unit.priority(place.message_id)
    unit.leave(space_id, queue.id, count=1, pages=holding.pages, size=holding.size, how="moved")
    sequence = unit.arrive(space_id, target.id, count=1, pages=holding.pages, size=holding.size).sequence
    key = target.definition.order.key(
        priority=priority, available_at=origin.moved_us, expires_at=None, sequence=sequence
    )
    new_id = numbers.number(space_id, sequence)
    unit.move(place.message_id, new_id=new_id, queue_id=target.id, order_key=key, origin=origin)
    unit.make_ready(Place(new_id, target.id, key, 0))


def _remove(unit: Unit, queue: Queue, holding: Holding, how: str) -> None:
    unit.discard(holding.place.message_id)
    unit.leave(queue.space_id, queue.id, count=1, pages=holding.pages, size=holding.size, how=how)
