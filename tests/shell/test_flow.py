"""Rates, trends and ages from samples at queues."""

from types import SimpleNamespace

import pytest

from qmadmin.monitoring.flow import KEPT, Counts, Flow, Sample, Trend
from qmcore.queue import QueueUsage

SECOND = 1_000_000


def usage(messages=0, *, first_us=None, oldest_us=None, **flow):
    counts = dict.fromkeys(("enqueued", "dequeued", "expired", "discarded", "moved"), 0) | flow
    return QueueUsage(
        messages=messages,
        ready=messages,
        delayed=0,
        held=0,
        pages=messages,
        size=0,
        first_us=first_us,
        oldest_us=oldest_us,
        **counts,
    )


def seen(*samples):
    """Return the flow of a queue Q from samples: when in seconds, its usage, and its number if it is another one."""
    flow = Flow()
    for at, use, *number in samples:
        queue = SimpleNamespace(name="Q", id=number[0] if number else 7, dequeue_enabled=True)
        flow.add(Sample.of(at, round(at * SECOND), [(queue, use)]))
    return flow.queues()[0]


def test_nothing_is_seen_before_the_first_look():
    assert Flow().queues() == []
    assert Flow().last is None


def test_one_look_tells_no_rate_and_no_trend():
    queue = seen((5, usage(3, enqueued=3)))
    assert (queue.in_rate, queue.out_rate, queue.trend, queue.drain) == (None, None, None, None)
    assert queue.depths == (3,)


def test_rates_are_messages_a_second_since_the_look_before():
    queue = seen((0, usage(0)), (1, usage(9, enqueued=9)), (3, usage(5, enqueued=15, dequeued=10)))
    assert (queue.in_rate, queue.out_rate) == (3.0, 5.0)


def test_queue_that_becomes_shorter_will_be_empty_at_this_pace():
    queue = seen((0, usage(100)), (2, usage(95)), (5, usage(75)))
    assert queue.trend is Trend.SHRINKING
    assert queue.drain == 75 / 5


def test_queue_that_becomes_longer_is_growing_and_never_empty():
    queue = seen((0, usage(3)), (1, usage(4)))
    assert (queue.trend, queue.drain) == (Trend.GROWING, None)


def test_queue_that_stays_as_it_is_is_steady():
    queue = seen((0, usage(3)), (1, usage(5)), (2, usage(3)))
    assert (queue.trend, queue.drain) == (Trend.STEADY, None)


def test_trend_is_that_of_the_last_ten_looks():
    queue = seen((0, usage(1000)), *((at, usage(at)) for at in range(1, 11)))
    assert queue.trend is Trend.GROWING


def test_queue_that_was_made_again_begins_again():
    queue = seen((0, usage(50, enqueued=50)), (1, usage(2, enqueued=2), 8))
    assert (queue.in_rate, queue.trend, queue.depths) == (None, None, (2,))


def test_age_is_that_of_the_oldest_message_and_else_of_the_one_that_comes_next():
    oldest, first = (seen((100, usage(1, first_us=60 * SECOND, oldest_us=at))) for at in (10 * SECOND, None))
    assert (oldest.age, oldest.of_first) == (90.0, False)
    assert (first.age, first.of_first) == (40.0, True)
    assert seen((100, usage(1))).age is None
    # The clock was set back.
    assert seen((100, usage(1, first_us=160 * SECOND))).age == 0


def test_lost_is_what_expired_or_was_discarded():
    assert seen((0, usage(expired=2, discarded=3, moved=4))).lost == 5


def test_course_has_no_more_than_the_looks_that_are_kept():
    queue = seen(*((at, usage(at)) for at in range(KEPT + 5)))
    assert queue.depths == tuple(range(5, KEPT + 5))


@pytest.mark.parametrize(
    ("before", "difference"),
    [
        (Counts(7, 1, 1, 1, 1, 1), Counts(7, 9, 8, 7, 6, 5)),
        (Counts(8, 1, 1, 1, 1, 1), Counts(7, 10, 9, 8, 7, 6)),
        (None, Counts(7, 10, 9, 8, 7, 6)),
        (Counts(7, 20, 1, 1, 1, 1), Counts(7, 0, 8, 7, 6, 5)),
    ],
)
def test_counts_are_compared_with_those_of_the_same_queue(before, difference):
    assert Counts(7, 10, 9, 8, 7, 6).since(before) == difference
