"""What all that is measured has in common, on SQLite and on PostgreSQL.

A subject knows how to lay out its tables in a place of its own, and how to fill and to empty its queue. A client of it
is one process with one connection; it enqueues or dequeues for as long as it is told to go on. The place is the URL of
a database that is empty, or the path of a file that is not there yet, in a directory where nothing else is.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, Protocol

BODY = bytes(1024)
QUEUE = "requests"
WARM_UP = "warm_up"
"""The queue that clients use before their time is taken. Those that answer put their replies there."""

GoesOn = Callable[[bool], bool]
"""Told whether the last operation found a message, or True before the first one; tells whether to do one more."""


class Client(Protocol):
    """One connection to a subject."""

    def produce(self, queue: str, goes_on: GoesOn, /) -> None:
        """Enqueue messages one at a time, each of them durable before the next."""

    def consume(self, queue: str, goes_on: GoesOn, /) -> None:
        """Dequeue messages one at a time, each of them gone for good before the next."""

    def close(self) -> None:
        """End the connection."""


class ManyClient(Client, Protocol):
    """One that deals with several messages at once, too."""

    def produce_many(self, queue: str, size: int, goes_on: GoesOn, /) -> None:
        """Enqueue so many messages at a time, in one commit."""

    def consume_many(self, queue: str, size: int, goes_on: GoesOn, /) -> None:
        """Dequeue up to so many messages at a time, in one commit."""


class AnsweringClient(Client, Protocol):
    """One that answers, too."""

    def answer(self, queue: str, goes_on: GoesOn, /) -> None:
        """Dequeue a message and enqueue its reply, one after the other."""


class Subject(Protocol):
    """One way to have a queue."""

    version: str
    """What is measured: a distribution and its version, with the driver's."""

    commits: Mapping[str, int]
    """Synced commits of each thing that its clients can do, until an enqueue is durable or a message gone for good.

    The keys are the names of a client's methods. 0 is for what is not synced: a power failure loses it.
    """

    def set_up(self, place: str, /) -> None:
        """Lay out the tables."""

    def fill(self, place: str, count: int, /) -> None:
        """Store `count` messages more, as fast as it can."""

    def empty(self, place: str, /) -> None:
        """Remove all messages."""

    def open(self, place: str, /) -> Client:
        """Return a client."""


def load(module_and_class: str) -> Subject:
    """Return a subject by where it is, as `module:Class`; ImportError where its packages are absent."""
    # Not imported above: each has packages of its own, and not every interpreter has all of them.
    module, _, name = module_and_class.partition(":")
    found: Any = importlib.import_module(module)
    subject: Subject = getattr(found, name)()
    return subject


def version_of(*distributions: str) -> str:
    """Return the names and versions of installed distributions, for people."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in distributions)


def synced(connection: sqlite3.Connection) -> int:
    """Return 1 where each commit on a connection to a file with a write-ahead log is synced, and 0 where it is not."""
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    return int(level >= 2)
