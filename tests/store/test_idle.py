"""What waiting costs while nothing happens: hundreds of processes may wait, and must not keep a core busy."""

import math

import pytest

from qmadmin.opening import open_device
from qmcore.acts import housekeeping, waiting
from qmcore.errors import BadQueueError
from qmcore.records import Nothing
from qmstorage.sqlite.files import run_directory
from tests.fix_store import Work, eventually, make_queue


@pytest.fixture
def space(file_store):
    opened = file_store.space(error_queue="ERRORS")
    for name in ("Q", "ERRORS"):
        make_queue(opened, name)
    return opened


def waits(space):
    """Return who waits for messages of the queue space."""
    attachment = space._attachment
    return attachment.volume.read(lambda unit: unit.waits(attachment.opened.space.id))


@pytest.fixture
def upkeeps(monkeypatch):
    """How often somebody has looked for what others left behind."""
    counted = []
    end_what_was_left = housekeeping.end_what_was_left

    def counting(*args):
        counted.append(args)
        return end_what_was_left(*args)

    monkeypatch.setattr(housekeeping, "end_what_was_left", counting)
    return counted


def test_one_process_of_all_looks_after_a_queue_space_in_a_second(file_store, space, clock, upkeeps):
    spaces = [space, *(file_store.another().open_space("SPACE") for _ in range(4))]
    for _ in range(3):
        clock.advance(1)
        upkeeps.clear()
        for each in spaces:
            each._attachment.look_after()
        assert len(upkeeps) == 1


def test_it_is_looked_after_at_once_where_somebody_misses_what_another_holds(space, clock, upkeeps):
    space.enqueue("Q", "x")
    clock.advance(1)
    space._attachment.look_after()
    upkeeps.clear()
    with space.transaction():
        space.dequeue("Q")
        assert space.dequeue("Q", transactional=False) is None
    assert len(upkeeps) == 1


def test_a_clock_that_was_set_back_keeps_nobody_from_looking_after_it(file_store, space, clock, upkeeps):
    clock.advance(10)
    space._attachment.look_after()
    clock.set_back(8)
    clock.advance(1.1)
    upkeeps.clear()
    space._attachment.look_after()
    assert len(upkeeps) == 1


def test_where_the_time_cannot_be_noted_everybody_looks(file_store, space, clock, upkeeps):
    (run_directory(file_store.path) / f"{space._attachment.opened.space.id}.turn").mkdir()
    other = file_store.another().open_space("SPACE")
    clock.advance(1)
    for each in (space, other):
        each.enqueue("Q", "x")
    assert len(upkeeps) == 2


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
            volume = space._attachment.volume
            looks, writes = [], []
            changes, done = volume.changes, volume.done
            monkeypatch.setattr(volume, "changes", lambda: looks.append(1) or changes())
            monkeypatch.setattr(volume, "done", lambda *args, **how: writes.append(1) or done(*args, **how))
            work = Work(lambda: space.dequeue("Q", wait=math.inf))
            # One to look, one to hang up the bell, and one that looks again.
            eventually(lambda: len(writes) == 3, "it waits")
            before = len(looks)
            eventually(lambda: len(looks) > before + 5, "it has looked several times")
            assert len(writes) == 3
            space.enqueue("Q", "x")
            assert work.results()[0].text == "x"

    def test_a_message_is_found_for_which_no_bell_was_rung(self, file_device, device, monkeypatch):
        with file_device.open_space("SPACE") as space, device.open_space("SPACE") as other:
            monkeypatch.setattr(other._attachment.volume, "ring", lambda *_: None)
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
    def longest(self, space):
        attachment = space._attachment
        opened, volume = attachment.opened, attachment.volume

        def longest_where(waits):
            def add(unit):
                for number in range(waits):
                    unit.add_waiter(opened.definitions(unit).queue("Q").id, f"bell {number}", opened.owner.id)

            volume.write(add)
            return waiting._Wait(None, volume, opened, None, math.inf, None, None, in_turn=False)._longest_pause()

        return longest_where

    @pytest.mark.parametrize(("waits", "seconds"), [(1, 1), (6, 1), (40, 6), (1000, 15)])
    def test_each_looks_the_less_often_the_more_wait_but_in_some_seconds(self, longest, waits, seconds):
        assert longest(waits) == pytest.approx(seconds)

    @pytest.fixture
    def wait_on(self, space, monkeypatch):
        """A wait among so many that each sleeps for forty seconds, on a bell that says for how long it is waited on."""
        monkeypatch.setattr(waiting._Wait, "_longest_pause", lambda _: 40.0)
        attachment = space._attachment
        slept = []

        class Bell:
            rings = 20
            address = "bell"

            def wait(self, seconds):
                slept.append(seconds)
                return len(slept) == self.rings

            def close(self):
                """Be taken down."""

        def wait_on(attempt, look_after):
            return waiting._Wait(
                attempt, attachment.volume, attachment.opened, space._device.clock, math.inf, None, look_after, True
            )

        monkeypatch.setattr(attachment.volume, "bell", lambda **_: Bell())
        return wait_on, Bell(), slept

    def test_they_do_not_look_at_the_same_time(self, space, wait_on):
        """Where nothing is changed, a look is followed by a sleep of three quarters to all of the longest."""
        made, bell, slept = wait_on
        looks = []
        changes = space._attachment.volume.changes()
        made(None, lambda: looks.append(1))._sleep(bell, Nothing((), None), changes, waiting.CHECK_SECONDS)
        assert slept[0] == waiting.CHECK_SECONDS
        assert all(30 <= seconds <= 40 for seconds in slept[1:])
        assert len(set(slept)) > 2
        assert len(looks) == 19

    def test_nor_do_they_try_each_second_where_other_queues_are_busy(self, space, wait_on, monkeypatch):
        made, _, slept = wait_on
        volume, tries = space._attachment.volume, []
        monkeypatch.setattr(volume, "changes", object)

        def attempt():
            tries.append(len(slept))
            return "came" if len(tries) > 30 else Nothing((space.queue("Q").id,), None)

        assert made(attempt, None).try_at_each_ring(Nothing((space.queue("Q").id,), None)) == "came"
        assert tries == list(range(31))
        # Behind a ring, there may be something the sooner.
        is_long = [30 <= seconds <= 40 for seconds in slept]
        assert [at for at, long in enumerate(is_long) if not long] == [0, 20]
