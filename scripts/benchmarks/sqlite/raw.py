"""What SQLite itself gives on this disk: the bar for everything else.

One table with the columns of a message and one index like that of ready rows, a write-ahead log, a connection that is
held, one statement between BEGIN IMMEDIATE and COMMIT, no counters, no limits. Several processes wait for each other in
SQLite's own busy handler.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from typing import ClassVar

from benchmarks.subject import BODY, QUEUE, GoesOn

_TABLE = """
CREATE TABLE message (
    id INTEGER PRIMARY KEY, queue TEXT NOT NULL, key BLOB NOT NULL, priority INTEGER NOT NULL,
    enqueued INTEGER NOT NULL, available INTEGER, expires INTEGER, retries INTEGER NOT NULL, corrid BLOB,
    reply_queue TEXT, failure_queue TEXT, urcode INTEGER NOT NULL, appkey INTEGER NOT NULL, client TEXT NOT NULL,
    type TEXT NOT NULL, headers TEXT, body BLOB
);
CREATE INDEX ready ON message (queue, key);
"""
_ENQUEUE = """
INSERT INTO message (queue, key, priority, enqueued, retries, urcode, appkey, client, type, body)
VALUES (?, ?, 50, ?, 0, 0, 0, '', '', ?)
"""
_DEQUEUE = """
DELETE FROM message WHERE id IN (SELECT id FROM message WHERE queue = ? ORDER BY key LIMIT ?) RETURNING *
"""


class Measured:
    """Each commit is synced."""

    commits: ClassVar = {"produce": 1, "consume": 1, "produce_many": 1, "consume_many": 1}
    level = "FULL"

    def __init__(self) -> None:
        self.version = f"the module sqlite3, SQLite {sqlite3.sqlite_version}"

    def set_up(self, path: str) -> None:
        """Make the table."""
        with contextlib.closing(_connected(path, self.level)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_TABLE)

    def fill(self, path: str, count: int) -> None:
        """Insert all rows in one commit."""
        with contextlib.closing(_connected(path, self.level)) as connection:
            _insert(connection, QUEUE, count)

    def empty(self, path: str) -> None:
        """Delete all rows."""
        with contextlib.closing(_connected(path, self.level)) as connection:
            connection.execute("DELETE FROM message")

    def open(self, path: str) -> Client:
        """Return a client."""
        return Client(path, self.level)


class Relaxed(Measured):
    """Only checkpoints are synced."""

    commits: ClassVar = dict.fromkeys(Measured.commits, 0)
    level = "NORMAL"


class Client:
    """One connection that is held."""

    def __init__(self, path: str, level: str) -> None:
        self._connection = _connected(path, level)

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Insert rows one at a time."""
        while goes_on(True):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(_ENQUEUE, _row(queue))
            self._connection.execute("COMMIT")

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Delete rows one at a time, and read them."""
        self.consume_many(queue, 1, goes_on)

    def produce_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Insert so many rows in each commit."""
        while goes_on(True):
            _insert(self._connection, queue, size)

    def consume_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Delete so many rows in each commit, and read them."""
        found = True
        while goes_on(found):
            self._connection.execute("BEGIN IMMEDIATE")
            found = bool(self._connection.execute(_DEQUEUE, (queue, size)).fetchall())
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _connected(path: str, level: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute(f"PRAGMA synchronous = {level}")
    return connection


def _insert(connection: sqlite3.Connection, queue: str, count: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(_ENQUEUE, _rows(queue, count))
    connection.execute("COMMIT")


def _rows(queue: str, count: int) -> Iterator[tuple[object, ...]]:
    return (_row(queue) for _ in range(count))


def _row(queue: str) -> tuple[object, ...]:
    # As a key of ours: a byte, the sequence, a byte. A clock is a sequence that processes share.
    now = time.time_ns()
    return queue, b"\x80%b\x80" % now.to_bytes(8, "big"), now // 1000, BODY
