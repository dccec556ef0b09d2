"""The figures of forwarders, for tmqforward(8)."""

from __future__ import annotations

from qmadmin.forwarder.metrics import COUNTERS, DURATIONS, GAUGES, INFO, TIMES
from qmadmin.manual.roff import bold, terms
from qmadmin.monitoring.forwarding import KEYS


def forwarders() -> str:
    """Return what programs are told of a process that forwards a queue."""
    return terms(((bold(key), f"{text}.") for key, text in KEYS.items()), indent="18")


def metrics() -> str:
    """Return what Prometheus is told, by the names of the metrics."""
    rows = [(f"tmqforward_{name}_total", "counter", text) for name, text in COUNTERS.values()]
    rows += [(f"tmqforward_{name}", "gauge", text) for name, text in (*GAUGES.values(), *TIMES.values())]
    rows.append((f"tmqforward_{DURATIONS[0]}", "histogram", DURATIONS[1]))
    rows.append((f"tmqforward_{INFO[0]}", "gauge", INFO[1]))
    return terms((f"{bold(name)} ({kind})", text) for name, kind, text in rows)
