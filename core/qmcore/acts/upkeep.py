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


def freshen_now(volume: Volume, opened: OpenSpace, name: str, now: int) -> None:
    """Release and remove all that is due and expired in a queue, before somebody looks at it from outside."""

    def pending(unit: Unit) -> bool:
        return any(unit.pending_work(opened.definitions(unit).queue(name).id, now))

    def step(unit: Unit) -> bool:
        return freshen(unit, opened.definitions(unit).queue(name), now)

    if volume.read(pending) and not volume.readonly:
        while not volume.write(step, durable=False):
            pass


def expire(unit: Unit, queue: Queue, now: int) -> int:
    """Remove a step of expired messages from a queue, and return how many it was."""
    count, pages, size = unit.take_expired(queue.id, now, STEP)
    if count:
        unit.leave(queue.space_id, queue.id, count=count, pages=pages, size=size, how="expired")
    return count


def make_room(volume: Volume, opened: OpenSpace, now: int) -> int:
    """Remove all expired messages of the queue space, a step at a time, and return how many it was."""

    def step(unit: Unit) -> int:
        return sum(expire(unit, queue, now) for queue in opened.definitions(unit).queues.values())

    removed = 0
    while count := volume.write(step, durable=False):
        removed += count
    return removed


def end_what_was_left(volume: Volume, opened: OpenSpace, now: int) -> None:
    """Roll back the transactions of processes that died or left, and those whose time is over."""
    space_id = opened.space.id
    owners, records = volume.read(lambda unit: (unit.owners(space_id), unit.transactions(space_id)))
    dead = [owner for owner in owners if not volume.is_alive(owner)]
    active = [record for record in records if record.state == "active"]
    known_owners = {owner.id for owner in owners}
    causes = {owner.id: Cause.DEATH if volume.same_boot(owner) else Cause.RESTART for owner in dead}
    causes |= {record.owner_id: Cause.LEFT for record in active if record.owner_id not in known_owners}
    doomed = [
        (record.id, record.owner_id, causes.get(record.owner_id, Cause.TIMEOUT))
        for record in active
        if record.owner_id in causes or (record.deadline_us is not None and record.deadline_us <= now)
    ]
    if not dead and not doomed:
        return

    def end(unit: Unit) -> tuple[list[str], list[list[str]]]:
        events = _end_transactions(unit, opened.definitions(unit), doomed, now)
        return events, [unit.remove_owner(owner.id) for owner in dead]

    events, bells = volume.write(end, durable=False)
    for event in events:
        logger.warning("%s", event)
    for owner, left in zip(dead, bells, strict=True):
        volume.release_owner(owner, left)
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
            events += give_back(unit, known, transaction_id, known.by_id, now, cause)
    return events
