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
from typing import TYPE_CHECKING, Any, Final, Literal

import transaction
from transaction.interfaces import IDataManagerSavepoint, ISavepointDataManager
from zope.interface import implementer

from qmadmin.attachment import attachment_of
from qmadmin.opening import participating_session
from qmadmin.session_decision import SessionDecision
from qmadmin.space import QueueSpace
from qmadmin.transacting import Marks, current
from qmadmin.two_phase import TwoPhaseTransaction, begin
from qmcore.acts import recovering
from qmcore.errors import (
    HeuristicError,
    InvalidArgumentError,
    ProtocolError,
    QueueError,
    UnknownXidError,
    may_pass,
)
from qmcore.two_phase import OUR_FORMAT, Told
from qmcore.xid import Xid

if TYPE_CHECKING:
    from datetime import timedelta

    from sqlalchemy.orm import Session, scoped_session

    from qmadmin.device import Device
    from qmstorage.participating_session import ParticipatingSession

__all__ = ["FORMAT", "join"]

logger = logging.getLogger("qmadmin.transacting")

FORMAT: Final = int.from_bytes(b"ZOPE")
"""The format identifier in the xids of these branches, by which an administrator knows them."""


def join(
    space: QueueSpace,
    *,
    transaction_manager: Any = transaction.manager,
    timeout: float | timedelta | None = None,
    session: Session | scoped_session[Any] | None = None,
    presume: Literal["abort"] | None = None,
) -> None:
    """Make a queue space part of the current transaction of the package `transaction`.

    The calls of this thread on the queue space belong to that transaction from now on, until it ends: they are
    committed together with its other data managers, or not at all. To join twice is to join once; several queue spaces
    can join one transaction. `transaction_manager` tells whose current transaction is meant, as in zope.sqlalchemy;
    unless it has voted, the queue space's part is rolled back after `timeout` seconds.

    A queue space votes before a session of zope.sqlalchemy commits. Where the process dies after a vote and before the
    end, its branch is in doubt, and waits for an administrator: the package keeps no record of its decisions. Where an
    administrator has ended a branch otherwise between the vote and the end, the commit succeeds, and the log says at
    level ERROR what is to be put right: an exception would roll back the data managers behind.

    With a `session` of SQLAlchemy, which becomes part of the transaction by zope.sqlalchemy, nothing waits for anybody:
    its commit is the decision, because a row of the table that `create_decision_table` makes is written into it when
    all queue spaces have voted. What a dead process leaves is ended by that, by the next transaction with a session of
    the database or by `qmadmin.recover`. All queue spaces of a transaction join with the same session then, before the
    session has written anything. Where it has committed, and another data manager fails behind it, the queue spaces are
    committed with it, and the log says so at level ERROR.

    The end belongs in the thread that has joined. In another one it raises ProtocolError, and commits nothing: the next
    call of the thread that has joined rolls back, and raises AbortedError unless it is a `join`.

    A savepoint covers what is enqueued. To roll back to one is refused with ProtocolError if a message was dequeued
    since, or if what was enqueued since stands in the store already (a transaction keeps 8 MiB outside of it).

    With `presume="abort"` and no session a branch whose process has died after the vote is rolled back by whoever comes
    next, in place of waiting. That is wrong where it dies, or is cut off from the queue space for so long that it is
    taken for dead, after another data manager has committed and before the queue space has: what that has committed
    stays, and the messages come back. A session of zope.sqlalchemy commits in its vote, directly before the end.

    Raises ProtocolError inside another transaction on the queue space, and for a session whose database cannot decide
    or is that of the queue space; NoSpaceError if there are as many transactions as the queue space allows,
    InvalidArgumentError for what is no queue space or no session of one engine, or for a presumption beside a session,
    and what `transaction` raises.
    """
    if not isinstance(space, QueueSpace):
        raise InvalidArgumentError(
            f"what joins a transaction is a queue space, got {space!r}",
            hint="A queue space of qmadmin.aio cannot: the package `transaction` awaits nothing.",
        )
    if presume not in (None, "abort") or (presume and session is not None):
        raise InvalidArgumentError(
            f"what a transaction presumes is 'abort', where no session decides, got {presume!r}",
            hint="Give session= alone: then nothing has to be presumed.",
        )
    its = transaction_manager.get()
    together = _together_in(its)
    key = space.device, space.name
    decides = None if session is None else participating_session(session)
    if (found := together.participants.get(key)) is not None:
        found.check_here()
        if decides is not None:
            together.check_decider(decides)
        return
    stale = current(*key)
    if isinstance(stale, TwoPhaseTransaction) and stale.is_given_up:
        stale.leave_given_up()
    together.check_decider(decides)
    if decides is not None:
        together.have_decided(decides, space, transaction_manager)
    participant = _Participant(space, together, transaction_manager, presumes_abort=presume == "abort")
    try:
        participant.begin(timeout)
        its.join(participant)
    except BaseException:
        # An interrupt, too: what is left in the thread would keep it from any other transaction.
        participant.abort(its)
        raise


