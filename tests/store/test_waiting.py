"""Waiting for a message: woken at once by whoever brings one, exact at the due time, and ended from outside.

The check each second that covers a lost wake-up is put off here, so that a wait which only it ends is seen to hang.
"""

import math
import os
import signal
import threading
import time

import pytest

from qmcore.acts import waiting
from qmcore.errors import AbortedError, BadQueueError, InvalidArgumentError, NotOpenError
from qmcore.probe import Point
from qmstorage.schema import waiter
from qmstorage.sql import func, select
from tests.fix_store import (
    Work,
    attachment_of,
    connection_of,
    device_path,
    drain,
    eventually,
    make_queue,
    maker_of_devices,
    space_definition,
    waiting_for,
)


@pytest.fixture(autouse=True)
def never_check(monkeypatch):
    """Let a lost wake-up be noticed by nobody."""
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 1_000.0)


@pytest.fixture(params=["file", "memory", "postgres"])
def device(request, tmp_path):
    """A device on the machine's own clock."""
    path = device_path(request.param, request, tmp_path)
    with maker_of_devices(request.param, request)(path, 5_000) as made:
        made.create_space(space_definition(error_queue="ERRORS"))
        yield made


@pytest.fixture
def space(device):
    with device.open_space("SPACE") as opened:
        make_queue(opened, "Q", retries=1)
        make_queue(opened, "ERRORS")
        yield opened


def waiters(space, name="Q"):
    queue_id = space.queue(name).id
    waits = select(func.count()).select_from(waiter).where(waiter.c.queue_id == queue_id)
    return attachment_of(space).volume.read(lambda unit: unit.built(waits)[0][0])


def while_waiting(space, act, *, waits=1, name="Q", **how):
    """Let threads wait for a message, do something as soon as they all do, and return what they got."""
    how = {"wait": math.inf} | how
    work = Work(*[lambda: space.dequeue(name, **how)] * waits)
    eventually(lambda: waiters(space, name) == waits, "the threads wait")
    act()
    return work.results()


