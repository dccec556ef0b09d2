"""What goes through queues in the course of time, from looks at them one after the other."""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmcore.queue import Queue, QueueUsage

KEPT = 120
"""Looks that are kept to show the course of the depth."""
_DRAIN_OVER = 10
"""Looks over which it is found how fast a queue becomes shorter: one alone would jump."""


@enum.unique
class Trend(enum.Enum):
    """What becomes of the depth of a queue."""

    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What has gone through a queue since it was created. `queue_id` tells it from another one of the same name."""

    queue_id: int
    enqueued: int
    dequeued: int
    expired: int
    discarded: int
    moved: int

    @classmethod
    def of(cls, queue: Queue, usage: QueueUsage) -> Counts:
        """Return the counts of a queue."""
        return cls(queue.id, usage.enqueued, usage.dequeued, usage.expired, usage.discarded, usage.moved)

    def since(self, before: Counts | None) -> Counts:
        """Return what was counted after `before`; everything where the queue was not there then.

        Non-persistent messages are counted from 0 again when their memory is made again, so that less may be counted
        than before: that is taken for nothing.
        """
        if before is None or before.queue_id != self.queue_id:
            return self
        names = ("enqueued", "dequeued", "expired", "discarded", "moved")
        return Counts(self.queue_id, *(max(0, getattr(self, name) - getattr(before, name)) for name in names))


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """All queues at one moment: `at` in seconds of a clock that never goes back, `time_us` in microseconds UTC.

    `stopped` are those that nothing can be dequeued from.
    """

    at: float
    time_us: int
    counts: Mapping[str, Counts]
    usages: Mapping[str, QueueUsage]
    stopped: frozenset[str]

    @classmethod
    def of(cls, at: float, time_us: int, found: Iterable[tuple[Queue, QueueUsage]]) -> Look:
        """Return a look from what was found."""
        pairs = list(found)
        return cls(
            at,
            time_us,
            {queue.name: Counts.of(queue, usage) for queue, usage in pairs},
            {queue.name: usage for queue, usage in pairs},
            frozenset(queue.name for queue, _ in pairs if not queue.dequeue_enabled),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class QueueFlow:
    """A queue in the last look. Rates are messages in a second since the look before, spans are seconds.

    None stands for what cannot be told: rates and trend from one look, `age` where nothing is ready, `drain` where the
    queue does not become shorter. The age is that of the oldest message that is ready, or, with `of_first`, of the one
    that comes next, where the order of the queue does not tell the oldest. `depths` are those of all looks that are
    kept. `stopped` tells that nothing can be dequeued.
    """

    name: str
    usage: QueueUsage
    in_rate: float | None
    out_rate: float | None
    age: float | None
    of_first: bool
    trend: Trend | None
    drain: float | None
    depths: tuple[int, ...]
    stopped: bool

    @property
    def lost(self) -> int:
        """How many messages were removed unread since the queue was created: expired or discarded."""
        return self.usage.expired + self.usage.discarded


class Flow:
    """Queues as they are seen by one look after the other. One thread may add looks while others read."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}
        self._queues: list[QueueFlow] = []
        self._last: Look | None = None

    @property
    def last(self) -> Look | None:
        """The last look; None before the first."""
        return self._last

    def add(self, look: Look) -> None:
        """Take a look."""
        courses = {}
        for name, counts in look.counts.items():
            known = self._courses.get(name)
            courses[name] = known if known and known.is_of(counts) else _Course(name)
        self._courses = courses
        self._queues = [courses[name].add(look) for name in sorted(courses)]
        self._last = look

    def queues(self) -> list[QueueFlow]:
        """Return the queues of the last look, by name."""
        return self._queues


class _Course:
    """One queue in the looks at it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._depths: collections.deque[int] = collections.deque(maxlen=KEPT)
        self._recent: collections.deque[tuple[float, int]] = collections.deque(maxlen=_DRAIN_OVER)
        self._counts: Counts | None = None

    def is_of(self, counts: Counts) -> bool:
        """Return whether it is the very queue that has these counts, and not an earlier one of the same name."""
        return self._counts is not None and self._counts.queue_id == counts.queue_id

    def add(self, look: Look) -> QueueFlow:
        """Take a look, and return what is known now."""
        counts, usage = look.counts[self._name], look.usages[self._name]
        in_rate = out_rate = None
        if self._recent:
            passed = look.at - self._recent[-1][0]
            new = counts.since(self._counts)
            in_rate, out_rate = new.enqueued / passed, new.dequeued / passed
        self._counts = counts
        self._depths.append(usage.messages)
        self._recent.append((look.at, usage.messages))
        shrinking = _shrinking(self._recent)
        since = usage.first_us if usage.oldest_us is None else usage.oldest_us
        return QueueFlow(
            name=self._name,
            usage=usage,
            in_rate=in_rate,
            out_rate=out_rate,
            age=None if since is None else max(0, look.time_us - since) / 1e6,
            of_first=usage.oldest_us is None and since is not None,
            trend=_trend(shrinking),
            drain=usage.messages / shrinking if shrinking is not None and shrinking > 0 else None,
            depths=tuple(self._depths),
            stopped=self._name in look.stopped,
        )


def _shrinking(depths: Sequence[tuple[float, int]]) -> float | None:
    """Return how many messages less there are in a second; less than nothing for more; None from one look."""
    if len(depths) < 2:
        return None
    (start, before), (end, now) = depths[0], depths[-1]
    return (before - now) / (end - start)


def _trend(shrinking: float | None) -> Trend | None:
    if shrinking is None:
        return None
    return Trend.SHRINKING if shrinking > 0 else Trend.GROWING if shrinking < 0 else Trend.STEADY
