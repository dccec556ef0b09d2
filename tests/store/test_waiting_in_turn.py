"""On SQLite, those who would take any message of a queue wait in turn: as many are woken as messages have come.

The check each second that covers a lost wake-up is put off here, so that a message of which nobody is told is seen to
be left. Where it matters who is woken, wake-ups are registered that nobody sleeps on.
"""

import math
import signal
import time
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine

from qmadmin.opening import create_device, open_device
from qmcore.acts import waiting
from qmcore.purpose import Purpose
from tests.fix_store import (
    Work,
    attachment_of,
    device_path,
    drain,
    eventually,
    make_queue,
    space_definition,
    waiting_for,
)

MEMORY = 50 * 4096


@pytest.fixture(autouse=True)
def never_check(monkeypatch):
    """Let a lost wake-up be noticed by nobody."""
    monkeypatch.setattr(waiting, "CHECK_SECONDS", 1_000.0)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir):
    pass


@pytest.fixture(params=["file", "memory"])
def space(request, tmp_path):
    """A queue space on the machine's own clock."""
    with create_device(device_path(request.param, request, tmp_path), 5_000) as device:
        device.create_space(space_definition(memory=MEMORY))
        with device.open_space("SPACE") as opened:
            make_queue(opened, "Q", retries=9)
            make_queue(opened, "LATER", retries=9, retry_delay=500)
            make_queue(opened, "GROUPS", grouping=True)
            yield opened


@pytest.fixture
def two(tmp_path):
    """The same queue space twice, each by a connection of its own."""
    with create_device(tmp_path / "TWICE", 5_000) as made, open_device(tmp_path / "TWICE") as device:
        made.create_space(space_definition(memory=MEMORY))
        with made.open_space("SPACE") as one, device.open_space("SPACE") as other:
            make_queue(one, "Q")
            yield one, other


@pytest.fixture
def register():
    """Register wake-ups for a queue that nobody sleeps on, the oldest first."""
    registered = []

    def registering(space, count, name="Q", *, in_turn=True):
        attachment, queue_id = attachment_of(space), space.queue(name).id
        wakeups = [attachment.volume.wakeups.new(in_turn=in_turn) for _ in range(count)]
        registered.extend(wakeups)
        for wakeup in wakeups:
            address, owner = wakeup.address, attachment.opened.owner
            attachment.volume.write(
                lambda unit, at=address, who=owner.id: unit.waits.add(queue_id, at, who), Purpose.TIDY
            )
        return wakeups

    yield registering
    for wakeup in registered:
        wakeup.close()


def woken(wakeups):
    """Return the places of the wake-ups that have come since the last look."""
    return [place for place, wakeup in enumerate(wakeups) if wakeup.wait(0)]


def waits(space):
    """Return how many wait for messages of the queue space."""
    attachment = attachment_of(space)
    return sum(attachment.volume.read(lambda unit: unit.waits.of_space(attachment.opened.space.id)).values())


def wait_in(space, name="Q", **how):
    """Let a thread wait for a message, and return it as soon as it does."""
    before = waits(space)
    work = Work(lambda: space.dequeue(name, **({"wait": math.inf} | how)))
    eventually(lambda: waits(space) > before, "the thread waits")
    return work


