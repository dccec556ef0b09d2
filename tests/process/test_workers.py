"""Who works for which queue: workers of one and of all, what a slow service delays, and in which order things go."""

import pytest

from qmadmin import QueueDefinition
from tests.fix_process import eventually

SERVER = """
import os, pathlib, signal, threading, time

import qmadmin

HERE = pathlib.Path(__file__).parent
LOCK = threading.Lock()


def note(*words):
    with LOCK, open(HERE / "calls", "a") as calls:
        calls.write(" ".join(map(str, words)) + "\\n")


def until(name):
    while not (HERE / name).exists():
        time.sleep(0.005)


def slow(request):
    note("begin", request.queue, request.text)
    until("go")
    return request.text


def quick(request):
    note(request.queue, request.text)
    return request.text


def fail_once(request):
    note(request.text, request.retries)
    if request.text == "bad" and not request.retries:
        raise ValueError("not yet")


def snooze_once(request):
    note(request.text, request.retries)
    if request.text == "bad" and not (HERE / "snoozed").exists():
        (HERE / "snoozed").touch()
        raise qmadmin.Snooze(0.2)


def park(request):
    note(request.text, request.retries)
    if request.text == "bad":
        raise qmadmin.Park("no price yet")


def die_once(request):
    note(request.text, request.retries)
    if request.text == "first" and not request.retries:
        os.kill(os.getpid(), signal.SIGKILL)


def fail(request):
    note(request.text, request.retries)
    raise ValueError("never")
"""

SERVICES = "".join(
    f'[services.{queue}]\npython = "server:{function}"\n'
    for queue, function in [
        *(("SLOW", "slow"), ("SLOW2", "slow"), ("QUICK", "quick"), ("QUICK2", "quick")),
        *(("ONCE", "fail_once"), ("FAIL", "fail"), ("DIES", "die_once")),
        *(("SNOOZE", "snooze_once"), ("PARK", "park")),
    ]
)


@pytest.fixture
def space(site):
    site.services(SERVICES, server=SERVER)
    return site.lay_out(
        *("SLOW", "SLOW2", "QUICK", "QUICK2", "RPLYQ", "ERRQUE", "SNOOZE", "PARK"),
        QueueDefinition(name="ONCE", retries=3, retry_delay=1),
        QueueDefinition(name="FAIL", retries=1, retry_delay=1),
        QueueDefinition(name="DIES", retries=3, retry_delay=1),
    )


def go(site):
    (site.directory / "go").touch()


def begun(site):
    return sorted(line for line in site.calls() if line.startswith("begin"))


def test_a_queue_has_as_many_calls_at_a_time_as_workers(site, space):
    for number in range(5):
        space.enqueue("SLOW", str(number))
    forwarder = site.start("-q", "SLOW", "-w", "3")
    site.wait_for_calls(3)
    eventually(lambda: space.usage("SLOW").held == 3)
    go(site)
    eventually(lambda: space.usage("SLOW").messages == 0)
    assert begun(site)[:3] == ["begin SLOW 0", "begin SLOW 1", "begin SLOW 2"]
    forwarder.stop()


def test_the_services_file_says_how_many_workers_a_queue_has(site, space):
    site.services(SERVICES.replace("[services.SLOW]\n", "[services.SLOW]\nworkers = 2\n"), server=SERVER)
    for number in range(3):
        space.enqueue("SLOW", str(number))
    site.start("-q", "SLOW", "-w", "1")
    site.wait_for_calls(2)
    assert space.usage("SLOW").held == 2


def test_a_message_that_comes_while_others_are_in_hand_is_taken_at_once_if_a_worker_is_free(site, space):
    space.enqueue("SLOW", "a")
    site.start("-q", "SLOW", "-w", "2")
    site.wait_for_calls(1)
    space.enqueue("SLOW", "b")
    assert site.wait_for_calls(2)[1] == "begin SLOW b"