class TestWoken:
    def test_by_an_enqueue(self, space):
        (message,) = while_waiting(space, lambda: space.enqueue("Q", "x"))
        assert message.text == "x"
        assert waiters(space) == 0

    def test_by_the_commit_of_a_transaction_and_not_before(self, space):
        def transact():
            with space.transaction():
                space.enqueue("Q", "x")
                assert waiters(space) == 1

        (message,) = while_waiting(space, transact)
        assert message.text == "x"

    def test_by_a_rollback_that_gives_a_message_back(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            work = Work(lambda: space.dequeue("Q", wait=math.inf))
            eventually(lambda: waiters(space) == 1, "the thread waits")
            transaction.rollback()
        (message,) = work.results()
        assert (message.text, message.retries) == ("x", 1)

    def test_by_a_parked_message_that_is_unparked(self, space):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            transaction.rollback(park=True)
        (message,) = while_waiting(space, lambda: space.unpark("Q"))
        assert (message.text, message.retries) == ("x", 0)

    def test_by_a_message_that_goes_to_the_error_queue(self, space):
        def fail_twice():
            space.enqueue("Q", "x")
            for _ in range(2):
                with space.transaction() as transaction:
                    space.dequeue("Q")
                    transaction.rollback()

        (message,) = while_waiting(space, fail_twice, name="ERRORS")
        assert message.origin.queue == "Q"

    def test_each_message_wakes_one_and_the_others_go_on_waiting(self, space):
        def feed():
            for at in range(3):
                space.enqueue("Q", str(at))
                eventually(lambda left=2 - at: waiters(space) == left, "one of them got it")

        assert sorted(message.text for message in while_waiting(space, feed, waits=3)) == ["0", "1", "2"]

    def test_only_by_the_message_that_is_wanted(self, space):
        def answer():
            space.enqueue("Q", "another", corrid="b")
            space.enqueue("Q", "none")
            space.enqueue("Q", "mine", corrid="a")

        (message,) = while_waiting(space, answer, corrid="a")
        assert message.text == "mine"
        assert drain(space) == ["another", "none"]

    def test_by_a_message_of_another_process(self, real_device, start):
        child = start(
            """
            with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
                say("ready")
                heard()
                space.enqueue("Q", "from afar")
            """.replace("\n            ", "\n"),
            real_device.path,
        )
        child.expect("ready")
        with real_device.open_space("SPACE") as space:
            (message,) = while_waiting(space, child.say)
        assert message.text == "from afar"
        child.finish()

    def test_in_another_process(self, real_device, start):
        child = start(
            """
            from qmcore.acts import waiting
            waiting.CHECK_SECONDS = 1_000.0
            with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
                say("ready")
                say(space.dequeue("Q", wait=60).text)
            """.replace("\n            ", "\n"),
            real_device.path,
        )
        child.expect("ready")
        eventually(lambda: waiting_for(real_device.path) == 1, "the process waits")
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "from here")
        child.expect("from here")
        child.finish()

    def test_inside_a_transaction_and_the_message_is_held_by_it(self, space):
        def take():
            with space.transaction() as transaction:
                text = space.dequeue("Q", wait=math.inf).text
                transaction.rollback()
            return text

        work = Work(take)
        eventually(lambda: waiters(space) == 1, "the thread waits")
        space.enqueue("Q", "x")
        assert work.results() == ["x"]
        assert space.dequeue("Q").retries == 1

    def test_in_a_process_with_thousands_of_open_files(self, space):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < 1_200:
            pytest.skip(f"no process may have more than {hard} files open here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        opened = []
        try:
            while not opened or opened[-1] < 1_100:
                opened.append(os.open(os.devnull, os.O_RDONLY))
            (message,) = while_waiting(space, lambda: space.enqueue("Q", "x"))
        finally:
            for descriptor in opened:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert message.text == "x"


class TestTheTime:
    def test_a_delayed_message_comes_when_it_is_due_and_not_before(self, space):
        before = time.time()
        space.enqueue("Q", "x", delay=0.2)
        message = space.dequeue("Q", wait=20)
        assert message.text == "x"
        assert time.time() - before >= 0.2

    def test_one_that_is_delayed_while_somebody_waits_comes_when_it_is_due(self, space):
        (message,) = while_waiting(space, lambda: space.enqueue("Q", "x", delay=0.1))
        assert message.text == "x"

    def test_the_earlier_of_two_is_not_slept_over(self, space):
        space.enqueue("Q", "late", delay=500)
        (message,) = while_waiting(space, lambda: space.enqueue("Q", "soon", delay=0.1))
        assert message.text == "soon"

    def test_a_retry_delay_is_waited_for(self, space):
        from datetime import timedelta

        make_queue(space, "SLOW", retries=1, retry_delay=1)
        space.enqueue("SLOW", "x")
        with space.transaction() as transaction:
            space.dequeue("SLOW")
            transaction.rollback()
        message = space.dequeue("SLOW", wait=20)
        assert message.retries == 1
        assert message.available_at is None or message.available_at - message.enqueued_at >= timedelta(seconds=1)

    def test_it_is_over_when_nothing_comes(self, space):
        before = time.monotonic()
        assert space.dequeue("Q", wait=0.2) is None
        assert time.monotonic() - before >= 0.2
        assert waiters(space) == 0

    @pytest.mark.parametrize("wait", [None, 0, 0.0])
    def test_no_time_is_no_wait(self, space, wait):
        assert space.dequeue("Q", wait=wait) is None
        assert space.dequeue("Q", corrid="a", wait=wait) is None

    @pytest.mark.parametrize("wait", [math.nan, -1, -math.inf, "5"])
    def test_a_time_that_is_no_number_from_0_on_is_refused(self, space, wait):
        with pytest.raises(InvalidArgumentError, match=f"got {wait!r}"):
            space.dequeue("Q", wait=wait)

    def test_a_wait_does_not_outlast_its_transaction(self, space):
        with pytest.raises(AbortedError), space.transaction(timeout=0.2):
            assert space.dequeue("Q", wait=math.inf) is None
        assert waiters(space) == 0

    def test_a_queue_that_is_not_there_is_not_waited_for(self, space):
        with pytest.raises(BadQueueError):
            space.dequeue("NONE", wait=math.inf)

    def test_a_message_that_is_there_is_not_waited_for(self, space):
        space.enqueue("Q", "x")
        assert space.dequeue("Q", wait=math.inf).text == "x"


class TestEnded:
    def test_by_closing_the_device(self, device, space):
        (error,) = while_waiting(space, device.close)
        assert isinstance(error, NotOpenError)

    def test_by_closing_the_queue_space(self, space):
        (error,) = while_waiting(space, space.close)
        assert isinstance(error, NotOpenError)

    def test_by_destroying_the_queue_at_the_next_check(self, space, monkeypatch):
        monkeypatch.setattr(waiting, "CHECK_SECONDS", 0.05)
        (error,) = while_waiting(space, lambda: space.destroy_queue("Q", force=True))
        assert isinstance(error, BadQueueError)

    def test_by_ctrl_c_which_leaves_no_waiter_and_loses_nothing(self, real_device, start):
        child = start(
            """
            with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
                say("ready")
                try:
                    space.dequeue("Q", wait=60)
                except KeyboardInterrupt:
                    say("interrupted")
                heard()
                say(space.dequeue("Q").text)
            """.replace("\n            ", "\n"),
            real_device.path,
        )
        child.expect("ready")
        eventually(lambda: waiting_for(real_device.path) == 1, "the process waits")
        child.signal(signal.SIGINT)
        child.expect("interrupted")
        assert waiting_for(real_device.path) == 0
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "still there")
        child.say()
        child.expect("still there")
        child.finish()

    def test_by_the_death_of_the_waiting_process_which_costs_the_others_nothing(self, real_device, start):
        child = start(
            """
            with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
                say("ready")
                space.dequeue("Q", wait=60)
            """.replace("\n            ", "\n"),
            real_device.path,
        )
        child.expect("ready")
        eventually(lambda: waiting_for(real_device.path) == 1, "the process waits")
        child.kill()
        with real_device.open_space("SPACE") as space:
            space.enqueue("Q", "for the living")
            assert space.dequeue("Q", wait=20).text == "for the living"
            space.usage("Q")
        assert waiting_for(real_device.path) == 0


