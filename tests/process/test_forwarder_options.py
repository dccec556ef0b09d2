"""What -d, -n, -f, -b, --once, --check and --batch do, and what a service does in the transaction of its call."""

import itertools
import re

import pytest

from qmadmin import QueueDefinition
from qmcore.limits import Threshold, parse_high, parse_low
from tests.fix_process import eventually

SERVER = """
import pathlib, time
from qmadmin.forwarder import Failure, Reply, enqueue, space

HERE = pathlib.Path(__file__).parent


def note(request):
    with open(HERE / "calls", "a") as calls:
        calls.write(f"{request.text} {request.retries} {time.monotonic()}\\n")


def echo(request):
    note(request)
    return Reply(request.text, urcode=3, headers={"by": "echo"})


def refuse(request):
    note(request)
    if request.text == "mute":
        raise Failure("no such account", urcode=9)
    raise Failure("no such account", body="sorry", urcode=9, permanent=request.text == "never")


def later(request):
    note(request)
    if not request.retries:
        raise Failure("busy", retry_after=1)


def steps(request):
    note(request)
    enqueue("NEXT", request.text + " 1")
    enqueue("NEXT", request.text + " 2", priority=7)
    if request.text == "bad":
        raise ValueError("after all")
    return "done"


def whole(request):
    note(request)
    taken = space().dequeue("NEXT")
    space().enqueue("RPLYQ", f"saw {taken.text}")
    if request.text == "bad":
        raise ValueError("after all")


def slow(request):
    note(request)
    deadline = time.monotonic() + 240
    while not (HERE / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.005)


def dies(request):
    note(request)
    if request.text == "3" and not request.retries:
        import os, signal

        os.kill(os.getpid(), signal.SIGKILL)
    return request.text


def big(request):
    note(request)
    for _ in range(3):
        enqueue("NEXT", b"x" * 3_000_000)
    if request.text == "bad":
        raise ValueError("after all")
"""
NAMES = ("echo", "refuse", "later", "steps", "whole", "slow", "dies", "big")


@pytest.fixture
def space(site):
    site.services("".join(f'[services.{name}]\npython = "server:{name}"\n' for name in NAMES), server=SERVER)
    queues = [QueueDefinition(name=name, retries=1) for name in NAMES]
    return site.lay_out(*queues, QueueDefinition(name="NEXT", retries=9), "RPLYQ", "FAILQ", "ERRQUE", pages=4900)


def texts(site, queue):
    return [message.text for message in site.all_of(queue)]


def calls(site):
    return [" ".join(line.split()[:2]) for line in site.calls()]


class TestGivingUp:
    def test_a_failure_that_says_something_ends_its_request_and_tells_the_client(self, site, space):
        msgid = space.enqueue("refuse", "a", failure_queue="FAILQ", reply_queue="RPLYQ")
        site.run("-q", "refuse", "-e", "-d")
        (told,) = site.all_of("FAILQ")
        assert (told.text, told.urcode, told.corrid, told.type) == ("sorry", 9, msgid.encode(), "STRING")
        assert [space.usage(queue).messages for queue in ("refuse", "RPLYQ", "ERRQUE")] == [0, 0, 0]
        assert calls(site) == ["a 0"]

    @pytest.mark.parametrize("text", ["last", "never"])
    def test_a_request_out_of_tries_goes_to_the_error_queue_as_well(self, site, space, text):
        msgid = space.enqueue("refuse", text, failure_queue="FAILQ")
        if text == "last":
            with space.transaction() as transaction:
                space.dequeue("refuse")
                transaction.rollback()
        site.run("-q", "refuse", "-e", "-d")
        assert texts(site, "FAILQ") == ["sorry"]
        (failed,) = site.all_of("ERRQUE")
        assert (failed.origin.msgid, failed.origin.error) == (msgid, "no such account")

    def test_a_failure_that_says_nothing_is_tried_again(self, site, space):
        space.enqueue("refuse", "mute", failure_queue="FAILQ")
        site.run("-q", "refuse", "-e", "-d")
        assert calls(site) == ["mute 0", "mute 1"]
        assert (texts(site, "FAILQ"), texts(site, "ERRQUE")) == ([], ["mute"])

    @pytest.mark.parametrize("queue", [None, "NONE"])
    def test_where_there_is_no_failure_queue_the_request_goes_all_the_same(self, site, space, queue):
        space.enqueue("refuse", "a", failure_queue=queue)
        forwarder = site.run("-q", "refuse", "-e", "-d")
        assert [space.usage(name).messages for name in ("refuse", "FAILQ", "ERRQUE")] == [0, 0, 0]
        assert ("is dropped: there is no failure queue 'NONE'" in forwarder.log()) == (queue is not None)

    def test_without_it_a_failure_is_tried_again_whatever_it_says(self, site, space):
        space.enqueue("refuse", "a", failure_queue="FAILQ")
        site.run("-q", "refuse", "-e")
        assert calls(site) == ["a 0", "a 1"]
        assert (texts(site, "FAILQ"), texts(site, "ERRQUE")) == ([], ["a"])


