"""The act of committing a transaction: what it holds is gone, and what it brings stands in its queues, all at once.

The queues that a transaction has taken messages of pass `consumed_from`; the store does the rest, in one database
transaction. Whoever works on one message after the other has it begin the next transaction in the same step.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from qmcore.acts.dequeue import Wanted, claims_for, messages_of
from qmcore.acts.dequeue_in_transaction import note
from qmcore.acts.enqueue import Outgoing, accepted
from qmcore.acts.enqueue_in_transaction import bring_to_memory, by_queue
from qmcore.acts.expiry import make_room
from qmcore.acts.routes import route_of, source_of
from qmcore.acts.sending import Part, send
from qmcore.acts.settling_recipients import UnsettledError, refuse_unsettled, settle_again
from qmcore.acts.transaction_part import NO_USE, Branch, leave_numbers, left_numbers
from qmcore.definitions import Definitions, OpenSpace
from qmcore.errors import NoSpaceError, OperatingSystemError, OutcomeUnknownError, QueueError, SystemFailureError
from qmcore.message import Message
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery, Queue
from qmcore.records import Outcome
from qmcore.selection import FIRST
from qmcore.transitions import Claimed, Command, Commit, Route, Source
from qmcore.two_phase import Decided

logger = logging.getLogger("qmadmin.transacting")


def commit(
    volume: Volume, branches: Sequence[Branch], decides: Part | None = None, on: object = None
) -> Decided | None:
    """Remove what the transaction holds and enqueue what it brought, in one database transaction.

    With `decides` that contains the decision on a distributed transaction. What came of it is returned, unless memory
    had to follow by itself. With `on` it is the transaction of the application's connection, which is to commit it.
    """
    busy = []
    for branch in branches:
        if branch.recorded or branch.pending:
            busy.append(branch)
            if Delivery.NONPERSIST in branch.brings:
                bring_to_memory(volume, branch, volume.clock.now())
    decided = None
    if busy:
        try:
            decided = _commit_once(volume, busy, decides, on)
        except NoSpaceError:
            if sum(make_room(volume, branch.opened, volume.clock.now(), on) for branch in busy) == 0:
                raise
            decided = _commit_once(volume, busy, decides, on)
    for branch in branches:
        leave_numbers(branch)
    return decided


def commit_and_take(
    volume: Volume, branch: Branch, outgoing: Sequence[Outgoing], successor: Branch | None, name: str
) -> list[Message] | None:
    """Enqueue messages, commit, and let a successor, if there is one, hold the first message of a queue.

    Return what the successor holds: one message, or none where there is none at hand. None is returned where
    something was refused, and nothing was done then: the same steps, taken one by one, say why.
    """
    if len(branch.reserved) < len(outgoing):
        branch.reserved = left_numbers(branch, len(outgoing))
    known = branch.opened.known
    if (
        known is None
        # It follows the disk in steps of its own.
        or known.space.definition.memory
        or len(branch.reserved) < len(outgoing)
        or any(item.control.before for item in outgoing)
    ):
        return None
    try:
        result = _commit_and_take(volume, branch, outgoing, successor, name)
    except (OperatingSystemError, SystemFailureError, OutcomeUnknownError):
        raise
    except (QueueError, UnsettledError):
        return None
    left = branch.reserved[len(outgoing) :]
    if successor is None or result is None:
        branch.reserved = left
        leave_numbers(branch)
        return []
    branch.reserved, successor.reserved = (), left
    note(successor, _first_of(name, successor), result)
    return messages_of(successor.opened, name, result)


def commits_of(
    opened: OpenSpace, known: Definitions, branch: Branch, outgoing: Sequence[Outgoing] = ()
) -> list[Command]:
    """Return what a store is asked to do for a part of a transaction, which enqueues some more messages with it."""
    sources: list[Source] = []
    stored: list[Route] = []
    for queue_id in sorted(branch.queue_ids) if branch.recorded else ():
        queue = known.by_id.get(queue_id)
        if queue is not None:
            sources.append(consumed_from(known, queue))
    for queue_id in sorted(branch.spilled_to) if branch.may_spill else ():
        queue = known.by_id.get(queue_id)
        if queue is not None:
            refuse_unsettled(known, branch, queue)
            stored.append(route_of(known, queue))
    items = branch.pending
    if outgoing:
        items = [*items, *accepted(known, outgoing, branch.reserved)]
    holds, brings = branch.holds.get(Delivery.PERSIST, NO_USE), by_queue(known, items) if items else ()
    its = branch.id, branch.owner.id, branch.recorded, sources, holds, branch.may_lock, stored, branch.spilled, brings
    return [Commit(opened.guard(known), *its)]


def consumed_from(known: Definitions, queue: Queue) -> Source:
    """Return how messages of a queue go that a transaction holds, be the queue started or not.

    Whoever commits asks here, once for each queue.
    """
    return known.sources.get(queue.definition.name) or source_of(known, queue)


# ---- steps -----------------------------------------------------------------------------------------------------------


def _commit_once(volume: Volume, busy: Sequence[Branch], decides: Part | None, on: object) -> Decided | None:
    others = [Part(branch.opened, commits_of, branch) for branch in busy[1:]] if len(busy) > 1 else []
    if decides is not None:
        others.append(decides)
    try:
        results = send(volume, busy[0].opened, commits_of, busy[0], on, others=others)
        return results[-1] if isinstance(results[-1], Decided) else None
    except UnsettledError as unsettled:
        settle_again(volume, unsettled, on)
        return _commit_once(volume, busy, decides, on)
    except (OperatingSystemError, SystemFailureError) as error:
        # The disk comes first, and decides: memory, which may be full, follows as soon as it can.
        if on is not None or not _is_committed(volume, busy):
            raise
        logger.warning("a transaction is committed on disk, and memory has to follow: %s", error)
        volume.write(lambda unit: _bring_to_disk(unit, busy), Purpose.MESSAGES)
        return None


def _commit_and_take(
    volume: Volume, branch: Branch, outgoing: Sequence[Outgoing], successor: Branch | None, name: str
) -> Claimed | None:
    """Return what the successor has claimed; None where it has nothing."""

    def build(opened: OpenSpace, known: Definitions, wanted: Wanted | None) -> list[Command]:
        commands = commits_of(opened, known, branch, outgoing)
        if wanted is not None:
            commands += claims_for(opened, known, wanted)
        return commands

    if successor is None:
        send(volume, branch.opened, build, None)
        return None
    # What is left over of the numbers becomes the successor's: it needs no others.
    successor.reserved = branch.reserved[len(outgoing) :]
    with successor.at_risk() as risk:
        _, result = send(volume, branch.opened, build, _first_of(name, successor))
        if isinstance(result, Claimed):
            return result
        risk.nothing_left()
        return None


def _first_of(name: str, successor: Branch) -> Wanted:
    return Wanted(name, FIRST, 1, branch=successor)


def _is_committed(volume: Volume, branches: Sequence[Branch]) -> bool:
    """Return whether the disk says that the transaction is committed, which it does where memory had a part in it."""

    def found(unit: Unit) -> bool:
        ids = {branch.id for branch in branches}
        records = [record for branch in branches for record in unit.transactions.of_space(branch.opened.space.id)]
        return any(record.id in ids and record.state is Outcome.COMMITTED for record in records)

    try:
        return volume.read(found)
    except QueueError:
        return False


def _bring_to_disk(unit: Unit, branches: Sequence[Branch]) -> None:
    """Change something on disk alone, so that what was written before becomes durable; tell those who wait."""
    for branch in branches:
        unit.counters.bring_to_disk(branch.opened.space.id)
        for queue_id in branch.stands_in | {item.route.queue_id for item in branch.pending}:
            unit.waits.notify(queue_id)
