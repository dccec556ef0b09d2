"""Metrics for OpenTelemetry: the same as for Prometheus, observed whenever the program's meter provider collects them.

They are those of the queue spaces that are open in the process, and of the handlers that it calls. Names and units are
such that the exporters for Prometheus make the declared names of them again. This module is imported only where the
program has imported OpenTelemetry's metrics; as long as it has no meter provider, nothing is looked at.
"""

from __future__ import annotations

import functools
import logging
import re
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from opentelemetry import metrics

from qmadmin.monitoring.consumer_metrics import BOUNDS_US, CONSUMER, COUNTERS, durations, families
from qmadmin.monitoring.metrics import (
    ERROR_QUEUES,
    QUEUES,
    SPACES,
    UP,
    Families,
    Family,
    Named,
    QueueFigures,
    SpaceFigures,
    look,
)
from qmadmin.version import __version__
from qmcore.errors import NotOpenError, QueueError
from qmcore.records import Forwarding
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmadmin.consumers.statistics import Statistics
    from qmadmin.space import QueueSpace

T = TypeVar("T")

Row: TypeAlias = "tuple[tuple[str, ...], T]"
"""The values of the labels, and what a value is read from."""

logger = logging.getLogger("qmadmin.monitoring")

_UNITS: Final = {
    "seconds": "s",
    "bytes": "By",
    "messages": "{message}",
    "queues": "{queue}",
    "transactions": "{transaction}",
    "processes": "{process}",
    "actions": "{action}",
}
"""Units in the notation of OpenTelemetry. Exporters for Prometheus write out those without braces at the name."""


def observe_space(space: QueueSpace) -> None:
    """Observe a queue space as long as it is open."""
    _guarded(lambda: _of_this_process().add_space(space))


def observe_calls(space: QueueSpace, statistics: Statistics) -> None:
    """Observe the calls for a queue as long as there are statistics of them."""
    _guarded(lambda: _of_this_process().add_calls(_named(space), statistics))


def name_and_unit(family: Family) -> tuple[str, str]:
    """Return the name of a metric and its unit, as OpenTelemetry writes them."""
    unit = _UNITS.get(family.unit, "")
    name = family.name if unit.startswith("{") else family.name.removesuffix(f"_{family.unit}")
    return re.sub(r"^qmadmin_(error_queue|queue|space|consumer)_", r"qmadmin.\1.", name), unit


