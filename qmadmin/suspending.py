"""Suspending a transaction, and going on with one that was suspended: in another thread, or in another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from qmadmin.over_volumes import are_apart
from qmcore.acts import suspending
from qmcore.acts.returning import Cause, Ending
from qmcore.acts.transaction_part import Branch
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError
from qmcore.suspension import Token
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmadmin.application_databases import Databases
    from qmadmin.attachment import Attachment
    from qmadmin.device import Device
    from qmcore.acts.deciding import Place
    from qmcore.xid import Xid

_SUSPENDED: Final = "suspended"


class Suspendable:
    """The part of a transaction that suspends it, and that lets it go on where another one was suspended."""

    # What it uses of the transaction.
    _device: Device
    _space: str | None
    _branches: dict[Place, tuple[Attachment, Branch]]
    _started_us: int
    _timeout_us: int | None
    _end: float
    _ended: str
    _check_usable: Callable[[], None]
    _fail: Callable[[BaseException], None]
    _roll_back: Callable[[Ending], None]
    branch: Callable[[Attachment], Branch]
    leave_context: Callable[[], None]
    databases: Databases | None
    note: Callable[[BaseException], None]

    def suspend(self) -> str:
        """Suspend the transaction, and return the token by which `QueueSpace.resume` goes on with it.

        The token is a text, for this thread, another one, or another process on the same device. This object is of no
        use any more; its block ends without doing anything, and the calls of the thread belong to no transaction. All
        that the transaction has enqueued stands in the store then, and what it holds stays held. Its timeout goes on.
        Until it is resumed it belongs to this process: when that dies or closes the queue space, it is rolled back.

        Raises NoSpaceError where there is no room any more for what it enqueues, and BadQueueError where a queue is
        gone; it goes on then, as if nothing had been asked. AbortedError: it was rolled back, as at a commit.
        """
        self._check_usable()
        if self.databases is not None:
            raise ProtocolError(
                "a transaction in which a database of the application takes part is not suspended: nobody else has its"
                " connection",
                hint="Commit it.",
            )
        if not self._branches and self._space is not None:
            # It has done nothing yet, and is to be known all the same.
            self._device.use(self._space, "application")
            try:
                self.branch(self._device.attachment(self._space, "application"))
                return self._suspended()
            finally:
                self._device.drop(self._space)
        return self._suspended()

    def take_over(self, attachments: Sequence[Attachment], token: Token, *, coordinated: bool = False) -> Xid | None:
        """Go on with a suspended transaction that has parts in queue spaces; this one has none.

        `coordinated`: it is to be a branch of a coordinator, whose identifier is returned.
        """
        by_incarnation = {each.opened.space.incarnation: each for each in attachments}
        numbers = dict(token.parts)
        if not attachments or by_incarnation.keys() != numbers.keys():
            raise wrong_place(attachments, token)
        self._branches = {
            each.place: (
                each,
                Branch(each.opened, each.opened.me or each.owner, 0, None, numbers[incarnation]),
            )
            for incarnation, each in by_incarnation.items()
        }
        branches = [branch for _, branch in self._branches.values()]
        try:
            xid = suspending.resume(attachments[0].volume, branches, token.secret, coordinated=coordinated)
        except BaseException as error:
            for each in attachments:
                each.renew(error)
            # Where it is unknown whether it was resumed, it is rolled back.
            self._roll_back(Ending(Cause.UNTRIED))
            raise
        self._go_on(branches[0])
        return xid

    @property
    def is_untouched(self) -> bool:
        """Whether it has no part in any queue space, so that there is nothing to suspend."""
        return not self._branches

    def _suspended(self) -> str:
        if not self._branches:
            raise ProtocolError("the transaction has done nothing in any queue space, so that none can keep it")
        (attachment, *_), branches = zip(*self._branches.values(), strict=True)
        if are_apart(self._branches.values()):
            raise ProtocolError(
                "the transaction has parts on several volumes, and is not suspended",
                hint="Commit it, or use queue spaces on one volume.",
            )
        token = Token.new([(branch.opened.space.incarnation, branch.id) for branch in branches])
        try:
            suspending.suspend(attachment.volume, branches, token.secret)
        except BaseException as error:
            if isinstance(error, AbortedError):
                self._fail(error)
            self.note(error)
            raise
        # From here on nothing that is done with this object may reach what others may have resumed by then.
        self._ended, self._branches = _SUSPENDED, {}
        self.leave_context()
        return str(token)

    def _go_on(self, branch: Branch) -> None:
        """Go by the times of the transaction that was suspended."""
        self._started_us = branch.started_us
        if branch.deadline_us is not None:
            now, steady = self._device.clock.now_and_steady()
            left = max(branch.deadline_us - steady, 0)
            self._timeout_us = max(now - branch.started_us, 0) + left
            self._end = self._device.clock.monotonic() + left / MICROS

    def _refuse_ended(self) -> None:
        """Refuse a call in a transaction that has ended, or was suspended."""
        self._refuse_suspended()
        if self._ended:
            raise ProtocolError(f"the transaction was {self._ended} already")

    def _refuse_suspended(self) -> None:
        if self._ended == _SUSPENDED:
            raise ProtocolError(
                "the transaction was suspended, and this object takes no more calls",
                hint="resume, with the token that suspend has returned, gives another one.",
            )


def wrong_place(attachments: Sequence[Attachment], token: Token) -> InvalidArgumentError:
    """Return the diagnostic for a token that is not, or not only, of these queue spaces."""
    names = ", ".join(repr(each.opened.space.name) for each in attachments)
    incarnations = {each.opened.space.incarnation for each in attachments}
    if incarnations & {incarnation for incarnation, _ in token.parts}:
        return InvalidArgumentError(
            f"the token is of a transaction over {len(token.parts)} queue spaces, of which {names} is one",
            hint="It was begun by tpbegin, and tpresume goes on with it.",
        )
    return InvalidArgumentError(
        f"the token is of a transaction that was suspended in another queue space than {names}",
        hint="Resume it on the queue space, of the same device, that it was suspended in; a new one of the same name is"
        " another.",
    )
