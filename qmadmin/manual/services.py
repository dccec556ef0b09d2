"""The services file, the interfaces of services, and the statistics of forwarders, for tmqforward(8)."""

from __future__ import annotations

from collections.abc import Mapping

from qmadmin.forwarder import command_service, http_service
from qmadmin.forwarder.descriptions import KINDS, Description, Key, keys_of
from qmadmin.forwarder.metrics import COUNTERS, DURATIONS, GAUGES, INFO, TIMES
from qmadmin.manual.programs import default
from qmadmin.manual.roff import bold, escaped, terms
from qmadmin.monitoring.forwarding import KEYS


def parts() -> dict[str, str]:
    """Return the generated parts of the page."""
    return {
        "KEYS OF ALL SERVICES": _listed(keys_of(Description)),
        **{f"KEYS OF {teller.upper()}": _listed(_own(kind)) for teller, kind in KINDS.items()},
        "VARIABLES OF COMMANDS": _defined(command_service.FACTS),
        "OUTCOME": _defined(command_service.OUTCOMES),
        "HTTP HEADERS": _defined(http_service.HEADERS),
        "HTTP ANSWERS": _defined(http_service.ANSWERS),
    }


def _own(kind: type[Description]) -> dict[str, Key]:
    common = keys_of(Description)
    return {name: key for name, key in keys_of(kind).items() if name not in common}


def _listed(keys: Mapping[str, Key]) -> str:
    return terms((_head(key), _text(key)) for key in keys.values())


def _head(key: Key) -> str:
    return f"{bold(key.name)} ({escaped(key.form.allowed.removeprefix('a ').removeprefix('an '))})"


def _text(key: Key) -> str:
    return key.help if key.required else f"{key.help} The default is {default(key)}."


def _defined(meanings: Mapping[str, str]) -> str:
    return terms(((bold(name), meaning) for name, meaning in meanings.items()), indent="18")


def forwarders() -> str:
    """Return the data for programs about a process that forwards a queue."""
    return terms(((bold(key), f"{text}.") for key, text in KEYS.items()), indent="18")


def metrics() -> str:
    """Return the metrics for Prometheus, by their names."""
    rows = [(f"tmqforward_{name}_total", "counter", text) for name, text in COUNTERS.values()]
    rows += [(f"tmqforward_{name}", "gauge", text) for name, text in (*GAUGES.values(), *TIMES.values())]
    rows.append((f"tmqforward_{DURATIONS[0]}", "histogram", DURATIONS[1]))
    rows.append((f"tmqforward_{INFO[0]}", "gauge", INFO[1]))
    return terms((f"{bold(name)} ({kind})", text) for name, kind, text in rows)
