"""What is counted of the calls for a queue: over all time, over the last minute and over the last minutes."""

from __future__ import annotations

import pickle
import random
import threading

import pytest

from qmadmin.consumers import Wording
from qmadmin.consumers.statistics import SLICE_SECONDS, SLICES, Rate, RecentDurations, Reporter, Statistics, rounded_up
from qmcore.errors import SystemFailureError
from qmcore.records import Forwarding
from tests.fix_store import MovableClock, Work


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def figures(clock):
    return Statistics("Q", workers=4, clock=clock)


def call(figures, seconds=0.001, times=1):
    for _ in range(times):
        figures.began()
        figures.succeeded(seconds)


class TestCounting:
    def test_nothing_has_happened_at_first(self, figures, clock):
        assert figures.forwarding() == Forwarding(queue="Q", workers=4, changed_us=clock.now())

    def test_each_end_of_a_call_is_counted_by_its_kind(self, figures):
        for _ in range(7):
            figures.began()
        figures.succeeded(1)
        figures.failed("no", 1, retries=True)
        figures.failed("never", 1, retries=False)
        figures.unavailable("down")
        figures.abandoned()
        told = figures.forwarding()
        assert (told.calls, told.successes, told.failures, told.retries, told.refused) == (7, 1, 2, 1, 1)
        assert (told.in_flight, told.workers) == (2, 4)

    def test_replies_that_are_dropped_are_counted(self, figures):
        figures.reply_dropped()
        figures.reply_dropped()
        assert figures.forwarding().dropped_replies == 2

    def test_the_last_error_is_kept_with_its_time_until_there_is_another(self, figures, clock):
        figures.began()
        figures.failed("no", 1, retries=True)
        then = clock.now()
        clock.advance(5)
        call(figures)
        told = figures.forwarding()
        assert (told.last_error, told.last_error_us) == ("no", then)
        figures.began()
        figures.unavailable("down")
        told = figures.forwarding()
        assert (told.last_error, told.last_error_us) == ("down", clock.now())

    def test_a_pause_is_told_with_its_reason_until_it_ends(self, figures, clock):
        figures.paused(5e-6, "no room")
        told = figures.forwarding()
        assert (told.paused_until_us, told.trouble) == (clock.now() + 5, "no room")
        figures.resumed()
        told = figures.forwarding()
        assert (told.paused_until_us, told.trouble) == (None, "")

    def test_the_number_of_workers_may_change(self, figures):
        figures.set_workers(9)
        assert figures.forwarding().workers == 9

    def test_threads_do_not_lose_what_each_other_counts(self, clock):
        figures = Statistics("Q", clock=clock)

        def work():
            for at in range(2000):
                figures.began()
                if at % 2:
                    figures.failed("no", 0.5, retries=True)
                else:
                    figures.succeeded(0.5)
            return threading.get_ident()

        assert len(set(Work(*[work] * 4).results())) == 4
        told = figures.forwarding()
        assert (told.calls, told.successes, told.failures, told.retries) == (8000, 4000, 4000, 4000)
        assert (told.in_flight, told.rate, told.p50_us) == (0, 4000, 500_000)
        assert figures.took([]).seconds == 4000


class TestTheRate:
    def test_it_is_that_of_the_last_minute(self, figures, clock):
        call(figures, times=10)
        clock.advance(30)
        call(figures, times=5)
        assert figures.forwarding().rate == 15
        clock.advance(29)
        assert figures.forwarding().rate == 15
        clock.advance(1)
        assert figures.forwarding().rate == 5
        clock.advance(30)
        assert figures.forwarding().rate == 0

    def test_a_failure_forwards_nothing(self, figures):
        figures.began()
        figures.failed("no", 1, retries=True)
        assert figures.forwarding().rate == 0

    def test_many_seconds_take_no_more_room_than_those_of_a_minute(self):
        rate, sizes = Rate(), []
        for second in range(300, 1300):
            rate.add(second)
            sizes.append(len(pickle.dumps(rate)))
        assert max(sizes) == sizes[59]
        assert rate.of_last_minute(1299) == 60


