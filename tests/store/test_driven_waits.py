"""Waits that an event loop drives: hundreds in one thread, which sleeps on one descriptor for all of them.

The check each second that covers a lost wake-up is put off here, so that a wait which only it would end hangs.
"""

import gc
import math

import pytest

from qmcore.acts import waiting
from qmcore.errors import BadQueueError, NotOpenError, Resource, SystemFailureError
from qmcore.probe import Point
from qmcore.records import Nothing
from qmstorage.sqlite.files import run_directory
from tests.fix_store import (
    Work,
    attachment_of,
    count_rows,
    device_path,
    drain,
    eventually,
    make_queue,
    maker_of_devices,
    space_definition,
)
from tests.fix_waits import Loop, waits
from tests.interrupts import at_every_line

QUEUES, EACH, LEAVING, CHOOSING = ("A", "B", "C", "D", "E"), 50, 6, 50


@pytest.fixture(autouse=True)
def never_check(monkeypatch):
    """Let a lost wake-up be noticed by nobody."""
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 10_000.0)


@pytest.fixture(params=["file", "memory", "postgres"])
def device(request, tmp_path):
    """A device on the machine's own clock."""
    path = device_path(request.param, request, tmp_path)
    with maker_of_devices(request.param, request)(path, 5_000) as made:
        made.create_space(space_definition(actions=1_000, messages=1_000, pages=2_000))
        yield made


@pytest.fixture
def space(device):
    with device.open_space("SPACE") as opened:
        for name in (*QUEUES, "R"):
            make_queue(opened, name)
        yield opened


@pytest.fixture
def loop(space):
    with Loop(space) as made:
        yield made


