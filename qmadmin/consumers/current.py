"""The current call: what a handler can do in the transaction in which its message was dequeued.

from qmadmin.consumers.current import enqueue

def order(request):
    enqueue("INVOICE", request.body)     # there when, and only if, the request is done
    return "thank you"
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from qmadmin import tracing
from qmadmin.consumers import Call, Failure, Unavailable
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

Enqueued: TypeAlias = "tuple[str, Body, dict[str, Any]]"
"""A message that a handler enqueues: its queue, its body, and the options of the enqueue."""


class CurrentCall:
    """The current call for as long as the block lasts, known to the handlers that are called in it.

    `space` is the queue space of the message; None in a worker process, which cannot reach it. `collected` are the
    messages that are enqueued at the end of the block, because the handler enqueued them in another thread or process
    than that of the transaction. With `collects` all messages are, because other calls share the transaction.

    The end of the block raises Failure for a message that cannot be enqueued, Unavailable for one that cannot be
    enqueued at present, and QueueError if the store has failed.
    """

    def __init__(self, space: QueueSpace | None, call: Call, *, collects: bool = False) -> None:
        self.space = space
        self.call = call
        self.collects = collects
        self.collected: list[Enqueued] = []
        self.is_over = False
        self._thread = threading.get_ident()
        self._before: Token[CurrentCall | None]

    def __enter__(self) -> Self:
        self._before = _current.set(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None and self.space is not None:
                self._enqueue_collected(self.space)
        finally:
            self.is_over = True
            _current.reset(self._before)

    @property
    def is_here(self) -> bool:
        """Whether an operation in this thread can belong to the transaction of the call."""
        return self.space is not None and self._thread == threading.get_ident() and not self.collects

    def _enqueue_collected(self, space: QueueSpace) -> None:
        for queue, body, options in self.collected:
            try:
                _put(space, queue, body, options)
            except (BadMessageIdError, BadQueueError, InvalidArgumentError, NoSpaceError, ReleaseError) as error:
                raise Failure(f"its message for queue {queue!r} cannot be enqueued: {error.message}") from error


_current: ContextVar[CurrentCall | None] = ContextVar("qmadmin_current_call", default=None)


def enqueue(queue: str, body: Body, **options: Any) -> None:
    """Put a message on a queue in the transaction in which the request was dequeued; for handlers and services.

    The message is enqueued when the transaction commits, together with the reply, and not at all if the call fails.
    `options` are those of `QueueSpace.enqueue`. Raises what that raises, except Unavailable if the queue is stopped or
    the queue space has no room at present. A coroutine or a service in a worker process gets no error: its messages are
    enqueued when it has returned, and the call fails then.

    Raises ProtocolError if no handler is being called.
    """
    this = _here()
    if this.space is not None and this.is_here:
        _put(this.space, queue, body, options)
    else:
        _check_options(queue, body, options)
        if trace := tracing.headers():
            options["headers"] = tracing.added(options.get("headers"), trace)
        this.collected.append((queue, body, options))


def space() -> QueueSpace:
    """Return the queue space of the request; calls on it belong to the transaction in which the request was dequeued.

    Raises ProtocolError if no handler is being called, in a coroutine, and in a worker process.
    """
    this = _here()
    if not this.is_here or this.space is None:
        raise ProtocolError(
            "the queue space of a call is not available in a coroutine or a worker process",
            hint="Enqueue with enqueue(), which can be called there.",
        )
    return this.space


def collect(messages: Iterable[Enqueued]) -> None:
    """Add messages that the call has enqueued in another process; without a current call they are dropped."""
    if (this := _current.get()) is not None:
        this.collected += messages


def _here() -> CurrentCall:
    this = _current.get()
    if this is None or this.is_over:
        raise ProtocolError("no handler of a message is being called here")
    return this


def _put(space: QueueSpace, queue: str, body: Body, options: dict[str, Any]) -> None:
    try:
        space.enqueue(queue, body, **options)
    except QueueError as error:
        if is_temporary(error):
            raise Unavailable(f"its message for queue {queue!r} cannot be enqueued now: {error.message}") from error
        raise


def is_temporary(error: QueueError) -> bool:
    """Return whether a message that was refused with this error may be enqueued later: no room, or a stopped queue."""
    if isinstance(error, NoSpaceError):
        return error.wanted <= error.limit
    return isinstance(error, BadQueueError) and bool(error.stopped)


def _check_options(queue: str, body: Body, options: dict[str, Any]) -> None:
    """Raise TypeError for an unknown option now, while the traceback shows where it was given."""
    import inspect

    from qmadmin.enqueuing import Enqueuing

    inspect.signature(Enqueuing.enqueue).bind(None, queue, body, **options)
