"""A transaction, as applications use it, and the open ones of a context: which one a call on a queue space belongs to.

A transaction is joined in a context. A copy of the context, as asyncio.to_thread makes for its thread and asyncio for
each task, has the transaction too, even after it has ended or was collected.
"""

from __future__ import annotations

import contextvars
import copy
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self, TypeAlias

from qmadmin import tracing
from qmadmin.over_volumes import OverVolumes, are_apart
from qmadmin.suspending import Suspendable
from qmcore.acts import commit, rolling_back
from qmcore.acts.enqueue import prepare
from qmcore.acts.returning import Cause, Ending, Verdict, cause_of, is_of_the_store
from qmcore.acts.transaction_part import Branch, Mark
from qmcore.errors import (
    AbortedError,
    InvalidArgumentError,
    OperatingSystemError,
    OutcomeUnknownError,
    ProtocolError,
    QueueError,
    SystemFailureError,
)
from qmcore.queue import AS_ITS_QUEUE_SAYS, RetryPolicy
from qmcore.times import MICROS, span

if TYPE_CHECKING:
    from qmadmin.attachment import Attachment
    from qmadmin.device import Device
    from qmcore.acts.deciding import Place
    from qmcore.message import Body, EnqueueControl, Message


ANOTHER_THREAD = "the transaction belongs to another thread"
STAY_IN_THREAD = "Use it in the thread that began it; transactional=False keeps a call out of it."


class _Joined(NamedTuple):
    """A transaction that the thread with this number joined; `find` returns None after it was collected.

    The transaction of a block is kept by a weak reference: an interrupt at the first instruction of `__exit__` leaves
    it here, and it is collected and rolled back with its block.
    """

    find: Callable[[], Transaction | None]
    device: weakref.ref[Device]
    space: str | None
    thread: int

    def covers(self, device: Device, space: str | None) -> bool:
        """Return whether the transaction is for a queue space, or with None for any of the device."""
        return self.device() is device and (space is None or self.space is None or self.space == space)


_open: contextvars.ContextVar[tuple[_Joined, ...]] = contextvars.ContextVar("qmadmin_transactions", default=())
"""The transactions that are open in this context, the outermost first."""

joined_here: Final = _open.get
"""Returns them: mostly there are none, and nothing more has to be asked."""


def join(
    transaction: Transaction,
    find: Callable[[], Transaction | None],
    device: Device,
    space: str | None,
    *,
    nests: bool = True,
) -> None:
    """Make the calls in this context, on a queue space or with None on all of the device, part of a transaction.

    One that does not nest is refused inside another one.
    """
    outer = _open.get()
    if outer and not nests:
        refuse_nesting(device, space)
    _open.set((*outer, _Joined(find, weakref.ref(device), space, transaction.thread)))


def leave(transaction: Transaction) -> None:
    """Make calls in this context no longer part of a transaction."""
    joined = _open.get()
    is_alone = len(joined) == 1 and joined[0].find() is transaction
    _open.set(() if is_alone else tuple(one for one in joined if one.find() not in (transaction, None)))


def current(device: Device, space: str) -> Transaction | None:
    """Return the transaction that a call on a queue space belongs to, or would: it may not be of this thread.

    Raises ProtocolError if the context is a copy from another thread whose transaction was collected: a call that was
    begun inside the transaction must not take effect outside.
    """
    for joined in reversed(_open.get()):
        # As `covers` does.
        if joined.device() is device and joined.space in (space, None):
            if transaction := joined.find():
                return transaction
            if joined.thread != threading.get_ident():
                raise ProtocolError(ANOTHER_THREAD, hint=STAY_IN_THREAD)
    return None


def refuse_nesting(device: Device, space: str | None) -> None:
    """Refuse a transaction inside another one on the same queue space; None stands for all of the device."""
    for joined in _open.get():
        if joined.covers(device, space) and (other := joined.find()) and (other.active or other.is_here):
            where = "thread" if other.is_here else "context, begun by another thread,"
            raise ProtocolError(
                f"a transaction is open already in this {where} on {space or device.path!r}",
                hint="End it first; transactions do not nest.",
            )


Marks: TypeAlias = "Mapping[Any, Mark]"
"""How much a transaction has enqueued by some time in each queue space."""


