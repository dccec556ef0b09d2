"""The transactions of a queue space, as administrators list and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.attachment import SpaceHandle
from qmadmin.audit import act, destructive, tell, user_name
from qmadmin.console import counted
from qmcore.acts import deciding, in_doubt, outstanding, recovering
from qmcore.acts.deciding import Answer, Decider
from qmcore.errors import HeuristicError, ProtocolError
from qmcore.records import Outcome
from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid

if TYPE_CHECKING:
    from typing import Any

    from qmcore.attached import DecisionInfo, TransactionInfo


class ManagingTransactions(SpaceHandle):
    """The part of a queue space that lists and ends transactions, whoever's they are."""

    def transactions(self, *, ask_deciders: bool = False) -> list[TransactionInfo]:
        """Return the transactions that other processes can see, the oldest first.

        A transaction can be seen from its first dequeue on, or from its first enqueue that is stored in the queue
        space; a branch of a distributed transaction from its beginning on. Branches that an administrator has ended in
        place of their coordinator are listed until that has asked, or somebody forgets them.

        With `ask_deciders` it is told of each branch of `qmadmin.transaction` whether its decider can be reached now,
        which takes six seconds at most, and changes nothing.
        """
        attachment = self._attachment
        look = attachment.recovery.looks(attachment.volume) if ask_deciders else None
        return outstanding.transactions(attachment.volume, attachment.opened.space.id, self._device.clock, look)

    def decisions(self) -> list[DecisionInfo]:
        """Return the decisions of this queue space of which branches elsewhere are still to be told, the longest first.

        Recovery tells them beside the work, as soon as their queue spaces can be reached; `tpc_forget` gives one up.
        """
        attachment = self._attachment
        return outstanding.decisions(attachment.volume, attachment.opened.space.id)

    @destructive("transaction {handle.name}/{transaction}")
    def abort_transaction(self, transaction: str) -> bool:
        """Roll back a transaction by its id, or the text of its xid, even if it is active.

        Returns whether the end is heuristic. The messages that it dequeued come back, which counts as a try; a message
        that has used up its tries goes to the error queue, or stays if there is none. The next dequeue or the commit of
        its owner raises AbortedError.

        The end of a prepared transaction is heuristic, as its coordinator has not decided: who ended it, how and when
        is kept until the coordinator asks with `tpc_commit` or `tpc_rollback`, or `tpc_forget` removes it. Where the
        coordinator commits, that raises HeuristicError. Of a transaction of `qmadmin.transaction` the decider is asked
        first, and its coordinator is ended there: then this is no heuristic end, and refused (ProtocolError) where it
        was decided to commit. It is heuristic where the decider cannot be reached, or was set back.

        Raises InvalidArgumentError if there is no such transaction, or no longer, HeuristicError if it was ended
        heuristically before.
        """
        if self._end_as_decided(transaction, commits=False):
            return False
        ended = self._promise(outstanding.abort, transaction, self._now, self._administrator)
        self._tell_end("rolled back", ended)
        return ended.heuristic

    @destructive("transaction {handle.name}/{transaction}")
    def commit_transaction(self, transaction: str) -> bool:
        """Commit a prepared transaction by its id, or the text of its xid, heuristically as `abort_transaction` does.

        Returns whether the end is heuristic. Where its coordinator rolls it back then, that raises HeuristicError.
        Where the decider of one of `qmadmin.transaction` has decided already, this is no heuristic end, or it is
        refused (ProtocolError). Raises ProtocolError if it is active, as only its own process can commit it then;
        otherwise as `abort_transaction`.
        """
        if self._end_as_decided(transaction, commits=True):
            return False
        ended = self._promise(outstanding.commit, transaction, self._now, self._administrator)
        self._tell_end("committed", ended)
        return ended.heuristic

    def refuse_end(self, transaction: str, *, commits: bool) -> None:
        """Raise the error that `commit_transaction` or `abort_transaction` would raise of one in this state.

        Nobody is asked what was decided.
        """
        self._read(outstanding.endable, transaction, commits=commits)

    def tpc_forget(self, xid: Xid | str | tuple[int, Any, Any]) -> None:
        """Remove the record of how an administrator has ended a prepared branch, or give a decision up.

        A decision is one that `decisions` returns. Its branch is told once more. If it cannot be reached, nobody tells
        it any more, for when its device is gone: should it come back and ask later than a day after the decision, it is
        rolled back there, though the transaction was committed.

        Raises UnknownXidError if no transaction has the identifier, ProtocolError if it has not ended so. Of a branch
        of `qmadmin.transaction` the decider is asked first: HeuristicError tells once that it has decided otherwise,
        and ProtocolError that it cannot be reached now.
        """
        identifier = Xid.of(xid)
        with act(self._device, f"transaction {self.name}/{identifier}", "QueueSpace.tpc_forget", {"xid": identifier}):
            if not self._given_up(identifier) and not self._compared(identifier):
                tell(self._promise(in_doubt.forget, identifier))

    def _end_as_decided(self, transaction: str, *, commits: bool) -> bool:
        """End a branch as its decider says, if it says anything; refuse the opposite."""
        record = self._read(outstanding.find, transaction)
        decider = Decider.of(record.decider) if record.state is Outcome.PREPARED else None
        if decider is None or record.xid is None:
            return False
        answer = self._ask(record.xid, decider, ends_living=not commits)
        if answer is None or not answer.end:
            return False
        if (answer is Answer.COMMITTED) is not commits:
            raise ProtocolError(
                f"transaction {record.xid} is {answer.end}, as {decider.place} has decided",
                hint="Its branch here ends so by itself, or by qcommittrans or qaborttrans, whichever that is.",
                transaction=transaction,
            )
        attachment = self._attachment
        recovering.end(attachment.volume, attachment.opened, {record.xid: answer}, also_copies=True)
        tell(f"{answer.end}, as {decider.place} has decided")
        return True

    def _compared(self, xid: Xid) -> bool:
        """Compare a heuristic end with what was decided, if that is not known yet; return whether it was the same."""
        record = self._read(in_doubt.found, xid)
        decider = Decider.of(record.decider) if record.state.is_heuristic and not record.decided else None
        if decider is None:
            return False
        answer = self._ask(xid, decider, ends_living=False)
        if answer is Answer.UNKNOWN:
            # Nobody will ever know.
            return False
        if answer is None or not answer.end:
            raise ProtocolError(
                f"how transaction {xid} was ended cannot be forgotten, before it is compared with what {decider.place}"
                " has decided, which cannot be asked now, or has not decided yet",
                hint="Try it again when it can be reached.",
            )
        attachment = self._attachment
        recovering.end(attachment.volume, attachment.opened, {xid: answer}, also_copies=True)
        if (record.state is Outcome.HEURISTIC_COMMIT) is (answer is Answer.COMMITTED):
            tell(f"forgotten: {in_doubt.how_ended(record)}, as {decider.place} has decided")
            return True
        raise HeuristicError(
            f"transaction {xid} was {in_doubt.how_ended(record)}, and {decider.place} has decided otherwise: it was"
            f" {answer.end} elsewhere",
            hint="Put right by hand what differs, and then forget it.",
            committed=record.state is Outcome.HEURISTIC_COMMIT,
        )

    def _given_up(self, xid: Xid) -> bool:
        """Tell a branch what was decided here, or forget that it is to be told; return False if it is not to be."""
        decisions = self.decisions() if xid.format_id == OUR_FORMAT else []
        info = next((each for each in decisions if each.xid == xid), None)
        if info is None:
            return False
        attachment = self._attachment
        is_told = attachment.recovery.tell(attachment, xid)
        deciding.forget(attachment.volume, attachment.opened, [(xid.gtrid, xid.bqual)])
        tell(f"{info.participant} was told" if is_told else f"given up: {info.participant} was not told")
        return True

    def _ask(self, xid: Xid, decider: Decider, *, ends_living: bool) -> Answer | None:
        """Return what a decider says of a branch here; None where it cannot be reached."""
        attachment = self._attachment
        return attachment.recovery.ask(attachment, xid, decider, ends_living=ends_living)

    def _tell_end(self, how: str, ended: outstanding.Ended) -> None:
        what = f"{how} heuristically" if ended.heuristic else how
        tell(f"{what} with {counted(ended.messages, 'message')}")
        if ended.lost:
            tell(f"{counted(ended.lost, 'non-persistent message')} had been lost with the memory")

    @property
    def _administrator(self) -> str:
        """Return who this is, for the record of what was ended in place of a coordinator."""
        return f"{user_name()} ({self._attachment.owner})"