class TestWhoIsRung:
    @pytest.fixture(autouse=True)
    def _at_one_moment(self, monkeypatch):
        """Let no time pass: who was woken a moment ago comes last, and on a loaded machine that is soon over."""
        now = time.monotonic()
        at_one_moment = SimpleNamespace(monotonic=lambda: now, monotonic_ns=time.monotonic_ns)
        monkeypatch.setattr("qmstorage.sqlite.wakeups.time", at_one_moment)

    def test_a_message_wakes_the_one_that_has_waited_longest(self, space, register):
        wakeups = register(space, 3)
        space.enqueue("Q", "x")
        assert woken(wakeups) == [0]

    def test_each_of_several_messages_wakes_another(self, space, register):
        wakeups = register(space, 3)
        space.enqueue("Q", "x")
        space.enqueue("Q", "y")
        assert woken(wakeups) == [0, 1]

    def test_where_all_were_woken_a_moment_ago_one_is_woken_again(self, space, register):
        wakeups = register(space, 2)
        for _ in range(2):
            space.enqueue("Q", "x")
        assert woken(wakeups) == [0, 1]
        space.enqueue("Q", "x")
        assert woken(wakeups) == [0]

    def test_the_only_one_is_woken_each_time(self, space, register):
        wakeups = register(space, 1)
        for _ in range(3):
            space.enqueue("Q", "x")
            assert woken(wakeups) == [0]

    def test_a_commit_wakes_as_many_as_it_brings_messages(self, space, register):
        wakeups = register(space, 5)
        with space.transaction():
            for _ in range(3):
                space.enqueue("Q", "x")
        assert woken(wakeups) == [0, 1, 2]

    def test_more_messages_than_wait_wake_all(self, space, register):
        wakeups = register(space, 3)
        with space.transaction():
            for _ in range(9):
                space.enqueue("Q", "x")
        assert woken(wakeups) == [0, 1, 2]

    def test_many_that_are_enqueued_together_wake_as_many(self, space, register):
        wakeups = register(space, 5)
        space.enqueue_many("Q", ["a", "b", "c"])
        assert woken(wakeups) == [0, 1, 2]

    def test_a_message_that_is_kept_in_memory_wakes_one(self, space, register):
        wakeups = register(space, 3)
        space.enqueue("Q", "x", persistent=False)
        assert woken(wakeups) == [0]

    def test_a_message_that_comes_back_by_a_rollback_wakes_one(self, space, register):
        space.enqueue("Q", "x")
        with space.transaction() as transaction:
            space.dequeue("Q")
            wakeups = register(space, 3)
            transaction.rollback()
        assert woken(wakeups) == [0]

    def test_a_message_that_is_kept_back_wakes_all_so_that_each_knows_when_it_is_due(self, space, register):
        wakeups = register(space, 3)
        space.enqueue("Q", "x", delay=500)
        assert woken(wakeups) == [0, 1, 2]

    def test_a_message_that_waits_for_its_next_try_wakes_all(self, space, register):
        space.enqueue("LATER", "x")
        with space.transaction() as transaction:
            space.dequeue("LATER")
            wakeups = register(space, 3, "LATER")
            transaction.rollback()
        assert woken(wakeups) == [0, 1, 2]

    def test_a_queue_that_is_stopped_wakes_all(self, space, register):
        wakeups = register(space, 3)
        space.stop_queue("Q")
        assert woken(wakeups) == [0, 1, 2]

    def test_those_who_choose_are_woken_at_each_message(self, space, register):
        choosy, wakeups = register(space, 3, in_turn=False), register(space, 3)
        space.enqueue("Q", "x")
        assert woken(choosy) == [0, 1, 2]
        assert woken(wakeups) == [0]
        space.enqueue("Q", "x")
        assert woken(choosy) == [0, 1, 2]
        assert woken(wakeups) == [1]

    def test_a_wake_up_that_is_gone_costs_the_others_nothing(self, space, register):
        wakeups = register(space, 3)
        for wakeup in wakeups[:2]:
            wakeup.close()
        space.enqueue("Q", "x")
        assert wakeups[2].wait(0)

    def test_what_the_application_commits_wakes_as_many_as_it_brings(self, file_device, register):
        engine = create_engine(f"sqlite:///{file_device.path}")
        with file_device.open_space("SPACE") as space:
            wakeups = register(space, 3)
            with engine.begin() as connection:
                for _ in range(2):
                    space.enqueue("Q", "x", connection=connection)
            assert all(wakeup.wait(90) for wakeup in wakeups[:2])
            assert not wakeups[2].wait(0)
        engine.dispose()


