"""What waiting costs while nothing happens: hundreds of processes may wait, and must not keep a core busy."""

import math

import pytest

from qmadmin.opening import open_device
from qmcore.acts import waiting
from qmcore.errors import BadQueueError
from qmcore.purpose import Purpose
from qmcore.records import Nothing
from tests.fix_store import Work, attachment_of, eventually, make_queue


@pytest.fixture
def space(file_store):
    opened = file_store.space(error_queue="ERRORS", actions=2000)
    for name in ("Q", "ERRORS"):
        make_queue(opened, name)
    return opened


def waits(space):
    """Return who waits for messages of the queue space."""
    attachment = attachment_of(space)
    return attachment.volume.read(lambda unit: unit.waits.of_space(attachment.opened.space.id))


class TestWaiting:
    """On the machine's own clock, and with a look each two hundredths of a second."""

    @pytest.fixture(autouse=True)
    def hurried(self, monkeypatch):
        monkeypatch.setattr(waiting, "CHECK_SECONDS", 0.02)

    @pytest.fixture
    def device(self, file_device):
        with open_device(file_device.path) as other:
            yield other

    def test_nobody_tries_to_take_where_nothing_was_changed(self, file_device, monkeypatch):
        with file_device.open_space("SPACE") as space:
            volume = attachment_of(space).volume
            looks, writes = [], []
            changes, done = volume.changes, volume.done
            monkeypatch.setattr(volume, "changes", lambda: looks.append(1) or changes())
            monkeypatch.setattr(volume, "done", lambda *args, **how: writes.append(1) or done(*args, **how))
            work = Work(lambda: space.dequeue("Q", wait=math.inf))
            # One to look, one to register the wake-up, and one that looks again.
            eventually(lambda: len(writes) == 3, "it waits")
            before = len(looks)
            eventually(lambda: len(looks) > before + 5, "it has looked several times")
            assert len(writes) == 3
            space.enqueue("Q", "x")
            assert work.results()[0].text == "x"

    def test_a_message_is_found_for_which_no_wake_up_was_sent(self, file_device, device, monkeypatch):
        with file_device.open_space("SPACE") as space, device.open_space("SPACE") as other:
            monkeypatch.setattr(attachment_of(other).volume.wakeups, "wake", lambda *_: None)
            work = Work(lambda: space.dequeue("Q", wait=math.inf))
            eventually(lambda: waits(space), "it waits")
            other.enqueue("Q", "x")
            assert work.results()[0].text == "x"

    def test_a_queue_that_is_stopped_meanwhile_ends_the_wait(self, file_device, device):
        with file_device.open_space("SPACE") as space, device.open_space("SPACE") as other:
            work = Work(lambda: space.dequeue("Q", wait=math.inf))
            eventually(lambda: waits(space), "it waits")
            other.stop_queue("Q")
            (refusal,) = work.results()
            assert isinstance(refusal, BadQueueError)


class TestManyWait:
    """How long those sleep who wait, while nothing is changed."""

    @pytest.fixture
    def wakeup(self, space, monkeypatch):
        """The wakeup of the next wait: it says for how long it was waited on each time, and rings once."""

        class Wakeup:
            waits = 20
            address = "wake-up"

            def __init__(self):
                self.slept = []

            def wait(self, seconds):
                self.slept.append(seconds)
                return len(self.slept) == self.waits

            def close(self):
                """Be taken down."""

        made = Wakeup()
        monkeypatch.setattr(attachment_of(space).volume.wakeups, "new", lambda **_: made)
        return made

    @pytest.fixture
    def wait_beside(self, space, clock):
        """Wait for what an attempt brings, beside so many others."""
        attachment = attachment_of(space)
        volume, opened, queue_id = attachment.volume, attachment.opened, space.queue("Q").id

        def wait_beside(others, attempt, do_housekeeping=lambda: None):
            def add(unit):
                for number in range(1, others + 1):
                    unit.waits.add(queue_id, f"wake-up {number}", opened.owner.id)

            volume.write(add, Purpose.ADMINISTRATION)
            return waiting.wait_for(
                lambda: attempt() or Nothing((queue_id,), None),
                volume,
                opened,
                clock,
                math.inf,
                do_housekeeping=do_housekeeping,
                in_turn=True,
            )

        return wait_beside

    @pytest.mark.parametrize(("waits", "seconds"), [(1, 1), (6, 1), (40, 6), (1000, 15)])
    def test_each_looks_the_less_often_the_more_wait_but_in_some_seconds(
        self, wakeup, wait_beside, monkeypatch, waits, seconds
    ):
        monkeypatch.setattr(waiting.random, "uniform", lambda _, high: high)
        wait_beside(waits - 1, lambda: len(wakeup.slept) == wakeup.waits)
        assert wakeup.slept == [waiting.CHECK_SECONDS, *[pytest.approx(seconds)] * (wakeup.waits - 1)]

    def test_they_do_not_look_at_the_same_time(self, wakeup, wait_beside):
        """Where nothing is changed, a look is followed by a sleep of three quarters to all of the longest."""
        looks = []
        wait_beside(999, lambda: len(wakeup.slept) == wakeup.waits, lambda: looks.append(1))
        assert wakeup.slept[0] == waiting.CHECK_SECONDS
        assert all(0.75 * 15 <= seconds <= 15 for seconds in wakeup.slept[1:])
        assert len(set(wakeup.slept)) > 2
        assert len(looks) == 19

    def test_nor_do_they_try_each_second_where_other_queues_are_busy(self, space, wakeup, wait_beside, monkeypatch):
        tries = []
        monkeypatch.setattr(attachment_of(space).volume, "changes", object)

        def attempt():
            tries.append(len(wakeup.slept))
            return "came" if wakeup.slept and tries[-1] == 30 else None

        assert wait_beside(999, attempt) == "came"
        # Once before it waits.
        assert tries == [0, *range(31)]
        # After a wake-up, there may be something the sooner.
        is_long = [0.75 * 15 <= seconds <= 15 for seconds in wakeup.slept]
        assert [at for at, long in enumerate(is_long) if not long] == [0, 20]