class TestPercentiles:
    @pytest.mark.parametrize(
        ("micros", "rounded"),
        [(0, 0), (99, 99), (100, 100), (101, 110), (110, 110), (999, 1000), (1234, 1300), (98_000_001, 99 * 10**6)],
    )  # fmt: skip
    def test_times_are_kept_to_two_digits_rounded_up(self, micros, rounded):
        assert rounded_up(micros) == rounded

    def test_they_are_those_of_all_ended_calls(self, figures):
        for milliseconds in range(1, 101):
            figures.began()
            if milliseconds % 3:
                figures.succeeded(milliseconds / 1000)
            else:
                figures.failed("no", milliseconds / 1000, retries=True)
        told = figures.forwarding()
        assert (told.p50_us, told.p95_us, told.p99_us) == (50_000, 95_000, 99_000)

    def test_of_one_call_they_are_its_time(self, figures):
        call(figures, 0.0123)
        told = figures.forwarding()
        assert (told.p50_us, told.p95_us, told.p99_us) == (13_000, 13_000, 13_000)

    def test_they_are_no_less_than_what_was_measured_and_a_tenth_more_at_most(self):
        times = [int(random.Random(at).lognormvariate(9, 3)) for at in range(500)]
        recently = RecentDurations()
        for micros in times:
            recently.add(micros, 0)
        for percent, found in zip((50, 95, 99), recently.percentiles(0, 50, 95, 99), strict=True):
            exact = sorted(times)[-(-len(times) * percent // 100) - 1]
            assert exact <= found <= exact * 1.1 + 1

    def test_calls_of_long_ago_do_not_count(self, figures, clock):
        call(figures, 9)
        clock.advance(SLICE_SECONDS * (SLICES - 1))
        call(figures, 1)
        assert figures.forwarding().p99_us == 9_000_000
        clock.advance(SLICE_SECONDS)
        assert figures.forwarding().p99_us == 1_000_000
        clock.advance(SLICE_SECONDS * (SLICES - 1))
        assert figures.forwarding().p99_us is None

    def test_they_take_no_more_room_however_many_calls_there_are(self):
        recently = RecentDurations()
        generator = random.Random(1)
        for at in range(20_000):
            recently.add(int(generator.lognormvariate(9, 3)), at)
        # A number with two digits and how often it came: at most nine bytes.
        assert len(pickle.dumps(recently)) <= SLICES * 90 * 12 * 9

    def test_a_time_below_zero_is_none(self, figures):
        """As where somebody takes it from a clock that was set back."""
        call(figures, -1)
        assert figures.forwarding().p50_us == 0

    def test_what_all_calls_took_is_kept_beside_them(self, figures, clock):
        call(figures, 0.004, times=3)
        clock.advance(10_000)
        call(figures, 0.005)
        call(figures, 0.0051)
        call(figures, 20)
        took = figures.took([5_000, 10_000, 25_000_000])
        assert (took.calls, took.within) == (6, (4, 5, 6))
        assert took.seconds == pytest.approx(20.0221)


class Listener:
    """The part of a queue space that is told something."""

    def __init__(self):
        self.told = []
        self.whole = []
        self.broken = False

    def report_forwarding(self, told, *, whole):
        if self.broken:
            raise SystemFailureError("the store failed")
        self.told.append([(each.queue, each.calls) for each in told])
        self.whole.append(whole)


class TestTelling:
    @pytest.fixture
    def two(self, clock):
        return Statistics("A", clock=clock), Statistics("B", clock=clock)

    @pytest.fixture
    def listener(self):
        return Listener()

    @pytest.fixture
    def reporter(self, listener, two, clock):
        return Reporter(listener, two, Wording(), clock)

    def test_all_is_told_at_once_and_then_what_has_changed_once_a_second(self, reporter, listener, two, clock):
        reporter.report()
        assert listener.told == [[("A", 0), ("B", 0)]]
        two[0].began()
        reporter.report()
        clock.advance(0.9)
        reporter.report()
        assert len(listener.told) == 1
        clock.advance(0.1)
        reporter.report()
        assert listener.told[1:] == [[("A", 1)]]
        clock.advance(1)
        reporter.report()
        assert len(listener.told) == 2

    def test_a_rate_that_falls_is_told_although_nothing_is_called(self, reporter, listener, two, clock):
        reporter.report()
        clock.advance(5)
        call(two[1])
        for _ in range(60):
            reporter.report()
            clock.advance(1)
        listener.told.clear()
        reporter.report()
        assert listener.told == [[("B", 1)]]
        assert two[1].forwarding().rate == 0

    def test_now_and_then_all_is_told_for_whoever_has_forgotten_it(self, reporter, listener, clock):
        for _ in range(11):
            reporter.report()
            clock.advance(1)
        assert listener.told == [[("A", 0), ("B", 0)]] * 2
        assert listener.whole == [True, True]

    def test_what_has_changed_is_told_beside_the_rest(self, reporter, listener, two, clock):
        reporter.report()
        two[0].began()
        clock.advance(1)
        reporter.report()
        assert listener.whole == [True, False]

    def test_a_whole_that_could_not_be_told_is_told_as_soon_as_it_can(self, reporter, listener, clock):
        listener.broken = True
        reporter.report()
        listener.broken = False
        clock.advance(1)
        reporter.report()
        assert (listener.told, listener.whole) == ([[("A", 0), ("B", 0)]], [True])

    def test_who_serves_nothing_any_more_tells_it(self, listener, clock):
        Reporter(listener, [], Wording(), clock).report()
        assert (listener.told, listener.whole) == ([[]], [True])

    def test_what_could_not_be_told_is_told_later(self, reporter, listener, two, clock):
        reporter.report()
        listener.broken = True
        two[0].began()
        clock.advance(1)
        reporter.report()
        listener.broken = False
        clock.advance(1)
        reporter.report()
        assert listener.told == [[("A", 0), ("B", 0)], [("A", 1)]]
