"""The forwarder calls services in the trace of their requests."""

import json

import pytest

from tests.fix_process import eventually

pytest.importorskip("opentelemetry.sdk")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

WITH_SDK = """
import json
from pathlib import Path
from opentelemetry import trace
from qmadmin.forwarder import Failure
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

spans = open(Path(__file__).parent / "spans", "w", buffering=1)
exporter = ConsoleSpanExporter(out=spans, formatter=lambda span: json.dumps(json.loads(span.to_json())) + "\\n")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

def call(request):
    if request.text == "tell":
        raise Failure("no such account", body="sorry")
    if request.text == "fail":
        raise ValueError("no such account")
    return request.text
"""

WITH_API = """
import opentelemetry.trace

def call(request):
    return f"{opentelemetry.trace.get_current_span().get_span_context().trace_id:x}"
"""

WITHOUT = """
import sys

def call(request):
    return str([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def serve(site, source, more="", *options):
    site.services(f'[services.Q]\npython = "server:call"\n{more}', server=source)
    space = site.lay_out("Q", "RPLYQ", "ERRQUE")
    site.start("-q", "Q", *options)
    return space


def ask(space, body):
    space.enqueue("Q", body, reply_queue="RPLYQ", headers={"traceparent": PARENT})
    return space.dequeue("RPLYQ", wait=60)


def spans(site, count):
    def written():
        lines = (site.directory / "spans").read_text().splitlines()
        return len(lines) >= count and lines

    return [json.loads(line) for line in eventually(written)]


def test_the_reply_belongs_to_the_trace_of_the_request(site):
    space = serve(site, WITH_SDK)
    reply = ask(space, "hello")
    (span,) = spans(site, 1)
    assert span["name"] == "process Q"
    assert span["parent_id"].removeprefix("0x") in PARENT
    trace_id, span_id = (span["context"][name].removeprefix("0x") for name in ("trace_id", "span_id"))
    assert reply.headers == {"traceparent": f"00-{trace_id}-{span_id}-01"}
    assert trace_id in PARENT


def test_a_failure_is_seen_on_the_span(site):
    space = serve(site, WITH_SDK)
    space.enqueue("Q", "fail")
    assert space.dequeue("ERRQUE", wait=60).origin.error == "ValueError: no such account"
    (span,) = spans(site, 1)
    assert span["status"] == {"status_code": "ERROR", "description": "ValueError: no such account"}
    assert span["events"][0]["attributes"]["exception.message"] == "no such account"


def test_what_a_client_is_told_of_a_failure_belongs_to_the_trace_of_the_request(site):
    space = serve(site, WITH_SDK, "", "-d")
    space.enqueue("Q", "tell", failure_queue="RPLYQ", headers={"traceparent": PARENT})
    told = space.dequeue("RPLYQ", wait=60)
    assert (told.text, told.headers) == ("sorry", {"traceparent": PARENT})


def test_without_an_sdk_no_span_is_made_and_the_trace_goes_on(site):
    reply = ask(serve(site, WITH_API), "hello")
    assert reply.text in PARENT
    assert reply.headers == {"traceparent": PARENT}


def test_without_opentelemetry_in_the_services_nothing_of_it_is_imported(site):
    reply = ask(serve(site, WITHOUT), "hello")
    assert (reply.text, reply.headers) == ("[]", {})


def test_a_call_in_a_worker_process_is_a_span_of_that_process(site):
    reply = ask(serve(site, WITH_SDK, 'run = "process"\n'), "hello")
    assert reply.text == "hello"
    (span,) = spans(site, 1)
    assert span["parent_id"].removeprefix("0x") in PARENT
    assert span["attributes"]["qmadmin.space"] == "QSPACE"