class _Together:
    """The queue spaces that have joined one transaction."""

    def __init__(self) -> None:
        self.gtrid = os.urandom(16)
        self.participants: dict[tuple[Device, str], _Participant] = {}
        self.decision: SessionDecision | None = None
        """The one of a session, where one decides."""

    def check_decider(self, session: ParticipatingSession | None) -> None:
        """Refuse another session than that of the queue spaces that have joined before, or one where they have none."""
        decides = None if self.decision is None else self.decision.session
        if self.participants and decides is not (None if session is None else session.session):
            raise ProtocolError(
                f"queue space {next(iter(self.participants))[1]!r} has joined the transaction with"
                f" {'no' if decides is None else 'another'} session, and one decides on all queue spaces",
                hint="Give each join() in the transaction the same session, or none.",
            )

    def have_decided(self, session: ParticipatingSession, space: QueueSpace, transaction_manager: Any) -> None:
        """Have a session decide on a branch in a queue space, too."""
        decision = self.decision
        if decision is None or decision.is_over or decision.session is not session.session:
            decision = SessionDecision(session, space.device, transaction_manager)
        decision.admit(attachment_of(space))
        if decision is not self.decision:
            _have_it_commit(session.session, transaction_manager)
            transaction_manager.get().join(decision)
            self.decision = decision


def _have_it_commit(session: Session, transaction_manager: Any) -> None:
    """Have a session commit with the transaction, in which the decision may be all that it has written."""
    from zope.sqlalchemy import mark_changed

    try:
        mark_changed(session, transaction_manager)
    except AssertionError as error:
        raise InvalidArgumentError(
            "the session is registered with zope.sqlalchemy as one that only reads, and cannot decide",
            hint="Register it without initial_state.",
        ) from error


def _together_in(its: Any) -> _Together:
    try:
        found: _Together = its.data(_KEY)
    except KeyError:
        found = _Together()
        its.set_data(_KEY, found)
    return found


