"""Services of each kind, called by a forwarder."""

import signal
import socket

import pytest

from qmadmin import QueueDefinition
from tests.fix_process import eventually, is_running

SERVER = """
import asyncio, os, pathlib, time
from qmadmin.forwarder import Failure, Reply, Unavailable, enqueue


class Careless(Failure):
    def __init__(self):
        pass


def nonsense(request):
    exec(f"def answer():\\n    {request.text}", globals())
    return answer()


def chain(request):
    enqueue("NEXT", request.body)
    if request.text == "bad":
        raise ValueError("it is bad")
    return f"{os.getpid()}"


async def later(request):
    await asyncio.sleep(0)
    return chain(request)


def spin(request):
    (pathlib.Path(__file__).parent / "calls").write_text(f"{os.getpid()}\\n")
    while True:
        pass
"""

SERVICES = """
[services]
THREAD.python = "server:chain"
NONSENSE.python = "server:nonsense"
LOOP.python = "server:later"
PROCESS = {python = "server:chain", run = "process"}
SPIN = {python = "server:spin", run = "process"}
"""


@pytest.fixture
def space(site):
    site.services(SERVICES, server=SERVER)
    return site.lay_out("NONSENSE", "THREAD", "LOOP", "PROCESS", "SPIN", "WEB", "NEXT", "RPLYQ", "ERRQUE")


def ask(space, queue, body):
    msgid = space.enqueue(queue, body, reply_queue="RPLYQ")
    reply = space.dequeue("RPLYQ", corrid=msgid, wait=60)
    assert reply is not None
    return reply


@pytest.mark.parametrize("queue", ["THREAD", "LOOP", "PROCESS"])
def test_what_a_service_enqueues_is_there_if_and_only_if_its_request_is_done(site, space, queue):
    forwarder = site.start("-q", queue)
    assert (ask(space, queue, "good").text == str(forwarder.pid)) is (queue != "PROCESS")
    space.enqueue(queue, "bad")
    failed = space.dequeue("ERRQUE", wait=60)
    assert failed.origin.error == "ValueError: it is bad"
    assert [message.text for message in site.all_of("NEXT")] == ["good"]
    forwarder.wait_until_logged("Traceback")
    forwarder.stop()


OF_APPLICATION = """
import qmadmin

app = qmadmin.App({device!r}, space="QSPACE")


@app.handler("HANDLED")
def handle(message):
    app.enqueue("NEXT", message.body)
    if message.text == "bad":
        raise ValueError("it is bad")
    return "done"
"""


@pytest.mark.parametrize("run", ["thread", "process"])
def test_what_a_handler_of_an_application_enqueues_stands_or_falls_with_its_request_here_too(site, run):
    services = f'services.HANDLED = {{python = "shop:handle", run = "{run}"}}'
    site.services(services, shop=OF_APPLICATION.format(device=str(site.device)))
    space = site.lay_out(QueueDefinition(name="HANDLED", retries=1), "NEXT", "RPLYQ", "ERRQUE")
    forwarder = site.start("-q", "HANDLED")
    assert ask(space, "HANDLED", "good").text == "done"
    space.enqueue("HANDLED", "bad")
    assert space.dequeue("ERRQUE", wait=60).origin.error == "ValueError: it is bad"
    assert [message.text for message in site.all_of("NEXT")] == ["good"]
    forwarder.stop()


