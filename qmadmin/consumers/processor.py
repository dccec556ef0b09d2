"""A queue and its service: a message from the one to the other, and the reply to where it belongs."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from qmadmin.consumers import current
from qmadmin.consumers.batch import Batch
from qmadmin.consumers.call_spans import call_span
from qmadmin.consumers.failure_log import FailureLog
from qmadmin.consumers.handler import Call, Failure, Reply, Unavailable
from qmadmin.consumers.policy import Order, Terms
from qmadmin.consumers.replies import Answer, answer_to, put_answer, says_something, tell_failure
from qmadmin.consumers.running_calls import Calls, Running
from qmadmin.forwarder.settings import TRANTIME_MAX
from qmcore.acts.waiting import may_pass
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
)
from qmcore.message import Message, MessageInfo, State
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmadmin.consumers.backoff import Pause
    from qmadmin.consumers.handler_holder import Slot
    from qmadmin.consumers.statistics import Figures
    from qmadmin.space import QueueSpace
    from qmadmin.transacting import Transaction

T = TypeVar("T")

GRACE_SECONDS: Final = 5.0
"""By how much a transaction outlives the time of the call in it, so that a call that was too long is ended, and told
of, by us; whoever else looks at the queue space ends it only when we cannot."""

_ORDER_SECONDS: Final = 5.0
"""After how long a queue is looked at again, at the latest, whose order waits for a message that is tried again."""

_HELD_SECONDS: Final = 0.5
"""And so where somebody holds a message, which may be a forwarder that was killed."""


class Found(enum.Enum):
    """What a try to forward a message came to."""

    NOTHING = enum.auto()
    MESSAGE = enum.auto()
    ABANDONED = enum.auto()
    """The call came back when its transaction was rolled back for it, and somebody else has taken its place."""


class Worker(Protocol):
    """Whoever forwards a message, as far as it is told how that goes, or asked how to go on."""

    def taken(self) -> None:
        """Note that there is a message, before its service is called."""

    def abandoned(self) -> None:
        """Note, in another thread, that the service does not come back in time."""

    def has_ended(self) -> bool:
        """Tell whether no further call is to be begun."""

    def goes_on(self) -> bool:
        """Tell whether the next message may be taken with the commit of one that is done."""


class Feed:
    """Forwards the messages of one queue to one service. Several threads may do so at the same time."""

    def __init__(
        self,
        space: QueueSpace,
        queue: str,
        slot: Slot,
        terms: Terms,
        calls: Calls,
        figures: Figures,
        pause: Pause,
    ) -> None:
        self.queue = queue
        self.terms = terms
        self.figures = figures
        self.pause = pause
        self.log = FailureLog(queue)
        self._space = space
        self._slot = slot
        self._calls = calls

    def forward(self, worker: Worker) -> Found:
        """Forward the next message, or a batch of them, for a worker.

        Raises QueueError where the store has failed, or takes us for dead: the device has to be opened again. Raises
        NoSpaceError where the queue space has too few transactions.
        """
        try:
            with self._slot.service() as service:
                return self._forward(service.call, worker)
        except Unavailable as error:
            self.pause.begin(str(error), error.retry_after)
        except (BadResourceError, NotOpenError):
            # The queue space is another one by now, or what is open is of no use any more.
            raise
        except QueueError as error:
            if isinstance(error, SystemFailureError) and not (may_pass(error) or is_damage(error)):
                raise
            if isinstance(error, NoSpaceError) and error.resource is Resource.TRANSACTIONS:
                raise
            is_absent = isinstance(error, BadQueueError) and error.facts.get("queue") == self.queue
            self.pause.is_gone = is_absent or is_damage(error)
            self.pause.begin(f"{error.name}: {error.message}")
        return Found.NOTHING

    def is_back(self) -> None:
        """Note that the queue was seen, and nothing in it."""
        if self.pause.is_gone:
            self.pause.end()

    def head_priority(self) -> int:
        """Return the priority of the message that comes next; 0 where there is none."""
        try:
            head = self._space.peek(self.queue)
        except QueueError:
            return 0
        return head.priority if head else 0

    def _forward(self, service: Callable[[Call], Reply], worker: Worker) -> Found:
        if self._waits_for_order():
            return Found.NOTHING
        requests: list[Message] = []
        turn: _Turn | None = _Turn(self._space.transaction(self._transaction_seconds()), requests)
        try:
            while turn is not None:
                with turn.transaction as transaction:
                    requests = turn.requests or self._space.dequeue_many(self.queue, self.terms.batch)
                    turn = None
                    if requests:
                        worker.taken()
                        work = self._one if self.terms.batch == 1 else self._several
                        turn = work(requests, _Work(service, transaction, worker))
                self.pause.end()
        except _AbandonedError:
            return Found.ABANDONED
        except Failure:
            self.pause.end()
        except AbortedError as error:
            if not requests or error.facts.get("of_the_store"):
                raise
            self.pause.end()
        return Found.MESSAGE if requests else Found.NOTHING

    def _one(self, requests: Sequence[Message], work: _Work) -> _Turn | None:
        """Call the service with the one request, and end the transaction as that says; return what follows at once.

        Failures are recorded, and raised all the same.
        """
        call, transaction = Call(requests[0], self.terms.seconds), work.transaction
        try:
            took, answer = self._call(call, work, answer_to)
            turn = self._commit(call.request, answer, work)
        except Failure as failure:
            self._record_failure(call, self._end_failed(transaction, call.request, failure))
            raise
        except AbortedError as error:
            if error.facts.get("of_the_store"):
                self.figures.abandoned()
            else:
                self._record_failure(call, Failure(error.message))
            self._ask_for_order()
            raise
        except Unavailable as error:
            _give_back(transaction, str(error))
            self.figures.unavailable(str(error))
            raise
        except _AbandonedError:
            raise
        except QueueError as error:
            # The request is not to blame.
            _give_back(transaction, str(error))
            self.figures.abandoned()
            raise
        except BaseException as error:
            # A fault of ours, which may come again with this message.
            if transaction.active:
                transaction.rollback(type(error).__name__)
            self.figures.abandoned()
            raise
        self.figures.succeeded(took)
        self.log.succeeded(call.request.msgid, took)
        return turn

    def _commit(self, request: Message, answer: Answer | None, work: _Work) -> _Turn | None:
        """Queue the reply and commit, where it may be in one step that takes the next message too, which is returned.

        Where that is refused, the steps are taken one by one.
        """
        transaction = work.transaction
        successor = transaction.successor(self._transaction_seconds()) if self._may_go_on(work) else None
        found = transaction.commit_and_take([] if answer is None else [answer], successor, self.queue)
        if found is None:
            put_answer(self._space, request, answer, self.figures, self.log)
            transaction.commit()
        return _Turn(successor, found) if successor is not None and found else None

    def _may_go_on(self, work: _Work) -> bool:
        """Tell whether the next message may be taken with the commit of one; a strict order wants a look before."""
        return self.terms.order is not Order.STRICT and work.worker.goes_on()

    def _several(self, requests: Sequence[Message], work: _Work) -> None:
        """Call the service with one request after the other, and commit what is done with."""

        def put(request: Message, reply: Reply) -> None:
            put_answer(self._space, request, answer_to(request, reply), self.figures, self.log)

        def call(each: Call) -> float:
            return self._call(each, work, put, collects=True)[0]

        def failed(each: Call, failure: Failure) -> bool:
            self._record_failure(each, failure)
            if self.terms.order is not Order.STRICT or failure.permanent:
                return True
            self._ask_for_order()
            return False

        terms = work.transaction, requests, self.terms.seconds, self.figures
        Batch(*terms, call, failed, self.log.succeeded, work.worker.has_ended).work()

    def _call(
        self, call: Call, work: _Work, answer: Callable[[Message, Reply], T], *, collects: bool = False
    ) -> tuple[float, T | None]:
        """Call the service, inside of the transaction or outside; return the seconds it took, and its answer.

        `answer` is called with its reply, where replies are wanted.
        """

        def given_up(reason: str | None) -> None:
            if reason is None:
                self.figures.abandoned()
            else:
                self._record_failure(call, Failure(reason))
                self._ask_for_order()
            work.worker.abandoned()

        running = Running(call, work.transaction, given_up)
        if not self._calls.begin(running):
            work.transaction.return_untried("the forwarder was stopped")
            work.worker.abandoned()
            raise _AbandonedError
        self.figures.began()
        with call_span(call.request, self._space.name):
            try:
                reply = self._reply(call, work, collects=collects)
            finally:
                if not self._calls.end(running):
                    raise _AbandonedError
            took = call.taken()
            return took, answer(call.request, reply) if self.terms.answers else None

    def _reply(self, call: Call, work: _Work, *, collects: bool) -> Reply:
        with contextlib.ExitStack() as stack:
            if not self.terms.transactional:
                work.transaction.leave_context()
                stack.callback(work.transaction.join_context)
            stack.enter_context(current.running(self._space, call, collects=collects))
            try:
                return work.service(call)
            except Failure as failure:
                # There are no second tries where nobody waits for an answer.
                failure.permanent = failure.permanent or not self.terms.answers
                raise

    def _end_failed(self, transaction: Transaction, request: Message, failure: Failure) -> Failure:
        """End the transaction of a call that failed, as the terms say; return the failure as it is to be recorded."""
        if self.terms.gives_up and says_something(failure):
            try:
                tell_failure(transaction, request, failure, self.figures, self.log)
            except Failure as worse:
                failure = worse
            else:
                return failure
        transaction.rollback(
            str(failure), permanent=failure.permanent, retry_after=failure.retry_after, only=request.msgid
        )
        self._ask_for_order()
        return failure

    def _ask_for_order(self) -> None:
        """Have the queue looked at before the next message is taken, because one may be tried again now."""
        self.pause.asks_for_order = True

    def _waits_for_order(self) -> bool:
        """Tell whether the order is strict and a message that was tried comes first; nothing is taken until it may be.

        What the queue says of that holds also when it was another forwarder that has tried.
        """
        if self.terms.order is not Order.STRICT or not self.pause.asks_for_order:
            return False
        left = max((self._seconds_left(info) for info in self._tried()), default=0.0)
        self.pause.block(min(left, _ORDER_SECONDS))
        self.pause.asks_for_order = left > 0
        return left > 0

    def _tried(self) -> Iterator[MessageInfo]:
        """Yield the messages that are tried now, or will be again."""
        yield from self._space.messages(self.queue, condition="retries > 0", states=[State.DELAYED])
        yield from itertools.islice(self._space.messages(self.queue, states=[State.HELD]), 1)

    def _seconds_left(self, info: MessageInfo) -> float:
        """Return how long a message is kept back; of one that is held nobody knows."""
        if info.state is State.HELD or info.available_us is None:
            return _HELD_SECONDS
        return max(info.available_us - self.figures.clock.now(), 1000) / MICROS

    def _record_failure(self, call: Call, failure: Failure) -> None:
        request = call.request
        self.figures.failed(str(failure), call.taken(), retries=self._is_tried_again(request, failure))
        self.log.failed(request.msgid, request.retries + 1, failure)

    def _is_tried_again(self, request: Message, failure: Failure) -> bool:
        if failure.permanent or (self.terms.gives_up and says_something(failure)):
            return False
        try:
            return request.retries < self._space.queue(self.queue).definition.retries
        except QueueError:
            return False

    def _transaction_seconds(self) -> float | None:
        seconds = self.terms.seconds
        return None if seconds == math.inf else min(seconds + GRACE_SECONDS, TRANTIME_MAX)


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """What is worked with: the service, the transaction, and whom to tell, or to ask, while a call runs."""

    service: Callable[[Call], Reply]
    transaction: Transaction
    worker: Worker


class _Turn(NamedTuple):
    """A transaction, and what it has dequeued already."""

    transaction: Transaction
    requests: list[Message]


class _AbandonedError(Exception):
    """The call has come back too late: its transaction was rolled back for it."""


def _give_back(transaction: Transaction, reason: str) -> None:
    if transaction.active:
        transaction.rollback(reason, counts=False)