class _Instruments:
    """The instruments, and what they observe.

    A meter has one instrument of a name, whose functions cannot be changed; so there is one object in a process. Lists
    of weak references are only appended to and removed from, which needs no lock that a fork could leave behind.
    """

    def __init__(self) -> None:
        self._spaces: list[weakref.ref[QueueSpace]] = []
        self._calls: dict[tuple[str, str, str], _Calls] = {}
        self._looked: tuple[dict[Named, SpaceFigures | None], set[str]] = {}, set()
        meter = self._meter = metrics.get_meter("qmadmin", __version__)
        took = durations(CONSUMER)
        name, unit = name_and_unit(took)
        bounds = [bound / MICROS for bound in BOUNDS_US]
        self._took = meter.create_histogram(name, unit, took.about, explicit_bucket_boundaries_advisory=bounds)
        self._declare(QUEUES, self._queues)
        self._declare(ERROR_QUEUES, self._error_queues)
        self._declare(SPACES, self._open_spaces)
        self._declare({UP: lambda figures: figures is not None}, self._all_spaces)
        self._declare(families(CONSUMER), self._called)

    def add_space(self, space: QueueSpace) -> None:
        self._spaces.append(weakref.ref(space, self._spaces.remove))

    def add_calls(self, named: Named, statistics: Statistics) -> None:
        calls = self._calls.setdefault((*named, statistics.queue), _Calls(statistics.queue))
        if calls.add(statistics):
            device, space = named
            attributes = {"device": device, "space": space, "queue": statistics.queue}
            statistics.told_durations = lambda seconds: self._took.record(seconds, attributes)

    def _declare(self, declared: Families[T], rows: Callable[[str], Iterable[Row[T]]]) -> None:
        for family, value_of in declared.items():
            name, unit = name_and_unit(family)
            # Several processes tell the same figures of a queue, so that they are no sums of what each has.
            create = (
                self._meter.create_observable_counter
                if family.kind == "counter"
                else self._meter.create_observable_gauge
            )
            create(name, [functools.partial(_observed, family, value_of, rows)], unit, family.about)

    def _queues(self, asking: str) -> Iterator[Row[QueueFigures]]:
        for named, figures in self._figures(asking):
            yield from (((*named, each.queue.name), each) for each in figures.queues)

    def _error_queues(self, asking: str) -> Iterator[Row[QueueFigures]]:
        for named, figures in self._figures(asking):
            yield from (((*named, each.queue.name), each) for each in figures.error_queues())

    def _open_spaces(self, asking: str) -> Iterator[Row[SpaceFigures]]:
        return self._figures(asking)

    def _all_spaces(self, asking: str) -> Iterator[Row[SpaceFigures | None]]:
        return iter(self._looks(asking).items())

    def _called(self, _asking: str) -> Iterator[Row[Forwarding]]:
        return ((labels, calls.forwarding()) for labels, calls in list(self._calls.items()))

    def _figures(self, asking: str) -> Iterator[tuple[Named, SpaceFigures]]:
        return ((named, figures) for named, figures in self._looks(asking).items() if figures is not None)

    def _looks(self, asking: str) -> dict[Named, SpaceFigures | None]:
        """Return the figures of each queue space: one look serves each metric once, and so one collection."""
        looked, served = self._looked
        if asking in served or not served:
            looked, served = self._looked = self._look(), set()
        served.add(asking)
        return looked

    def _look(self) -> dict[Named, SpaceFigures | None]:
        found: dict[Named, SpaceFigures | None] = {}
        for reference in list(self._spaces):
            space = reference()
            if space is None or found.get(_named(space)) is not None:
                continue
            try:
                found[_named(space)] = look(space)
            except NotOpenError:
                continue
            except QueueError:
                logger.debug("the figures of queue space %r cannot be read", space.name, exc_info=True)
                found[_named(space)] = None
        return found


def _named(space: QueueSpace) -> Named:
    return space.device.path, space.name


class _Calls:
    """The calls for a queue by all consumers that the process has had: what is counted never becomes less."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._living: list[weakref.ref[Statistics]] = []
        self._ended: Counter[str] = Counter()

    def add(self, statistics: Statistics) -> bool:
        """Add the statistics of a consumer; return whether they are new."""
        if any(known() is statistics for known in self._living):
            return False
        self._living.append(weakref.ref(statistics, self._living.remove))
        weakref.finalize(statistics, self._ended.update, statistics.counts).atexit = False
        return True

    def forwarding(self) -> Forwarding:
        """Return the statistics of all consumers together."""
        told = [found.forwarding() for known in list(self._living) if (found := known()) is not None]
        ended = {field: self._ended[field] for field in COUNTERS}
        return Forwarding(
            queue=self._queue,
            **{field: count + sum(getattr(each, field) for each in told) for field, count in ended.items()},
            in_flight=sum(each.in_flight for each in told),
            workers=sum(each.workers for each in told),
            last_error_us=max((each.last_error_us or 0 for each in told), default=0),
            paused_until_us=max((each.paused_until_us or 0 for each in told), default=0),
        )


@functools.cache
def _of_this_process() -> _Instruments:
    return _Instruments()


def _observed(
    family: Family,
    value_of: Callable[[T], float],
    rows: Callable[[str], Iterable[Row[T]]],
    _options: metrics.CallbackOptions,
) -> list[metrics.Observation]:
    return [
        metrics.Observation(+value_of(row), dict(zip(family.labels, labels, strict=True)))
        for labels, row in rows(family.name)
    ]


def _guarded(act: Callable[[], None]) -> None:
    """Do something with OpenTelemetry, whose faults are none of the queue space."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - whatever an application has plugged in there
        logger.warning("metrics cannot be given to OpenTelemetry: %s: %s", type(error).__name__, error)
