"""What whoever comes next does for all: release what is due, remove what has expired, end what was left behind."""

from __future__ import annotations

import logging

from qmcore.acts.returning import Cause, give_back
from qmcore.definitions import Definitions, OpenSpace
from qmcore.port import Unit, Volume
from qmcore.queue import Queue

logger = logging.getLogger("qmadmin.engine")

STEP = 1000
"""Messages that are released or removed in one database transaction."""


def freshen(unit: Unit, queue: Queue, now: int) -> bool:
    """Release and remove what is due and what has expired in a queue; False: a step was done, and there is more."""
    due, expired = unit.pending_work(queue.id, now)
    done = True
    if expired:
        done = expire(unit, queue, now) < STEP
    if due and done:
        done = unit.release_due(queue.id, now, STEP) < STEP
    return done


def expire(unit: Unit, queue: Queue, now: int) -> int:
    """Remove a step of expired messages from a queue, and return how many it was."""
    count, pages, size = unit.take_expired(queue.id, now, STEP)
    if count:
        unit.leave(queue.space_id, queue.id, count=count, pages=pages, size=size, how="expired")
    return count


def make_room(unit: Unit, known: Definitions, now: int) -> bool:
    """Remove expired messages from all queues of the queue space; tell whether there were any."""
    return sum(expire(unit, queue, now) for queue in known.queues.values()) > 0


def end_what_was_left(volume: Volume, opened: OpenSpace, now: int) -> None:
    """Roll back the transactions of processes that died, and those whose time is over."""
    space_id = opened.space.id
    owners, records = volume.read(lambda unit: (unit.owners(space_id), unit.transactions(space_id)))
    dead = [owner for owner in owners if not volume.is_alive(owner)]
    overdue = [
        record
        for record in records
        if record.state == "active" and record.deadline_us is not None and record.deadline_us <= now
    ]
    if not dead and not overdue:
        return
    causes = {owner.id: Cause.DEATH if volume.same_boot(owner) else Cause.RESTART for owner in dead}
    doomed = [
        (record.id, record.owner_id, causes.get(record.owner_id, Cause.TIMEOUT))
        for record in records
        if record.state == "active" and (record.owner_id in causes or record in overdue)
    ]

    def end(unit: Unit) -> list[str]:
        events = _end_transactions(unit, opened.definitions(unit), doomed, now)
        for owner in dead:
            unit.remove_owner(owner.id)
        return events

    for event in volume.write(end, durable=False):
        logger.warning("%s", event)
    for owner in dead:
        volume.release_owner(owner)
        logger.warning(
            "%s %d died while it was attached to queue space %r",
            owner.role,
            owner.pid,
            opened.space.name,
        )


def _end_transactions(unit: Unit, known: Definitions, doomed: list[tuple[int, int, Cause]], now: int) -> list[str]:
    events: list[str] = []
    for transaction_id, owner_id, cause in doomed:
        if unit.end_transaction(transaction_id, owner_id):
            events += give_back(unit, known, transaction_id, now, cause)
    return events
