"""What becomes of a message when its service fails, and of the forwarder when the queue space does."""

import contextlib
import sqlite3

import pytest

from qmadmin import QueueDefinition
from qmcore.message import State

FAILING = """
import pathlib, time


def note(request):
    with open(pathlib.Path(__file__).with_name("calls"), "a") as calls:
        calls.write(f"{request.text} {request.retries}\\n")


def fail(request):
    note(request)
    if request.text == "bad":
        raise ValueError("no account 17")
    return "good"


def leave(request):
    raise SystemExit("I have had enough")


def hopeless(request):
    class Unshowable(BaseException):
        def __str__(self):
            raise RuntimeError

    raise Unshowable


def wrong_kind(request):
    return {1, 2}


def wrong_code(request):
    from qmadmin.forwarder import Reply

    return Reply(b"", urcode=2**63)


def wrong_code_kind(request):
    from qmadmin.forwarder import Reply

    return Reply(b"", urcode="7")


def huge(request):
    return b"x" * 10_000_000


def interrupt(request):
    raise KeyboardInterrupt


class UnshowableInterrupt(KeyboardInterrupt):
    def __str__(self):
        raise KeyboardInterrupt


def unshowable_interrupt(request):
    raise UnshowableInterrupt


def endless(request):
    return bytes((64 << 20) + 1)


def slow(request):
    if request.text == "slow":
        try:
            for _ in range(6000):
                time.sleep(0.01)
        except Exception:
            pass
    return "done"


def too_long(request):
    raise ValueError("x" * 5000)
"""

NAMES = (
    *("fail", "leave", "hopeless", "wrong_kind", "wrong_code", "wrong_code_kind", "huge", "interrupt", "slow"),
    *("too_long", "unshowable_interrupt", "endless"),
)


@pytest.fixture
def space(site):
    site.services("".join(f'[services.{name}]\npython = "server:{name}"\n' for name in NAMES), server=FAILING)
    queues = [QueueDefinition(name=name, retries=2) for name in NAMES]
    return site.lay_out(*queues, "RPLYQ", "ERRQUE", pages=2000)


def failed_message(space, queue, body="bad"):
    """Send a request that fails; return what comes to the error queue."""
    msgid = space.enqueue(queue, body, reply_queue="RPLYQ")
    failed = space.dequeue("ERRQUE", wait=60)
    assert failed is not None
    assert failed.text == body
    assert (failed.origin.queue, failed.origin.msgid) == (queue, msgid)
    assert space.usage("RPLYQ").messages == 0
    return failed


def test_message_whose_service_fails_goes_to_the_error_queue_with_the_error_text(site, space):
    forwarder = site.start("-q", "fail")
    assert failed_message(space, "fail").origin.error == "ValueError: no account 17"
    assert site.calls() == ["bad 0", "bad 1", "bad 2"]
    msgid = space.enqueue("fail", "next", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "good"
    forwarder.stop()
    assert forwarder.log().count("service 'fail' failed on message") == 3
    assert [f"try {number}: ValueError" in forwarder.log() for number in range(5)] == [False, *[True] * 3, False]
    assert "Traceback" in forwarder.log()
    assert "1 message forwarded, 3 calls failed" in forwarder.log()


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        ("leave", "SystemExit: I have had enough"),
        ("interrupt", "KeyboardInterrupt"),
        ("unshowable_interrupt", "UnshowableInterrupt"),
        ("hopeless", "Unshowable"),
        ("wrong_kind", "its answer cannot be encoded: the body must be bytes, "),
        ("wrong_code", "its reply cannot be queued: the user return code"),
        ("wrong_code_kind", "its user return code is str, and not int"),
        # 2000 pages of 4096 bytes could not take it if they were empty.
        ("huge", "its reply cannot be queued: "),
        # Nor could any queue, whatever its size.
        ("endless", "its reply cannot be queued: the body has 67108865 bytes"),
    ],
)
def test_whatever_a_service_does_is_a_failure_and_never_ends_the_daemon(site, space, queue, text):
    forwarder = site.start("-q", queue)
    assert failed_message(space, queue).origin.error.startswith(text)
    forwarder.stop()


def test_text_of_an_error_is_kept_as_far_as_it_says_something(site, space):
    site.start("-q", "too_long")
    error = failed_message(space, "too_long").origin.error
    assert len(error) == 1000
    assert error.endswith("...")


