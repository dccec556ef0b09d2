"""The trace of an application travels with its messages, and a call of a service is a span in it."""

import contextvars
import logging
import subprocess
import sys
import threading

import pytest
import sqlalchemy

from qmadmin import atmi, tracing
from qmadmin.consumers import Call, Failure, Unavailable, current
from qmadmin.consumers.current import call_span, for_another_process
from qmadmin.forwarder.command_service import CommandService
from qmadmin.forwarder.http_service import request_headers
from qmcore.message import PLAIN_CONTROL, EnqueueControl
from tests.fix_process import environment
from tests.fix_store import make_queue

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402 - there is nothing to test without it
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

LOGGER = logging.getLogger("qmadmin.forwarder")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def space(file_store):
    opened = file_store.space()
    make_queue(opened, "Q")
    return opened


@pytest.fixture(scope="session")
def exporter():
    """What gets all spans of this process, which can be set up for traces once only."""
    made = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


@pytest.fixture
def spans(exporter):
    """Return the spans that have ended, each once."""
    exporter.clear()

    def ended():
        found = exporter.get_finished_spans()
        exporter.clear()
        return found

    return ended


@pytest.fixture
def span(exporter):
    """The span that the test runs in."""
    with trace.get_tracer("test").start_as_current_span("test") as current:
        yield current


def parent_of(span):
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


# ---- enqueue --------------------------------------------------------------------------------------------------------


def enqueue_in_transaction(space):
    with space.transaction():
        space.enqueue("Q", b"x")


def put_with_others(space):
    space.put_many([("Q", b"x", PLAIN_CONTROL), ("Q", b"y", EnqueueControl(headers={"a": "b"}))])


def answer_failure(space):
    space.enqueue("Q", b"request", headers={"traceparent": "none"})
    with space.transaction() as transaction:
        request = space.dequeue("Q")
        transaction.answer_failure(request.msgid, "it failed", [("Q", b"sorry", PLAIN_CONTROL)])


WAYS = {
    "enqueue": lambda space: space.enqueue("Q", b"x"),
    "enqueue with options": lambda space: space.enqueue("Q", "x", priority=7, headers={"a": "b"}),
    "enqueue_many": lambda space: space.enqueue_many("Q", [b"x", "y"]),
    "put": lambda space: space.put("Q", b"x", PLAIN_CONTROL),
    "put_many": put_with_others,
    "in a transaction": enqueue_in_transaction,
    "answer_failure": answer_failure,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_message_that_is_enqueued_in_a_span_tells_of_it(space, span, way):
    WAYS[way](space)
    found = list(space.messages("Q"))
    assert found
    for info in found:
        assert info.headers["traceparent"] == parent_of(span)
        assert set(info.headers) <= {"traceparent", "a"}
        assert info.headers.get("a", "b") == "b"


def test_a_message_that_stands_and_falls_with_the_application_tells_of_its_span(file_store, space, span):
    engine = sqlalchemy.create_engine(f"sqlite:///{file_store.device.path}")
    sqlalchemy.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = FULL"))
    with engine.begin() as connection:
        space.enqueue("Q", b"x", connection=connection)
    engine.dispose()
    assert space.dequeue("Q").headers == {"traceparent": parent_of(span)}


def test_a_message_of_tpenqueue_tells_of_the_span(file_device, span, monkeypatch):
    monkeypatch.setenv("QMCONFIG", str(file_device.path))
    atmi.tpenqueue("SPACE", "Q", None, b"x")
    atmi.tpterm()
    with file_device.open_space("SPACE") as space:
        assert space.dequeue("Q").headers == {"traceparent": parent_of(span)}


@pytest.mark.parametrize("own", [{"traceparent": PARENT}, {"Traceparent": PARENT}, {"tracestate": "x=y"}])
def test_a_trace_that_the_sender_names_is_kept(space, span, own):
    space.enqueue("Q", b"x", headers=own)
    assert space.dequeue("Q").headers == own


def test_the_state_of_the_trace_travels_too(space, exporter):
    state = trace.TraceState([("vendor", "opaque")])
    context = trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(1), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(context)):
        space.enqueue("Q", b"x")
    assert space.dequeue("Q").headers["tracestate"] == "vendor=opaque"


def test_a_message_that_is_enqueued_outside_of_spans_gets_no_headers(space, exporter):
    space.enqueue("Q", b"x")
    assert space.dequeue("Q").headers == {}


