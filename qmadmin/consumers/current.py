"""The call that is being made: what a service can do in the transaction in which its request is taken.

from qmadmin.forwarder import enqueue

def order(request):
    enqueue("INVOICE", request.body)     # there when, and only if, the request is done
    return "thank you"
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from qmadmin import tracing
from qmadmin.consumers.handler import Call, Failure, Unavailable
from qmcore.errors import (
    BadMessageIdError,
    BadQueueError,
    InvalidArgumentError,
    NoSpaceError,
    ProtocolError,
    QueueError,
    ReleaseError,
)

if TYPE_CHECKING:
    from qmadmin.enqueuing import Body
    from qmadmin.space import QueueSpace


@dataclasses.dataclass(slots=True, eq=False)
class Running:
    """A call that is being made.

    `space` is the queue space of the request; None in a worker process, which cannot reach it. `collected` are the
    messages that are to be enqueued when the service has returned, because it enqueued them in another thread or
    process than that of the transaction: queue, body and options of each.
    """

    space: QueueSpace | None
    call: Call
    collected: list[tuple[str, Body, dict[str, Any]]] = dataclasses.field(default_factory=list)
    collects: bool = False
    is_over: bool = False
    _thread: int = dataclasses.field(default_factory=threading.get_ident)

    @property
    def is_here(self) -> bool:
        """Whether what is done here and now can belong to the transaction of the call."""
        return self.space is not None and self._thread == threading.get_ident() and not self.collects


_running: ContextVar[Running | None] = ContextVar("qmadmin_forwarder_call", default=None)


@contextlib.contextmanager
def running(space: QueueSpace | None, call: Call, *, collects: bool = False) -> Iterator[Running]:
    """Let the services that are called in this context know the call, and the queue space of its transaction.

    With `collects` what they enqueue is collected until they have returned, because the transaction is that of other
    calls, too.
    """
    this = Running(space, call, collects=collects)
    token = _running.set(this)
    try:
        yield this
    finally:
        this.is_over = True
        _running.reset(token)


def enqueue(queue: str, body: Body, **options: Any) -> None:
    """Put a message on a queue in the transaction in which the request was dequeued; for services.

    The message is enqueued when the transaction commits, together with the reply, and not at all if the call fails.
    `options` are those of `QueueSpace.enqueue`. Raises what that raises, except Unavailable if the queue is stopped or
    the queue space has no room at present. A coroutine or a service in a worker process gets no error: its messages are
    enqueued when it has returned, and the call fails then.

    Raises ProtocolError if no service is being called.
    """
    this = _here()
    if this.is_here:
        _put(this.space, queue, body, options)
    else:
        _check_options(queue, body, options)
        if trace := tracing.headers():
            options["headers"] = tracing.added(options.get("headers"), trace)
        this.collected.append((queue, body, options))


def space() -> QueueSpace:
    """Return the queue space of the request; calls on it belong to the transaction in which the request was dequeued.

    Raises ProtocolError if no service is being called, in a coroutine, and in a worker process.
    """
    this = _here()
    if not this.is_here or this.space is None:
        raise ProtocolError(
            "the queue space of a call is not available in a coroutine or a worker process",
            hint="Enqueue with qmadmin.forwarder.enqueue.",
        )
    return this.space


def deliver(collected: list[tuple[str, Body, dict[str, Any]]] | None = None) -> None:
    """Enqueue the messages that the call has collected, in the transaction of the caller; all services end with it.

    `collected` are those of a worker process. Raises Failure for one that cannot be enqueued, Unavailable where it
    cannot be at present, and QueueError where the store has failed.
    """
    this = _running.get()
    if this is None:
        # A service that is called without a queue space, as a test does: there is nowhere to put anything.
        return
    for queue, body, options in this.collected if collected is None else collected:
        try:
            _put(this.space, queue, body, options)
        except (BadMessageIdError, BadQueueError, InvalidArgumentError, NoSpaceError, ReleaseError) as error:
            raise Failure(f"its message for queue {queue!r} cannot be enqueued: {error.message}") from error
    this.collected.clear()


def _here() -> Running:
    this = _running.get()
    if this is None or this.is_over:
        raise ProtocolError("no service is being called here")
    return this


def _put(space: QueueSpace | None, queue: str, body: Body, options: dict[str, Any]) -> None:
    if space is None:
        raise ProtocolError("a call without a queue space enqueues nothing")
    try:
        space.enqueue(queue, body, **options)
    except QueueError as error:
        if _is_for_now(error):
            raise Unavailable(f"its message for queue {queue!r} cannot be enqueued now: {error.message}") from error
        raise


def _is_for_now(error: QueueError) -> bool:
    """Tell whether waiting helps, as it does for the queue of a reply."""
    if isinstance(error, NoSpaceError):
        return error.wanted <= error.limit
    return isinstance(error, BadQueueError) and "stopped" in error.facts


def _check_options(queue: str, body: Body, options: dict[str, Any]) -> None:
    """Raise TypeError for an option that there is not, while it can be seen where it was given."""
    import inspect

    from qmadmin.enqueuing import Producing

    inspect.signature(Producing.enqueue).bind(None, queue, body, **options)
