"""A call of a handler as a span of OpenTelemetry, in the trace that the request was enqueued in.

Spans are made if the process has imported OpenTelemetry, in the module of a handler or in the program. Their names are
those of OpenTelemetry's semantic conventions for messaging. An error in tracing is logged and never fails the message.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from qmadmin import tracing
from qmadmin.consumers import Failure, Unavailable
from qmadmin.version import __version__

if TYPE_CHECKING:
    from logging import Logger

    from opentelemetry.trace import Span

    from qmcore.message import Message

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