class TestQuiet:
    @pytest.mark.parametrize("device", ["file", "memory"], indirect=True)
    def test_whoever_waits_runs_no_statement_and_holds_no_lock(self, space):
        """What waits on PostgreSQL has given its session back."""
        statements = []
        connection = connection_of(space)
        asleep = threading.Event()
        space.probe.at(Point.BEFORE_WAIT, lambda _seconds: asleep.set())

        def act():
            # It has looked once more, behind its wake-up, by now.
            assert asleep.wait(90)
            connection.set_trace_callback(statements.append)
            assert not connection.in_transaction
            connection.set_trace_callback(None)
            assert attachment_of(space).volume.comes_free(20)
            space.enqueue("Q", "x")

        while_waiting(space, act)
        assert statements == []

    def test_a_wake_up_that_is_lost_is_made_good_by_the_check(self, space, monkeypatch):
        monkeypatch.setattr(waiting, "CHECK_SECONDS", 0.05)
        monkeypatch.setattr(type(attachment_of(space).volume.wakeups), "wake", lambda *_: None)
        (message,) = while_waiting(space, lambda: space.enqueue("Q", "x"))
        assert message.text == "x"

    def test_nobody_is_woken_for_a_queue_that_nobody_waits_for(self, space, monkeypatch):
        woken = []
        monkeypatch.setattr(
            type(attachment_of(space).volume.wakeups), "wake", lambda _, addresses, *__: woken.extend(addresses)
        )
        space.enqueue("ERRORS", "x")
        with space.transaction():
            space.enqueue("Q", "y")
        assert woken == []
