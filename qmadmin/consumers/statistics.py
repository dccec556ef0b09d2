"""The statistics of the calls for a queue, and how they are recorded in the queue space for others."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from qmadmin.consumers import Wording
from qmadmin.space import QueueSpace
from qmcore.errors import QueueError
from qmcore.records import Forwarding
from qmcore.times import MICROS, Clock, SystemClock
from qmcore.values import dataclass

RATE_SECONDS: Final = 60
"""The seconds over which the rate is measured, including the current one."""

SLICE_SECONDS, SLICES = 30, 10
"""Durations of calls are kept for five minutes, and dropped in parts of half a minute."""

_DIGITS = 2
"""Digits to which durations of calls are kept, which bounds their memory: 90 values for each power of ten."""


_COUNTED: Final = ("calls", "successes", "failures", "retries", "refused", "dropped_replies", "in_flight")
"""The fields of a `Forwarding` that are counted."""


class Durations:
    """Durations of calls: microseconds with two digits, rounded up, and the count of each. Not safe for threads."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, micros: int) -> None:
        """Count one call."""
        self.counts[rounded_up(micros)] += 1

    def within(self, micros: int) -> int:
        """Return how many calls took at most these microseconds; for a number with two digits this is exact."""
        return sum(count for each, count in self.counts.items() if each <= micros)


class RecentDurations:
    """Durations of the calls of the last minutes. Not safe for threads."""

    def __init__(self) -> None:
        self._slices: deque[tuple[int, Durations]] = deque(maxlen=SLICES)

    def add(self, micros: int, now: float) -> None:
        """Count a call that ended at this second of a monotonic clock."""
        number = int(now // SLICE_SECONDS)
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append((number, Durations()))
        self._slices[-1][1].add(micros)

    def percentiles(self, now: float, *percents: int) -> list[int | None]:
        """Return for each percentage the microseconds that these calls took at most; None if there were none."""
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


@dataclass(frozen=True, slots=True)
class DurationTotals:
    """How long calls took that succeeded or failed: seconds in all, their number, and how many were within each bound.

    `within` has the number of calls that took at most each of the requested bounds.
    """

    seconds: float
    calls: int
    within: tuple[int, ...]


class Statistics:
    """The statistics of the calls for one queue since its consumer began. Safe for several threads.

    A call that `began` ends in one of `succeeded`, `failed`, `unavailable` and `abandoned`.
    """

    def __init__(self, queue: str, *, workers: int = 1, clock: Clock | None = None) -> None:
        self.queue = queue
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(_COUNTED, 0)
        """The fields of a `Forwarding` that are counted; others only read them."""
        self._workers = workers
        self._last_error = ""
        self._last_error_us: int | None = None
        self._paused_until_us: int | None = None
        self._trouble = ""
        self._rate = Rate()
        self._recently = RecentDurations()
        self._ever = Durations()
        self._micros = 0
        self.told_durations: Callable[[float], None] | None = None
        """Called with the seconds of each call that succeeds or fails."""

    def began(self) -> None:
        """Count a call that begins."""
        with self._lock:
            self.counts["calls"] += 1
            self.counts["in_flight"] += 1

    def succeeded(self, seconds: float) -> None:
        """Count a call whose message is gone and whose reply is queued; it took these seconds."""
        with self._lock:
            self.counts["successes"] += 1
            self._rate.add(self.clock.monotonic())
            self._ended(seconds)
        self._tell(seconds)

    def failed(self, reason: str, seconds: float, *, retries: bool) -> None:
        """Count a call that failed, and why; `retries`: its message is tried again."""
        with self._lock:
            self.counts["failures"] += 1
            self.counts["retries"] += retries
            self._fault(reason)
            self._ended(seconds)
        self._tell(seconds)

    def unavailable(self, reason: str) -> None:
        """Count a call that does not count as a try, because the handler cannot work."""
        with self._lock:
            self.counts["refused"] += 1
            self._fault(reason)
            self.counts["in_flight"] -= 1

    def abandoned(self) -> None:
        """Note that a call ended that neither succeeded nor failed, because it was given up or put its message off."""
        with self._lock:
            self.counts["in_flight"] -= 1

    def reply_dropped(self) -> None:
        """Count a reply for which there was no reply queue."""
        with self._lock:
            self.counts["dropped_replies"] += 1

    def paused(self, seconds: float, why: str) -> None:
        """Note that the queue is paused for these seconds, and why."""
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
        """Return the present statistics."""
        with self._lock:
            now = self.clock.monotonic()
            p50, p95, p99 = self._recently.percentiles(now, 50, 95, 99)
            return Forwarding(
                queue=self.queue,
                **self.counts,
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

    def took(self, bounds_us: Sequence[int]) -> DurationTotals:
        """Return how long the calls took; the bounds are microseconds."""
        with self._lock:
            within = tuple(self._ever.within(bound) for bound in bounds_us)
            return DurationTotals(self._micros / MICROS, self._ever.counts.total(), within)

    def _ended(self, seconds: float) -> None:
        micros = max(round(seconds * MICROS), 0)
        self.counts["in_flight"] -= 1
        self._micros += micros
        self._ever.add(micros)
        self._recently.add(micros, self.clock.monotonic())

    def _tell(self, seconds: float) -> None:
        # Without the lock: who is told has locks of its own, and may ask for the statistics with them.
        if self.told_durations is not None:
            self.told_durations(seconds)

    def _fault(self, reason: str) -> None:
        self._last_error, self._last_error_us = reason, self.clock.now()


class Reporter:
    """Records the statistics of queues in the queue space: once a second, if they have changed.

    At first and from time to time it records all of them, and that this process serves no other queues: it may have
    been taken for dead and its records removed, or no longer serve queues that it served before. One thread uses it.
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
        """Record what has changed, if nothing was recorded in the last second.

        If the store fails, it is recorded later: the workers of the queues meet the failure themselves.
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
            self._wording.logger.debug("the statistics of %s cannot be recorded: %s", self._wording.consumer, error)
        else:
            self._known |= {each.queue: each for each in changed}
            if whole:
                self._next_all = now + self.ALL_SECONDS

    def _is_new(self, told: Forwarding) -> bool:
        known = self._known.get(told.queue)
        return known is None or dataclasses.replace(known, changed_us=told.changed_us) != told


def rounded_up(micros: int) -> int:
    """Return a number rounded up to two digits, which makes it larger by a tenth at most."""
    unit = int(10 ** max(len(str(micros)) - _DIGITS, 0))
    return -(-micros // unit) * unit


def _percentile(counts: Counter[int], percent: int) -> int | None:
    wanted = -(-counts.total() * percent // 100)
    for micros in sorted(counts):
        wanted -= counts[micros]
        if wanted <= 0:
            return micros
    return None