class TestWhatAServiceSays:
    def test_a_failure_for_good_is_not_tried_again(self, site, space):
        space.enqueue("refuse", "never")
        site.run("-q", "refuse", "-e")
        assert calls(site) == ["never 0"]
        assert texts(site, "ERRQUE") == ["never"]

    @pytest.mark.parametrize("batch", ["1", "4"])
    def test_a_failure_may_say_when_to_try_again(self, site, space, batch):
        space.enqueue("later", "a")
        site.start("-q", "later", "--batch", batch)
        first, second = site.wait_for_calls(2)
        assert [line.split()[1] for line in (first, second)] == ["0", "1"]
        assert float(second.split()[2]) - float(first.split()[2]) >= 1

    def test_a_reply_has_the_headers_of_the_service(self, site, space):
        space.enqueue("echo", "a", reply_queue="RPLYQ")
        site.run("-q", "echo", "-e")
        (reply,) = site.all_of("RPLYQ")
        assert (reply.text, reply.urcode, dict(reply.headers)) == ("a", 3, {"by": "echo"})


class TestSteps:
    @pytest.mark.parametrize("batch", ["1", "4"])
    def test_what_a_service_enqueues_is_there_with_its_reply_and_not_when_it_fails(self, site, space, batch):
        for text in ("good", "bad", "fine"):
            space.enqueue("steps", text, reply_queue="RPLYQ")
        site.run("-q", "steps", "-e", "--batch", batch)
        assert texts(site, "NEXT") == ["good 1", "good 2", "fine 1", "fine 2"]
        assert texts(site, "RPLYQ") == ["done", "done"]
        assert texts(site, "ERRQUE") == ["bad"]

    def test_outside_of_the_transaction_it_stays_when_the_call_fails(self, site, space):
        space.enqueue("steps", "bad")
        site.run("-q", "steps", "-e", "-n")
        assert texts(site, "NEXT") == ["bad 1", "bad 2"] * 2
        assert texts(site, "ERRQUE") == ["bad"]

    def test_a_service_may_use_the_queue_space_in_its_transaction(self, site, space):
        for text in ("x", "y"):
            space.enqueue("NEXT", text)
        for text in ("bad", "good"):
            space.enqueue("whole", text)
        site.run("-q", "whole", "-e")
        assert texts(site, "RPLYQ") == ["saw x"]
        assert texts(site, "NEXT") == ["y"]
        assert texts(site, "ERRQUE") == ["bad"]

    @pytest.mark.parametrize("batch", ["1", "4"])
    def test_what_is_much_is_taken_back_as_well(self, site, space, batch):
        for text in ("a", "bad", "b"):
            space.enqueue("big", text)
        site.run("-q", "big", "-e", "--batch", batch)
        assert space.usage("NEXT").messages == 6
        assert texts(site, "ERRQUE") == ["bad"]


