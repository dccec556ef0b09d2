"""Two-phase commit as PEP 249 shapes it: a queue space as a participant in its coordinator's transactions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Self

from qmadmin.attachment import SpaceHandle
from qmadmin.transacting import Transaction, current, refuse_nesting
from qmcore.acts import in_doubt, preparing
from qmcore.acts.returning import Cause, Ending
from qmcore.errors import AbortedError, HeuristicError, InvalidArgumentError, ProtocolError, UnknownXidError
from qmcore.suspension import Token
from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from qmadmin.attachment import Attachment
    from qmadmin.device import Device


class TwoPhaseTransaction(Transaction):
    """A branch of a coordinator's transaction in one queue space, from `tpc_begin` to its end."""

    def __init__(self, device: Device, timeout: float | timedelta | None, space: str, xid: Xid) -> None:
        super().__init__(device, timeout, space)
        self.xid = xid
        self._given_up: Callable[[], None] | None = None
        """What else is to be done at its end, where another thread was to end it."""

    @classmethod
    def resumed(cls, attachment: Attachment, device: Device, token: Token) -> Self:
        """Return the one that was suspended with a token."""
        transaction = cls(device, None, attachment.opened.space.name, _UNKNOWN)
        transaction.xid = transaction.take_over([attachment], token, coordinated=True) or _UNKNOWN
        return transaction

    @property
    def is_prepared(self) -> bool:
        """Whether its commit is promised, and it has not ended."""
        return self._ended == _PREPARED

    def prepare(self, decider: str = "") -> bool:
        """Promise the commit; False where the transaction has changed nothing, and is over.

        `decider` is the text of whom recovery asks, where no coordinator ends it.
        """
        self._check_usable()
        ((attachment, branch),) = self._branches.values()
        try:
            changes = preparing.prepare(attachment.volume, branch, self.xid, decider)
        except BaseException as error:
            self._fail(error)
            raise
        self._ended = _PREPARED if changes else "over"
        return changes

    def roll_back_again(self) -> None:
        """Do the rollback that a failed preparation owes, if it is not done yet; raises what the store refuses."""
        for attachment, branch in self._branches.values():
            attachment.owed.insist(branch)

    @property
    def dequeued(self) -> int:
        """How many messages it has dequeued."""
        return sum(use.messages for _, branch in self._branches.values() for use in branch.holds.values())

    def decide(self, *, commits: bool) -> bool:
        """End what is prepared, as its coordinator in this process has decided; return whether that is done.

        Where the store cannot be reached, the decision is kept, and carried out by a later upkeep. Raises
        UnknownXidError and HeuristicError where others have ended it.
        """
        ((attachment, _),) = self._branches.values()
        attachment.decided.note(self.xid, commits=commits)
        self._ended = "committed" if commits else "rolled back"
        attachment.decided.carry_out(self.xid)
        return self.xid not in attachment.decided.left

    def check_here(self) -> None:
        """Refuse a call in another thread than the one that began it, or in a forked process."""
        self._check_thread()

    @property
    def is_given_up(self) -> bool:
        """Whether it was to be ended in another thread, so that this one's next call rolls it back."""
        return self._given_up is not None

    def give_up_elsewhere(self, then: Callable[[], None]) -> None:
        """Have the next call of its own thread roll it back, and do what is to be done then.

        A forked process has no part in it.
        """
        if self._pid == os.getpid():
            self._given_up = then

    def leave_given_up(self) -> None:
        """Roll back what was given up in another thread, and let go of this one."""
        try:
            if self.is_prepared:
                self.decide(commits=False)
            elif self.active:
                self.rollback()
        finally:
            self.leave_context()
            if self._given_up is not None:
                self._given_up()

    def end(self, how: str) -> None:
        """Note how the store has ended what was prepared."""
        self._ended = how

    def _check_usable(self) -> None:
        if self.is_given_up:
            self._check_thread()
            self.leave_given_up()
            raise AbortedError(f"transaction {self.xid} was rolled back: another thread has tried to end it")
        if self._ended and self._aborted is None:
            self._check_thread()
            self._refuse_suspended()
            raise ProtocolError(
                f"transaction {self.xid} is {self._ended}, and takes no more calls",
                hint="End it with tpc_commit or tpc_rollback." if self.is_prepared else "End it with tpc_rollback.",
            )
        super()._check_usable()


