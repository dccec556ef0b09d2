"""On PostgreSQL all go by the server's clock, whatever that of their own machine says."""

import contextlib
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmadmin import create_device, open_device
from qmcore.times import MICROS, SystemClock
from qmstorage.postgres.clock import Reading, ServerClock, elapsed
from qmstorage.postgres.liveness import Liveness, Patience
from tests.fix_store import DEADLINE, eventually, make_queue, space_definition

HOUR = 3600
LATE = 60
"""Seconds for which others may go on by the clock as it was."""


@pytest.fixture
def wrong(monkeypatch):
    """Let the clock of this machine be an hour ahead."""
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() + HOUR * 10**9)


def seconds_between(clock, other):
    return abs(clock.now() - other.now()) / MICROS


def test_a_client_whose_clock_is_an_hour_ahead_expires_nothing_of_others(database_url, request):
    with create_device(database_url, 5_000) as device:
        device.create_space(space_definition())
        with device.open_space("SPACE") as space:
            make_queue(space)
            space.enqueue("Q", "worth something for ten minutes", expires_in=600)
            request.getfixturevalue("wrong")
            with open_device(database_url) as ahead, ahead.open_space("SPACE") as its:
                assert its.dequeue("Q", corrid="none") is None
                its.enqueue("Q", "in ten minutes", delay=600)
            usage = space.usage("Q")
            assert (usage.ready, usage.delayed, usage.expired) == (1, 1, 0)
            (delayed,) = [each for each in space.messages("Q") if each.available_us is not None]
            assert 0 <= delayed.available_us - device.clock.now() <= 600 * MICROS


def test_what_a_device_says_of_its_age_is_the_servers_time_too(database_url, wrong):
    with create_device(database_url, 5_000) as device:
        assert seconds_between(device.clock, SystemClock()) > HOUR / 2
        assert device.info.created_at <= device.clock.now()


def test_a_sign_of_life_sets_the_clock(database_url):
    from qmstorage.postgres import connection_timeouts
    from qmstorage.postgres.address import Address

    clock = ServerClock()
    clock.learn(Reading(0, 0, 0))
    address = Address.parse(database_url)
    patience = Patience(ping_seconds=0.01)
    liveness = Liveness(lambda: connection_timeouts.connected(address), "nowhere", patience, clock=clock)
    with contextlib.closing(liveness):
        liveness.listen(liveness.wakeup().address, 1)
        eventually(lambda: seconds_between(clock, SystemClock()) < HOUR, "the clock is set")


def test_a_session_that_has_asked_for_other_things_asks_for_the_time_when_nobody_has_for_long(database_url):
    from qmstorage.postgres import connection_timeouts
    from qmstorage.postgres.address import Address

    clock, long_ago = ServerClock(), -10 * HOUR * MICROS
    clock.learn(Reading(long_ago, long_ago, long_ago))
    address = Address.parse(database_url)
    patience = Patience(ping_seconds=HOUR)
    liveness = Liveness(lambda: connection_timeouts.connected(address), "nowhere", patience, clock=clock)
    with contextlib.closing(liveness):
        liveness.listen(liveness.wakeup().address, 1)
        eventually(lambda: seconds_between(clock, SystemClock()) < HOUR, "the clock is set")


class TestReadings:
    def test_the_first_one_is_taken_at_its_middle(self):
        clock = ServerClock()
        assert not clock.is_set
        begun = elapsed()
        clock.learn(Reading(begun, begun + HOUR * MICROS, begun + 10))
        assert clock.is_set
        assert clock.now() - elapsed() - HOUR * MICROS in range(-1_000_000, 0)

    def test_one_that_took_long_moves_nothing_that_it_allows(self):
        clock = ServerClock()
        clock.learn(Reading(1000, 1000, 1000))
        clock.learn(Reading(2000, 2500, 9000))
        assert abs(clock.now() - elapsed()) < MICROS

    def test_a_step_of_the_servers_clock_is_followed(self):
        clock = ServerClock()
        clock.learn(Reading(1000, 1000, 1000))
        clock.learn(Reading(2000, 2000 + HOUR * MICROS, 2000))
        assert abs(clock.now() - elapsed() - HOUR * MICROS) < MICROS

    def test_a_fork_while_a_thread_learns_leaves_it_usable(self):
        clock, learns, goes_on = ServerClock(), threading.Event(), threading.Event()

        class Slow(Reading):
            @property
            def said(self):
                learns.set()
                goes_on.wait()
                return 0

        parents, childs = (
            threading.Thread(target=clock.learn, args=[reading], daemon=True)
            for reading in (Slow(0, 0, 0), Reading(0, 0, 0))
        )
        parents.start()
        learns.wait()
        # As the child does, in which that thread is not there.
        clock.abandon()
        childs.start()
        childs.join(DEADLINE)
        assert clock.is_set
        goes_on.set()
        parents.join(DEADLINE)

    def test_no_step_of_the_machines_clock_moves_it(self, request):
        clock = ServerClock()
        clock.learn(Reading(elapsed(), SystemClock().now(), elapsed()))
        before = clock.now()
        request.getfixturevalue("wrong")
        assert clock.now() - before < HOUR * MICROS // 2
        assert clock.steady() - before < HOUR * MICROS // 2