def test_hundreds_in_one_thread_get_each_its_message_and_none_polls(space, loop):
    for queue in QUEUES:
        for _ in range(EACH + LEAVING):
            loop.add(queue)
    for number in range(CHOOSING):
        loop.add("R", corrid=str(number))
    loop.settle()
    assert waits(space) == len(loop.open) == len(QUEUES) * (EACH + LEAVING) + CHOOSING
    assert not loop.is_told()
    assert loop.seconds() > 1_000
    before = loop.looks.copy()

    def bring():
        for number in range(EACH):
            for queue in QUEUES:
                space.enqueue(queue, f"{queue}{number}")

    def answer():
        for number in range(CHOOSING):
            space.enqueue("R", f"R{number}", corrid=str(number))

    bringing = Work(bring, answer)
    loop.run_until(lambda: len(loop.got) > len(QUEUES) * EACH // 2)
    for queue in QUEUES:
        # Some of them may have been woken just now.
        for wait in [wait for wait, its in loop.open.items() if its == queue][:LEAVING]:
            loop.give_up(wait)
    loop.run_until(lambda: not loop.open)
    assert bringing.results() == [None, None]
    everything = [f"{queue}{number}" for queue in QUEUES for number in range(EACH)]
    assert sorted(loop.got) == sorted(everything + [f"R{number}" for number in range(CHOOSING)])
    assert count_rows(space, "waiter", "ready") == (0, 0)
    for queue in QUEUES:
        # Each message wakes one of them, and so does each that leaves where there is one left.
        assert loop.looks[queue] - before[queue] <= 2 * EACH + LEAVING


class TestWoken:
    def test_by_a_message_of_another_process(self, real_device, start):
        child = start(
            """
            with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
                for number in range(20):
                    space.enqueue("Q", str(number))
            """.replace("\n            ", "\n"),
            real_device.path,
        )
        with real_device.open_space("SPACE") as space, Loop(space) as loop:
            for _ in range(20):
                loop.add("Q")
            loop.run_until(lambda: not loop.open)
            assert sorted(loop.got, key=int) == [str(number) for number in range(20)]
        child.finish()

    def test_one_that_gives_up_when_it_was_woken_passes_that_on(self, space, loop):
        first, second = loop.add("A"), loop.add("A")
        loop.settle()
        space.enqueue("A", "x")
        eventually(loop.is_told, "the first is woken")
        loop.give_up(first)
        loop.run_until(lambda: not loop.open)
        assert loop.got == ["x"]
        assert second.wakeup is None

    def test_a_message_wakes_one_of_those_that_would_take_any(self, space, loop):
        for _ in range(20):
            loop.add("A")
        loop.settle()
        before = loop.looks["A"]
        space.enqueue("A", "x")
        loop.run_until(lambda: loop.got)
        # On PostgreSQL nobody knows that it was the only one, and another has looked for more.
        while loop.is_told():
            loop.turn()
        assert loop.looks["A"] - before <= 2

    def test_all_by_a_queue_that_is_stopped(self, space, loop):
        for _ in range(5):
            loop.add("A")
        loop.add("B")
        loop.settle()
        space.stop_queue("A")
        loop.run_until(lambda: len(loop.open) == 1)
        assert [type(error) for error in loop.got] == [BadQueueError] * 5

    def test_all_by_hand_so_that_they_ask_whether_to_stop(self, space, loop):
        stops = []
        for queue in ("A", "A", "B"):
            loop.add(queue, stop=lambda: bool(stops))
        loop.settle()
        stops.append("now")
        space.wake()
        loop.run_until(lambda: not loop.open)
        assert loop.got == [None] * 3
        assert waits(space) == 0

    def test_all_by_closing_the_device(self, device, space, loop):
        for queue in ("A", "A", "B"):
            loop.add(queue)
        loop.settle()
        device.close()
        loop.run_until(lambda: not loop.open)
        assert [type(error) for error in loop.got] == [NotOpenError] * 3

    def test_more_often_than_can_be_told_and_nobody_is_forgotten(self, space, loop):
        wait, _ = loop.add("A"), loop.add("R", corrid="1")
        loop.settle()
        attachment_of(space).volume.wakeups.wake([wait.wakeup.address] * 200_000)
        space.enqueue("R", "x", corrid="1")
        loop.run_until(lambda: loop.got)
        assert loop.got == ["x"]
        space.enqueue("A", "y")
        loop.run_until(lambda: not loop.open)
        assert loop.got == ["x", "y"]

    def test_by_nobody_any_more_when_it_was_given_up(self, space, loop):
        given_up = loop.add("A")
        loop.settle()
        loop.give_up(given_up)
        given_up.give_up()
        space.enqueue("A", "x")
        assert not loop.is_told()
        assert space.dequeue("A").text == "x"


class TestTheTime:
    @pytest.fixture
    def device(self, store):
        store.space(actions=100)
        return store.device

    def test_it_says_when_it_wants_to_look(self, space, clock):
        with Loop(space, clock) as loop:
            later = clock.now() + 5_000_000
            wait = loop.add("A", seconds=30, due_us=later)
            assert wait.seconds() == 0
            wait.look()
            if deaf := attachment_of(space).volume.wakeups.deaf_seconds:
                assert 0 < wait.seconds() <= deaf
                clock.advance(1)
                wait.look()
            assert wait.seconds() == pytest.approx((later - clock.now()) / 1_000_000)
            looks = loop.looks["A"]
            clock.advance(5)
            assert wait.seconds() == 0
            space.enqueue("A", "x")
            assert wait.look() == "x"
            assert loop.looks["A"] == looks + 1

    def test_it_is_over_when_nothing_comes(self, space, clock):
        with Loop(space, clock) as loop:
            wait = loop.add("A", seconds=30)
            wait.look()
            assert not wait.is_over()
            clock.advance(30)
            assert wait.seconds() <= 0
            assert isinstance(wait.look(), Nothing)
            assert wait.is_over()

    def test_each_looks_the_less_often_the_more_wait(self, space, clock, monkeypatch):
        monkeypatch.setattr(waiting, "CHECK_SECONDS", 1.0)
        with Loop(space, clock) as loop:
            for _ in range(40):
                last = loop.add("A")
                last.look()
            if deaf := attachment_of(space).volume.wakeups.deaf_seconds:
                clock.advance(deaf)
                last.look()
            assert last.seconds() == pytest.approx(1.0)
            for _ in range(3):
                clock.advance(last.seconds())
                last.look()
                assert 4.5 <= round(last.seconds(), 6) <= 6


def test_one_beyond_the_actions_is_refused_and_the_others_wait_on(store):
    space = store.space(actions=3)
    for name in QUEUES:
        make_queue(space, name)
    with Loop(space, store.clock) as loop:
        # One for the process, and three more.
        kept = [loop.add("A") for _ in range(4)]
        for wait in kept:
            wait.look()
        refused = loop.add("A")
        with pytest.raises(SystemFailureError) as caught:
            refused.look()
        assert caught.value.facts["resource"] is Resource.ACTIONS
        loop.give_up(refused)
        assert waits(space) == 4
        loop.give_up(kept[0])
        loop.add("A").look()
        assert waits(space) == 4


def test_an_interrupt_at_any_line_leaves_no_wait_after_the_next_housekeeping(store):
    space = store.space()
    make_queue(space, "Q")
    brought = []

    def bring(_seconds):
        brought.append(space.enqueue("Q", "x"))

    def wait():
        space.probe.at(Point.BEFORE_WAIT, bring)
        assert space.dequeue("Q", wait=math.inf)
        brought.clear()

    for line in at_every_line(waiting, wait):
        space.probe.leave(Point.BEFORE_WAIT)
        attachment_of(space).do_housekeeping(now=True)
        assert waits(space) == 0, line
        assert len(drain(space)) <= len(brought)
        brought.clear()
    assert line > 50


def test_a_wait_that_is_forgotten_goes_with_the_next_housekeeping(space):
    with Loop(space) as loop:
        loop.add("A").look()
        assert waits(space) == 1
        loop.open.clear()
    gc.collect()
    attachment_of(space).do_housekeeping(now=True)
    assert waits(space) == 0


class TestProcesses:
    WAITS = """
    from qmcore.acts import waiting
    from tests.fix_waits import Loop, waits
    waiting.CHECK_SECONDS = 10_000.0
    with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space, Loop(space) as loop:
        for _ in range(3):
            loop.add("Q")
        loop.settle()
        say("asleep")
        heard()
    """.replace("\n    ", "\n")

    def test_one_that_is_killed_costs_the_others_nothing_and_leaves_no_file(self, file_device, start):
        child = start(self.WAITS, file_device.path)
        child.expect("asleep")
        files = run_directory(file_device.path)
        with file_device.open_space("SPACE") as space:
            assert len(list(files.glob("*.pipe"))) == 1
            assert waits(space) == 3
            child.kill()
            with Loop(space) as loop:
                loop.add("Q")
                loop.settle()
                space.enqueue("Q", "x")
                loop.run_until(lambda: not loop.open)
                assert loop.got == ["x"]
            attachment_of(space).do_housekeeping(now=True)
            assert waits(space) == 0
        assert not list(files.glob("*.pipe"))

    def test_a_fork_leaves_the_waits_to_the_parent(self, real_device, start):
        """Also where the child gives up what it has got of them."""
        child = start(
            self.WAITS
            + """
        child = os.fork()
        if child == 0:
            space.enqueue("Q", "from the child")
            loop.__exit__()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loop.run_until(lambda: loop.got)
        say(loop.got[0], waits(space))
            """.replace("\n    ", "\n"),
            real_device.path,
        )
        child.expect("asleep")
        child.say()
        child.expect("from the child 2")
        child.finish()
