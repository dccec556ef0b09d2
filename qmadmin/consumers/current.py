"""The current call: what a handler can do in the transaction in which its message was dequeued, and its span.

    from qmadmin.consumers.current import enqueue

    def order(request):
        enqueue("INVOICE", request.body)     # there when, and only if, the request is done
        return "thank you"

A call is a span of OpenTelemetry in the trace that the request was enqueued in, if the process has imported
OpenTelemetry, in the module of a handler or in the program. Names are those of OpenTelemetry's semantic conventions for
messaging. An error in tracing is logged and never fails the message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from qmadmin import tracing
from qmadmin.bodies import Body, encode
from qmadmin.consumers import Call, Failure, Unavailable
from qmadmin.version import __version__
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
    from logging import Logger

    from opentelemetry.trace import Span

    from qmadmin.space import QueueSpace
    from qmadmin.transacting import Transaction
    from qmcore.message import Message


Enqueued: TypeAlias = "tuple[str, Body, dict[str, Any]]"
"""A message that a handler enqueues: its queue, its body, and the options of the enqueue."""


class CurrentCall:
    """The current call for as long as the block lasts, known to the handlers that are called in it.

    `space` is the queue space of the message; None in a worker process, which cannot reach it. `place` is its device's
    path, and its name. `collected` are the messages that are enqueued at the end of the block, because the handler
    enqueued them in another thread or process than that of the transaction. With `collects` all messages are, because
    other calls share the transaction. `transaction` is that of the message, unless the handler runs outside of it.

    The end of the block raises Failure for a message that cannot be enqueued, Unavailable for one that cannot be
    enqueued at present, and QueueError if the store has failed.
    """

    def __init__(
        self,
        space: QueueSpace | None,
        call: Call,
        *,
        place: tuple[str, str] = ("", ""),
        collects: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        self.space = space
        self.transaction = transaction
        self.place = place if space is None else (space.device.path, space.name)
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


def place() -> tuple[str, str] | None:
    """Return the device's path and the queue space of the message that a handler is called with here; None without."""
    this = _current.get()
    return None if this is None or this.is_over else this.place


def is_called_on(space: QueueSpace) -> bool:
    """Return whether a handler is being called here with a message of that queue space, opened by this handle."""
    this = _current.get()
    if this is None or this.is_over or this.space is None:
        return False
    return this.space.name == space.name and this.space.device is space.device


def space_here() -> QueueSpace | None:
    """Return the queue space of the call, if operations in this thread can belong to its transaction."""
    this = _current.get()
    return None if this is None or this.is_over or not this.is_here else this.space


def enqueue(queue: str, body: Body, **options: Any) -> str | None:
    """Put a message on a queue in the transaction in which the request was dequeued; for handlers and services.

    The message is enqueued when the transaction commits, together with the reply, and not at all if the call fails.
    Returns its identifier; None in a coroutine, in a batch, and in a worker process, where it has none yet.
    `options` are those of `QueueSpace.enqueue`. Raises what that raises, except Unavailable if the queue is stopped or
    the queue space has no room at present. A coroutine or a service in a worker process gets no error: its messages are
    enqueued when it has returned, and the call fails then.

    Raises ProtocolError if no handler is being called.
    """
    this = _here()
    if this.space is not None and this.is_here:
        return _put(this.space, queue, body, options)
    _check_options(queue, body, options)
    body, options = _encoded(body, options)
    if trace := tracing.headers():
        options["headers"] = tracing.added(options.get("headers"), trace)
    this.collected.append((queue, body, options))
    return None


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


def transaction() -> tuple[Transaction, QueueSpace]:
    """Return the transaction in which the request was dequeued, for a database to take part in, and the queue space.

    Raises ProtocolError if no handler is being called, in a coroutine or another thread, in a worker process, in a
    batch, and in a handler that is not transactional.
    """
    this = _here()
    if this.space is None:
        raise _cannot_join(
            "a service in a worker process",
            "the transaction of its request is in another process",
            "Run the service in a thread of the forwarder.",
        )
    if this.collects:
        raise _cannot_join(
            "a handler that takes messages in batches",
            "those of a batch are committed together, and given back one by one",
            "Set its batch to 1.",
        )
    if not this.is_here:
        raise _cannot_join(
            "a coroutine, or another thread of a handler,",
            "the transaction of the message belongs to the thread that calls the handler",
            "Make the handler a function that is not a coroutine function, and join in its thread.",
        )
    if this.transaction is None:
        raise _cannot_join(
            "a handler that is not transactional",
            "its calls do not belong to the transaction of its message",
            "Make it transactional, or use qmadmin.transaction in it.",
        )
    return this.transaction, this.space


def has_joined() -> bool:
    """Return whether a database takes part in the transaction of the call: its connection is needed for the commit."""
    this = _current.get()
    return this is not None and this.transaction is not None and this.transaction.databases is not None


def _cannot_join(who: str, why: str, hint: str) -> ProtocolError:
    return ProtocolError(f"{who} cannot have a database take part: {why}", hint=hint)


