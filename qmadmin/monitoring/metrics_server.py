"""Metrics as the text that Prometheus reads: served over HTTP while a program runs, or written once.

prometheus-client, which the extra qmadmin[metrics] installs, is loaded only if metrics are requested.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from qmcore.errors import InvalidArgumentError, OperatingSystemError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from qmadmin.monitoring.prometheus import MetricsCollector

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which metrics are served."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address in `[HOST:]PORT`; without a host it is loopback. An IPv6 address is in brackets.

        Raises InvalidArgumentError for anything else.
        """
        found = re.fullmatch(
            r"(?:(?:\[(?P<six>[\da-fA-F:.]+)\]|(?P<host>[^\s\[\]:/]+)):)?(?P<port>\d{1,5})", text, re.ASCII
        )
        if found is None or int(found["port"]) > 65535:
            raise InvalidArgumentError(
                f"metrics must be served at [HOST:]PORT, such as 9464 or 0.0.0.0:9464, and not at {text!r}"
            )
        return cls(found["six"] or found["host"] or LOOPBACK, int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@contextlib.contextmanager
def served(address: Address | None, logger: logging.Logger, *collectors: MetricsCollector) -> Iterator[None]:
    """Serve metrics, and those of the process, at an address while the block lasts; without an address, nothing.

    Raises OperatingSystemError if prometheus-client is missing, or the port is in use or not allowed.
    """
    if address is None:
        yield
        return
    registry = _registry(*collectors)
    from prometheus_client import ProcessCollector, start_http_server

    ProcessCollector(registry=registry)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise OperatingSystemError(
            f"metrics cannot be served at {address}: {error.strerror or error}",
            hint="Name another port with --metrics.",
        ) from error
    try:
        logger.info("metrics are served at http://%s/metrics", Address(address.host, server.server_port))
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def written(*collectors: MetricsCollector) -> str:
    """Return metrics as text; raises OperatingSystemError if prometheus-client is missing."""
    registry = _registry(*collectors)
    from prometheus_client import generate_latest

    return generate_latest(registry).decode()


def _registry(*collectors: MetricsCollector) -> CollectorRegistry:
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise OperatingSystemError(
            "metrics need the package prometheus-client, which is not installed",
            hint="Install it with: pip install prometheus-client.",
        ) from error
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return registry
