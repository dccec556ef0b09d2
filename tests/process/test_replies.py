"""A request goes through the forwarder, a process of its own, and its reply comes back."""

import contextlib
import statistics
import time

import pytest

from qmcore.message import EnqueueControl
from qmcore.queue import Delivery, QueueDefinition
from tests.fix_process import BEGIN_AND_WAIT, eventually

UPPER = """
from qmadmin.forwarder import Reply


def upper(request):
    return request.text.upper()


def as_bytes(request):
    return bytearray(request.body) + b"\\xff"


def nothing(request):
    return None


def coded(request):
    return Reply(request.body, urcode=-(2**63))


def noted(request):
    import pathlib

    with open(pathlib.Path(__file__).with_name("calls"), "a") as calls:
        calls.write(f"{request.queue} {request.text}\\n")
"""

SERVICES = """
[services]
UPPER.python = "server:upper"
BYTES.python = "server:as_bytes"
NOTHING.python = "server:nothing"
CODED.python = "server:coded"
ONE.python = "server:noted"
OTHER.python = "server:noted"
"""


@pytest.fixture
def space(site):
    site.services(SERVICES, server=UPPER)
    return site.lay_out("UPPER", "BYTES", "NOTHING", "CODED", "ONE", "OTHER", "RPLYQ", "ERRQUE")


def ask(space, queue, body, **options):
    space.enqueue(queue, body, corrid="the request", reply_queue="RPLYQ", **options)
    reply = space.dequeue("RPLYQ", corrid="the request", wait=60)
    assert reply is not None
    return reply


def test_request_gets_its_reply(site, space):
    forwarder = site.start("-q", "UPPER")
    reply = ask(space, "UPPER", "this is a q example", priority=70)
    assert reply.text == "THIS IS A Q EXAMPLE"
    assert (reply.corrid, reply.priority, reply.urcode, reply.type) == (b"the request", 70, 0, "STRING")
    forwarder.stop()
    assert [space.usage(queue).messages for queue in ("UPPER", "RPLYQ", "ERRQUE")] == [0, 0, 0]
    assert "1 message forwarded, 0 calls failed" in forwarder.log()
    assert forwarder.said == ""


def test_reply_has_the_user_return_code_of_the_service(site, space):
    site.start("-q", "CODED")
    assert ask(space, "CODED", b"a body").urcode == -(2**63)


def test_bytes_stay_bytes(site, space):
    site.start("-q", "BYTES")
    reply = ask(space, "BYTES", b"\0\xfe")
    assert (reply.body, reply.type) == (b"\0\xfe\xff", "CARRAY")


def test_service_that_returns_nothing_gives_a_reply_of_zero_length(site, space):
    site.start("-q", "NOTHING")
    assert ask(space, "NOTHING", b"a body").body == b""


def test_identity_of_the_client_goes_with_the_reply(site, space):
    site.start("-q", "UPPER")
    space.put("UPPER", b"a", EnqueueControl(reply_queue="RPLYQ", client_id="client 7", appkey=4711))
    reply = space.dequeue("RPLYQ", wait=60)
    assert (reply.client_id, reply.appkey) == ("client 7", 4711)


@pytest.mark.parametrize("by_queue", [Delivery.PERSIST, Delivery.NONPERSIST])
def test_reply_is_kept_as_the_request_asks_or_else_as_its_queue_says_by_then(site, monkeypatch, by_queue):
    monkeypatch.setenv("QM_SHM_DIR", str(site.directory))
    site.services(SERVICES, server=UPPER)
    before = Delivery.NONPERSIST if by_queue is Delivery.PERSIST else Delivery.PERSIST
    space = site.lay_out("CODED", QueueDefinition(name="RPLYQ", delivery=before), memory=100_000)
    for asked in (None, *Delivery):
        corrid = str(asked).encode()
        control = EnqueueControl(reply_queue="RPLYQ", corrid=corrid, reply_delivery=asked)
        space.put("CODED", b"a body", control)
    space.change_queue(QueueDefinition(name="RPLYQ", delivery=by_queue))
    assert site.run("-q", "CODED", "-e").process.returncode == 0
    replies = site.all_of("RPLYQ")
    assert {reply.corrid: reply.delivery for reply in replies} == {
        b"None": by_queue,
        b"Delivery.DEFAULT": by_queue,
        b"Delivery.PERSIST": Delivery.PERSIST,
        b"Delivery.NONPERSIST": Delivery.NONPERSIST,
    }
    assert [reply.urcode for reply in replies] == [-(2**63)] * 4


