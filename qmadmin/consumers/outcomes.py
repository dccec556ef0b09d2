"""How calls have ended: each end is recorded here, once, in the statistics, in the log, and with the handler."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator

from qmadmin.consumers import Call, Failure, Handler, Park, Policy, Snooze
from qmadmin.consumers.failures import FailureLog
from qmadmin.consumers.replies import has_answer
from qmadmin.consumers.statistics import Statistics
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction
from qmcore.errors import AbortedError, QueueError
from qmcore.message import Message


@dataclasses.dataclass(eq=False)
class Outcomes:
    """Records how the calls for a queue end. Several threads may use it at the same time."""

    space: QueueSpace
    handler: Handler
    policy: Policy
    statistics: Statistics
    log: FailureLog

    def succeeded(self, msgid: str, seconds: float) -> None:
        """Record that a call of these seconds has succeeded and its transaction was committed."""
        self.statistics.succeeded(seconds)
        self.log.succeeded(msgid, seconds)

    def reply_dropped(self, request: Message, what: str, queue: str) -> None:
        """Record that the answer to a message - its reply, or its failure - is dropped: there is no such queue."""
        self.statistics.reply_dropped()
        self.log.dropped(request.msgid, what, queue)

    def put_off(self, request: Message, verdict: Snooze | Park) -> None:
        """Record that a call has put its message off."""
        self.statistics.abandoned()
        self.log.put_off(request.msgid, verdict)

    def failed(self, call: Call, failure: Failure, transaction: Transaction) -> None:
        """Record that a call has failed. The handler is told outside of the transaction, whether that has ended or not.

        A failed call comes here once, or to `aborted` or `failed_aside`.
        """
        with outside(transaction):
            self._failed(call, failure)

    def aborted(self, calls: Iterable[Call], error: AbortedError, transaction: Transaction) -> None:
        """Record that calls have failed because others or an error in it have rolled back their transaction.

        If it is the store that has failed, they have not.
        """
        for call in calls:
            if error.of_the_store:
                self.statistics.abandoned()
            else:
                self.failed(call, Failure(error.message), transaction)

    def failed_aside(self, call: Call, failure: Failure, recorded: Callable[[], None]) -> None:
        """Record that a call has failed that does not return, and then call `recorded`.

        That happens in a thread of its own, because hooks may not return either.
        """

        def record() -> None:
            self._failed(call, failure)
            recorded()

        try:
            threading.Thread(target=record, name=f"qmadmin-outcome {self.statistics.queue}", daemon=True).start()
        except RuntimeError:
            # The system allows no more threads.
            record()

    def _failed(self, call: Call, failure: Failure) -> None:
        request = call.request
        self.statistics.failed(str(failure), call.taken(), retries=self._is_tried_again(request, failure))
        self.log.failed(request.msgid, request.retries + 1, failure)
        self.handler.failed(request, failure)

    def _is_tried_again(self, request: Message, failure: Failure) -> bool:
        if failure.permanent or (self.policy.gives_up and has_answer(failure)):
            return False
        try:
            return (
                request.retries
                < self.policy.retry_policy.over(self.space.queue(self.statistics.queue).definition).retries
            )
        except QueueError:
            return False


@contextlib.contextmanager
def outside(transaction: Transaction) -> Iterator[None]:
    """Make calls in the block no part of a transaction, which may have ended."""
    transaction.leave_context()
    try:
        yield
    finally:
        transaction.join_context()
