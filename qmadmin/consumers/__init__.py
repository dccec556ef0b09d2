"""Consumers: they take messages off queues and call a handler with each: a function, a service, any `Handler`.

A `Consumer` knows which queues it serves, with which handler and by which `Policy`. Its `Dispatcher` watches them in
the main thread and makes the `WorkerPool` of each start workers, within the common `ConcurrencyLimit`. A worker makes
the `Processor` of its queue take a message, call the handler, queue the reply and commit, or roll back. A queue that
cannot be served at present is paused (`Backoff`). Calls whose time is over are ended (`RunningCalls`). The `Outcomes`
of calls are counted (`Statistics`) and logged (`FailureLog`), and the handler is told of failures. Nothing here
requires a program: no settings, no services file, no daemon.

Here stand the interface of a handler, which is called with a message and returns a reply or raises how it failed, and
the policies by which a consumer calls it.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

from qmcore.queue import AS_ITS_QUEUE_SAYS, RetryPolicy
from qmcore.values import dataclass

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

    from qmadmin.bodies import Body
    from qmcore.message import Message


REASON_MAX = 1000
"""Characters of a reason that are kept with a message."""

WORKERS_MAX = 1000
BATCH_MAX = 1000
"""How many workers a queue has at most, and how many messages a worker takes at once."""


EncodedBody: TypeAlias = "Buffer | str | None"
"""The body of an answer as it is sent: bytes or another buffer; a str is queued as UTF-8, None as zero bytes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a message.

    `body` is queued for the client, as it could be enqueued: bytes or another buffer, a str as UTF-8, a value of JSON
    or a model as JSON, or None for a reply of zero length. `urcode` is the user return code of the reply, 64 bits.
    `type` is the type of the reply (None: STRING for a str, CARRAY for bytes, JSON for what is sent so), and `headers`
    are names and values, both str.
    """

    body: Body = None
    urcode: int = 0
    type: str | None = None
    headers: Mapping[str, str] | None = None


class Failure(Exception):  # noqa: N818 - it is what a call ends in, as in a reply
    """A call failed; a handler raises it to say more about the failure than another exception could.

    `reason` says why in at most 1000 characters, and is recorded with the message. `body`, `urcode`, `type` and
    `headers` are for the client, as in a `Reply`. `permanent`: trying again is of no use, and the message goes to the
    error queue at once. `retry_after`: the seconds (or a timedelta) until the message is tried again, in place of the
    retry delay of its queue.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        body: Body = None,
        urcode: int = 0,
        type: str | None = None,  # noqa: A002 - it is what the field is called everywhere else
        headers: Mapping[str, str] | None = None,
        permanent: bool = False,
        retry_after: float | timedelta | None = None,
    ) -> None:
        super().__init__(shortened(reason))
        self.reply = Reply(body, urcode, type, headers)
        self.permanent = permanent
        self.retry_after = _seconds(retry_after)


class Unavailable(Exception):  # noqa: N818 - it is a state of the handler, and not an error of the call
    """The handler cannot process any message at present; this does not count as a try of the message.

    The message goes back, and its queue is paused for `retry_after` (seconds or a timedelta), or for a time that grows
    from call to call.
    """

    def __init__(self, reason: str = "", *, retry_after: float | timedelta | None = None) -> None:
        super().__init__(shortened(reason))
        self.retry_after = _seconds(retry_after)


class Snooze(Exception):  # noqa: N818 - it is what a call ends in, as in a reply
    """The message is not processed now; a handler raises it, which does not count as a try of the message.

    It goes back, also if it has used up its tries, and is available again after `seconds` (or a timedelta). `reason`
    is only logged.
    """

    def __init__(self, seconds: float | timedelta, reason: str = "") -> None:
        super().__init__(shortened(reason))
        self.retry_after = _seconds(seconds)