@pytest.mark.parametrize("total", ["0", "2"])
def test_a_slow_service_delays_no_other_queue(site, space, total):
    for number in range(20):
        space.enqueue("SLOW", str(number))
    site.start("-q", "SLOW,QUICK", "-w", "4", "--total-workers", total)
    site.wait_for_calls(1)
    for number in range(30):
        msgid = space.enqueue("QUICK", str(number), reply_queue="RPLYQ")
        assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == str(number)
    # With two places in all, one is kept free for each queue that has none.
    assert len(begun(site)) == (1 if total == "2" else 4)


def test_no_more_calls_run_than_there_are_workers_in_all(site, space):
    for number in range(5):
        space.enqueue("SLOW", str(number))
        space.enqueue("SLOW2", str(number))
    forwarder = site.start("-q", "SLOW,SLOW2", "-w", "5", "--total-workers", "3")
    site.wait_for_calls(3)
    held = [space.usage(queue).held for queue in ("SLOW", "SLOW2")]
    assert (sum(held), min(held)) == (3, 1)
    go(site)
    eventually(lambda: not any(space.usage(queue).messages for queue in ("SLOW", "SLOW2")))
    forwarder.stop()


def test_messages_go_past_one_that_failed_unless_the_order_is_strict(site, space):
    for text in ("bad", "next"):
        space.enqueue("ONCE", text)
    site.start("-q", "ONCE")
    assert site.wait_for_calls(3) == ["bad 0", "next 0", "bad 1"]


@pytest.mark.parametrize("batch", ["1", "5"])
def test_in_strict_order_the_messages_behind_one_that_failed_wait_for_it(site, space, batch):
    for text in ("bad", "next", "last"):
        space.enqueue("ONCE", text)
    site.start("-q", "ONCE", "--order", "strict", "--batch", batch)
    assert site.wait_for_calls(4) == ["bad 0", "bad 1", "next 0", "last 0"]


@pytest.mark.parametrize("batch", ["1", "5"])
def test_in_strict_order_messages_wait_for_one_that_was_snoozed_and_pass_one_that_was_parked(site, space, batch):
    for text in ("bad", "next"):
        space.enqueue("SNOOZE", text)
        space.enqueue("PARK", text)
    site.start("-q", "SNOOZE", "--order", "strict", "--batch", batch)
    assert site.wait_for_calls(3) == ["bad 0", "bad 0", "next 0"]
    site.start("-q", "PARK", "--order", "strict", "--batch", batch)
    assert site.wait_for_calls(5)[3:] == ["bad 0", "next 0"]
    eventually(lambda: (space.usage("PARK").parked, space.usage("PARK").messages) == (1, 1))
    (parked,) = space.messages("PARK")
    assert (parked.last_error, space.usage("SNOOZE").messages) == ("no price yet", 0)


def test_strict_order_outlives_a_forwarder_that_is_killed(site, space):
    for text in ("first", "next"):
        space.enqueue("DIES", text)
    assert site.run("-q", "DIES", "--order", "strict").process.returncode == -9
    site.wait_until_alone()
    site.start("-q", "DIES", "--order", "strict")
    assert site.wait_for_calls(3) == ["first 0", "first 1", "next 0"]


def test_in_strict_order_a_message_that_is_out_of_tries_makes_way(site, space):
    for text in ("a", "b"):
        space.enqueue("FAIL", text)
    site.start("-q", "FAIL", "--order", "strict")
    assert site.wait_for_calls(4) == ["a 0", "a 1", "b 0", "b 1"]
    assert eventually(lambda: space.usage("ERRQUE").messages == 2)


def test_strict_order_with_several_workers_is_refused(site, space):
    forwarder = site.run("-q", "ONCE", "--order", "strict", "-w", "2")
    assert forwarder.process.returncode == 2
    assert "service 'ONCE' has 2 workers, and a strict order requires one" in forwarder.said