def collect(messages: Iterable[Enqueued]) -> None:
    """Add messages that the call has enqueued in another process; without a current call they are dropped."""
    if (this := _current.get()) is not None:
        this.collected += messages


def _here() -> CurrentCall:
    this = _current.get()
    if this is None or this.is_over:
        raise not_called()
    return this


def not_called() -> ProtocolError:
    """Return the diagnostic for what only a handler can do that is being called."""
    return ProtocolError("no handler of a message is being called here")


def _put(space: QueueSpace, queue: str, body: Body, options: dict[str, Any]) -> str:
    try:
        return space.enqueue(queue, body, **options)
    except QueueError as error:
        if is_temporary(error):
            raise Unavailable(f"its message for queue {queue!r} cannot be enqueued now: {error.message}") from error
        raise


def is_temporary(error: QueueError) -> bool:
    """Return whether a message that was refused with this error may be enqueued later: no room, or a stopped queue."""
    if isinstance(error, NoSpaceError):
        return error.wanted <= error.limit
    return isinstance(error, BadQueueError) and bool(error.stopped)


def _encoded(body: Body, options: dict[str, Any]) -> tuple[Body, dict[str, Any]]:
    """Return what is sent as JSON as its bytes: now, while it is as the caller means it, and for other processes."""
    data, kind = encode(body)
    if kind != "JSON":
        return body, options
    return data, options if options.get("type") else options | {"type": kind}


def _check_options(queue: str, body: Body, options: dict[str, Any]) -> None:
    """Raise TypeError for an unknown option now, while the traceback shows where it was given."""
    import inspect

    from qmadmin.enqueuing import Enqueuing

    inspect.signature(Enqueuing.enqueue).bind(None, queue, body, **options)


T = TypeVar("T")

SYSTEM: Final = "qmadmin"
"""The name of this messaging system in spans."""

OPERATION: Final = "process"

_NO_SPAN: Final = contextlib.nullcontext()


def call_span(request: Message, space: str, logger: Logger) -> contextlib.AbstractContextManager[None]:
    """Make a span of the block, in which a handler is called with a request; the span is current in this thread.

    An exception that leaves the block marks the span as failed. Without OpenTelemetry nothing is done.
    """
    return _span(request, space, logger) if tracing.is_in_use() else _NO_SPAN


@contextlib.contextmanager
def _span(request: Message, space: str, logger: Logger) -> Iterator[None]:
    with contextlib.ExitStack() as resources:
        span = _begun(request, space, logger, resources)
        try:
            yield
        except BaseException as error:
            if span is not None:
                _guarded(logger, functools.partial(_record, span, error))
            raise


def outgoing_headers(request: Message) -> dict[str, str]:
    """Return the trace headers for what a handler calls: those of its span, or else those of the request."""
    own = {name.lower(): value for name, value in request.headers.items() if name.lower() in tracing.HEADERS}
    return tracing.headers() or own


def answer_headers(request: Message, chosen: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the headers of an answer, even if the span of the call has ended: the chosen ones and those of the trace.

    Only a process that makes spans takes part in traces.
    """
    return tracing.added(chosen, outgoing_headers(request)) if tracing.is_in_use() else chosen


def for_another_process(request: Message) -> Message:
    """Return the request for another process, which continues the trace from the span of the call."""
    if not tracing.is_in_use():
        return request
    return dataclasses.replace(request, headers={**request.headers, **outgoing_headers(request)})


def _begun(request: Message, space: str, logger: Logger, resources: contextlib.ExitStack) -> Span | None:
    """Start the span and make it current until the resources are closed; None if that fails."""
    from opentelemetry import context, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    def begin() -> Span:
        parent = TraceContextTextMapPropagator().extract(request.headers)
        span = trace.get_tracer("qmadmin", __version__).start_span(
            f"{OPERATION} {request.queue}", parent, kind=trace.SpanKind.CONSUMER, attributes=_attributes(request, space)
        )
        resources.callback(_guarded, logger, span.end)
        token = context.attach(trace.set_span_in_context(span, parent))
        resources.callback(_guarded, logger, lambda: context.detach(token))
        return span

    return _guarded(logger, begin)


def _attributes(request: Message, space: str) -> dict[str, str | int]:
    known: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": OPERATION,
        "messaging.operation.type": OPERATION,
        "messaging.destination.name": request.queue,
        "messaging.message.id": request.msgid,
        "messaging.message.body.size": request.size,
        "qmadmin.space": space,
        "qmadmin.retries": request.retries,
    }
    if request.corrid is not None:
        known["messaging.message.conversation_id"] = request.corrid.decode(errors="backslashreplace")
    return known


def _record(span: Span, error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode

    # The cause is the exception that the function raised, with its traceback.
    cause = error.__cause__ if isinstance(error, Failure | Unavailable) and error.__cause__ else error
    span.set_attribute("error.type", type(cause).__qualname__)
    span.record_exception(cause)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _guarded(logger: Logger, act: Callable[[], T]) -> T | None:
    """Return the result of a step of tracing, or None if it fails."""
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - whatever an application has plugged in there
        logger.warning("a call cannot be traced: %s: %s", type(error).__name__, error)
        return None
