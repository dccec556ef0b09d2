"""Queue spaces in the transactions of the package `transaction`, which Zope, Pyramid and others use.

    import transaction
    from qmadmin.zope import join

    with transaction.manager:
        join(space)
        space.enqueue("orders", "x")
        session.add(Order(...))          # a session that zope.sqlalchemy has registered

The package is the extra `zope`. Nothing else of qmadmin imports it.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final

import transaction
from transaction.interfaces import IDataManagerSavepoint, ISavepointDataManager
from zope.interface import implementer

from qmadmin.space import QueueSpace
from qmadmin.transacting import Marks, current
from qmadmin.two_phase import TwoPhaseTransaction
from qmcore.errors import (
    HeuristicError,
    InvalidArgumentError,
    ProtocolError,
    QueueError,
    UnknownXidError,
    may_pass,
)
from qmcore.xid import Xid

if TYPE_CHECKING:
    from datetime import timedelta

    from qmadmin.device import Device

__all__ = ["FORMAT", "join"]

logger = logging.getLogger("qmadmin.transacting")

FORMAT: Final = int.from_bytes(b"ZOPE")
"""The format identifier in the xids of these branches, by which an administrator knows them."""


def join(
    space: QueueSpace, *, transaction_manager: Any = transaction.manager, timeout: float | timedelta | None = None
) -> None:
    """Make a queue space part of the current transaction of the package `transaction`.

    The calls of this thread on the queue space belong to that transaction from now on, until it ends: they are
    committed together with its other data managers, or not at all. To join twice is to join once; several queue spaces
    can join one transaction. `transaction_manager` tells whose current transaction is meant, as in zope.sqlalchemy;
    unless it has voted, the queue space's part is rolled back after `timeout` seconds.

    A queue space votes before a session of zope.sqlalchemy commits. Where the process dies after a vote and before the
    end, its branch is in doubt, and waits for an administrator: the package keeps no record of its decisions.

    A savepoint covers what is enqueued. To roll back to one is refused with ProtocolError if a message was dequeued
    since, or if what was enqueued since stands in the store already (a transaction keeps 8 MiB outside of it).

    Raises ProtocolError inside another transaction on the queue space, NoSpaceError if there are as many transactions
    as the queue space allows, InvalidArgumentError for what is no queue space, and what `transaction` raises.
    """
    if not isinstance(space, QueueSpace):
        raise InvalidArgumentError(
            f"what joins a transaction is a queue space, got {space!r}",
            hint="A queue space of qmadmin.aio cannot: the package `transaction` awaits nothing.",
        )
    its = transaction_manager.get()
    together = _together_in(its)
    key = space.device, space.name
    if (found := together.participants.get(key)) is not None:
        found.branch.check_here()
        return
    branch = _begun(space, together.gtrid, timeout)
    participant = together.participants[key] = _Participant(branch, space, together, transaction_manager)
    try:
        its.join(participant)
    except BaseException:
        participant.abort(its)
        raise


class _Together:
    """The queue spaces that have joined one transaction."""

    def __init__(self) -> None:
        self.gtrid = os.urandom(16)
        self.participants: dict[tuple[Device, str], _Participant] = {}
        self.failures: list[QueueError] = []
        """What the ends have told that were otherwise than decided."""


def _together_in(its: Any) -> _Together:
    try:
        found: _Together = its.data(_KEY)
    except KeyError:
        found = _Together()
        its.set_data(_KEY, found)
    return found


def _begun(space: QueueSpace, gtrid: bytes, timeout: float | timedelta | None) -> TwoPhaseTransaction:
    """Begin a branch, which keeps the process attached to the queue space also when the application closes it."""
    device, name = space.device, space.name
    device.use(name, _ROLE)
    try:
        incarnation = device.attachment(name, _ROLE).opened.space.incarnation
        space.tpc_begin(Xid(FORMAT, gtrid, incarnation.encode()), timeout)
    except BaseException:
        device.drop(name)
        raise
    branch = current(device, name)
    assert isinstance(branch, TwoPhaseTransaction)  # noqa: S101 - it was begun just now
    return branch


@implementer(ISavepointDataManager)
class _Participant:
    """A branch in a queue space, as a data manager of the package `transaction`."""

    def __init__(
        self, branch: TwoPhaseTransaction, space: QueueSpace, together: _Together, transaction_manager: Any
    ) -> None:
        self.branch = branch
        self.transaction_manager = transaction_manager
        self._key = space.device, space.name
        self._together = together
        self._is_over = False

    def __repr__(self) -> str:
        device, name = self._key
        return f"<branch {self.branch.xid} of queue space {name!r} of {device.path!r}>"

    def sortKey(self) -> str:  # noqa: N802 - the package's name
        """Return what it is sorted by; zope.sqlalchemy's begins with "~", so that it commits after our votes."""
        device, name = self._key
        return f"qmadmin:{device.path}:{name}"

    def should_retry(self, error: BaseException) -> bool:
        """Return whether the transaction may succeed if it is tried again soon."""
        return isinstance(error, QueueError) and may_pass(error)

    def tpc_begin(self, _its: object) -> None:
        """Begin to commit; nothing is to be done yet."""

    def commit(self, _its: object) -> None:
        """Send what was changed; that is done by the vote."""

    def tpc_vote(self, _its: object) -> None:
        """Promise the commit. A branch that has changed nothing is over."""
        if not self.branch.prepare():
            self._leave()

    def tpc_finish(self, _its: object) -> None:
        """Commit what was promised.

        An error here would keep the data managers behind from doing so, which would roll back. A queue space that
        cannot be reached follows, and a branch that was ended otherwise is told when no other of ours is left.
        """
        if self._is_over:
            return
        self.branch.check_here()
        failures = self._together.failures
        try:
            self.branch.decide(commits=True)
        except (UnknownXidError, HeuristicError) as error:
            logger.error("transaction %s was to be committed: %s", self.branch.xid, error)  # noqa: TRY400
            failures.append(error)
        finally:
            self._leave()
        if failures and not self._together.participants:
            raise failures[0]

    def tpc_abort(self, its: object) -> None:
        """Roll back, also what was promised; nothing after the end, however often it is asked."""
        self.abort(its)

    def abort(self, _its: object) -> None:
        """Roll back. What the store refuses now is done later."""
        if self._is_over:
            return
        self.branch.check_here()
        try:
            if self.branch.is_prepared:
                self.branch.decide(commits=False)
            elif self.branch.active:
                self.branch.rollback()
        finally:
            self._leave()

    def savepoint(self) -> _Savepoint:
        """Return where the branch is now."""
        return _Savepoint(self.branch)

    def _leave(self) -> None:
        self._is_over = True
        self._together.participants.pop(self._key, None)
        self.branch.leave_context()
        device, name = self._key
        device.drop(name)


@implementer(IDataManagerSavepoint)
class _Savepoint:
    """What a branch had done by some time."""

    def __init__(self, branch: TwoPhaseTransaction) -> None:
        self._branch = branch
        self._marks: Marks = branch.marks()
        self._dequeued = branch.dequeued

    def rollback(self) -> None:
        """Forget what was enqueued since."""
        dequeued = self._branch.dequeued - self._dequeued
        if dequeued:
            raise ProtocolError(
                f"transaction {self._branch.xid} has dequeued {dequeued} message{'s' * (dequeued > 1)} since the"
                " savepoint, which cannot be given back alone",
                hint="Abort the transaction, or dequeue before the savepoint.",
            )
        if not self._branch.forget_since(self._marks):
            raise ProtocolError(
                f"transaction {self._branch.xid} has left messages to the store since the savepoint, which cannot be"
                " forgotten alone",
                hint="Abort the transaction, or enqueue less than 8 MiB in it.",
            )


_ROLE: Final = "application"
"""What others see of the process where it has not opened the queue space before."""
_KEY: Final = object()
"""By which a transaction of the package knows what has joined it."""
