"""What all that is measured on PostgreSQL has in common.

A subject knows how to lay out its tables in a database of its own, and how to fill and to empty its queue. A client of
it is one process with one connection; it enqueues or dequeues for as long as it is told to go on.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, Protocol

BODY = bytes(1024)
QUEUE = "requests"
WARM_UP = "warm_up"
"""The queue that clients use before their time is taken."""

GoesOn = Callable[[bool], bool]
"""Told whether the last operation found a message, or True before the first one; tells whether to do one more."""


class Client(Protocol):
    """One connection to a subject."""

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Enqueue messages one at a time, each of them durable before the next."""

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue messages one at a time, each of them gone for good before the next."""

    def close(self) -> None:
        """End the connection."""


class Subject(Protocol):
    """One way to have a queue in PostgreSQL."""

    version: str
    """What is measured: a distribution and its version, with the driver's."""

    enqueue_commits: int
    """Synced commits of an enqueue."""

    dequeue_commits: int
    """Synced commits of a dequeue until the message is gone for good."""

    def set_up(self, url: str) -> None:
        """Lay out the tables in a database that is empty."""

    def fill(self, url: str, count: int) -> None:
        """Store `count` messages more, as fast as it can."""

    def empty(self, url: str) -> None:
        """Remove all messages."""

    def open(self, url: str) -> Client:
        """Return a client."""


MODULES = {
    "hand-written": "benchmarks.hand_written",
    "qmadmin": "benchmarks.engine",
    "procrastinate": "benchmarks.procrastinate_peer",
    "pgqueuer": "benchmarks.pgqueuer_peer",
}
"""Where the subjects are. The first is the one that the others are compared with."""

PEERS = ("procrastinate", "pgqueuer")
"""Those that need packages which the project does not have."""


def load(name: str) -> Subject:
    """Return a subject by its name; ImportError where its packages are absent."""
    # Not imported above: each has packages of its own, and not every interpreter has all of them.
    module: Any = importlib.import_module(MODULES[name])
    subject: Subject = module.Measured()
    return subject


def version_of(*distributions: str) -> str:
    """Return the names and versions of installed distributions, for people."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in distributions)
