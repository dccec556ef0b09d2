"""Metrics for Prometheus: collectors, which its client asks whenever Prometheus does.

prometheus-client, which the extra qmadmin[metrics] installs, is loaded only when they are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from qmadmin.monitoring.consumer_metrics import BOUNDS_US, FORWARDER, all_families, durations, families, info
from qmadmin.monitoring.metrics import ERROR_QUEUES, FAMILIES, QUEUES, SPACES, UP, Families, Family, Named, look_if_open
from qmadmin.version import __version__
from qmcore.times import MICROS
from qmcore.values import dataclass

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

    from qmadmin.consumers.statistics import Statistics
    from qmadmin.monitoring.metrics import SpaceFigures
    from qmadmin.space import QueueSpace

T = TypeVar("T")


class MetricsCollector(Protocol):
    """Returns metrics whenever it is asked, as a registry of prometheus-client wants it."""

    def collect(self) -> Iterable[Metric]:
        """Return each metric with its samples."""


@dataclass(frozen=True, slots=True)
class ServedSpace:
    """A queue space that a program serves: its names, the statistics of the queues, and itself, None while not open.

    The functions are called in any thread.
    """

    named: Named
    statistics: Callable[[], Collection[Statistics]]
    opened: Callable[[], QueueSpace | None]


class ProgramCollector:
    """Returns the statistics of queues that a program serves, and the figures of their queue spaces.

    `begin` is how the names of the statistics begin.
    """

    def __init__(self, *served: ServedSpace, begin: str = FORWARDER) -> None:
        self._served = served
        self._begin = begin

    def describe(self) -> Iterable[Metric]:
        """Return each metric without samples: a registry learns the names from it, and nothing is looked at."""
        return [_new(family) for family in (*all_families(self._begin), *FAMILIES)]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with a sample for each queue or queue space."""
        rows = [
            ((*space.named, each.queue), each, each.forwarding())
            for space in self._served
            for each in space.statistics()
        ]
        yield from _collected(families(self._begin), ((labels, told) for labels, _, told in rows))
        took: HistogramMetricFamily = _new(durations(self._begin))  # type: ignore[assignment]
        for labels, each, _ in rows:
            _add_durations(took, labels, each)
        yield took
        yield from _collected({info(self._begin): float}, [((__version__,), 1)])
        yield from SpaceCollector(self._looks).collect()

    def _looks(self) -> dict[Named, SpaceFigures | None]:
        return {space.named: look_if_open(space.opened()) for space in self._served}


class SpaceCollector:
    """Returns the figures of queue spaces.

    `looks` returns them by the names of the queue space, None for one that cannot be read now.
    """

    def __init__(self, looks: Callable[[], Mapping[Named, SpaceFigures | None]]) -> None:
        self._looks = looks

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with its samples."""
        told = self._looks()
        found = [(named, figures) for named, figures in told.items() if figures is not None]
        yield from _collected(
            QUEUES, (((*named, of.queue.name), of) for named, told_of in found for of in told_of.queues)
        )
        yield from _collected(
            ERROR_QUEUES, (((*named, of.queue.name), of) for named, told_of in found for of in told_of.error_queues())
        )
        yield from _collected(SPACES, found)
        yield from _collected({UP: lambda figures: figures is not None}, told.items())


def _new(family: Family) -> Metric:
    """Return a metric without samples."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    made: Metric = kinds[family.kind](family.name, family.about, labels=family.labels, unit=family.unit)
    return made


def _collected(families: Families[T], rows: Iterable[tuple[tuple[str, ...], T]]) -> Iterator[Metric]:
    """Yield each family with a sample for each row, which is the values of its labels and what its values are of."""
    found = list(rows)
    for family, value_of in families.items():
        made: CounterMetricFamily | GaugeMetricFamily = _new(family)  # type: ignore[assignment]
        for labels, row in found:
            made.add_metric(labels, value_of(row))
        yield made


def _add_durations(family: HistogramMetricFamily, labels: tuple[str, ...], statistics: Statistics) -> None:
    took = statistics.took(BOUNDS_US)
    bounds = [str(bound / MICROS) for bound in BOUNDS_US]
    buckets = [*zip(bounds, map(float, took.within), strict=True), ("+Inf", float(took.calls))]
    family.add_metric(labels, buckets, took.seconds)
