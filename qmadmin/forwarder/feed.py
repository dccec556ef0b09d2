"""A queue and its service: one message at a time from the one to the other, and the reply to where it belongs."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Final

from qmadmin.forwarder import current
from qmadmin.forwarder.service import Call, Failure, Reply, Unavailable
from qmadmin.forwarder.settings import TRANTIME_MAX
from qmadmin.forwarder.stop import StopNow
from qmadmin.forwarder.tracing import call_span
from qmcore.errors import (
    AbortedError,
    BadQueueError,
    BadResourceError,
    InvalidArgumentError,
    NoSpaceError,
    NotOpenError,
    QueueError,
    ReleaseError,
    SystemFailureError,
)
from qmcore.message import EnqueueControl, Message
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmadmin.forwarder.figures import Figures
    from qmadmin.forwarder.service import Service
    from qmadmin.forwarder.stop import Stop
    from qmadmin.space import QueueSpace
    from qmadmin.transaction import Transaction

logger = logging.getLogger("qmadmin.forwarder")

GRACE_SECONDS: Final = 5.0
"""By how much a transaction outlives the time of the call in it, so that a call that was too long is ended, and told
of, by us; whoever else looks at the queue space ends it only when we cannot."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0


class Feed:
    """Forwards the messages of one queue to one service.

    `forwarded` and `failed` count messages. While the queue space refuses to give messages out or to take replies,
    the feed pauses, each time for longer.
    """

    def __init__(self, space: QueueSpace, figures: Figures, service: Service, seconds: float, stop: Stop) -> None:
        self.queue = figures.queue
        self._figures = figures
        self._took = 0.0
        self._is_counted = True
        self.forwarded = 0
        self.failed = 0
        self._space = space
        self._service = service
        self._stop = stop
        self._seconds = seconds
        self._transaction_seconds = None if seconds == math.inf else min(seconds + GRACE_SECONDS, TRANTIME_MAX)
        self._trouble = ""
        self._is_gone = False
        self._pause = 0.0
        self._paused_until = 0.0

    def forward_one(self) -> bool:
        """Forward the next message; tell whether there was one.

        Raises QueueError where the store has failed, or takes us for dead: the device has to be opened again. Raises
        StopNow where a second signal came, and KeyboardInterrupt where the service did.
        """
        try:
            return self._forward_next()
        finally:
            if not self._is_counted:
                self._figures.abandoned()
                self._is_counted = True

    def _forward_next(self) -> bool:
        request: Message | None = None
        try:
            with self._space.transaction(self._transaction_seconds) as transaction:
                request = self._space.dequeue(self.queue)
                if request is not None:
                    self._serve(request, transaction)
        except (Failure, AbortedError) as error:
            if request is None:
                raise
            self._record_failure(request, error)
            return True
        except (BadResourceError, NotOpenError, SystemFailureError):
            # The queue space is another one by now, or the store has failed: what is open is of no use any more.
            raise
        except (QueueError, Unavailable) as error:
            self._suffer(error)
            return False
        self._recover()
        if request is None:
            return False
        self.forwarded += 1
        self._figures.succeeded(self._took)
        self._is_counted = True
        return True

    def pause_left(self) -> float:
        """Return the seconds for which nothing should be tried; 0 when all is well."""
        return max(self._paused_until - time.monotonic(), 0.0) if self._trouble else 0.0

    def is_drained(self) -> bool:
        """Tell, after a try that found no message, whether that is all there is to come."""
        return not self._trouble or self._is_gone

    def _serve(self, request: Message, transaction: Transaction) -> None:
        self._figures.began()
        self._is_counted = False
        began = time.monotonic()
        try:
            with call_span(request, self._space.name):
                try:
                    call = Call(request, self._seconds)
                    with current.running(self._space, call):
                        reply = self._stop.unshielded(lambda: self._service.call(call))
                finally:
                    self._took = time.monotonic() - began
                self._answer(request, reply)
        except Failure as error:
            _give_back(transaction, str(error), counts=True)
            raise
        except (QueueError, StopNow, Unavailable) as error:
            # The service is not to blame.
            _give_back(transaction, str(error), counts=False)
            raise

    def _answer(self, request: Message, reply: Reply) -> None:
        if request.reply_queue is None:
            return
        body, kind = _content(reply)
        try:
            control = EnqueueControl(
                priority=request.priority,
                corrid=_corrid(request),
                urcode=reply.urcode,
                appkey=request.appkey,
                client_id=request.client_id,
                delivery=request.reply_delivery,
                type=kind,
            )
            self._space.put(request.reply_queue, body, control)
        except BadQueueError as error:
            if "stopped" in error.facts:
                # It comes again; the request waits for that as it would for a service.
                raise
            self._figures.reply_dropped()
            logger.warning(
                "the reply to message %s of queue %r is dropped: there is no reply queue %r",
                request.msgid,
                self.queue,
                request.reply_queue,
            )
        except (InvalidArgumentError, ReleaseError) as error:
            raise Failure(f"its reply cannot be queued: {error.message}") from error
        except NoSpaceError as error:
            if error.wanted <= error.limit:
                raise
            # No waiting makes room for it.
            raise Failure(f"its reply cannot be queued: {error.message}") from error

    def _record_failure(self, request: Message, error: Exception) -> None:
        self.failed += 1
        self._figures.failed(str(error), self._took, retries=self._is_tried_again(request))
        self._is_counted = True
        logger.warning(
            "service %r failed on message %s, try %d: %s",
            self.queue,
            request.msgid,
            request.retries + 1,
            error,
            exc_info=error.__cause__,
        )

    def _is_tried_again(self, request: Message) -> bool:
        try:
            return request.retries < self._space.queue(self.queue).definition.retries
        except QueueError:
            return False

    def _recover(self) -> None:
        if self._trouble:
            logger.info("queue %r is served again", self.queue)
            self._trouble, self._pause, self._is_gone = "", 0.0, False
            self._figures.resumed()

    def _suffer(self, error: QueueError | Unavailable) -> None:
        self._pause = min(self._pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
        self._paused_until = time.monotonic() + self._pause
        trouble = f"{error.name}: {error.message}" if isinstance(error, QueueError) else str(error)
        if trouble != self._trouble:
            logger.error("queue %r is not served for now: %s", self.queue, trouble)
        self._trouble = trouble
        self._figures.paused(round((time.time() + self._pause) * MICROS), trouble)
        self._is_gone = isinstance(error, BadQueueError)


def _give_back(transaction: Transaction, reason: str, *, counts: bool) -> None:
    if transaction.active:
        transaction.rollback(reason, counts=counts)


def _corrid(request: Message) -> bytes:
    """Return how the client knows the reply: by its correlation identifier, or by what its enqueue returned."""
    if request.corrid is not None:
        return request.corrid
    return (request.origin.msgid if request.origin else request.msgid).encode()


def _content(reply: Reply) -> tuple[bytes, str]:
    """Return the body and its type; a reply without a body has zero length."""
    if isinstance(reply.body, str):
        return reply.body.encode(), "STRING"
    return bytes(reply.body or b""), "CARRAY"
