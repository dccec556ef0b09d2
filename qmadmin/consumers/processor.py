"""The processing of a message: from its queue to the handler, and the reply to its queue."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from qmadmin.consumers import (
    PUT_OFF,
    Call,
    Failure,
    Handler,
    Order,
    Park,
    Policy,
    Reply,
    Snooze,
    Unavailable,
    Wording,
    current,
    rollback_terms,
)
from qmadmin.consumers.current import call_span
from qmadmin.consumers.deadlines import RunningCall, RunningCalls
from qmadmin.consumers.failures import Backoff, FailureLog
from qmadmin.consumers.joined_databases import commit_with
from qmadmin.consumers.outcomes import Outcomes, outside
from qmadmin.consumers.replies import Answer, answer_to, enqueue_failure, has_answer, put_answer
from qmadmin.consumers.statistics import Statistics
from qmadmin.settings import SECONDS_MAX
from qmadmin.space import QueueSpace
from qmadmin.transacting import Marks, Transaction
from qmcore.damage import is_damage
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    BadResourceError,
    NoSpaceError,
    NotOpenError,
    QueueError,
    Resource,
    SystemFailureError,
    may_pass,
)
from qmcore.message import Message, State
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmadmin.consumers.worker_pool import Poll

T = TypeVar("T")

GRACE_SECONDS: Final = 5.0
"""By how many seconds a transaction outlives the time of its call, so that this process ends and logs a call that takes
too long; other processes end it only if this one cannot."""

_BEGIN_SECONDS: Final = 0.1
"""For how many seconds calls of a batch are begun; then the remaining messages go back, and the batch commits."""

_ORDER_SECONDS: Final = 5.0
"""The most seconds until a queue is polled again whose strict order waits for a message that is tried again."""

_HELD_SECONDS: Final = 0.5
"""The same if a transaction holds a message, which may be that of a consumer that was killed."""


class PollResult(enum.Enum):
    """The result of a poll for a message."""

    NOTHING = enum.auto()
    MESSAGE = enum.auto()
    ABANDONED = enum.auto()
    """The call returned after its transaction was rolled back, and another worker has replaced this one."""


@dataclasses.dataclass(eq=False)
class Processor:
    """Calls a handler with the messages of one queue. Several threads may do so at the same time."""

    space: QueueSpace
    handler: Handler
    policy: Policy
    calls: RunningCalls
    statistics: Statistics
    backoff: Backoff
    wording: Wording

    def __post_init__(self) -> None:
        self.queue = self.statistics.queue
        self.log = FailureLog(self.queue, self.wording)
        self.outcomes = Outcomes(self.space, self.handler, self.policy, self.statistics, self.log)

    def process(self, worker: Poll) -> PollResult:
        """Process the next message, or a batch of them, for a worker.

        Raises QueueError if the store has failed, or this process was taken for dead: the device has to be opened
        again. Raises NoSpaceError if the queue space has too few transactions.
        """
        try:
            self.handler.ready()
            return self._process(worker)
        except Unavailable as error:
            self.backoff.begin(str(error), error.retry_after)
        except (BadResourceError, NotOpenError):
            # The queue space was created again, or what is open is no longer usable.
            raise
        except QueueError as error:
            if isinstance(error, SystemFailureError) and not (may_pass(error) or is_damage(error)):
                raise
            if isinstance(error, NoSpaceError) and error.resource is Resource.TRANSACTIONS:
                raise
            is_absent = isinstance(error, BadQueueError) and error.queue == self.queue
            self.backoff.is_gone = is_absent or is_damage(error)
            self.backoff.begin(f"{error.name}: {error.message}")
        return PollResult.NOTHING

    def is_back(self) -> None:
        """Note that the queue was reached and is empty."""
        if self.backoff.is_gone:
            self.backoff.end()

    def head_priority(self) -> int:
        """Return the priority of the next message; 0 if there is none."""
        try:
            head = self.space.peek(self.queue)
        except QueueError:
            return 0
        return head.priority if head else 0

    def _process(self, worker: Poll) -> PollResult:
        if self._waits_for_order():
            return PollResult.NOTHING
        requests: list[Message] = []
        taken: _Taken | None = _Taken(self.space.transaction(self._transaction_seconds()), requests)
        try:
            while taken is not None:
                with taken.transaction as transaction:
                    requests = taken.requests or self.space.dequeue_many(self.queue, self.policy.batch)
                    taken = None
                    if requests:
                        worker.taken()
                        work = self._process_one if self.policy.batch == 1 else self._process_batch
                        taken = work(requests, transaction, worker)
                self.backoff.end()
        except _AbandonedError:
            return PollResult.ABANDONED
        except (Failure, *PUT_OFF, _RolledBackError):
            self.backoff.end()
        except AbortedError as error:
            if not requests or error.of_the_store:
                raise
            self.backoff.end()
        return PollResult.MESSAGE if requests else PollResult.NOTHING

    def _process_one(self, requests: Sequence[Message], transaction: Transaction, worker: Poll) -> _Taken | None:
        """Call the handler with one request, and end the transaction; return what was taken with the commit.

        Failures are recorded, and raised too; so is what puts the request off.
        """
        call = Call(requests[0], self.policy.seconds)
        try:
            took, answer = self._call(call, transaction, worker, answer_to)
            following = self._commit(call.request, answer, transaction, worker)
        except Failure as failure:
            self.outcomes.failed(call, self._end_failed(transaction, call.request, failure), transaction)
            raise
        except PUT_OFF as verdict:
            transaction.rollback(str(verdict), **rollback_terms(verdict), only=call.request.msgid)
            self._was_put_off(call.request, verdict)
            raise
        except AbortedError as error:
            self.outcomes.aborted([call], error, transaction)
            self._check_order()
            raise
        except Unavailable as error:
            _give_back(transaction, str(error))
            self.statistics.unavailable(str(error))
            raise
        except _AbandonedError:
            raise
        except QueueError as error:
            # This is not a failure of the request.
            _give_back(transaction, str(error))
            self.statistics.abandoned()
            raise
        except BaseException as error:
            # An error of the consumer itself, which may recur with this message.
            if transaction.active:
                transaction.rollback(
                    type(error).__name__, only=call.request.msgid, retry_policy=self.policy.retry_policy
                )
            self.statistics.abandoned()
            raise
        self.outcomes.succeeded(call.request.msgid, took)
        return following

    def _commit(self, request: Message, answer: Answer | None, transaction: Transaction, worker: Poll) -> _Taken | None:
        """Queue the reply and commit, if possible in one step that takes the next message too, which is returned.

        If that is refused, the steps are taken one by one, as they are with databases of the application.
        """
        if transaction.databases is not None:
            put_answer(self.space, request, answer, self.outcomes.reply_dropped)
            commit_with(transaction.databases, transaction, request, self.policy)
            return None
        # A strict order has to read the queue first.
        can_go_on = self.policy.order is not Order.STRICT and worker.can_go_on()
        successor = transaction.successor(self._transaction_seconds()) if can_go_on else None
        found = transaction.commit_and_take([] if answer is None else [answer], successor, self.queue)
        if found is None:
            put_answer(self.space, request, answer, self.outcomes.reply_dropped)
            transaction.commit()
        return _Taken(successor, found) if successor is not None and found else None

    def _process_batch(self, requests: Sequence[Message], transaction: Transaction, worker: Poll) -> None:
        """Call the handler with one request after the other, and commit; those that were not processed are given back.

        Raises Unavailable and QueueError, after committing what was processed before, if a call could not be made or
        its reply could not be queued at present; AbortedError, and whatever else a call raises, after which nothing is
        committed.
        """
        took: list[tuple[Call, float]] = []
        try:
            trouble = self._call_each(requests, transaction, worker, took)
            transaction.commit()
        except AbortedError as error:
            self.outcomes.aborted([call for call, _ in took], error, transaction)
            raise
        except BaseException:
            for _ in took:
                self.statistics.abandoned()
            raise
        for call, seconds in took:
            self.outcomes.succeeded(call.request.msgid, seconds)
        if trouble is not None:
            raise trouble

    def _call_each(
        self, requests: Sequence[Message], transaction: Transaction, worker: Poll, took: list[tuple[Call, float]]
    ) -> Exception | None:
        """Call one after the other; return the error that stopped it."""
        end = time.monotonic() + _BEGIN_SECONDS
        for number, request in enumerate(requests):
            if number and (time.monotonic() >= end or worker.has_ended()):
                _return(transaction, requests[number:])
                break
            call, marks = Call(request, self.policy.seconds), transaction.marks()
            try:
                seconds, _ = self._call(call, transaction, worker, self._put, collects=True)
                took.append((call, seconds))
            except Failure as failure:
                self.outcomes.failed(call, failure, transaction)
                stops = self.policy.order is Order.STRICT and not failure.permanent
                if stops:
                    self._check_order()
                _give_back_ended(transaction, request.msgid, failure, marks, self.policy)
                if stops:
                    _return(transaction, requests[number + 1 :])
                    break
            except PUT_OFF as verdict:
                self._was_put_off(request, verdict)
                _give_back_ended(transaction, request.msgid, verdict, marks, self.policy)
                if isinstance(verdict, Snooze) and self.policy.order is Order.STRICT:
                    _return(transaction, requests[number + 1 :])
                    break
            except AbortedError as error:
                self.outcomes.aborted([call], error, transaction)
                raise
            except (Unavailable, QueueError) as error:
                if isinstance(error, Unavailable):
                    self.statistics.unavailable(str(error))
                else:
                    self.statistics.abandoned()
                if not transaction.forget_since(marks):
                    # It has enqueued so much that it was spilled, together with the messages of other calls.
                    transaction.rollback(str(error), counts=False)
                    raise
                _return(transaction, requests[number:])
                return error
        return None

    def _put(self, request: Message, reply: Reply) -> None:
        put_answer(self.space, request, answer_to(request, reply), self.outcomes.reply_dropped)

    def _call(
        self,
        call: Call,
        transaction: Transaction,
        worker: Poll,
        answer: Callable[[Message, Reply], T],
        *,
        collects: bool = False,
    ) -> tuple[float, T | None]:
        """Call the handler, inside the transaction or outside; return the seconds it took, and its answer.

        `answer` is called with its reply, if it returns one and replies are wanted.
        """

        def given_up(reason: str | None) -> None:
            if reason is None:
                self.statistics.abandoned()
                worker.abandoned()
            else:
                self.outcomes.failed_aside(call, Failure(reason), functools.partial(self._replaced, worker))

        running = RunningCall(call, transaction, given_up, self.policy.retry_policy)
        if not self.calls.begin(running):
            transaction.return_untried(f"{self.wording.consumer} was stopped")
            worker.abandoned()
            raise _AbandonedError
        self.statistics.began()
        with call_span(call.request, self.space.name, self.wording.logger):
            try:
                reply = self._reply(call, transaction, collects=collects)
            finally:
                if not self.calls.end(running):
                    raise _AbandonedError
            took = call.taken()
            return took, None if reply is None or not self.policy.answers else answer(call.request, reply)

    def _reply(self, call: Call, transaction: Transaction, *, collects: bool) -> Reply | None:
        if self.policy.transactional:
            return self._handled(call, transaction, collects=collects)
        with outside(transaction):
            return self._handled(call, None, collects=collects)

    def _handled(self, call: Call, transaction: Transaction | None, *, collects: bool) -> Reply | None:
        try:
            with current.CurrentCall(self.space, call, collects=collects, transaction=transaction):
                return self.handler.call(call)
        except Failure as failure:
            # Without answers there are no second tries.
            failure.permanent = failure.permanent or not self.policy.answers
            raise

    def _end_failed(self, transaction: Transaction, request: Message, failure: Failure) -> Failure:
        """End the transaction of a failed call as the policy says; return the failure to record."""
        if self.policy.gives_up and has_answer(failure):
            try:
                enqueue_failure(transaction, request, failure, self.policy, self.outcomes.reply_dropped)
            except Failure as worse:
                failure = worse
            except QueueError as error:
                # The client cannot be told at present.
                _give_back(transaction, str(error))
                self.statistics.abandoned()
                raise
            else:
                return failure
        # A call in it may have found its time over, and rolled it back.
        if transaction.active:
            transaction.rollback(
                str(failure), **rollback_terms(failure), only=request.msgid, retry_policy=self.policy.retry_policy
            )
        self._check_order()
        return failure

    def _replaced(self, worker: Poll) -> None:
        self._check_order()
        worker.abandoned()

    def _was_put_off(self, request: Message, verdict: Snooze | Park) -> None:
        """Note that a call has put its message off. In a strict order the others wait for it, unless it is parked."""
        self.outcomes.put_off(request, verdict)
        if isinstance(verdict, Snooze):
            self._check_order()

    def _check_order(self) -> None:
        """Read the queue before the next message is taken, because one may be tried again now."""
        self.backoff.asks_for_order = True

    def _waits_for_order(self) -> bool:
        """Return whether the order is strict and a message that was given back comes first; until then none is taken.

        The queue shows this even if another consumer has tried or snoozed the message. A parked one is passed over.
        """
        if self.policy.order is not Order.STRICT or not self.backoff.asks_for_order:
            return False
        left = self._seconds_of_order()
        self.backoff.block(min(left, _ORDER_SECONDS))
        self.backoff.asks_for_order = left > 0
        return left > 0

    def _seconds_of_order(self) -> float:
        """Return for how many seconds a message is kept back; while one is held this is unknown."""
        until = self.space.given_back_until(self.queue)
        held = next(self.space.messages(self.queue, states=[State.HELD]), None)
        left = 0.0 if until is None else max(until - self.statistics.clock.now(), 1000) / MICROS
        return left if held is None else max(left, _HELD_SECONDS)

    def _transaction_seconds(self) -> float | None:
        seconds = self.policy.seconds
        return None if seconds == math.inf else min(seconds + GRACE_SECONDS, SECONDS_MAX)


class _Taken(NamedTuple):
    """A transaction, and what it has dequeued."""

    transaction: Transaction
    requests: list[Message]


class _AbandonedError(Exception):
    """The call has returned too late: its transaction was rolled back."""


class _RolledBackError(Exception):
    """A batch was rolled back because of one of its calls, which is no try of the others."""


def _give_back(transaction: Transaction, reason: str) -> None:
    if transaction.active:
        transaction.rollback(reason, counts=False)


def _give_back_ended(
    transaction: Transaction,
    msgid: str,
    outcome: Failure | Snooze | Park,
    marks: Marks,
    policy: Policy,
) -> None:
    """Give back the message of a call of a batch that failed or put it off, and forget what the call has enqueued."""
    reason, terms = str(outcome), rollback_terms(outcome)
    if transaction.forget_since(marks):
        transaction.give_back([msgid], reason, **terms, retry_policy=policy.retry_policy)
        return
    # It was spilled already, together with the messages of other calls.
    transaction.rollback(reason, **terms, only=msgid, others=False, retry_policy=policy.retry_policy)
    raise _RolledBackError


def _return(transaction: Transaction, requests: Sequence[Message]) -> None:
    """Give back messages of a batch that were not processed."""
    transaction.give_back([request.msgid for request in requests], counts=False)