class Park(Exception):  # noqa: N818 - it is what a call ends in, as in a reply
    """The message is put aside until somebody looks at it; a handler raises it, which does not count as a try.

    It stays in its queue, also if it has used up its tries, and is parked: `QueueSpace.unpark` and qunpark make it
    available, and qchangetime gives it a time. `reason` says why in at most 1000 characters, and is recorded with the
    message.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(shortened(reason))


PUT_OFF: Final = (Snooze, Park)
"""How a call ends that puts its message off, which is neither a success nor a failure."""


class FailureTerms(TypedDict, total=False):
    """What a failure says of its message, by the names that `Failure` and the rollback of a transaction have for it."""

    permanent: bool
    retry_after: float | None


class RollbackTerms(FailureTerms, total=False):
    """What any end of a call says of its message, by the names that the rollback of a transaction has for it."""

    counts: bool
    park: bool


def rollback_terms(outcome: Failure | Snooze | Park) -> RollbackTerms:
    """Return what an outcome says of its message: whoever rolls back, or tells another process, passes all of it on."""
    if isinstance(outcome, Park):
        return {"counts": False, "park": True}
    if isinstance(outcome, Snooze):
        return {"counts": False, "retry_after": outcome.retry_after}
    return {"permanent": bool(outcome.permanent), "retry_after": outcome.retry_after}


def failure_with(reason: str, reply: Reply, **terms: Unpack[FailureTerms]) -> Failure:
    """Return a failure with the body, return code, type and headers of a reply for the client."""
    failure = Failure(reason, **terms)
    failure.reply = reply
    return failure


def _seconds(span: float | timedelta | None) -> float | None:
    return span.total_seconds() if isinstance(span, timedelta) else span


class RemoteTracebackError(Exception):
    """The exception of a call in another process; the text is the traceback. It is the cause of a Failure."""


@dataclasses.dataclass(slots=True, eq=False)
class Call:
    """A call of a handler: the message, how many seconds it may take, and when it began."""

    request: Message
    seconds: float = math.inf
    _began: float = dataclasses.field(default_factory=time.monotonic)

    def taken(self) -> float:
        """Return the seconds since the call began."""
        return time.monotonic() - self._began

    def left(self) -> float:
        """Return the seconds that are left for the call; 0 or less when its time is over, infinity without limit."""
        return self._began + self.seconds - time.monotonic()


class Handler(ABC):
    """Processes messages. Several threads may call it at the same time; whichever code created it closes it."""

    def ready(self) -> None:  # noqa: B027 - most are always ready
        """Raise Unavailable if it cannot work at present; called before a message is dequeued for it."""

    @abstractmethod
    def call(self, call: Call) -> Reply | None:
        """Process a message within the time of the call; return the reply, or None to queue none.

        Raises Failure, which counts as a try of the message, Snooze or Park, which do not, or Unavailable or
        QueueError, which do not either, and after which the queue is paused. Any other exception ends the consumer.
        """

    def failed(self, request: Message, failure: Failure) -> None:  # noqa: B027 - most have nobody to tell
        """Take note that a call has failed: once for each failure that is recorded, outside of its transaction.

        What the handler has returned may be what failed, such as a reply that cannot be queued, and so may the commit.
        It is called in the thread of the call, or in one of its own if that does not return. It must not raise.
        """

    def stop_calls(self) -> None:  # noqa: B027 - most work in this process
        """End at once what runs outside this process; its calls fail. Calls in this process go on."""

    def close(self) -> None:  # noqa: B027 - many hold nothing
        """Release everything, when no call is running any more."""


def too_late(call: Call) -> str:
    """Return the reason of a call that took longer than it may."""
    return f"no reply within {call.seconds:g} seconds"


def shortened(reason: str) -> str:
    """Return a reason, shortened to the characters that are kept."""
    return reason if len(reason) <= REASON_MAX else reason[: REASON_MAX - 3] + "..."


# ---- policies --------------------------------------------------------------------------------------------------------


class Order(enum.Enum):
    """What happens to the messages behind one whose call failed."""

    STRICT = "strict"
    """They wait until it is processed, or is out of tries."""
    SKIP = "skip"
    """They are processed while it waits for its retry."""
    PARALLEL = "parallel"
    """They are processed at the same time, as far as there are workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the messages of a queue are processed.

    `seconds` is how long a call may take, `workers` how many calls run at a time, and `batch` how many messages a
    worker takes and commits at once. `transactional`: the handler runs in the transaction. `answers`: there are
    replies, and tries after a failure. `pace` is the least seconds between the starts of two calls. `gives_up`: a
    message whose failure has a reply is not tried again. `retry_policy` says what of its queue's retries and delays
    does not hold for failed calls. With a pace, and if it gives up, the batch is 1. Raises ValueError for a strict
    order with several workers.
    """

    seconds: float = math.inf
    workers: int = 1
    batch: int = 1
    order: Order = Order.SKIP
    transactional: bool = True
    answers: bool = True
    pace: float = 0.0
    gives_up: bool = False
    retry_policy: RetryPolicy = AS_ITS_QUEUE_SAYS

    def __post_init__(self) -> None:
        if self.order is Order.STRICT and self.workers > 1:
            raise ValueError(f"a strict order requires one worker, got {self.workers}")
        # The calls of a batch have no time between them, and the answer about a failure and the end of its message are
        # one commit of their own.
        if self.pace or self.gives_up:
            object.__setattr__(self, "batch", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """How a consumer runs, and when it ends by itself.

    `idle_seconds` is the longest sleep while there are no messages; an arriving message ends it. 0 means none.
    `grace_seconds` is how long a stop waits for running calls, and `total_workers` how many calls run at a time over
    all queues. `until_empty`: it also ends when none of the queues has a message that can be dequeued. `once`: it ends
    when one message of each queue that has any was processed, whatever its batch.
    """

    idle_seconds: float = 60.0
    grace_seconds: float = 30.0
    total_workers: float = math.inf
    until_empty: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Wording:
    """What a consumer and its handlers are called in messages, and the names of its threads and of its logger."""

    consumer: str = "the consumer"
    handler: str = "handler"
    thread: str = "qmadmin-consumer"
    logger: logging.Logger = dataclasses.field(default_factory=lambda: logging.getLogger("qmadmin.consumers"))