class TestFireAndForget:
    def test_there_are_no_replies_and_no_second_tries(self, site, space):
        space.enqueue("echo", "a", reply_queue="RPLYQ")
        space.enqueue("refuse", "b", reply_queue="RPLYQ", failure_queue="FAILQ")
        site.run("-q", "echo,refuse", "-e", "-f", "0")
        assert sorted(calls(site)) == ["a 0", "b 0"]
        assert [space.usage(queue).messages for queue in ("echo", "refuse", "RPLYQ", "FAILQ")] == [0, 0, 0, 0]
        assert texts(site, "ERRQUE") == ["b"]

    def test_nobody_waits_for_a_call_before_the_next_begins(self, site, space):
        for number in range(10):
            space.enqueue("slow", str(number))
        site.start("-q", "slow", "-f", "0")
        assert len(site.wait_for_calls(10)) == 10

    def test_calls_begin_as_far_apart_as_is_said(self, site, space):
        for number in range(3):
            space.enqueue("echo", str(number))
        # A delay for each of the 32 workers at the end would be longer than a forwarder is waited for here.
        forwarder = site.run("-q", "echo", "-e", "-f", "2")
        assert "-f 2 -e" in forwarder.log()
        times = [float(line.split()[2]) for line in site.calls()]
        assert all(later - earlier >= 1.9 for earlier, later in itertools.pairwise(times))

    def test_a_call_may_take_as_long_as_the_other_option_says(self, site, space):
        space.enqueue("slow", "a")
        site.run("-q", "slow", "-e", "-f", "0", "-b", "1", "-t", "100")
        (failed,) = site.all_of("ERRQUE")
        assert failed.origin.error == "no reply within 1 seconds"


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (["-f", "x"], "WARN: -f option ignored as argument must be numeric"),
        (["-n", "-b", "-1"], "WARN: -b option ignored as argument must be numeric"),
        (["-n", "-b", str(2**31)], "WARN: -b option ignored as argument is too large (must be below 2147483648)"),
        (["-b", "5"], "WARN: -b option ignored as neither -n nor -f is given"),
    ],
)
def test_a_number_without_meaning_is_warned_about_and_ignored(site, space, options, warning):
    space.enqueue("echo", "a", reply_queue="RPLYQ")
    forwarder = site.run("-q", "echo", "-e", *options)
    assert forwarder.said.splitlines() == [warning]
    assert texts(site, "RPLYQ") == ["a"]


class TestOnce:
    def test_one_message_of_each_queue_is_forwarded(self, site, space):
        for queue in ("echo", "steps"):
            for text in ("a", "b"):
                space.enqueue(queue, text, reply_queue="RPLYQ")
        forwarder = site.run("-q", "echo,steps,later", "--once")
        assert forwarder.process.returncode == 0
        assert sorted(calls(site)) == ["a 0", "a 0"]
        assert [space.usage(queue).messages for queue in ("echo", "steps")] == [1, 1]
        assert "each queue was checked once; 2 messages forwarded" in forwarder.log()

    def test_the_exit_status_tells_of_a_failure(self, site, space):
        space.enqueue("refuse", "a")
        assert site.run("-q", "refuse", "--once").process.returncode == 1
        assert calls(site) == ["a 0"]


class TestCheck:
    def test_where_nothing_is_wrong_it_says_so_and_forwards_nothing(self, site, space):
        space.enqueue("echo", "a")
        forwarder = site.run("--check")
        assert (forwarder.process.returncode, forwarder.said) == (0, "services.toml: no problems found\n")
        assert space.usage("echo").messages == 1
        assert list(site.directory.glob("ULOG.*")) == []

    def test_a_warning_is_told_once(self, site, space):
        said = site.run("--check", "-t", "soon").said
        assert said.count("-t option ignored") == 1

    def test_everything_that_is_wrong_is_told_at_once(self, site, space):
        site.services(
            '[services.echo]\npython = "server:ecco"\n[services.later]\ncommand = ["no-such"]\n'
            '[services.NONE]\npython = "server:echo"\n[services.slow]\npyton = "x"\n'
        )
        space.destroy_queue("ERRQUE")
        forwarder = site.run("--check")
        assert forwarder.process.returncode == 2
        said = forwarder.said
        for fault in ("'ecco'", "'no-such'", "pyton", "error queue 'ERRQUE', which does not exist", "no queue 'NONE'"):
            assert fault in said, fault
        assert all(line.startswith("ERROR: ") for line in said.splitlines())