def test_request_without_correlation_identifier_is_answered_by_its_message_identifier(site, space):
    site.start("-q", "UPPER")
    msgid = space.enqueue("UPPER", "a", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "A"


def test_request_that_was_moved_is_answered_by_the_identifier_that_its_sender_knows(site, space):
    msgid = space.enqueue("OTHER", "a", reply_queue="RPLYQ")
    with contextlib.suppress(ZeroDivisionError), space.transaction():
        assert space.dequeue("OTHER")
        raise ZeroDivisionError
    (moved,) = space.messages("ERRQUE")
    assert moved.msgid != msgid
    site.services(SERVICES.replace("UPPER", "ERRQUE"))
    site.run("-q", "ERRQUE", "-e")
    assert space.dequeue("RPLYQ", corrid=msgid).text == "A"


def test_empty_correlation_identifier_is_one_too(site, space):
    site.start("-q", "UPPER")
    space.enqueue("UPPER", "a", corrid=b"", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", wait=60).corrid == b""


def test_delivery_that_the_request_asks_for_replies_is_theirs(site, space):
    site.start("-q", "UPPER")
    space.put("UPPER", b"a", EnqueueControl(reply_queue="RPLYQ", reply_delivery=Delivery.PERSIST))
    assert space.dequeue("RPLYQ", wait=60).delivery is Delivery.PERSIST
    # This release keeps no non-persistent messages.
    space.put("UPPER", b"a", EnqueueControl(reply_queue="RPLYQ", reply_delivery=Delivery.NONPERSIST))
    assert space.dequeue("ERRQUE", wait=60).origin.error.startswith("its reply cannot be queued: ")


def test_request_without_reply_queue_is_worked_on_and_leaves_nothing(site, space):
    forwarder = site.start("-q", "ONE")
    space.enqueue("ONE", "a")
    site.wait_for_calls()
    forwarder.stop()
    assert [space.usage(queue).messages for queue in ("ONE", "RPLYQ", "ERRQUE")] == [0, 0, 0]
    assert site.calls() == ["ONE a"]
    assert "WARN" not in forwarder.log()


def test_reply_to_a_queue_that_does_not_exist_is_dropped_and_logged(site, space):
    forwarder = site.start("-q", "ONE")
    msgid = space.enqueue("ONE", "a", reply_queue="NOWHERE")
    forwarder.wait_until_logged(f"the reply to message {msgid} of queue 'ONE' is dropped: there is no reply queue")
    # A client that names a wrong one, a million times, does not fill the log.
    space.enqueue("ONE", "b", reply_queue="NOWHERE")
    space.enqueue("ONE", "c", reply_queue="ELSEWHERE")
    forwarder.wait_until_logged("there is no reply queue 'ELSEWHERE'")
    forwarder.stop()
    assert site.calls() == ["ONE a", "ONE b", "ONE c"]
    assert forwarder.log().count("there is no reply queue 'NOWHERE'") == 1
    assert [space.usage(queue).messages for queue in ("ONE", "ERRQUE")] == [0, 0]


def test_message_that_comes_wakes_the_forwarder_at_once(site, space):
    site.start("-q", "UPPER", "-i", "1000")
    took = []
    for _ in range(15):
        began = time.perf_counter()
        ask(space, "UPPER", "a")
        took.append(time.perf_counter() - began)
    # The check that covers a lost wake-up comes only each second.
    assert statistics.median(took) < 0.25


def test_forwarder_that_does_not_pause_serves_as_well(site, space):
    forwarder = site.start("-q", "UPPER,ONE", "-i", "0")
    assert ask(space, "UPPER", "a").text == "A"
    forwarder.stop()


def test_delayed_message_is_forwarded_when_it_is_due(site, space):
    site.start("-q", "UPPER")
    began = time.monotonic()
    assert ask(space, "UPPER", "a", delay=0.5).text == "A"
    assert time.monotonic() - began >= 0.5


def test_queues_are_served_in_turn_although_one_is_full(site, space):
    space.enqueue_many("ONE", [str(number) for number in range(500)])
    space.enqueue("OTHER", "the only one")
    site.start("-q", "ONE,OTHER", "--total-workers", "1")
    # When the forwarder starts, the other queue may be looked at a moment later; from then on it waits for one call.
    calls = site.wait_for_calls(501)
    assert calls.index("OTHER the only one") < 250


def test_two_forwarders_share_a_queue(site):
    space = site.lay_out("WORK", "RPLYQ", "ERRQUE")
    site.services('[services.WORK]\npython = "server:call"', server=BEGIN_AND_WAIT)
    site.start("-q", "WORK")
    site.start("-q", "WORK")
    sent = [space.enqueue("WORK", str(number), reply_queue="RPLYQ") for number in range(100)]
    # Each has one in hand, and waits.
    calls = site.wait_for_calls(2)
    assert len({line.split()[0] for line in calls}) == 2
    (site.directory / "go").touch()
    eventually(lambda: space.usage("RPLYQ").messages == 100)
    assert sorted(reply.corrid.decode() for reply in site.all_of("RPLYQ")) == sorted(sent)
    assert sorted(line.split()[1] for line in site.calls()) == sorted(sent)


def test_environment_variables_name_device_and_services(site, space):
    (site.directory / "services.toml").rename(site.directory / "others.toml")
    command = [*site.command()[:-2], "QSPACE", "-q", "UPPER"]
    site.command = lambda *_: command
    site.start(QMCONFIG=str(site.device), QM_SERVICES="others.toml")
    assert ask(space, "UPPER", "a").text == "A"
