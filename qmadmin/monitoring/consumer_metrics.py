"""The statistics of a consumer as metrics, by the conventions of Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from qmadmin.monitoring.metrics import Families, Family, Kind
from qmcore.times import MICROS

if TYPE_CHECKING:
    from qmcore.records import Forwarding

FORWARDER: Final = "tmqforward"
CONSUMER: Final = "qmadmin_consumer"
"""How the names of the metrics begin: those of the daemon, and those of an application."""

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
BOUNDS_US: Final = tuple(round(seconds * MICROS) for seconds in _BOUNDS)
"""Bounds of the histogram of call durations; durations are kept to two digits, so that these are exact."""

_FIGURES: Final[tuple[tuple[str, Kind, str, str], ...]] = (
    ("calls", "counter", "calls", "Calls of the service that were started."),
    ("successes", "counter", "successes", "Calls that succeeded: their message is gone and their reply is queued."),
    ("failures", "counter", "failures", "Calls that failed."),
    ("retries", "counter", "retries", "Failed calls whose message is tried again."),
    ("refused", "counter", "refused", "Calls that do not count as a try, because the service could not work at all."),
    (
        "dropped_replies",
        "counter",
        "dropped_replies",
        "Replies that were dropped because their queue did not exist.",
    ),
    ("in_flight", "gauge", "calls_in_flight", "Calls that are running."),
    ("workers", "gauge", "workers", "Calls that may run at the same time."),
)
"""Fields of the statistics: the kind of each, its name after the beginning, and its meaning."""

COUNTERS: Final = tuple(field for field, kind, _, _ in _FIGURES if kind == "counter")
"""Those that only grow."""

_TIMES: Final = (
    ("last_error_us", "last_error_timestamp_seconds", "When a call last failed or was refused; 0: never."),
    ("paused_until_us", "paused_until_timestamp_seconds", "Until when the queue is paused; 0: it is served."),
)


def families(begin: str) -> Families[Forwarding]:
    """Return what is told of each queue that a program serves, but for the durations of calls."""
    counted = {Family(f"{begin}_{name}", kind, about): attrgetter(field) for field, kind, name, about in _FIGURES}
    return counted | {
        Family(f"{begin}_{name}", "gauge", about, "seconds"): _seconds_of(field) for field, name, about in _TIMES
    }


def durations(begin: str) -> Family:
    """Return the histogram of the durations of calls."""
    about = "The duration of calls that succeeded or failed."
    return Family(f"{begin}_call_duration_seconds", "histogram", about, "seconds")


def info(begin: str) -> Family:
    """Return what tells the version of a program."""
    of = "tmqforward" if begin == FORWARDER else "qmadmin"
    return Family(
        f"{begin}_info", "gauge", f"The version of {of}, as a label; the value is always 1.", "", ("version",)
    )


def all_families(begin: str) -> tuple[Family, ...]:
    """Return everything that a program tells of the queues that it serves, and of itself."""
    return (*families(begin), durations(begin), info(begin))


def _seconds_of(field: str) -> Callable[[Forwarding], float]:
    return lambda told: (getattr(told, field) or 0) / MICROS