def test_service_that_takes_too_long_is_interrupted_and_has_failed(site, space):
    site.start("-q", "slow", "-t", "1")
    assert failed_message(space, "slow", "slow").origin.error == "no reply within 1 seconds"
    msgid = space.enqueue("slow", "quick", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "done"


def test_transaction_time_of_zero_is_no_limit(site, space):
    site.start("-q", "slow", "-t", "0")
    msgid = space.enqueue("slow", "quick", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "done"


def test_message_without_retries_and_error_queue_is_discarded_and_logged(site):
    space = site.lay_out("fail", error_queue="")
    site.services('[services.fail]\npython = "server:fail"', server=FAILING)
    forwarder = site.start("-q", "fail")
    msgid = space.enqueue("fail", "bad")
    forwarder.wait_until_logged("was discarded: there is no error queue")
    assert msgid in forwarder.log()
    assert (space.usage("fail").messages, space.usage("fail").discarded) == (0, 1)


def test_an_error_queue_that_is_not_there_is_warned_of_at_the_start(site):
    site.lay_out("fail", error_queue="ERRQUE")
    site.services('[services.fail]\npython = "server:fail"', server=FAILING)
    warning = "WARN: queue 'fail' has the error queue 'ERRQUE', which does not exist: failed requests are discarded"
    assert warning in site.run("-q", "fail", "-e").log()


def test_so_it_is_where_another_takes_what_fails(site):
    site.lay_out(QueueDefinition(name="fail", error_queue="NONE"), "ERRQUE", error_queue="ERRQUE")
    site.services('[services.fail]\npython = "server:fail"', server=FAILING)
    warning = "WARN: queue 'fail' has the error queue 'NONE', which does not exist: failed requests go to 'ERRQUE'"
    assert warning in site.run("-q", "fail", "-e").log()


def test_failed_message_waits_for_the_retry_delay_of_its_queue(site):
    space = site.lay_out(QueueDefinition(name="fail", retries=1, retry_delay=1000), "ERRQUE")
    site.services('[services.fail]\npython = "server:fail"', server=FAILING)
    space.enqueue("fail", "bad")
    site.run("-q", "fail", "-e")
    (waiting,) = space.messages("fail")
    assert (waiting.state, waiting.retries) == (State.DELAYED, 1)


def test_queue_that_is_destroyed_is_missed_and_served_again_when_it_is_back(site, space):
    forwarder = site.start("-q", "fail,slow")
    space.destroy_queue("fail", force=True)
    # Work on the other queue makes it look.
    space.enqueue("slow", "a", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", wait=60).text == "done"
    forwarder.wait_until_logged("queue 'fail' is paused: QMEBADQUEUE")
    space.create_queue(QueueDefinition(name="fail"))
    forwarder.wait_until_logged("queue 'fail' is served again")
    msgid = space.enqueue("fail", "back", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "good"
    forwarder.stop()


def test_full_queue_space_is_worked_off(site):
    space = site.lay_out("fail", "RPLYQ", "ERRQUE", messages=20)
    site.services('[services.fail]\npython = "server:fail"', server=FAILING)
    for number in range(20):
        space.enqueue("fail", str(number), reply_queue="RPLYQ")
    site.run("-q", "fail", "-e")
    assert len(site.all_of("RPLYQ")) == 20
    assert len(site.calls()) == 20


def test_reply_that_finds_no_room_is_no_failure_of_the_request(site):
    space = site.lay_out("fail", "EMPTY", "RPLYQ", "ERRQUE", pages=40, queues=5, messages=100)
    source = FAILING.replace('return "good"', "return b'x' * 80_000")
    site.services('[services]\nfail.python = "server:fail"\nEMPTY.python = "server:fail"', server=source)
    fillers = [space.enqueue("ERRQUE", b"x" * 8000) for _ in range(5)]
    space.enqueue("fail", "a", reply_queue="RPLYQ")
    forwarder = site.start("-q", "EMPTY,fail", "-e")
    forwarder.wait_until_logged("queue 'fail' is paused: QMENOSPACE")
    site.wait_for_calls(3)
    for msgid in fillers:
        assert space.dequeue("ERRQUE", msgid=msgid)
    reply = space.dequeue("RPLYQ", wait=60)
    assert reply.size == 80_000
    forwarder.wait_until_logged("queue 'fail' is served again")
    # None of the calls counted, though there was more than one, and the trouble is told of once.
    assert {line.split()[1] for line in site.calls()} == {"0"}
    assert space.usage("ERRQUE").messages == 0
    assert forwarder.log().count("is paused") == 1
    # A queue in trouble is not an empty one.
    assert forwarder.wait() == 0
    assert "its queues are empty; 1 message forwarded, 0 calls failed" in forwarder.log()


def test_forwarder_that_others_took_for_dead_attaches_again_and_goes_on(site, space):
    forwarder = site.start("-q", "fail")
    # As an administrator might do who tidies up.
    for lock in (site.directory / "QUE-run").glob("*.lock"):
        lock.unlink()
    space.usage("fail")
    msgid = space.enqueue("fail", "a", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "good"
    # Its housekeeping finds out, or the next message.
    told = ("this process was taken for dead", "the device is opened again in 1 seconds")
    assert any(words in forwarder.log() for words in told)
    assert forwarder.log().count("started") == 1
    forwarder.stop()


def test_a_damaged_message_stops_its_own_queue_only(site, space):
    space.enqueue("fail", "damaged")
    with contextlib.closing(sqlite3.connect(site.device, isolation_level=None)) as connection:
        connection.execute("DELETE FROM message")
    space.enqueue("huge", "")
    space.enqueue("slow", "whole", reply_queue="RPLYQ")
    result = site.run("-e", "-q", "fail", "-q", "slow")
    assert result.process.returncode == 0
    assert space.dequeue("RPLYQ").text == "done"
    assert "queue 'fail' is paused: QMESYSTEM: the message" in result.log()
    assert space.usage("fail").messages == 1
