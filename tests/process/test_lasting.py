"""What a forwarder keeps to over reloads, stops, kills and trouble."""

import signal
import time

import pytest

from qmadmin import QueueDefinition
from tests.fix_process import eventually, is_running

SERVER = """
import pathlib, time

HERE = pathlib.Path(__file__).parent


def note(request):
    with open(HERE / "calls", "a") as calls:
        calls.write(f"{request.text} {request.retries}\\n")


def until(name):
    deadline = time.monotonic() + 240
    while not (HERE / name).exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def answer(request):
    note(request)
    return request.text


def slow(request):
    note(request)
    until("go")
    return request.text


def fail_once(request):
    note(request)
    if request.text == "bad" and not request.retries:
        raise ValueError("not yet")


def sulk(request):
    from qmadmin.forwarder import Unavailable

    note(request)
    raise Unavailable("the database is down")


def stubborn(request):
    note(request)
    while True:
        try:
            return until("go")
        except BaseException:
            pass


def kill_once(request):
    import os

    note(request)
    if request.text == "bad" and not request.retries:
        os.kill(os.getpid(), 9)


def paced(request):
    import threading

    threads = [each for each in threading.enumerate() if each.name == "tmqforward paced"]
    with open(HERE / "calls", "a") as calls:
        calls.write(f"{request.text} {time.monotonic()} {len(threads)}\\n")
"""

NAMES = ("answer", "slow", "fail_once", "sulk", "stubborn", "kill_once", "paced")
SERVICES = "".join(f'[services.{name}]\npython = "server:{name}"\n' for name in NAMES)
RELOADED = "the services are loaded again"


@pytest.fixture
def space(site):
    site.services(SERVICES, server=SERVER)
    queues = [QueueDefinition(name=name, retries=3, retry_delay=2) for name in NAMES]
    return site.lay_out(*queues, "RPLYQ", "ERRQUE")


def go(site):
    (site.directory / "go").touch()


def reload(forwarder, words=RELOADED):
    forwarder.tell(signal.SIGHUP)
    forwarder.wait_until_logged(words)


def test_in_strict_order_messages_wait_for_one_that_is_tried_again_also_over_a_reload(site, space):
    for text in ("bad", "next"):
        space.enqueue("fail_once", text)
    forwarder = site.start("-q", "fail_once", "--order", "strict")
    site.wait_for_calls(1)
    reload(forwarder)
    assert site.wait_for_calls(3) == ["bad 0", "bad 1", "next 0"]


@pytest.mark.parametrize("batch", ["1", "5"])
def test_in_strict_order_messages_wait_for_one_whose_call_killed_the_forwarder(site, space, batch):
    for text in ("bad", "next"):
        space.enqueue("kill_once", text)
    forwarder = site.start("-q", "kill_once", "--order", "strict", "--batch", batch)
    assert forwarder.wait() == -signal.SIGKILL
    site.start("-q", "kill_once", "--order", "strict", "--batch", batch)
    assert [line.split()[0] for line in site.wait_for_calls(3)] == ["bad", "bad", "next"]


def test_in_strict_order_messages_wait_for_one_whose_call_did_not_come_back(site, space):
    for text in ("bad", "next"):
        space.enqueue("stubborn", text)
    site.start("-q", "stubborn", "--order", "strict", "-t", "1")
    assert site.wait_for_calls(2) == ["bad 0", "bad 1"]


def test_a_forwarder_that_ends_when_its_queues_are_empty_waits_in_strict_order(site, space):
    for text in ("bad", "next"):
        space.enqueue("fail_once", text)
    site.run("-q", "fail_once", "--order", "strict", "-e")
    assert site.wait_for_calls(3) == ["bad 0", "bad 1", "next 0"]


def test_terms_that_contradict_each_other_are_not_loaded_and_end_nothing(site, space):
    forwarder = site.start("-q", "answer", "-w", "2")
    site.services(SERVICES.replace("[services.answer]\n", '[services.answer]\norder = "strict"\n'))
    reload(forwarder, "the services stay as they are")
    assert "a strict order requires one" in forwarder.log()
    msgid = space.enqueue("answer", "a", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=60).text == "a"
    forwarder.stop()