class TestSteps:
    """What counts as one, by readings in seconds: when the server was asked, what it said, when it had answered."""

    def noted(self, *readings):
        clock = ServerClock()
        for reading in readings:
            clock.learn(Reading(*(round(each * MICROS) for each in reading)))
        return [(step.number, step.by / MICROS) for step in clock.steps_after(0)]

    def test_each_time_that_the_clock_was_set_is_one(self):
        assert self.noted((0, 0, 0), (10, 3610, 10), (20, 3620, 20), (30, 2630, 30)) == [(1, 3600), (2, -1000)]

    def test_a_slow_answer_is_none(self):
        assert self.noted((0, 0, 0), (10, 19, 20), (30, 30, 30)) == []

    def test_an_answer_that_follows_a_slow_one_is_none(self):
        assert self.noted((0, 0, 10), (20, 20, 20)) == []
        assert self.noted((0, 10, 10), (20, 20, 20)) == []

    def test_one_of_which_a_slow_answer_tells_is_one_and_not_two(self):
        assert self.noted((0, 0, 0), (10, 3612, 20), (30, 3630, 30)) == [(1, 3592)]

    def test_drift_is_none_however_long_nobody_has_asked(self):
        assert self.noted((0, 0, 0), (10, 10.3, 10), (HOUR, HOUR + 2, HOUR), (HOUR + 10, HOUR + 12, HOUR + 10)) == []
        assert self.noted((0, 0, 0), (10, 12, 10)) == [(1, 2)]

    def test_an_answer_that_was_overtaken_is_none(self):
        assert self.noted((0, 0, 0), (12, 3612, 12), (10, 10, 10), (20, 3620, 20)) == [(1, 3600)]

    def test_those_that_were_seen_to_are_left_out(self):
        clock = ServerClock()
        for number in range(40):
            clock.learn(Reading(number * MICROS, number * HOUR * MICROS, number * MICROS))
        assert [step.number for step in clock.steps_after(37)] == [38, 39]
        assert clock.steps_after(39) == []


class Judge:
    """A process that knows the server's clock and nothing else; its own begins at 1000 seconds."""

    def __init__(self, monkeypatch):
        self._clock = ServerClock()
        self.now = 1000
        monkeypatch.setattr(time, "clock_gettime_ns", lambda _clock: self.now * 10**9)
        self.ask(0)

    def ask(self, ahead):
        """Ask the server, which is so far ahead."""
        now = self.now * MICROS
        self._clock.learn(Reading(now, now + ahead * MICROS, now))

    def sees_over(self, started, timeout):
        """Return whether a transaction's time is over that began then by the server's clock, and may last so long."""
        return self._clock.is_over(started * MICROS, (started + timeout) * MICROS)

    def is_over_at(self, moment, started, timeout):
        """Tell that it is over from that moment on, and not before."""
        self.now = moment - 1
        before = self.sees_over(started, timeout)
        self.now = moment
        return self.sees_over(started, timeout) and not before


@pytest.fixture
def judge(monkeypatch):
    return Judge(monkeypatch)


class TestWhetherATimeIsOver:
    @pytest.fixture(params=[HOUR, -HOUR, 5 * HOUR], ids=["forward", "back", "far-forward"])
    def ahead(self, request, judge):
        """Let the server's clock be set, and the judge notice that at 2000 seconds."""
        judge.now = 2000
        judge.ask(request.param)
        return request.param

    def test_of_what_was_open_when_the_clock_was_set(self, judge, ahead):
        assert judge.is_over_at(1950 + 600, started=1950, timeout=600)

    def test_of_what_began_since(self, judge, ahead):
        assert judge.is_over_at(2100 + 600, started=2100 + ahead, timeout=600)
        assert judge.is_over_at(2100 + 6 * HOUR, started=2100 + ahead, timeout=6 * HOUR)

    def test_of_what_began_since_by_the_clock_as_it_was(self, judge, ahead):
        assert judge.is_over_at(2050 + 600, started=2050, timeout=600)

    def test_of_what_began_before_and_was_moved_with_the_clock(self, judge, ahead):
        assert judge.is_over_at(1950 + 600, started=1950 + ahead, timeout=600)

    def test_of_what_began_before_it_was_known_and_the_clock_was_set_back_since(self, judge):
        assert judge.is_over_at(1000 + LATE + 600, started=9000, timeout=600)

    @given(
        steps=st.lists(
            st.tuples(st.sampled_from(range(1_000, 6_000, 10)), st.integers(-2 * HOUR, 2 * HOUR)), max_size=5
        ),
        began=st.integers(1_000, 6_000),
        unaware=st.integers(0, LATE - 10),
        timeout=st.integers(1, 2_000),
        follows=st.booleans(),
    )
    def test_is_right_but_for_what_nobody_can_know(self, steps, began, unaware, timeout, follows):
        """However often the clock was set, whether its process knew of that, and whether it has moved the times since.

        Each setting lasts until the clock is asked: what is taken back before is known to nobody.
        It is never over early, and where a moment may have been several, late by no more than these are apart.
        """

        def ahead_at(moment):
            return sum(by for at, by in steps if at <= moment)

        def started():
            return began + ahead_at(judge.now if follows else began - unaware)

        with pytest.MonkeyPatch.context() as patch:
            judge = Judge(patch)
            for judge.now in range(1_000, began + timeout, 10):
                judge.ask(ahead_at(judge.now))
                assert judge.now < began or not judge.sees_over(started(), timeout)
            aheads = [0, *(ahead_at(at) for at, _ in steps)]
            judge.now = began + timeout + max(aheads) - min(aheads)
            judge.ask(ahead_at(judge.now))
            assert judge.sees_over(started(), timeout)