def test_without_opentelemetry_in_the_application_nothing_of_it_is_imported(tmp_path):
    program = """
import logging, sys, qmadmin
from qmadmin.consumers.current import call_span
with qmadmin.create_device("QUE", 1000) as device:
    device.create_space(qmadmin.SpaceDefinition(name="S", ipc_key=1, pages=500, queues=1, transactions=1, processes=1,
                                                messages=10))
    with device.open_space("S") as space:
        space.create_queue(qmadmin.QueueDefinition(name="Q"))
        space.enqueue("Q", b"x")
        message = space.dequeue("Q")
        with call_span(message, "S", logging.getLogger()):
            print(message.headers)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["{}", "[]"]


# ---- calls ----------------------------------------------------------------------------------------------------------


def request_with(space, **options):
    space.enqueue("Q", b"body", **options)
    return space.dequeue("Q")


def test_a_call_is_a_span_in_the_trace_of_its_request(space, spans):
    request = request_with(space, corrid="order 7", headers={"traceparent": PARENT, "tracestate": "vendor=opaque"})
    with call_span(request, "SPACE", LOGGER):
        told = tracing.headers()
    (span,) = spans()
    assert (span.name, span.kind, span.status.status_code) == (
        "process Q",
        trace.SpanKind.CONSUMER,
        trace.StatusCode.UNSET,
    )
    assert f"{span.context.trace_id:032x}" in PARENT
    assert f"{span.parent.span_id:016x}" in PARENT
    assert span.parent.is_remote
    assert dict(span.attributes) == {
        "messaging.system": "qmadmin",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "Q",
        "messaging.message.id": request.msgid,
        "messaging.message.conversation_id": "order 7",
        "messaging.message.body.size": 4,
        "qmadmin.space": "SPACE",
        "qmadmin.retries": 0,
    }
    assert told == {"traceparent": parent_of(span), "tracestate": "vendor=opaque"}
    assert tracing.headers() == {}


@pytest.mark.parametrize("headers", [None, {"traceparent": "nonsense"}])
def test_a_call_for_a_request_without_a_trace_begins_one(space, spans, headers):
    with call_span(request_with(space, headers=headers), "SPACE", LOGGER):
        pass
    (span,) = spans()
    assert span.parent is None


def failed_with(cause):
    failure = Failure("ValueError: no such account")
    failure.__cause__ = cause
    return failure


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (Failure("it is broken"), "Failure", "it is broken"),
        (Unavailable("away"), "Unavailable", "away"),
        (failed_with(ValueError("no such account")), "ValueError", "ValueError: no such account"),
        (KeyboardInterrupt("now"), "KeyboardInterrupt", "now"),
    ],
)
def test_a_failure_is_recorded_on_the_span_of_its_call(space, spans, error, kind, said):
    request = request_with(space)
    with pytest.raises(type(error)) as caught, call_span(request, "SPACE", LOGGER):
        raise error
    assert caught.value is error
    (span,) = spans()
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, said)
    assert span.attributes["error.type"] == kind
    (event,) = span.events
    assert event.attributes["exception.type"].endswith(kind)
    assert tracing.headers() == {}


# ---- what services call ---------------------------------------------------------------------------------------------


def test_an_http_request_goes_on_with_the_trace_from_the_span_of_its_call(space, exporter):
    request = request_with(space, headers={"Traceparent": PARENT})
    assert request_headers(request, {})["Traceparent"] == PARENT
    with call_span(request, "SPACE", LOGGER):
        told = {name.lower(): value for name, value in request_headers(request, {}).items()}
        assert told["traceparent"] == tracing.headers()["traceparent"]
        assert request_headers(request, {"traceparent": "fixed"})["traceparent"] == "fixed"


def test_a_command_goes_on_with_the_trace_from_the_span_of_its_call(space, exporter):
    service = CommandService(["/bin/sh", "-c", 'printf %s "$TRACEPARENT"'], {})
    request = request_with(space, headers={"traceparent": PARENT})
    assert service.call(Call(request)).body == PARENT.encode()
    with call_span(request, "SPACE", LOGGER):
        assert service.call(Call(request)).body == tracing.headers()["traceparent"].encode()


def test_what_another_process_gets_goes_on_with_the_trace(space, exporter):
    request = request_with(space, headers={"traceparent": PARENT, "a": "b"})
    assert for_another_process(request) == request
    with call_span(request, "SPACE", LOGGER):
        assert for_another_process(request).headers == {"a": "b"} | tracing.headers()


def test_what_a_coroutine_enqueues_tells_of_the_span_that_is_current_there(space, span):
    collected = {}

    def coroutine():
        with trace.get_tracer("test").start_as_current_span("step") as step:
            current.enqueue("Q", b"next", headers={"a": "b"})
            collected["parent"] = parent_of(step)

    call = Call(request_with(space))
    with current.CurrentCall(space, call) as this:
        # In another thread, as the event loop is.
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(coroutine,))
        thread.start()
        thread.join()
        assert this.collected
    assert space.dequeue("Q").headers == {"a": "b", "traceparent": collected["parent"]}


class Broken(sdk.SpanProcessor):
    def __init__(self):
        self.moment = ""

    def on_start(self, span, parent_context=None):
        if self.moment == "start":
            raise RuntimeError("no disk")

    def on_end(self, span):
        if self.moment == "end":
            raise RuntimeError("no disk")


@pytest.mark.parametrize("moment", ["start", "end"])
def test_a_fault_in_tracing_is_logged_and_none_of_the_call(space, exporter, caplog, moment):
    broken = Broken()
    trace.get_tracer_provider().add_span_processor(broken)
    request = request_with(space)
    broken.moment = moment
    try:
        with caplog.at_level(logging.WARNING, logger="qmadmin.forwarder"):
            with call_span(request, "SPACE", LOGGER):
                pass
            with pytest.raises(Failure), call_span(request, "SPACE", LOGGER):
                raise Failure("own")
    finally:
        broken.moment = ""
    assert caplog.messages == ["a call cannot be traced: RuntimeError: no disk"] * 2
    assert tracing.headers() == {}
