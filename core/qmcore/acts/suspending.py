"""The act of suspending a transaction, and of resuming it, in another thread or process.

A suspended transaction stands wholly in the store, and stays that of the process that has suspended it: when that dies
or leaves, it is rolled back as any other. Whoever resumes it becomes its owner in the statement that finds its token,
which is used up by that. Housekeeping that has looked before names the owner that it has seen, and meets nothing then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from qmcore.acts import preparing
from qmcore.acts.enqueue_in_transaction import leave_to_store
from qmcore.acts.housekeeping import end_what_was_left
from qmcore.acts.sending import refusal
from qmcore.acts.stores import stores
from qmcore.acts.transaction_part import NO_USE, Branch, given_up, leave_numbers
from qmcore.errors import AbortedError, NotSuspendedError, ProtocolError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.records import Role, TransactionRecord, Use
from qmcore.refusals import Reason, Refused
from qmcore.times import Clock
from qmcore.xid import Xid


def suspend(volume: Volume, branches: Sequence[Branch], secret: str) -> None:
    """Suspend a transaction: all of it comes to stand in the store, where it can be resumed by its secret.

    Raises NoSpaceError where there is no room for what it enqueues, or are as many transactions as the queue space
    allows, and it goes on then; AbortedError where it was given up.
    """
    for branch in branches:
        if branch.recorded or branch.pending:
            leave_to_store(volume, branch)
        else:
            preparing.begin(volume, branch, None)
    now = volume.clock.now()

    def suspended(unit: Unit) -> None:
        for branch in branches:
            _suspend_in(unit, branch, secret, now)

    volume.write(suspended, Purpose.HOLDING)
    for branch in branches:
        leave_numbers(branch)


def resume(volume: Volume, branches: Sequence[Branch], secret: str, *, coordinated: bool) -> Xid | None:
    """Take a suspended transaction over: its parts, of which number and new owner are known, get to know the rest.

    `coordinated`: it is to be a branch of a distributed transaction, whose identifier is returned. Raises
    NotSuspendedError where it was resumed before, or has ended.
    """
    for branch in branches:
        end_what_was_left(volume, branch.opened, volume.clock)

    def resumed(unit: Unit) -> list[_Resumed]:
        return [_resume_in(unit, branch, secret, coordinated=coordinated, clock=volume.clock) for branch in branches]

    with ExitStack() as risks:
        for branch in branches:
            # It may have messages in each: whoever rolls it back looks everywhere, until what is there is known.
            risks.enter_context(branch.at_risk(*volume.read(branch.opened.definitions).by_id))
        found = volume.write(resumed, Purpose.HOLDING)
    for branch, its in zip(branches, found, strict=True):
        its.tell(branch)
    return found[0].record.xid


# ---- steps -----------------------------------------------------------------------------------------------------------


class _Resumed(NamedTuple):
    """What the store has of a transaction that was resumed: as much as its part in a queue space is to know."""

    record: TransactionRecord
    holds: dict[Delivery, Use]
    spilled: int
    taken_from: set[int]
    spilled_to: set[int]
    locks: bool

    def tell(self, branch: Branch) -> None:
        """Let a part know it."""
        branch.started_us, branch.deadline_us = self.record.started_us, self.record.deadline_us
        branch.recorded = branch.may_hold = True
        branch.locks = branch.may_lock = self.locks
        branch.queue_ids, branch.spilled_to, branch.holds = self.taken_from, self.spilled_to, self.holds
        branch.spilled, branch.may_spill = self.spilled, bool(self.spilled_to)


def _suspend_in(unit: Unit, branch: Branch, secret: str, now: int) -> None:
    queue_ids = sorted(branch.stands_in)
    if not unit.transactions.suspend(branch.id, branch.owner.id, secret, now, queue_ids):
        raise given_up(branch)
    # Whoever resumes it goes by what is there: the crash of a server takes the last steps with it.
    counts = [unit.holdings.counts(branch.id, queue_id) for queue_id in queue_ids]
    dequeued, brought = (sum(each.get(role, 0) for each in counts) for role in (Role.DEQUEUED, Role.ENQUEUED))
    if dequeued < branch.holds.get(Delivery.PERSIST, NO_USE).messages or brought < branch.spilled:
        raise refusal(branch.opened.definitions(unit), Refused(Reason.LOST))


def _resume_in(unit: Unit, branch: Branch, secret: str, *, coordinated: bool, clock: Clock) -> _Resumed:
    space = branch.opened.space
    if not unit.owners.is_attached(branch.owner.id):
        raise AbortedError(
            f"no transaction is resumed, because this process was taken for dead in queue space {space.name!r}",
            hint="Try it again: the process attaches anew.",
            space=space.name,
        )
    record = unit.transactions.resume(space.id, branch.id, branch.owner.id, secret)
    if record is None:
        raise _refusal(unit, branch)
    if record.deadline_us is not None and clock.is_over(record.started_us, record.deadline_us):
        raise NotSuspendedError(f"the suspended transaction on queue space {space.name!r} is over: its timeout passed")
    if coordinated is not (record.xid is not None):
        raise ProtocolError(
            f"the suspended transaction is branch {record.xid} of a coordinator"
            if record.xid is not None
            else "the suspended transaction is no branch of a coordinator",
            hint="Resume it with tpc_resume." if record.xid is not None else "Resume it with resume.",
        )
    return _found(unit, branch, record)


def _refusal(unit: Unit, branch: Branch) -> NotSuspendedError:
    """Return why a transaction cannot be resumed that has no such secret."""
    name = branch.opened.space.name
    if unit.transactions.is_known(branch.opened.space.id, branch.id):
        return NotSuspendedError(
            f"the suspended transaction on queue space {name!r} was resumed already",
            hint="It is resumed once; whoever has resumed it may suspend it again, which gives another token.",
            resumed=True,
        )
    return NotSuspendedError(
        f"the suspended transaction on queue space {name!r} has ended: its timeout passed, its process died or closed"
        " the queue space, an administrator aborted it, or it was resumed and ended then"
    )


def _found(unit: Unit, branch: Branch, record: TransactionRecord) -> _Resumed:
    known = branch.opened.definitions(unit)
    holds, taken_from, spilled_to = dict[Delivery, Use](), set[int](), set[int]()
    spilled, locks = 0, False
    for queue in (known.by_id[queue_id] for queue_id in record.queue_ids if queue_id in known.by_id):
        for store in stores(unit, known.space.id):
            delivery = Delivery.PERSIST if store is unit else Delivery.NONPERSIST
            dequeued, locked = store.holdings.held(branch.id, queue.id)
            # What is kept for the record when it is consumed gives no room back.
            keeps_room = store is unit and bool(queue.definition.retention)
            pages = 0 if keeps_room else sum(each.pages for each in dequeued)
            use = Use(len(dequeued), pages, sum(each.size for each in dequeued))
            holds[delivery] = holds.get(delivery, NO_USE).plus(use)
            brought = store.holdings.counts(branch.id, queue.id).get(Role.ENQUEUED, 0)
            spilled += brought if store is unit else 0
            locks = locks or bool(locked)
            if dequeued or locked:
                taken_from.add(queue.id)
            if brought:
                spilled_to.add(queue.id)
    return _Resumed(record, holds, spilled, taken_from, spilled_to, locks)
