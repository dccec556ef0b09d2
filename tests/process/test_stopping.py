"""How the forwarder ends: on a signal, when its queues are empty."""

import signal

import pytest

from qmadmin.consumers.consumer import SIGNALS, Stop
from qmcore.message import State
from tests.fix_process import BEGIN_AND_WAIT, eventually, is_running

STUBBORN = (
    BEGIN_AND_WAIT
    + """

def stubborn(request):
    while True:
        try:
            return call(request)
        except BaseException:
            pass
"""
)


@pytest.fixture
def space(site):
    site.services(
        """
        [services]
        WORK.python = "server:call"
        OTHER.python = "server:call"
        STUBBORN.python = "server:stubborn"
        COMMAND.command = ["/bin/sh", "-c", "echo $$ >> calls; sleep 1000 & echo $! >> calls; wait"]
        """,
        server=STUBBORN,
    )
    return site.lay_out("WORK", "OTHER", "STUBBORN", "COMMAND", "RPLYQ", "ERRQUE")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_forwarder_that_sleeps(site, space, number):
    forwarder = site.start("-q", "WORK")
    forwarder.tell(number)
    assert forwarder.wait() == 0
    assert forwarder.said == ""
    assert f"tmqforward stopped: {number.name}; 0 messages forwarded" in forwarder.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_in_mid_message_lets_what_is_in_hand_be_finished(site, space, number):
    for body in ("first", "second"):
        space.enqueue("WORK", body, reply_queue="RPLYQ")
    space.enqueue("OTHER", "third")
    forwarder = site.start("-q", "WORK,OTHER")
    site.wait_for_calls(2)
    forwarder.tell(number)
    forwarder.wait_until_logged(f"{number.name}: stopping after the current message")
    (site.directory / "go").touch()
    assert forwarder.wait() == 0
    assert [reply.text for reply in site.all_of("RPLYQ")] == ["first"]
    assert [(message.text, message.retries) for message in site.all_of("WORK")] == [("second", 0)]
    assert [space.usage(queue).messages for queue in ("OTHER", "ERRQUE")] == [0, 0]


def stop_at_once(site, space, queue, number=signal.SIGTERM):
    """Stop the forwarder in mid-message by two signals; return it."""
    forwarder = site.start("-q", queue)
    space.enqueue(queue, "first", reply_queue="RPLYQ")
    site.wait_for_calls(2 if queue == "COMMAND" else 1)
    forwarder.tell(signal.SIGTERM)
    forwarder.wait_until_logged("SIGTERM: stopping after")
    forwarder.tell(number)
    return forwarder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_gives_the_message_back_untried(site, space, number):
    forwarder = stop_at_once(site, space, "WORK", number)
    assert forwarder.wait() == 128 + number
    assert f"{number.name}: stopping at once" in forwarder.log()
    (message,) = space.messages("WORK")
    assert (message.state, message.retries) == (State.READY, 0)
    assert [space.usage(queue).messages for queue in ("RPLYQ", "ERRQUE")] == [0, 0]


def test_second_signal_ends_a_command_and_what_it_started(site, space):
    forwarder = stop_at_once(site, space, "COMMAND")
    assert forwarder.wait() == 143
    for line in site.calls():
        eventually(lambda: not is_running(int(line)))  # noqa: B023 - asked at once
    assert next(space.messages("COMMAND")).retries == 0


def test_second_signal_ends_a_forwarder_whose_service_does_not_listen(site, space):
    forwarder = stop_at_once(site, space, "STUBBORN")
    assert forwarder.wait() == 143
    (message,) = space.messages("STUBBORN")
    assert (message.state, message.retries) == (State.READY, 0)


def test_calls_that_do_not_end_in_the_time_for_a_stop_are_ended_and_their_messages_given_back(site, space):
    space.enqueue("COMMAND", "a")
    space.enqueue("STUBBORN", "b")
    forwarder = site.start("-q", "COMMAND,STUBBORN", "--grace", "1")
    pids = site.wait_for_calls(3)
    forwarder.tell(signal.SIGTERM)
    assert forwarder.wait() == 0
    for line in pids:
        eventually(lambda: not line.isdigit() or not is_running(int(line)))  # noqa: B023 - asked at once
    assert "2 calls did not end in time; their messages are back in the queues" in forwarder.log()
    for queue in ("COMMAND", "STUBBORN"):
        assert [(info.state, info.retries) for info in space.messages(queue)] == [(State.READY, 0)]


def test_signal_that_is_ignored_at_the_start_stays_ignored(site, space):
    forwarder = site.start("-q", "WORK", prefix=["/bin/sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh"])
    forwarder.tell(signal.SIGINT)
    forwarder.tell(signal.SIGHUP)
    (site.directory / "go").touch()
    msgid = space.enqueue("WORK", "a", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "a"
    forwarder.stop()
    assert "SIGINT" not in forwarder.log()


def test_forwarder_ends_when_its_queues_are_empty_if_told_so(site, space):
    (site.directory / "go").touch()
    for number in range(10):
        space.enqueue("WORK", str(number), reply_queue="RPLYQ")
    space.enqueue("WORK", "late", delay=1000)
    forwarder = site.run("-q", "WORK,STUBBORN", "-e")
    assert forwarder.process.returncode == 0
    assert "tmqforward stopped: its queues are empty; 10 messages forwarded" in forwarder.log()
    assert [reply.text for reply in site.all_of("RPLYQ")] == [str(number) for number in range(10)]
    assert [message.state for message in space.messages("WORK")] == [State.DELAYED]


def test_messages_that_others_hold_do_not_keep_a_forwarder_that_ends_when_empty(site, space):
    space.enqueue("WORK", "a")
    with space.transaction():
        assert space.dequeue("WORK")
        assert site.run("-q", "WORK", "-e").process.returncode == 0


# ---- what a signal means at which time ----


@pytest.fixture
def stop():
    """A stop that hears the signals of this process."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    stop = Stop()
    stop.listen()
    yield stop
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_signal_asks_for_a_stop_and_the_second_for_one_at_once(stop):
    signal.raise_signal(signal.SIGTERM)
    assert (stop.asked, stop.at_once, stop.status) == ("SIGTERM", False, 0)
    signal.raise_signal(signal.SIGINT)
    assert (stop.asked, stop.at_once, stop.status) == ("SIGINT", True, 130)


def test_the_hangup_of_a_daemon_asks_once_for_the_services_to_be_loaded_again(stop, monkeypatch):
    monkeypatch.setattr(stop, "_had_terminal", False)
    signal.raise_signal(signal.SIGHUP)
    assert stop.asked == ""
    assert [stop.wants_reload(), stop.wants_reload()] == [True, False]


def test_stop_ends_every_sleep(stop):
    woken = []
    stop.wake = lambda: woken.append("woken")
    signal.raise_signal(signal.SIGTERM)
    assert woken == ["woken"]
    # It is this test's timeout that would end it otherwise.
    stop.sleep(10_000)