class TestWhoWaitsInTurn:
    @pytest.mark.parametrize(
        "wait",
        [
            lambda space, **how: space.dequeue("Q", corrid="a", **how),
            lambda space, **how: space.dequeue("Q", corrid_like="a%", **how),
            lambda space, **how: space.dequeue("Q", condition="priority > 1", **how),
            lambda space, **how: space.peek("Q", **how),
            lambda space, **how: space.listen(["LATER", "Q"], **how),
        ],
        ids=["corrid", "pattern", "condition", "peek", "listen"],
    )
    def test_whoever_chooses_or_takes_nothing_is_woken_beside_those_who_take_any(self, space, register, wait):
        wakeups = register(space, 3)
        work = Work(lambda: wait(space, wait=math.inf))
        eventually(lambda: waits(space) == 4, "the thread waits")
        space.enqueue("Q", "x", corrid="a")
        assert woken(wakeups) == [0]
        (found,) = work.results()
        assert found == "Q" or found.text == "x"

    def test_whoever_waits_for_any_message_is_not_woken_where_another_was(self, space, register):
        (wakeup,) = register(space, 1)
        work = wait_in(space)
        space.enqueue("Q", "x")
        assert wakeup.wait(0)
        assert space.dequeue("Q").text == "x"
        assert waits(space) == 2
        space.enqueue("Q", "y")
        assert [message.text for message in work.results()] == ["y"]

    def test_so_does_whoever_locks_any_message(self, space, register):
        def lock():
            with space.transaction() as transaction:
                locked = space.lock("Q", wait=math.inf).text
                transaction.rollback()
            return locked

        work = Work(lock)
        eventually(lambda: waits(space) == 1, "the thread waits")
        (wakeup,) = register(space, 1)
        space.enqueue("Q", "x")
        assert work.results() == ["x"]
        assert space.dequeue("Q").text == "x"
        # It came back by the rollback.
        assert wakeup.wait(0)


class TestPassedOn:
    """What is left by one who was woken reaches the others."""

    @pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
    def test_one_wake_up_for_many_messages_serves_all_who_wait(self, two, monkeypatch, persistent):
        space, other = two
        works = [wait_in(space) for _ in range(4)]
        volume = attachment_of(other).volume
        wake = volume.wakeups.wake
        monkeypatch.setattr(volume.wakeups, "wake", lambda addresses, at_most: wake(addresses, min(at_most, 1)))
        with other.transaction():
            for text in "abcd":
                other.enqueue("Q", text, persistent=persistent)
        assert sorted(work.results()[0].text for work in works) == ["a", "b", "c", "d"]

    def test_whoever_takes_the_last_message_wakes_nobody(self, space, register):
        work = wait_in(space)
        wakeups = register(space, 2)
        space.enqueue("Q", "x")
        assert [message.text for message in work.results()] == ["x"]
        assert woken(wakeups) == []

    def test_whoever_was_woken_for_what_another_took_goes_on_waiting(self, space):
        work = wait_in(space)
        volume, queue_id = attachment_of(space).volume, space.queue("Q").id
        for _ in range(3):
            volume.write(lambda unit: unit.waits.notify(queue_id), Purpose.TIDY)
        assert waits(space) == 1
        space.enqueue("Q", "x")
        assert [message.text for message in work.results()] == ["x"]

    def test_one_that_leaves_the_queue_space_passes_its_wake_up_on(self, two, register):
        one, other = two
        (wakeup,) = register(one, 1)
        work = wait_in(other)
        other.enqueue("Q", "x")
        assert wakeup.wait(0)
        one.close()
        assert [message.text for message in work.results()] == ["x"]

    WAITS = """
from qmcore.acts import waiting
waiting.CHECK_SECONDS = 1_000.0
with open_device(sys.argv[1]) as device, device.open_space("SPACE") as space:
    say("ready")
    try:
        space.dequeue("Q", wait=60)
    except KeyboardInterrupt:
        say("interrupted")
"""

    @pytest.fixture
    def child(self, file_device, start):
        """A process that waits longest."""
        child = start(self.WAITS, file_device.path)
        child.expect("ready")
        eventually(lambda: waiting_for(file_device.path) == 1, "the process waits")
        return child

    def test_one_that_is_interrupted_when_it_is_woken_passes_the_wake_up_on(self, file_device, child):
        with file_device.open_space("SPACE") as space:
            work = wait_in(space)
            child.freeze()
            space.enqueue("Q", "x")
            child.signal(signal.SIGINT)
            child.signal(signal.SIGCONT)
            assert [message.text for message in work.results()] == ["x"]
        child.expect("interrupted")
        child.finish()

    def test_one_that_was_killed_is_passed_over(self, file_device, child):
        with file_device.open_space("SPACE") as space:
            work = wait_in(space)
            child.kill()
            space.enqueue("Q", "x")
            assert [message.text for message in work.results()] == ["x"]

    def test_whoever_finds_dead_one_that_was_woken_passes_its_wake_up_on(self, file_device, child):
        with file_device.open_space("SPACE") as space:
            work = wait_in(space)
            child.freeze()
            space.enqueue("Q", "x")
            assert waits(space) == 2
            child.kill()
            attachment_of(space).do_housekeeping(now=True)
            assert [message.text for message in work.results()] == ["x"]
            assert drain(space) == []