@pytest.mark.parametrize("options", [(), ("-d",)])
def test_answers_and_failures_that_make_no_sense_are_failures_and_never_end_the_daemon(site, space, options):
    forwarder = site.start("-q", "NONSENSE", *options)
    for text, error in (
        ("return Reply(headers=['a'])", "its headers are list, not a mapping of names to values"),
        ("return Reply(headers={'a': 1})", "its reply cannot be queued: the header 'a' must be a str, got 1"),
        ("return Reply(type='x' * 128)", "its reply cannot be queued: the type "),
        ("return '\\ud800'", "its body has no UTF-8 form"),
        ("raise Failure('no', body=object())", "Failure: no; its answer cannot be encoded: the body must be bytes"),
        (
            "raise Failure('no', retry_after='soon')",
            "Failure: no; its retry_after must be seconds from 0 to 2147483647",
        ),
        ("raise ValueError('a\\0\\ud800')", "ValueError: a\\x00\\ud800"),
        ("raise Careless", "Careless; it cannot be read: AttributeError: "),
    ):
        space.enqueue("NONSENSE", text, reply_queue="RPLYQ")
        failed = space.dequeue("ERRQUE", wait=60)
        assert failed is not None, text
        assert failed.origin.error.startswith(error)
    forwarder.stop()


def test_stopped_forwarder_leaves_no_worker_process(site, space):
    forwarder = site.start("-q", "PROCESS")
    pid = int(ask(space, "PROCESS", "good").text)
    forwarder.stop()
    eventually(lambda: not is_running(pid))


def test_killed_forwarder_leaves_no_worker_process(site, space):
    forwarder = site.start("-q", "SPIN", "-t", "0")
    space.enqueue("SPIN", "a")
    (pid,) = map(int, site.wait_for_calls())
    assert is_running(pid)
    forwarder.tell(signal.SIGKILL)
    eventually(lambda: not is_running(pid))


def test_request_goes_by_http_and_its_answer_comes_back(site, space, server):
    web = server(lambda seen: (200, {"QM-Urcode": "7", "Content-Type": "text/plain"}, seen.body.upper()))
    site.services(f'[services.WEB]\nurl = "{web.url}"')
    site.start("-q", "WEB")
    reply = ask(space, "WEB", "hello")
    assert (reply.text, reply.type, reply.urcode) == ("HELLO", "STRING", 7)


def test_requests_wait_untried_for_a_server_that_is_not_there(site, space, server):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        site.services(f'[services.WEB]\nurl = "http://127.0.0.1:{port}/"')
        forwarder = site.start("-q", "WEB")
        msgid = space.enqueue("WEB", "a", reply_queue="RPLYQ")
        forwarder.wait_until_logged("the server cannot be reached: Connection refused")
        assert [space.usage(name).messages for name in ("ERRQUE", "RPLYQ")] == [0, 0]
        unheard.listen()
        connection, _ = unheard.accept()
        with connection:
            assert b"QM-Retries: 0\r\n" in connection.recv(65536)
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            assert space.dequeue("RPLYQ", corrid=msgid, wait=60).body == b""
    forwarder.stop()


def test_answer_of_failure_is_kept_with_the_message_and_no_secret_with_it(site, space, server):
    web = server(lambda seen: (500, {}, f"no {seen.headers['Authorization']}".encode()))
    site.services(f'[services.WEB]\nurl = "{web.url}"\ntoken_env = "TOKEN"')
    space.change_queue(QueueDefinition(name="WEB", retries=0))
    forwarder = site.start("-q", "WEB", TOKEN="hunter2")
    space.enqueue("WEB", "a")
    error = space.dequeue("ERRQUE", wait=60).origin.error
    assert error == "answered 500 Internal Server Error: no Bearer ***"
    forwarder.stop()
    assert "hunter2" not in forwarder.log()
    assert web.seen[0].headers["Authorization"] == "Bearer hunter2"


def test_the_target_of_a_request_is_not_logged_with_its_secrets(site, server):
    web = server((200, {}, b"done"))
    site.services(f'[services]\nWORK.url = "{web.url}?token=SECRET"\n')
    site.lay_out("WORK").enqueue("WORK", "x")
    daemon = site.run("-q", "WORK", "-e", "-v")
    assert daemon.process.returncode == 0, daemon.said
    assert "SECRET" not in f"{daemon.log()}{daemon.said}"
    assert [seen.target.endswith("?token=SECRET") for seen in web.seen] == [True]