class TwoPhase(SpaceHandle):
    """The calls of a participant in two-phase commit, as PEP 249 has them for connections."""

    def xid(self, format_id: int, gtrid: str | bytes, bqual: str | bytes = b"") -> Xid:
        """Return an identifier for a branch: format, global transaction, branch qualifier, as X/Open has them.

        `format_id` is from 0 to 2147483647, `gtrid` has 1 to 64 bytes, `bqual` 0 to 64; texts are taken in UTF-8.
        Raises InvalidArgumentError for others.
        """
        return Xid.of((format_id, gtrid, bqual))

    def tpc_begin(self, xid: Xid | str | tuple[int, Any, Any], timeout: float | timedelta | None = None) -> None:
        """Begin a branch of a distributed transaction: the calls of this thread on the queue space belong to it.

        `xid` is its identifier: three parts, as `xid` returns them, or the text of one. Unless it is prepared, it is
        rolled back after `timeout` seconds, and when its process dies. Raises InUseError if a transaction of the queue
        space has the identifier, in whatever state it is, ProtocolError inside another transaction, NoSpaceError if
        there are as many transactions as the queue space allows.
        """
        identifier = Xid.of(xid)
        if identifier.format_id == OUR_FORMAT:
            raise InvalidArgumentError(
                f"the format identifier {OUR_FORMAT} is that of the transactions that qmadmin coordinates",
                hint="Use a format identifier of your own.",
            )
        begin(self._ready(), self._device, identifier, timeout)

    def tpc_suspend(self) -> str:
        """Suspend this thread's branch, and return the token by which `tpc_resume` goes on with it.

        It must not be prepared: such a one needs no thread, and is ended by its xid. Raises as `Transaction.suspend`,
        and ProtocolError where there is no branch.
        """
        return self._branch().suspend()

    def tpc_resume(self, token: str) -> Xid:
        """Make a suspended branch that of this thread, and return its identifier.

        Raises as `resume`, and ProtocolError for a transaction that `tpc_begin` has not begun.
        """
        wanted = Token.of(token)
        attachment = self._ready()
        refuse_nesting(self._device, self.name)
        transaction = TwoPhaseTransaction.resumed(attachment, self._device, wanted)
        transaction.join_context()
        return transaction.xid

    def tpc_prepare(self) -> bool:
        """Promise the commit of this thread's branch: nothing but `tpc_commit` and `tpc_rollback` ends it from now on.

        No timeout and no death ends it, and no call can be made in it any more. Its messages are held, and what it
        enqueues has its room. Returns False for a branch that has changed nothing: it has let go of what it had locked,
        and is over. Raises as the commit of a transaction does: the branch is rolled back, and `tpc_rollback` ends it,
        or raises for as long as the store cannot be reached. ProtocolError: there is no branch, or it is prepared.
        """
        transaction = self._branch()
        if transaction.prepare():
            return True
        transaction.leave_context()
        return False

    def tpc_commit(self, xid: Xid | str | tuple[int, Any, Any] | None = None) -> None:
        """Commit this thread's branch, or outside of one the prepared branch that has an identifier.

        A branch that is not prepared is committed at once (one phase), with the errors that this has. The commit of a
        prepared one is never refused for want of room, or because a queue was stopped or changed. Raises
        UnknownXidError if no transaction has the identifier, or has it any more; ProtocolError if it is not prepared,
        or if the call belongs to a transaction and has an identifier; HeuristicError if an administrator rolled it
        back. Where it is unknown whether it was done (OutcomeUnknownError), the same call finds out: UnknownXidError
        says that it was.
        """
        if xid is not None:
            self._refuse_inside()
            self._end_by(Xid.of(xid), commits=True)
            return
        transaction = self._branch()
        if transaction.is_prepared:
            self._end_own(transaction, commits=True)
        else:
            transaction.commit()
            transaction.leave_context()

    def tpc_rollback(self, xid: Xid | str | tuple[int, Any, Any] | None = None) -> None:
        """Roll back this thread's branch, or outside of one the prepared branch that has an identifier.

        This counts as a try of the messages that it had dequeued. Raises as `tpc_commit` does; HeuristicError if an
        administrator committed it.
        """
        if xid is not None:
            self._refuse_inside()
            self._end_by(Xid.of(xid), commits=False)
            return
        transaction = self._branch()
        if transaction.is_prepared:
            self._end_own(transaction, commits=False)
            return
        if transaction.active:
            transaction.rollback()
        transaction.roll_back_again()
        transaction.leave_context()

    def tpc_recover(self) -> list[Xid]:
        """Return the identifiers of branches that wait for their coordinator, the longest first, whoever began them.

        They are prepared, or an administrator has ended them: then `tpc_commit` and `tpc_rollback` tell how, and
        `tpc_forget` removes the record of that.
        """
        return self._read(in_doubt.recover)

    def _branch(self) -> TwoPhaseTransaction:
        """Return the branch that this thread has begun."""
        self._check_open()
        found = current(self._device, self.name)
        if isinstance(found, TwoPhaseTransaction):
            found.check_here()
            return found
        raise ProtocolError(
            f"the open transaction on queue space {self.name!r} was not begun by tpc_begin"
            if found is not None
            else f"no branch is open in this thread on queue space {self.name!r}",
            hint="Begin one with tpc_begin; name a prepared one of others by its xid.",
        )

    def _refuse_inside(self) -> None:
        self._check_open()
        if current(self._device, self.name) is not None:
            raise ProtocolError(
                f"a transaction is open in this thread on queue space {self.name!r}, and branches are ended by their"
                " xid outside of one",
                hint="End it before.",
            )

    def _end_own(self, transaction: TwoPhaseTransaction, *, commits: bool) -> None:
        """End the branch of this thread; where others have done it, that is told, and it is over all the same."""
        try:
            self._end_by(transaction.xid, commits=commits)
            transaction.end("committed" if commits else "rolled back")
        except (UnknownXidError, HeuristicError):
            transaction.end("ended by others")
            raise
        finally:
            if not transaction.is_prepared:
                transaction.leave_context()

    def _end_by(self, xid: Xid, *, commits: bool) -> None:
        if xid.format_id == OUR_FORMAT:
            raise ProtocolError(
                f"transaction {xid} is one of qmadmin.transaction, and ends as its decider says",
                hint="It does so by itself; an administrator ends it with qcommittrans or qaborttrans.",
            )
        self._ready()
        if commits:
            self._promise(in_doubt.commit, xid, self._now)
        else:
            self._promise(in_doubt.roll_back, xid, self._now, Ending(Cause.ROLLBACK))


def begin(attachment: Attachment, device: Device, xid: Xid, timeout: float | timedelta | None) -> TwoPhaseTransaction:
    """Begin a branch in a queue space, and make the calls of this thread belong to it. Raises as `tpc_begin`."""
    name = attachment.opened.space.name
    refuse_nesting(device, name)
    transaction = TwoPhaseTransaction(device, timeout, name, xid)
    try:
        preparing.begin(attachment.volume, transaction.branch(attachment), xid)
    except BaseException as error:
        attachment.renew(error)
        transaction.rollback(counts=False)
        raise
    transaction.join_context()
    return transaction


_PREPARED: Final = "prepared"
_UNKNOWN: Final = Xid(0, b"?")
"""What a branch has for an identifier until the store has told its own."""
