"""The metrics of a forwarder for Prometheus, served over HTTP while it runs.

prometheus-client, which the extra qmadmin[metrics] installs, is loaded only if metrics are requested.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

from qmadmin.forwarder import StartError, UsageError
from qmadmin.version import __version__
from qmcore.times import MICROS
from qmcore.values import dataclass

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import HistogramMetricFamily, Metric

    from qmadmin.consumers.statistics import Statistics

logger = logging.getLogger("qmadmin.forwarder")

LOOPBACK: Final = "127.0.0.1"

_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
BOUNDS_US: Final = tuple(round(seconds * MICROS) for seconds in _BOUNDS)
"""Bounds of the histogram of call durations; durations are kept to two digits, so that these are exact."""

COUNTERS: Final = {
    "calls": ("calls", "Calls of the service that were started."),
    "successes": ("successes", "Calls that succeeded: their message is gone and their reply is queued."),
    "failures": ("failures", "Calls that failed."),
    "retries": ("retries", "Failed calls whose message is tried again."),
    "refused": ("refused", "Calls that do not count as a try, because the service could not work at all."),
    "dropped_replies": ("dropped_replies", "Replies that were dropped because their queue did not exist."),
}
"""Fields of the statistics that are counters: the name of each after tmqforward_, and its meaning."""

GAUGES: Final = {
    "in_flight": ("calls_in_flight", "Calls that are running."),
    "workers": ("workers", "Calls that may run at the same time."),
}
TIMES: Final = {
    "last_error_us": ("last_error_timestamp_seconds", "When a call last failed or was refused; 0: never."),
    "paused_until_us": ("paused_until_timestamp_seconds", "Until when the queue is paused; 0: it is served."),
}


DURATIONS: Final = ("call_duration_seconds", "The duration of calls that succeeded or failed.")
INFO: Final = ("info", "The version of tmqforward, as a label; the value is always 1.")


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which metrics are served."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address in `[HOST:]PORT`; without a host it is loopback. An IPv6 address is in brackets."""
        found = re.fullmatch(
            r"(?:(?:\[(?P<six>[\da-fA-F:.]+)\]|(?P<host>[^\s\[\]:/]+)):)?(?P<port>\d{1,5})", text, re.ASCII
        )
        if found is None or int(found["port"]) > 65535:
            raise UsageError(
                f"metrics must be served at [HOST:]PORT, such as 9464 or 0.0.0.0:9464, and not at {text!r}"
            )
        return cls(found["six"] or found["host"] or LOOPBACK, int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StatisticsCollector:
    """Returns the statistics of queues to Prometheus whenever it asks.

    `statistics` returns those of the forwarded queues; it is called in a thread of the server.
    """

    def __init__(self, space: str, statistics: Callable[[], Collection[Statistics]]) -> None:
        self._space = space
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with a sample for each queue."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        labels = ["space", "queue"]
        kinds = ((COUNTERS, CounterMetricFamily, 1), (GAUGES, GaugeMetricFamily, 1), (TIMES, GaugeMetricFamily, MICROS))
        figures = [
            (of, family(_named(name), help_, labels=labels), unit)
            for declared, family, unit in kinds
            for of, (name, help_) in declared.items()
        ]
        durations = HistogramMetricFamily(_named(DURATIONS[0]), DURATIONS[1], labels=labels)
        for each in self._statistics():
            told, values = each.forwarding(), [self._space, each.queue]
            for of, family, unit in figures:
                family.add_metric(values, (getattr(told, of) or 0) / unit)
            _add_durations(durations, values, each)
        yield from (*(family for _, family, _ in figures), durations)
        info = GaugeMetricFamily(_named(INFO[0]), INFO[1], labels=["version"])
        info.add_metric([__version__], 1)
        yield info


@contextlib.contextmanager
def served(address: Address | None, space: str, statistics: Callable[[], Collection[Statistics]]) -> Iterator[None]:
    """Serve the statistics of queues at an address while the block lasts; without an address, serve nothing.

    Raises StartError if prometheus-client is missing, or the port is in use or not allowed.
    """
    if address is None:
        yield
        return
    registry = _registry(StatisticsCollector(space, statistics))
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise StartError(
            f"metrics cannot be served at {address}: {error.strerror or error}", "Name another port with --metrics."
        ) from error
    try:
        logger.info("metrics are served at http://%s/metrics", Address(address.host, server.server_port))
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _registry(collector: StatisticsCollector) -> CollectorRegistry:
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector
    except ImportError as error:
        raise StartError(
            "metrics need the package prometheus-client, which is not installed",
            "Install it with: pip install prometheus-client.",
        ) from error
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def _add_durations(family: HistogramMetricFamily, labels: list[str], statistics: Statistics) -> None:
    took = statistics.took(BOUNDS_US)
    bounds = [str(bound / MICROS) for bound in BOUNDS_US]
    buckets = [*zip(bounds, map(float, took.within), strict=True), ("+Inf", float(took.calls))]
    family.add_metric(labels, buckets, took.seconds)


def _named(name: str) -> str:
    return f"tmqforward_{name}"