class TestBatches:
    def test_messages_are_forwarded_in_order_and_each_has_its_reply(self, site, space):
        sent = [space.enqueue("echo", str(number), reply_queue="RPLYQ") for number in range(50)]
        forwarder = site.run("-q", "echo", "-e", "--batch", "20")
        replies = site.all_of("RPLYQ")
        assert [reply.text for reply in replies] == [str(number) for number in range(50)]
        assert [reply.corrid.decode() for reply in replies] == sent
        assert "50 messages forwarded, 0 calls failed" in forwarder.log()

    def test_a_message_that_fails_takes_no_other_with_it(self, site, space):
        for text in ("a", "never", "b"):
            space.enqueue("refuse" if text == "never" else "echo", text, reply_queue="RPLYQ")
        space.enqueue("steps", "good", reply_queue="RPLYQ")
        forwarder = site.run("-q", "refuse,echo,steps", "-e", "--batch", "10")
        assert sorted(texts(site, "RPLYQ")) == ["a", "b", "done"]
        assert texts(site, "ERRQUE") == ["never"]
        assert "3 messages forwarded, 1 call failed" in forwarder.log()

    def test_what_is_left_when_calls_take_long_goes_back_untried(self, site, space):
        for number in range(3):
            space.enqueue("slow", str(number))
        site.start("-q", "slow", "--batch", "10")
        site.wait_for_calls()
        assert space.usage("slow").held == 3
        # The first call takes longer than calls of a batch are begun.
        eventually(lambda: float(re.findall(r"[\d.]+", site.calls()[0])[-1]) > 0)
        (site.directory / "go").touch()
        eventually(lambda: space.usage("slow").messages == 0)
        assert sorted(calls(site)) == ["0 0", "1 0", "2 0"]

    def test_a_forwarder_that_is_killed_in_a_batch_neither_loses_nor_doubles(self, site, space):
        for number in range(6):
            space.enqueue("dies", str(number), reply_queue="RPLYQ")
        assert site.run("-q", "dies", "-e", "--batch", "6").process.returncode == -9
        site.wait_until_alone()
        assert site.run("-q", "dies", "-e", "--batch", "6").process.returncode == 0
        assert sorted(texts(site, "RPLYQ")) == [str(number) for number in range(6)]
        assert [space.usage(queue).messages for queue in ("dies", "ERRQUE")] == [0, 0]

    def test_a_call_that_takes_too_long_is_a_try_of_its_message_only(self, site, space):
        space.enqueue("echo", "a", reply_queue="RPLYQ")
        for text in ("b", "c"):
            space.enqueue("slow", text)
        site.run("-q", "echo,slow", "-e", "--batch", "5", "-t", "1")
        assert texts(site, "RPLYQ") == ["a"]
        assert sorted(calls(site)) == ["a 0", "b 0", "b 1", "c 0", "c 1"]
        assert texts(site, "ERRQUE") == ["b", "c"]


def test_the_reserve_forwarder_is_started_at_the_limit_and_ends_when_the_queue_is_empty(site, space):
    """What the guide shows: a command at the high limit starts a forwarder with -e."""
    services = site.directory / "services.toml"
    script = site.directory / "reserve"
    command = " ".join(f"'{word}'" for word in site.command("-q", "WORK", "-e", "-s", str(services)))
    script.write_text(f"#!/bin/sh\ncd '{site.directory}'\nexec {command}\n")
    script.chmod(0o755)
    services.write_text('[services.WORK]\npython = "server:echo"\n')
    site.administered.set_commands(enabled=True)
    high = parse_high("5m")
    space.create_queue(QueueDefinition(name="WORK", threshold=Threshold(high, parse_low("0m", high), f"'{script}'")))
    for number in range(4):
        space.enqueue("WORK", str(number), reply_queue="RPLYQ")
    assert space.usage("RPLYQ").messages == 0
    for number in range(4, 8):
        space.enqueue("WORK", str(number), reply_queue="RPLYQ")
    eventually(lambda: space.usage("RPLYQ").messages == 8)
    site.wait_until_alone()
    # It is started again when the limit is reached again.
    for number in range(8, 14):
        space.enqueue("WORK", str(number), reply_queue="RPLYQ")
    eventually(lambda: space.usage("RPLYQ").messages == 14)
    site.wait_until_alone()