def test_a_queue_that_was_paused_when_its_service_was_replaced_is_no_longer_shown_as_paused(site, space):
    forwarder = site.start("-q", "sulk")
    space.enqueue("sulk", "a", reply_queue="RPLYQ")
    eventually(lambda: [told for _, told in space.forwardings() if told.trouble])
    site.services(SERVICES.replace("server:sulk", "server:answer"))
    reload(forwarder)
    assert space.dequeue("RPLYQ", wait=60).text == "a"
    eventually(lambda: not [told for _, told in space.forwardings() if told.trouble], "the end of the pause")
    forwarder.stop()


def test_a_call_for_a_queue_that_is_served_no_longer_is_finished_before_the_end(site, space):
    space.enqueue("slow", "a", reply_queue="RPLYQ")
    forwarder = site.start()
    site.wait_for_calls(1)
    site.services('[services.answer]\npython = "server:answer"\n')
    reload(forwarder)
    forwarder.tell(signal.SIGTERM)
    forwarder.wait_until_logged("SIGTERM: stopping after")
    go(site)
    assert forwarder.wait() == 0
    assert space.dequeue("RPLYQ").text == "a"


@pytest.mark.parametrize("fresh", ['[services.answer]\npython = "server:answer"\n', None])
def test_a_command_of_a_service_that_was_replaced_does_not_outlive_the_forwarder(site, space, fresh):
    command = '[services.answer]\npython = "server:answer"\n[services.slow]\n'
    command += 'command = ["/bin/sh", "-c", "echo $$ >> calls; sleep 1000 & echo $! >> calls; wait"]\n'
    site.services(command)
    space.enqueue("slow", "a")
    forwarder = site.start("--grace", "0")
    pids = site.wait_for_calls(2)
    site.services(fresh or command.replace("1000", "1001"))
    reload(forwarder)
    forwarder.stop()
    for pid in pids:
        eventually(lambda: not is_running(int(pid)))  # noqa: B023 - asked at once
    assert [info.retries for info in space.messages("slow")] == [0]


def test_a_call_that_does_not_come_back_keeps_no_place_from_other_queues(site, space):
    space.enqueue("stubborn", "a")
    site.start("-q", "stubborn,answer", "-t", "1", "--total-workers", "1")
    site.wait_for_calls(1)
    msgid = space.enqueue("answer", "b", reply_queue="RPLYQ")
    assert space.dequeue("RPLYQ", corrid=msgid, wait=30).text == "b"


def test_a_stopped_reply_queue_does_not_make_its_requests_look_forwarded(site, space):
    space.stop_queue("RPLYQ", dequeue=False)
    space.enqueue("answer", "a", reply_queue="RPLYQ")
    forwarder = site.start("-q", "answer", "-e")
    site.wait_for_calls(2)
    space.start_queue("RPLYQ")
    assert forwarder.wait() == 0
    assert space.dequeue("RPLYQ").text == "a"


def test_a_queue_in_trouble_that_others_have_emptied_is_empty(site, space):
    space.enqueue("sulk", "a")
    forwarder = site.start("-q", "sulk", "-e")
    site.wait_for_calls(2)
    eventually(lambda: space.dequeue("sulk"))
    assert forwarder.wait() == 0


def test_one_message_of_each_queue_is_one_also_where_batches_are_taken(site, space):
    for text in "abc":
        space.enqueue("answer", text)
    site.run("-q", "answer", "--once", "--batch", "3")
    assert site.calls() == ["a 0"]


def test_more_workers_than_transactions_do_not_keep_a_queue_from_being_served(site):
    space = site.lay_out("slow", "ERRQUE", transactions=2)
    site.services(SERVICES, server=SERVER)
    for number in range(50):
        space.enqueue("slow", str(number))
    forwarder = site.start("-q", "slow", "-w", "5", "-e")
    site.wait_for_calls(2)
    go(site)
    assert forwarder.wait() == 0
    assert "is paused" not in forwarder.log()
    assert len(site.calls()) == 50


def test_calls_that_keep_a_distance_are_not_waited_for_by_many_workers(site, space):
    for text in "abcd":
        space.enqueue("paced", text)
    before = time.monotonic()
    site.start("-q", "paced", "-f", "1", "--batch", "4")
    begun = [line.split() for line in site.wait_for_calls(4)]
    assert [text for text, _, _ in begun] == ["a", "b", "c", "d"]
    # On a loaded machine a call may come late, and the next one in time, but none comes early.
    assert all(float(moment) - before >= calls for calls, (_, moment, _) in enumerate(begun))
    # The one at work and the one that waits for the next message's time.
    assert max(int(threads) for _, _, threads in begun) <= 2
