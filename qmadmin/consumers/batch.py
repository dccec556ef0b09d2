"""Several messages of a queue that a worker takes at once, works on one after the other, and commits together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from qmadmin.consumers import Call, Failure, Unavailable, verdict_of
from qmadmin.consumers.statistics import Statistics
from qmadmin.transacting import Transaction
from qmcore.acts.transaction_part import Mark
from qmcore.errors import AbortedError, QueueError
from qmcore.message import Message

_BEGIN_SECONDS: Final = 0.1
"""For how many seconds calls of a batch are begun; then the remaining messages go back, and the batch commits."""


@dataclasses.dataclass(slots=True, eq=False)
class Batch:
    """Messages that were dequeued in one transaction; the call of each may take the given seconds.

    `call` makes a call, queues the reply and returns how long the call took. `failed` is called after a failure, and
    returns whether the messages behind it may go on; `succeeded` is called after a success, with how long the call
    took. `ended` returns whether no further call may begin.
    """

    transaction: Transaction
    requests: Sequence[Message]
    seconds: float
    statistics: Statistics
    call: Callable[[Call], float]
    failed: Callable[[Call, Failure], bool]
    succeeded: Callable[[str, float], None]
    ended: Callable[[], bool]

    def work(self) -> None:
        """Process the messages, and commit; those that were not processed are given back unchanged.

        Raises Unavailable and QueueError, after committing what was processed before, if a call could not be made or
        its reply could not be queued at present; AbortedError, and whatever else a call raises, after which nothing is
        committed.
        """
        took: list[tuple[str, float]] = []
        try:
            trouble = self._call_each(took)
            self.transaction.commit()
        except BaseException:
            for _ in took:
                self.statistics.abandoned()
            raise
        for msgid, seconds in took:
            self.succeeded(msgid, seconds)
        if trouble is not None:
            raise trouble

    def _call_each(self, took: list[tuple[str, float]]) -> Exception | None:
        """Call one after the other; return the error that stopped it."""
        end = time.monotonic() + _BEGIN_SECONDS
        for number, request in enumerate(self.requests):
            if number and (time.monotonic() >= end or self.ended()):
                self._return(number)
                break
            call, marks = Call(request, self.seconds), self.transaction.marks()
            try:
                took.append((request.msgid, self.call(call)))
            except Failure as failure:
                goes_on = self.failed(call, failure)
                self._give_back(call, failure, marks)
                if not goes_on:
                    self._return(number + 1)
                    break
            except AbortedError:
                self.statistics.abandoned()
                raise
            except (Unavailable, QueueError) as error:
                if isinstance(error, Unavailable):
                    self.statistics.unavailable(str(error))
                else:
                    self.statistics.abandoned()
                if not self.transaction.forget_since(marks):
                    # It has enqueued so much that it was spilled, together with the messages of other calls.
                    self.transaction.rollback(str(error), counts=False)
                    raise
                self._return(number)
                return error
        return None

    def _give_back(self, call: Call, failure: Failure, marks: Mapping[str, Mark]) -> None:
        """Give back the message of a call that failed, and forget what the call has enqueued."""
        msgid, reason, verdict = call.request.msgid, str(failure), verdict_of(failure)
        if self.transaction.forget_since(marks):
            self.transaction.give_back([msgid], reason, **verdict)
            return
        # It was spilled already, together with the messages of other calls.
        self.transaction.rollback(reason, **verdict, only=msgid, others=False)
        raise AbortedError(f"the transaction was rolled back: {reason}")

    def _return(self, first: int) -> None:
        """Give back the messages from an index on, which were not processed."""
        self.transaction.give_back([request.msgid for request in self.requests[first:]], counts=False)
