"""The act of preparing a branch of a distributed transaction: its commit is promised, and nothing else ends it.

All that it holds and brings stands in the store then, in one database transaction that is on the disk: whoever knows
its identifier can end it (`acts/in_doubt.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qmcore.acts import rolling_back
from qmcore.acts.commit import consumed_from
from qmcore.acts.enqueue_in_transaction import bring_to_memory, spills_of_all
from qmcore.acts.expiry import with_room
from qmcore.acts.returning import Cause, Ending
from qmcore.acts.sending import send
from qmcore.acts.settling_recipients import UnsettledError, refuse_unsettled, settle_again
from qmcore.acts.transaction_part import NO_USE, Branch, holder_of, leave_numbers
from qmcore.definitions import Definitions, OpenSpace
from qmcore.port import Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.records import Role
from qmcore.transitions import Command, Enqueued
from qmcore.two_phase import Begin, Begun, Prepare
from qmcore.xid import Xid


def begin(volume: Volume, branch: Branch, xid: Xid | None) -> None:
    """Make a transaction known before it holds anything, and by an identifier where it has one.

    Raises InUseError where another transaction of the queue space has it, in whatever state that is, and NoSpaceError
    where there are as many transactions as the queue space allows.
    """
    with branch.at_risk():
        (begun,) = send(volume, branch.opened, _beginning, (branch, xid), purpose=Purpose.HOLDING)
        assert isinstance(begun, Begun)  # noqa: S101 - that is what was asked
    branch.recorded = True
    branch.opened.know_transactions(begun.transactions)


def prepare(volume: Volume, branch: Branch, xid: Xid, decider: str = "", *, purpose: Purpose = Purpose.PROMISE) -> bool:
    """Prepare a branch; False where it has changed nothing, and is over.

    `decider` is the text of whom recovery asks, where no other coordinator ends it. Raises AbortedError where the
    branch was given up, NoSpaceError where there is no room for what it brings, and what a commit raises.
    """
    now = volume.clock.now()
    if not changes(branch):
        # It lets go of what it has only locked.
        rolling_back.roll_back(volume, branch, now, Ending(Cause.UNTRIED))
        return False
    if Delivery.NONPERSIST in branch.brings:
        bring_to_memory(volume, branch, now)
    with branch.at_risk():
        branch.may_spill, branch.promised = branch.may_spill or bool(branch.pending), xid
        results = with_room(
            volume,
            [branch.opened],
            now,
            lambda: _send(volume, branch, (branch, xid, decider), purpose),
        )
    branch.recorded = True
    for result in results:
        if isinstance(result, Enqueued):
            branch.opened.know_transactions(result.transactions)
    leave_numbers(branch)
    return True


def changes(branch: Branch) -> bool:
    """Return whether a commit of the branch would change anything: it has not only locked messages."""
    return bool(branch.pending) or branch.may_spill or any(use.messages for use in branch.holds.values())


def _beginning(opened: OpenSpace, known: Definitions, asked: tuple[Branch, Xid | None]) -> list[Command]:
    branch, xid = asked
    return [Begin(opened.guard(known), holder_of(branch, known.space, Role.DEQUEUED, 0), xid)]


def _send(volume: Volume, branch: Branch, asked: tuple[Branch, Xid, str], purpose: Purpose) -> Sequence[Any]:
    while True:
        try:
            return send(volume, branch.opened, _preparation, asked, purpose=purpose)
        except UnsettledError as unsettled:
            settle_again(volume, unsettled)


def _preparation(opened: OpenSpace, known: Definitions, asked: tuple[Branch, Xid, str]) -> list[Command]:
    branch, xid, decider = asked
    guard, holds = opened.guard(known), branch.holds.get(Delivery.PERSIST, NO_USE)
    for queue_id in sorted(branch.queue_ids):
        queue = known.by_id.get(queue_id)
        if queue is not None:
            # What a commit would be refused for is refused now: the commit of a prepared one never is.
            consumed_from(known, queue)
    for queue_id in branch.spilled_to:
        queue = known.by_id.get(queue_id)
        if queue is not None:
            refuse_unsettled(known, branch, queue)
    commands = spills_of_all(guard, known, branch)
    # What is spilled by this very work is there.
    spilled = branch.spilled + len(branch.pending) if branch.spilled else 0
    where = sorted(branch.queue_ids), sorted(branch.spilled_to)
    return [*commands, Prepare(guard, branch.id, branch.owner.id, xid, *where, holds.messages, spilled, decider)]