@implementer(ISavepointDataManager)
class _Participant:
    """A branch in a queue space, as a data manager of the package `transaction`."""

    def __init__(
        self, space: QueueSpace, together: _Together, transaction_manager: Any, *, presumes_abort: bool
    ) -> None:
        self._presumes_abort = presumes_abort
        self.transaction_manager = transaction_manager
        self._space = space
        self._key = space.device, space.name
        self._together = together
        self._branch: TwoPhaseTransaction | None = None
        self._xid: Xid | None = None
        self._uses = False
        """Whether it keeps the process attached to the queue space, which the application may close meanwhile."""

    def __repr__(self) -> str:
        device, name = self._key
        return f"<branch {self._xid} of queue space {name!r} of {device.path!r}>"

    def begin(self, timeout: float | timedelta | None) -> None:
        """Begin the branch: the calls of this thread belong to it from now on."""
        device, name = self._key
        device.use(name, _ROLE)
        self._uses = True
        attachment, decision = attachment_of(self._space), self._together.decision
        attachment.do_housekeeping()
        space, volume = attachment.opened.space, attachment.volume
        if decision is None:
            # By the qualifier recovery knows a copy, which presumes nothing.
            presumed = recovering.qualifier_of(volume, space) if self._presumes_abort else space.incarnation.encode()
            self._xid = Xid(FORMAT, self._together.gtrid, presumed)
        else:
            self._xid = Xid(OUR_FORMAT, decision.gtrid, recovering.qualifier_of(volume, space))
        self._told = Told(self._xid.bqual, attachment.place.text)
        self._branch = begin(attachment, device, self._xid, timeout)
        self._together.participants[self._key] = self

    def check_here(self) -> None:
        """Refuse a call in another thread than the one that began the branch, or in a forked process."""
        if self._branch is not None:
            self._branch.check_here()

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
        branch, decision = self._branch, self._together.decision
        presumes = recovering.PRESUMES_ABORT if self._presumes_abort else ""
        if branch is not None and not branch.prepare(presumes if decision is None else decision.asked.text):
            self._leave()
        elif branch is not None and decision is not None:
            decision.told[self._told.branch] = self._told

    def tpc_finish(self, _its: object) -> None:
        """Commit what was promised.

        An error here would make the package roll back the data managers behind. A queue space that cannot be reached
        follows, and of a branch that an administrator has ended otherwise the log tells.
        """
        branch = self._branch
        if branch is None or not branch.is_prepared:
            return
        branch.check_here()
        if self._together.decision is not None:
            self._together.decision.check_decided()
        self._commit(branch)

    def _commit(self, branch: TwoPhaseTransaction) -> None:
        decision = self._together.decision
        try:
            if branch.decide(commits=True) and decision is not None:
                decision.followed.append(self._told.branch)
        except HeuristicError as error:
            logger.error(  # noqa: TRY400
                "transaction %s was to be committed, and its other branches are: %s; put right by hand what differs in"
                " queue space %r, and type qforgettrans %s",
                branch.xid,
                error,
                self._key[1],
                branch.xid,
            )
        except UnknownXidError as error:
            logger.error(  # noqa: TRY400
                "transaction %s was to be committed, and its other branches are: %s; others have ended it: see with"
                " qaudit how, and put right by hand what differs in queue space %r",
                branch.xid,
                error,
                self._key[1],
            )
        finally:
            self._leave()

    def tpc_abort(self, its: object) -> None:
        """Roll back, also what was promised; nothing after the end, however often it is asked."""
        self.abort(its)

    def abort(self, _its: object) -> None:
        """Roll back. What the store refuses now is done later."""
        branch = self._branch or self._begun()
        if branch is not None:
            try:
                branch.check_here()
            except ProtocolError:
                branch.give_up_elsewhere(self._leave)
                raise
        try:
            if branch is not None and branch.is_given_up:
                branch.leave_given_up()
            elif branch is not None and branch.is_prepared:
                self._end_undecided(branch)
            elif branch is not None and branch.active:
                branch.rollback()
        finally:
            self._leave()

    def _end_undecided(self, branch: TwoPhaseTransaction) -> None:
        """Roll back what was promised, unless the session that decides has committed, or that is not known."""
        decided = self._together.decision is not None and self._together.decision.decided()
        if decided:
            logger.error("transaction %s is committed with its session, before another data manager failed", branch.xid)
            self._commit(branch)
        elif decided is not None:
            branch.decide(commits=False)

    def savepoint(self) -> _Savepoint:
        """Return where the branch is now."""
        assert self._branch is not None  # noqa: S101 - it has joined with one
        return _Savepoint(self._branch)

    def _begun(self) -> TwoPhaseTransaction | None:
        """Return the branch that was begun in this thread, if that has come so far."""
        found = current(*self._key) if self._xid is not None else None
        return found if isinstance(found, TwoPhaseTransaction) and found.xid == self._xid else None

    def _leave(self) -> None:
        """Let go of the thread and of the queue space; this may come again."""
        if self._together.participants.get(self._key) is self:
            del self._together.participants[self._key]
        if (branch := self._branch or self._begun()) is not None:
            branch.leave_context()
        if self._uses:
            self._uses = False
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
