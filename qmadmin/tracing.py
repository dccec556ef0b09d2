"""The trace of an application in OpenTelemetry, in the headers of its messages.

The headers are those of W3C Trace Context, `traceparent` and `tracestate`. The process that handles
a message continues the trace. OpenTelemetry is never imported here: an application that has not imported it is in no
trace.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from qmcore.message import Body, EnqueueControl

HEADERS: Final = ("traceparent", "tracestate")
"""The names of the headers of a trace."""

_LIBRARY: Final = "opentelemetry.trace"

is_in_use: Final = functools.partial(sys.modules.get, _LIBRARY)
"""Returns something only where the application has imported OpenTelemetry."""

has_metrics: Final = functools.partial(sys.modules.get, "opentelemetry.metrics")
"""The same for its metrics."""


def headers() -> dict[str, str]:
    """Return the headers of the current span of this thread; none without a span."""
    if not is_in_use():
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    told: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(told)
    return told


def traced(items: Iterable[tuple[str, Body, EnqueueControl]]) -> Iterable[tuple[str, Body, EnqueueControl]]:
    """Return messages with the headers of the trace of this thread added."""
    if not is_in_use():
        return items
    told = headers()
    return [(queue, body, _with_trace(control, told)) for queue, body, control in items] if told else items


def added(chosen: Mapping[str, str] | None, told: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the headers of a sender together with those of a trace, unless it has trace headers itself."""
    if not told or any(name.lower() in HEADERS for name in chosen or ()):
        return chosen
    return {**(chosen or {}), **told}


def _with_trace(control: EnqueueControl, told: Mapping[str, str]) -> EnqueueControl:
    chosen = added(control.headers, told)
    return control if chosen is control.headers else dataclasses.replace(control, headers=chosen)
