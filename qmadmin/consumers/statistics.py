"""What is counted of the calls for a queue, and how others in the queue space are told of it."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final

from qmadmin.consumers.policy import Wording
from qmadmin.space import QueueSpace
from qmcore.errors import QueueError
from qmcore.records import Forwarding
from qmcore.times import MICROS, Clock, SystemClock

RATE_SECONDS: Final = 60
"""The rate is that of the last so many seconds, the present one among them."""

SLICE_SECONDS, SLICES = 30, 10
"""Times of calls are kept for five minutes, and forgotten in parts of half a minute."""

_DIGITS = 2
"""Digits to which times of calls are kept, which bounds the memory that they take: 90 values for each power of ten."""


_COUNTED: Final = ("calls", "successes", "failures", "retries", "refused", "dropped_replies", "in_flight")
"""What of a `Forwarding` is counted."""


class Durations:
    """How long calls took: microseconds with two digits, rounded up, and how often each. Not safe for threads."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, micros: int) -> None:
        """Count one call."""
        self.counts[rounded_up(micros)] += 1

    def within(self, micros: int) -> int:
        """Return how many calls took at most so long; of a number with two digits that is exact."""
        return sum(count for each, count in self.counts.items() if each <= micros)


class Recently:
    """How long the calls of the last minutes took. Not safe for threads."""

    def __init__(self) -> None:
        self._slices: deque[tuple[int, Durations]] = deque(maxlen=SLICES)

    def add(self, micros: int, now: float) -> None:
        """Count a call that ended at this second of a clock that is never set back."""
        number = int(now // SLICE_SECONDS)
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append((number, Durations()))
        self._slices[-1][1].add(micros)

    def percentiles(self, now: float, *percents: int) -> list[int | None]:
        """Return the microseconds that so many percent of the calls took at most; None where there were none."""
        first = int(now // SLICE_SECONDS) - SLICES + 1
        counts: Counter[int] = Counter()
        for number, durations in self._slices:
            if number >= first:
                counts += durations.counts
        return [_percentile(counts, percent) for percent in percents]


class Rate:
    """How many messages were processed in the last minute. Not safe for threads."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque(maxlen=RATE_SECONDS)

    def add(self, now: float) -> None:
        """Count a message."""
        if not self._seconds or self._seconds[-1][0] < int(now):
            self._seconds.append([int(now), 0])
        self._seconds[-1][1] += 1

    def of_last_minute(self, now: float) -> int:
        """Return how many there were."""
        return sum(count for second, count in self._seconds if second > int(now) - RATE_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Took:
    """How long all calls took that have succeeded or failed: seconds in all, their number, and how many of each bound.

    `within` has the number of calls that took at most each of the bounds that were asked for.
    """

    seconds: float
    calls: int
    within: tuple[int, ...]


class Statistics:
    """What is counted of the calls for one queue since its consumer began. Safe for several threads.

    A call that `began` ends in one of `succeeded`, `failed`, `unavailable` and `abandoned`.
    """

    def __init__(self, queue: str, *, workers: int = 1, clock: Clock | None = None) -> None:
        self.queue = queue
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._workers = workers
        self._last_error = ""
        self._last_error_us: int | None = None
        self._paused_until_us: int | None = None
        self._trouble = ""
        self._rate = Rate()
        self._recently = Recently()
        self._ever = Durations()
        self._micros = 0

    def began(self) -> None:
        """Count a call that begins."""
        with self._lock:
            self._counts["calls"] += 1
            self._counts["in_flight"] += 1

    def succeeded(self, seconds: float) -> None:
        """Count a call whose message is gone and whose reply is queued; it took so many seconds."""
        with self._lock:
            self._counts["successes"] += 1
            self._rate.add(self.clock.monotonic())
            self._ended(seconds)

    def failed(self, reason: str, seconds: float, *, retries: bool) -> None:
        """Count a call that failed, and why; `retries`: its message is tried again."""
        with self._lock:
            self._counts["failures"] += 1
            self._counts["retries"] += retries
            self._fault(reason)
            self._ended(seconds)

    def unavailable(self, reason: str) -> None:
        """Count a call that does not count as a try, because the handler cannot work."""
        with self._lock:
            self._counts["refused"] += 1
            self._fault(reason)
            self._counts["in_flight"] -= 1

    def abandoned(self) -> None:
        """Note that a call ended which neither succeeded nor failed, because it was given up."""
        with self._lock:
            self._counts["in_flight"] -= 1

    def reply_dropped(self) -> None:
        """Count a reply for which there was no reply queue."""
        with self._lock:
            self._counts["dropped_replies"] += 1

    def paused(self, seconds: float, why: str) -> None:
        """Note that the queue is not served for so many seconds, and why."""
        with self._lock:
            self._paused_until_us, self._trouble = self.clock.now() + round(seconds * MICROS), why

    def resumed(self) -> None:
        """Note that the queue is served."""
        with self._lock:
            self._paused_until_us, self._trouble = None, ""

    def set_workers(self, workers: int) -> None:
        """Note how many calls may run at the same time."""
        with self._lock:
            self._workers = workers

    def forwarding(self) -> Forwarding:
        """Return how things stand now."""
        with self._lock:
            now = self.clock.monotonic()
            p50, p95, p99 = self._recently.percentiles(now, 50, 95, 99)
            return Forwarding(
                queue=self.queue,
                **self._counts,
                workers=self._workers,
                rate=self._rate.of_last_minute(now),
                p50_us=p50,
                p95_us=p95,
                p99_us=p99,
                last_error=self._last_error,
                last_error_us=self._last_error_us,
                paused_until_us=self._paused_until_us,
                trouble=self._trouble,
                changed_us=self.clock.now(),
            )

    def took(self, bounds_us: Sequence[int]) -> Took:
        """Return how long the calls took; the bounds are microseconds."""
        with self._lock:
            within = tuple(self._ever.within(bound) for bound in bounds_us)
            return Took(self._micros / MICROS, self._ever.counts.total(), within)

    def _ended(self, seconds: float) -> None:
        micros = max(round(seconds * MICROS), 0)
        self._counts["in_flight"] -= 1
        self._micros += micros
        self._ever.add(micros)
        self._recently.add(micros, self.clock.monotonic())

    def _fault(self, reason: str) -> None:
        self._last_error, self._last_error_us = reason, self.clock.now()


class Reporter:
    """Reports to others in the queue space how the work on some queues goes: once a second, where it has changed.

    At first and now and then it reports all of it, and that this process serves no other queues: others may have taken
    it for dead and forgotten it, and queues that it served before may be left to others now. One thread uses it.
    """

    SECONDS: Final = 1.0
    ALL_SECONDS: Final = 10.0

    def __init__(
        self, space: QueueSpace, statistics: Iterable[Statistics], wording: Wording, clock: Clock | None = None
    ) -> None:
        self._space = space
        self._statistics = list(statistics)
        self._wording = wording
        self._clock = clock or SystemClock()
        self._next = self._next_all = self._clock.monotonic()
        self._known: dict[str, Forwarding] = {}

    def report(self) -> None:
        """Report what has changed, if nothing was reported in the last second.

        What cannot be, because the store fails, is reported later: the workers of the queues find out by themselves.
        """
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + self.SECONDS
        whole = now >= self._next_all
        if whole:
            self._known = {}
        changed = [told for each in self._statistics if self._is_new(told := each.forwarding())]
        if not changed and not whole:
            return
        try:
            self._space.report_forwarding(changed, whole=whole)
        except QueueError as error:
            self._wording.logger.debug("the figures of %s cannot be recorded: %s", self._wording.consumer, error)
        else:
            self._known |= {each.queue: each for each in changed}
            if whole:
                self._next_all = now + self.ALL_SECONDS

    def _is_new(self, told: Forwarding) -> bool:
        known = self._known.get(told.queue)
        return known is None or dataclasses.replace(known, changed_us=told.changed_us) != told


def rounded_up(micros: int) -> int:
    """Return a number with two digits and zeros behind them that is not smaller, and larger by a tenth at most."""
    unit = int(10 ** max(len(str(micros)) - _DIGITS, 0))
    return -(-micros // unit) * unit


def _percentile(counts: Counter[int], percent: int) -> int | None:
    wanted = -(-counts.total() * percent // 100)
    for micros in sorted(counts):
        wanted -= counts[micros]
        if wanted <= 0:
            return micros
    return None