class Transaction(Suspendable, OverVolumes):
    """A logical unit of work: all of its enqueues and dequeues take effect together at its commit, or not at all.

    The messages that it dequeues are hidden from all others until it ends; those that it enqueues are not visible
    before it commits, not even to the transaction itself. `QueueSpace.transaction()` begins it, and the thread that
    began it uses it. It ends with `commit()`, with `rollback()`, when its time is over, or when its process dies; the
    last two roll back.
    """

    _ended = "never begun"

    def __init__(self, device: Device, timeout: float | timedelta | None, space: str | None = None) -> None:
        self._device = device
        self._space = space
        self.thread = threading.get_ident()
        self._pid = os.getpid()
        self._started_us = device.clock.now()
        self._timeout_us = None if timeout is None else span(timeout, "timeout")
        self._end = math.inf if self._timeout_us is None else device.clock.monotonic() + self._timeout_us / MICROS
        self._branches: dict[Place, tuple[Attachment, Branch]] = {}
        self._doomed: BaseException | None = None
        self._aborted: AbortedError | None = None
        self._ended = ""

    def __repr__(self) -> str:
        return f"<Transaction {self._ended or 'active'}>"

    def __del__(self) -> None:
        # A thread that dies in a transaction, or one that is forgotten, must not hold its messages for ever. This may
        # run anywhere, so that the rollback is left to the next upkeep.
        if not self._ended:
            self._put_off(Ending(Cause.LEFT, "its transaction was forgotten"))

    def __enter__(self) -> Self:
        join(self, weakref.ref(self), self._device, self._space, nests=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(self)
        try:
            if error is None and (not self._ended or self._aborted is not None):
                self.commit()
            elif not self._ended:
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self.rollback(reason, counts=not (is_of_the_store(error) or is_of_the_store(self._doomed)))
        finally:
            # Another thread that has given it up could not use the connections.
            if self.databases is not None:
                self._roll_back_databases()

    @property
    def active(self) -> bool:
        """Whether the transaction has been neither committed, rolled back nor suspended."""
        return not self._ended

    def commit(self) -> None:
        """Make everything that the transaction did take effect, durably and all at once.

        Raises AbortedError if it was rolled back instead because its time was over or the store failed, and
        NoSpaceError or BadQueueError if the messages that it enqueues no longer fit or have lost their queue. In all of
        these cases nothing of it remains. After OutcomeUnknownError of a commit over several volumes its branches wait
        for the decision, and end by themselves.
        """
        self._check_usable()
        if self.databases is not None or (len(self._branches) > 1 and are_apart(self._branches.values())):
            self._commit_over_volumes()
        elif self._branches:
            (attachment, *_), branches = zip(*self._branches.values(), strict=True)
            try:
                commit.commit(attachment.volume, branches)
            except BaseException as error:
                self._fail(error)
                raise
        self._ended = "committed"

    def successor(self, timeout: float | timedelta | None) -> Transaction:
        """Return a transaction that `commit_and_take` may let follow this one; it is used when this one has ended."""
        return Transaction(self._device, timeout, self._space)

    def commit_and_take(
        self, answers: Iterable[tuple[str, Body, EnqueueControl]], successor: Transaction | None, queue: str
    ) -> list[Message] | None:
        """Enqueue messages, commit, and let a successor, if there is one, dequeue the next message, all in one step.

        `answers` are messages for queues of the queue space, each with its control information. Returns what the
        successor has dequeued from the queue, a message or nothing, which does not mean that the queue is empty.
        Returns None if the step was refused: nothing was done, and the transaction goes on. The same steps, taken one
        by one, say why. Raises as `commit` does if the store fails.
        """
        self._check_usable()
        if len(self._branches) != 1 or self.databases is not None:
            return None
        ((attachment, branch),) = self._branches.values()
        attachment.do_housekeeping()
        try:
            outgoing = prepare(tracing.traced(answers), self._device.info.page_size)
        except InvalidArgumentError:
            return None
        following = None if successor is None else successor.branch(attachment)
        try:
            taken = commit.commit_and_take(attachment.volume, branch, outgoing, following, queue)
        except BaseException as error:
            self._roll_back(Ending(cause_of(error), str(error)))
            if successor is not None:
                successor.rollback(counts=False)
            raise
        if taken is not None:
            self._ended = "committed"
        if successor is not None and not taken:
            successor.rollback(counts=False)
        return taken

    def rollback(
        self,
        reason: str = "",
        *,
        counts: bool = True,
        permanent: bool = False,
        retry_after: float | timedelta | None = None,
        park: bool = False,
        only: str | None = None,
        others: bool = True,
        retry_policy: RetryPolicy = AS_ITS_QUEUE_SAYS,
    ) -> None:
        """Give back everything that the transaction dequeued and forget what it enqueued.

        This counts as a try of the messages that it dequeued. `reason` is recorded with a message that goes to the
        error queue or is parked. With `counts` False it does not count as a try, for a consumer that had no chance to
        try.

        `permanent`: all tries of the messages are used up, because trying again would fail again. `retry_after`: the
        seconds (or a timedelta) for which they are unavailable, in place of the retry delay of their queue; with
        `counts` False too. `park`: they are put aside, which does not count as a try, until `QueueSpace.unpark` or a
        change of their time makes them available. `retry_policy`: how often and after which delays they are tried, as
        far as that is not as their queues say. `only`: the identifier of the one message to which these four apply.
        `others` False: this counts as a try only for that message.
        """
        verdict = _verdict(permanent, retry_after, park, retry_policy)
        self._refuse_ended()
        self._check_thread()
        self._roll_back(Ending(Cause.ROLLBACK if counts else Cause.UNTRIED, reason, verdict, only, others))

    def give_back(
        self,
        msgids: Sequence[str],
        reason: str = "",
        *,
        counts: bool = True,
        permanent: bool = False,
        retry_after: float | timedelta | None = None,
        park: bool = False,
        retry_policy: RetryPolicy = AS_ITS_QUEUE_SAYS,
    ) -> None:
        """Give back some of the messages that the transaction dequeued, by their identifiers, and go on without them.

        The other arguments are those of `rollback`. A message that it has not dequeued is skipped. Raises AbortedError
        if the transaction was rolled back meanwhile.
        """
        verdict = _verdict(permanent, retry_after, park, retry_policy)
        self._check_usable()
        ending = Ending(Cause.ROLLBACK if counts else Cause.UNTRIED, reason, verdict)
        for attachment, branch in self._branches.values():
            if branch.recorded:
                rolling_back.give_back(attachment.volume, branch, msgids, self._device.clock.now(), ending)

    def answer_failure(
        self,
        msgid: str,
        reason: str,
        answers: Iterable[tuple[str, Body, EnqueueControl]] = (),
        *,
        permanent: bool = False,
        retry_policy: RetryPolicy = AS_ITS_QUEUE_SAYS,
    ) -> None:
        """Roll back, but remove the message that failed, and enqueue answers about the failure, all in one step.

        If the message has used up its tries, by its queue or the policy, it goes to the error queue. `answers` are
        messages for queues of its queue space, each with its control information. Raises as an enqueue does; the
        transaction then goes on.
        """
        self._check_usable()
        ending = Ending(
            Cause.ROLLBACK, reason, Verdict(final=permanent, consumed=True, retry_policy=retry_policy), msgid
        )
        outgoing = prepare(tracing.traced(answers), self._device.info.page_size)
        self._roll_back_databases()
        for attachment, branch in self._branches.values():
            if rolling_back.concerns(attachment.volume, branch, msgid):
                rolling_back.answer_failure(attachment.volume, branch, outgoing, self._device.clock.now(), ending)
        self._roll_back(ending)

    def give_up(self, reason: str, *, only: str | None = None, retry_policy: RetryPolicy = AS_ITS_QUEUE_SAYS) -> None:
        """Roll back from another thread than the one that uses the transaction, because its work takes too long.

        Its calls in the transaction are refused with AbortedError from now on. This counts as a try of all messages
        that were dequeued, or of the one that `only` identifies, to which the policy applies.
        """
        self._aborted = AbortedError(
            f"the transaction was rolled back: {reason}", hint="Begin it again; nothing of it remains."
        )
        verdict = Verdict(retry_policy=retry_policy)
        self._roll_back(Ending(Cause.TIMEOUT, reason, verdict, only, tries_others=only is None))

    def return_untried(self, reason: str) -> None:
        """Roll back as `give_up` does, for a consumer that is stopped; this does not count as a try."""
        self._aborted = AbortedError(f"the transaction was rolled back: {reason}")
        self._roll_back(Ending(Cause.UNTRIED, reason))

    def marks(self) -> Mapping[Any, Mark]:
        """Return how much the transaction has enqueued by now, for `forget_since`."""
        return {its: branch.mark() for its, (_, branch) in self._branches.items()}

    def forget_since(self, marks: Mapping[Any, Mark]) -> bool:
        """Forget what was enqueued since the marks were made; return False if that is too late: then roll back."""
        nothing = Mark(0, 0)
        return all(
            rolling_back.forget_since(branch, marks.get(its, nothing)) for its, (_, branch) in self._branches.items()
        )

    def join_context(self) -> None:
        """Make the calls of this thread on its queue spaces belong to the transaction from now on."""
        join(self, lambda: self, self._device, self._space)

    def leave_context(self) -> None:
        """Make calls no longer belong to the transaction."""
        leave(self)

    def branch(self, attachment: Attachment) -> Branch:
        """Return the transaction's part in a queue space, for the next operation in it."""
        self._check_usable()
        its = attachment.place
        found = self._branches.get(its)
        if found is None:
            found = self._branches[its] = attachment, self._new_branch(attachment)
        return found[1]

    def remaining(self) -> float:
        """Return the seconds until the transaction's time is over; infinity if it has no limit."""
        return math.inf if self._timeout_us is None else max(self._end - self._device.clock.monotonic(), 0.0)

    def note(self, error: BaseException) -> None:
        """Record an error after which the transaction cannot commit: one of the store, or an interrupt in an operation.

        After an interrupt, or an error that leaves the outcome unknown, the operation may have done anything; only a
        rollback finds all of it.
        """
        if not isinstance(error, QueueError) or isinstance(
            error, (SystemFailureError, OperatingSystemError, OutcomeUnknownError)
        ):
            self._doomed = error

    def _new_branch(self, attachment: Attachment) -> Branch:
        is_of_its_clock = attachment.clock is self._device.clock
        started, deadline = self._started_us if is_of_its_clock else attachment.clock.now(), None
        if self._timeout_us is not None:
            left = round(self.remaining() * MICROS)
            # At one moment: others end it, and a clock that is set in between would change the length of the timeout.
            now, steady = attachment.clock.now_and_steady()
            started, deadline = now - (self._timeout_us - left), steady + left
        return Branch(attachment.opened, attachment.opened.me or attachment.owner, started, deadline)

    def _check_usable(self) -> None:
        if self._pid != os.getpid() or self.thread != threading.get_ident():
            self._check_thread()
        if self._aborted is not None:
            raise copy.copy(self._aborted)
        if self._ended:
            self._refuse_ended()
        if self._doomed is not None:
            self._abort(
                cause_of(self._doomed),
                f"an earlier call in it failed: {str(self._doomed) or type(self._doomed).__name__}",
                of_the_store=is_of_the_store(self._doomed),
            )
        if self._timeout_us is not None and not self.remaining():
            self._abort(Cause.TIMEOUT, f"its timeout of {self._timeout_us / MICROS:g} seconds is over")

    def _check_thread(self) -> None:
        if self._pid != os.getpid():
            raise ProtocolError(f"the transaction belongs to process {self._pid}, from which this one was forked")
        if self.thread != threading.get_ident():
            raise ProtocolError(ANOTHER_THREAD, hint=STAY_IN_THREAD)

    def _abort(self, cause: Cause, reason: str, *, of_the_store: bool = False) -> NoReturn:
        """Roll back by ourselves; from now on every call says so, until the block or the caller ends it."""
        self._roll_back(Ending(cause, reason))
        self._aborted = AbortedError(
            f"the transaction was rolled back: {reason}",
            hint="Begin it again; nothing of it remains.",
            of_the_store=of_the_store,
        )
        raise copy.copy(self._aborted)

    def _roll_back(self, ending: Ending) -> None:
        rollbacks = self._put_off(ending)
        self._ended = "rolled back"
        if self.databases is not None and not self._databases_let_go(self.databases):
            return
        for roll_back in rollbacks:
            roll_back()

    def _put_off(self, ending: Ending) -> list[Callable[[], None]]:
        """Note all that is to be rolled back: an interrupt may come anywhere behind that. Return what does it."""
        return [attachment.owed.add(branch, ending) for attachment, branch in self._undecided()]


def _verdict(permanent: bool, retry_after: float | timedelta | None, park: bool, retry_policy: RetryPolicy) -> Verdict:
    if park and (permanent or retry_after is not None):
        raise InvalidArgumentError(
            "a message is parked, or fails for good, or is tried again after a time", hint="Give park alone."
        )
    after = None if retry_after is None else span(retry_after, "time to retry after")
    return Verdict(final=permanent, retry_after=after, parks=park, retry_policy=retry_policy)
