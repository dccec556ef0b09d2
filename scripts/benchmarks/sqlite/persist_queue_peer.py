"""persist-queue: its SQLiteQueue, which deletes what it gives out, in autocommit.

A get is a select and a delete, with no lock that other processes know: several of them may be given the same message.
"""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
from pathlib import Path
from typing import Any

from benchmarks.sqlite.peer import PeerClient
from benchmarks.subject import BODY, QUEUE, WARM_UP, synced, version_of

# Installed in another environment than the one that types are checked in.
persistqueue: Any = importlib.import_module("persistqueue")


class Measured:
    """A table for each queue. A reply is a commit of its own."""

    def __init__(self) -> None:
        self.version = f"{version_of('persist-queue')}; several processes may be given the same message"
        # It leaves that to what SQLite was built with.
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            commit = synced(connection)
        self.commits = {"produce": commit, "consume": commit, "answer": 2 * commit}

    def set_up(self, path: str) -> None:
        """Make the tables."""
        for queue in (QUEUE, WARM_UP):
            _queue(path, queue).close()

    def fill(self, path: str, count: int) -> None:
        """Put all in one commit."""
        queue = _queue(path, QUEUE, auto_commit=False)
        for _ in range(count):
            queue.put(BODY)
        queue.task_done()
        queue.close()

    def empty(self, path: str) -> None:
        """Delete all rows, which it has no call for."""
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for queue in (QUEUE, WARM_UP):
                connection.execute(f"DELETE FROM queue_{queue}")  # noqa: S608 - a name of ours

    def open(self, path: str) -> Client:
        """Return a client."""
        return Client(path)


class Client(PeerClient):
    """A queue object for each queue, and so a connection."""

    def __init__(self, path: str) -> None:
        self._queues = {queue: _queue(path, queue) for queue in (QUEUE, WARM_UP)}

    def put(self, queue: str) -> None:
        """Put a message."""
        self._queues[queue].put(BODY)

    def take(self, queue: str) -> bool:
        """Get a message, which deletes it."""
        try:
            self._queues[queue].get(block=False)
        except persistqueue.Empty:
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        for queue in self._queues.values():
            queue.close()


def _queue(path: str, name: str, *, auto_commit: bool = True) -> Any:
    place = Path(path)
    return persistqueue.SQLiteQueue(
        str(place.parent), name=name, db_file_name=place.name, timeout=60, auto_commit=auto_commit
    )
