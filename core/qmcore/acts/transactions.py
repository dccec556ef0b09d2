"""The act of transacting.

A transaction holds no database transaction. What it dequeues is moved to `held` at once; what it enqueues is kept here
until the commit, which does everything in one database transaction, or spilled where it gets too large. The volume
knows of the transaction from its first dequeue, or its first spilling, on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from qmcore.acts import plain, thresholds
from qmcore.acts.consuming import consume
from qmcore.acts.enqueue import Accepted, Outgoing, accepted, arrival_of, check_room
from qmcore.acts.making_room import with_room
from qmcore.acts.sending import execute
from qmcore.acts.spilling import spill, stand
from qmcore.acts.stores import store_for, stores
from qmcore.acts.transaction_part import (
    NO_USE,
    Branch,
    adds,
    bytes_kept,
    count_pending,
    given_up,
    leave_numbers,
    left_numbers,
    lost_in_part,
    record_once,
    reserve,
)
from qmcore.errors import (
    OperatingSystemError,
    QueueError,
    SystemFailureError,
)
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import KEPT, Delivery
from qmcore.records import Outcome
from qmcore.store import Store
from qmcore.transitions import Arrival, Enqueue, Route

logger = logging.getLogger("qmadmin.transacting")

SPILL_BYTES = 8 * 1024 * 1024
"""What a transaction enqueues is kept by its process up to this many bytes, and above them in the store."""


def enqueue(volume: Volume, branch: Branch, outgoing: Sequence[Outgoing], now: int) -> list[str]:
    """Let the transaction enqueue messages when it commits, and return the identifiers that they will have."""
    kept = branch.kept_bytes + sum(map(bytes_kept, outgoing))
    spills = kept > SPILL_BYTES
    if len(branch.reserved) < len(outgoing):
        branch.reserved = left_numbers(branch, len(outgoing))
    renumbers = len(branch.reserved) < len(outgoing)

    def accept(unit: Unit) -> tuple[list[Accepted], Sequence[int]]:
        known = branch.opened.definitions(unit)
        reserved = reserve(unit, branch, len(outgoing)) if renumbers else branch.reserved
        items = accepted(unit, known, outgoing, reserved)
        _check_room(unit, branch, items)
        if spills:
            _spill(unit, branch, [*branch.pending, *items])
        return items, reserved[len(items) :]

    def noted() -> tuple[list[Accepted], Sequence[int]]:
        if spills:
            with branch.at_risk():
                return volume.write(accept, Purpose.HOLDING)
        # Where no number is needed either, nothing changes.
        return volume.write(accept, Purpose.HOLDING) if renumbers else volume.read(accept)

    items = [] if spills or renumbers else plain.accept(volume, branch, outgoing, branch.reserved, now)
    if items:
        branch.reserved = branch.reserved[len(items) :]
    else:
        items, branch.reserved = with_room(volume, [branch.opened], now, noted)
    if spills:
        branch.recorded = True
        _keep_no_longer(branch, [*branch.pending, *items])
    else:
        branch.pending += items
        branch.kept_bytes = kept
        for item in items:
            branch.brings[item.delivery] = branch.brings.get(item.delivery, NO_USE).plus(item.outgoing.use)
    named = branch.opened.space.naming
    return [named(item.arrival.sequence) for item in items]


def commit(volume: Volume, branches: Sequence[Branch], now: int) -> None:
    """Remove what the transaction holds and enqueue what it brought, in one database transaction."""
    busy = [branch for branch in branches if branch.recorded or branch.pending]
    for branch in busy:
        _bring_to_memory(volume, branch, now)
    if busy:
        try:
            _commit(volume, busy, now)
        except (OperatingSystemError, SystemFailureError) as error:
            # The disk comes first, and decides: memory, which may be full, follows as soon as it can.
            if not _is_committed(volume, busy):
                raise
            logger.warning("a transaction is committed on disk, and memory has to follow: %s", error)
            volume.write(lambda unit: _bring_to_disk(unit, busy), Purpose.MESSAGES)
    for branch in branches:
        leave_numbers(branch)


def commit_branch(unit: Unit, branch: Branch, brought: Sequence[Accepted], now: int) -> None:
    """Commit a part of a transaction, with what it brings and does not have in the store yet."""
    known = branch.opened.definitions(unit)
    if not branch.recorded:
        if not unit.owners.is_attached(branch.owner.id):
            raise given_up(branch)
    elif not _end(unit, branch):
        raise given_up(branch)
    if branch.spilled:
        _refuse_what_was_lost(unit, branch)
    for delivery in (Delivery.PERSIST, Delivery.NONPERSIST)[: len(stores(unit, known.space.id))]:
        if not branch.recorded:
            break
        consumed = sum(
            _consume(unit, branch, queue_id, store_for(unit, known, delivery), now)
            for queue_id in sorted(branch.queue_ids)
        )
        if delivery is Delivery.PERSIST and consumed < branch.holds.get(delivery, NO_USE).messages:
            raise lost_in_part(branch)
    if branch.may_spill:
        # What stands in the store already comes first.
        brought = _spill_the_rest(unit, branch, brought)
        for queue_id in sorted(branch.queue_ids & known.by_id.keys()):
            stand(unit, branch.opened, known.by_id[queue_id], branch.id, now)
    _enqueue(unit, branch, brought)


def _commit(volume: Volume, busy: Sequence[Branch], now: int) -> None:
    if len(busy) == 1 and plain.end(volume, busy[0], now):
        return
    spaces = [branch.opened for branch in busy]
    with_room(
        volume, spaces, now, lambda: volume.write(lambda unit: _commit_branches(unit, busy, now), Purpose.MESSAGES)
    )


# ---- what is brought ------------------------------------------------------------------------------------------------


def _check_room(unit: Unit, branch: Branch, items: Sequence[Accepted]) -> None:
    """Refuse what would not fit when the transaction commits; what it consumes makes room."""
    known = branch.opened.definitions(unit)
    more = {delivery: adds(branch, delivery) for delivery in KEPT}
    for item in items:
        more[item.delivery] = more[item.delivery].plus(item.outgoing.use)
        # The number of messages is limited over both stores.
        messages = sum(use.messages for use in more.values())
        check_room(unit, known, item, more[item.delivery]._replace(messages=messages))


def _bring_to_memory(volume: Volume, branch: Branch, now: int) -> None:
    """Put non-persistent messages into memory before the commit, so that they can follow it whatever happens."""
    bound = [item for item in branch.pending if item.delivery is Delivery.NONPERSIST]
    if not bound:
        return

    def brought() -> None:
        with branch.at_risk():
            volume.write(lambda unit: _spill(unit, branch, bound), Purpose.HOLDING)

    with_room(volume, [branch.opened], now, brought)
    branch.recorded = True
    _keep_no_longer(branch, bound)


def _spill(unit: Unit, branch: Branch, items: Sequence[Accepted]) -> None:
    """Leave messages to the store, in a work at risk."""
    branch.may_spill = True
    record_once(unit, branch)
    branch.queue_ids.update(item.route.queue_id for item in items)
    spill(unit, branch.opened, branch.id, items)


def _spill_the_rest(unit: Unit, branch: Branch, brought: Sequence[Accepted]) -> list[Accepted]:
    """Spill what has to stand together with what is spilled already, and return the others.

    So it is in queues that group messages or have a capacity command, which counts all that comes, and where the
    messages of two stores have one order.
    """
    known = branch.opened.definitions(unit)
    has_both = len(stores(unit, known.space.id)) > 1
    together: list[Accepted] = []
    others: list[Accepted] = []
    for item in brought:
        queue = known.queue(item.outgoing.queue)
        stands_together = has_both or queue.definition.grouping or thresholds.is_watched(queue)
        (together if stands_together else others).append(item)
    if together:
        spill(unit, branch.opened, branch.id, together)
        branch.queue_ids.update(known.queue(item.outgoing.queue).id for item in together)
    return others


def _keep_no_longer(branch: Branch, spilled: Sequence[Accepted]) -> None:
    """Forget messages that stand in the store now."""
    gone = {item.arrival.sequence for item in spilled}
    branch.spilled += sum(item.delivery is Delivery.PERSIST for item in spilled)
    branch.pending = [item for item in branch.pending if item.arrival.sequence not in gone]
    count_pending(branch)


# ---- the commit -----------------------------------------------------------------------------------------------------


def _commit_branches(unit: Unit, branches: Sequence[Branch], now: int) -> None:
    for branch in branches:
        commit_branch(unit, branch, branch.pending, now)


def _is_committed(volume: Volume, branches: Sequence[Branch]) -> bool:
    """Return whether the disk says that the transaction is committed, which it does where memory had a part in it."""

    def found(unit: Unit) -> bool:
        ids = {branch.id for branch in branches}
        records = [record for branch in branches for record in unit.transactions(branch.opened.space.id)]
        return any(record.id in ids and record.state is Outcome.COMMITTED for record in records)

    try:
        return volume.read(found)
    except QueueError:
        return False


def _bring_to_disk(unit: Unit, branches: Sequence[Branch]) -> None:
    """Change something on disk alone, so that what was written before becomes durable; tell those who wait."""
    for branch in branches:
        unit.reserve(branch.opened.space.id, 0)
        for queue_id in branch.queue_ids | {item.route.queue_id for item in branch.pending}:
            unit.waits.notify(queue_id)


def _end(unit: Unit, branch: Branch) -> bool:
    """End the transaction on disk; where it has a part in memory, leave a record for that to follow."""
    memory = unit.memory(branch.opened.space.id)
    if memory is not None and not unit.commits_memory and memory.holds_any(branch.id, branch.queue_ids):
        return unit.mark_committed(branch.id, branch.owner.id)
    return unit.end_transaction(branch.id, branch.owner.id)


def _refuse_what_was_lost(unit: Unit, branch: Branch) -> None:
    """Refuse to commit without messages that were spilled: the crash of a server takes the last steps with it."""
    there = sum(unit.spilled_use(branch.id, queue_id).messages for queue_id in branch.queue_ids)
    if there < branch.spilled:
        raise lost_in_part(branch)


def _consume(unit: Unit, branch: Branch, queue_id: int, store: Store, now: int) -> int:
    queue = branch.opened.definitions(unit).by_id.get(queue_id)
    if queue is None:
        return 0
    return consume(unit, branch.opened, store, queue, branch.id, now, locks=branch.may_lock)


def _enqueue(unit: Unit, branch: Branch, brought: Sequence[Accepted]) -> None:
    """Let what the transaction brings arrive in its queues."""
    known = branch.opened.definitions(unit)
    routes: dict[int, Route] = {}
    arrivals: dict[int, list[Arrival]] = {}
    for item in brought:
        route, arrival = arrival_of(known, item)
        routes[route.queue_id] = route
        arrivals.setdefault(route.queue_id, []).append(arrival)
    guard = branch.opened.guard(known)
    # In one order everywhere: their capacity limits are rows that others may want, too.
    for queue_id in sorted(routes):
        execute(unit, branch.opened, Enqueue(guard, routes[queue_id], arrivals[queue_id]))
