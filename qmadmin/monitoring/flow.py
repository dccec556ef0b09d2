"""The flow of messages through queues over time, from samples taken one after the other."""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.queue import Queue, QueueUsage

KEPT = 120
"""The number of samples that are kept for the graph of the depth."""

_DRAIN_OVER = 10
"""The number of samples from which it is estimated how fast a queue becomes shorter; fewer would fluctuate."""


@enum.unique
class Trend(enum.Enum):
    """The trend of the depth of a queue."""

    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of a queue since its creation. `queue_id` distinguishes it from another one of the same name."""

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
        """Return the difference to `before`; the whole counts if the queue did not exist then.

        Counts of non-persistent messages restart from 0 when their memory is created again, so that a count may be
        smaller than before: such a difference is 0.
        """
        if before is None or before.queue_id != self.queue_id:
            return self
        names = ("enqueued", "dequeued", "expired", "discarded", "moved")
        return Counts(self.queue_id, *(max(0, getattr(self, name) - getattr(before, name)) for name in names))


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of all queues at one moment: `at` in seconds of a monotonic clock, `time_us` in microseconds UTC.

    `stopped` are those that are stopped for dequeuing.
    """

    at: float
    time_us: int
    counts: Mapping[str, Counts]
    usages: Mapping[str, QueueUsage]
    stopped: frozenset[str]

    @classmethod
    def of(cls, at: float, time_us: int, found: Iterable[tuple[Queue, QueueUsage]]) -> Sample:
        """Return a sample of these queues and usages."""
        pairs = list(found)
        return cls(
            at,
            time_us,
            {queue.name: Counts.of(queue, usage) for queue, usage in pairs},
            {queue.name: usage for queue, usage in pairs},
            frozenset(queue.name for queue, _ in pairs if not queue.dequeue_enabled),
        )


def ready_since(usage: QueueUsage) -> int | None:
    """Return when the oldest ready message was enqueued, or the next one if the order of the queue does not show it.

    It is a time in microseconds since 1970, UTC; None without a ready message.
    """
    return usage.first_us if usage.oldest_us is None else usage.oldest_us


@dataclass(frozen=True, slots=True)
class QueueFlow:
    """A queue in the last sample. Rates are messages per second since the sample before, spans are seconds.

    None stands for unknown values: rates and trend after one sample, `age` if no message is ready, `drain` if the queue
    does not become shorter. The age is that of the oldest ready message or, with `of_first`, of the next one, if the
    order of the queue does not show the oldest. `depths` are those of all samples that are kept. `stopped`: the queue
    is stopped for dequeuing.
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
    """Queues over a series of samples. One thread may add samples while others read."""

    def __init__(self) -> None:
        self._courses: dict[str, _History] = {}
        self._queues: list[QueueFlow] = []
        self.last: Sample | None = None
        """The last sample; None before the first."""

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        courses = {}
        for name, counts in sample.counts.items():
            known = self._courses.get(name)
            courses[name] = known if known and known.is_of(counts) else _History(name)
        self._courses = courses
        self._queues = [courses[name].add(sample) for name in sorted(courses)]
        self.last = sample

    def queues(self) -> list[QueueFlow]:
        """Return the queues of the last sample, by name."""
        return self._queues


class _History:
    """The history of one queue over the samples."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._depths: collections.deque[int] = collections.deque(maxlen=KEPT)
        self._recent: collections.deque[tuple[float, int]] = collections.deque(maxlen=_DRAIN_OVER)
        self._counts: Counts | None = None

    def is_of(self, counts: Counts) -> bool:
        """Return whether these counts are of the same queue, and not of another one of the same name."""
        return self._counts is not None and self._counts.queue_id == counts.queue_id

    def add(self, sample: Sample) -> QueueFlow:
        """Add a sample, and return the queue as known now."""
        counts, usage = sample.counts[self._name], sample.usages[self._name]
        in_rate = out_rate = None
        if self._recent:
            passed = sample.at - self._recent[-1][0]
            new = counts.since(self._counts)
            in_rate, out_rate = new.enqueued / passed, new.dequeued / passed
        self._counts = counts
        self._depths.append(usage.messages)
        self._recent.append((sample.at, usage.messages))
        shrinking = _shrinking(self._recent)
        since = ready_since(usage)
        return QueueFlow(
            name=self._name,
            usage=usage,
            in_rate=in_rate,
            out_rate=out_rate,
            age=None if since is None else max(0, sample.time_us - since) / 1e6,
            of_first=usage.oldest_us is None and since is not None,
            trend=_trend(shrinking),
            drain=usage.messages / shrinking if shrinking is not None and shrinking > 0 else None,
            depths=tuple(self._depths),
            stopped=self._name in sample.stopped,
        )


def _shrinking(depths: Sequence[tuple[float, int]]) -> float | None:
    """Return by how many messages per second the queue shrinks; negative if it grows; None after one sample."""
    if len(depths) < 2:
        return None
    (start, before), (end, now) = depths[0], depths[-1]
    return (before - now) / (end - start)


def _trend(shrinking: float | None) -> Trend | None:
    if shrinking is None:
        return None
    return Trend.SHRINKING if shrinking > 0 else Trend.GROWING if shrinking < 0 else Trend.STEADY
