"""huey: its storage in an SQLite file, told to sync each commit. There are tasks above it, which are not measured."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from benchmarks.sqlite.peer import PeerClient
from benchmarks.subject import BODY, QUEUE, WARM_UP, version_of

# Installed in another environment than the one that types are checked in.
SqliteStorage: Any = importlib.import_module("huey.storage").SqliteStorage

_INSERT = "insert into task (queue, data, priority) values (?, ?, 0)"


class Measured:
    """Its table, and a storage for each queue. A reply is a commit of its own."""

    commits: ClassVar = {"produce": 1, "consume": 1, "answer": 2}

    def __init__(self) -> None:
        self.version = version_of("huey")

    def set_up(self, path: str) -> None:
        """Make its tables."""
        _storage(path, QUEUE).close()

    def fill(self, path: str, count: int) -> None:
        """Insert into its table in one commit, which it does not do itself."""
        storage = _storage(path, QUEUE)
        with storage.db(commit=True) as cursor:
            cursor.executemany(_INSERT, ((QUEUE, BODY) for _ in range(count)))
        storage.close()

    def empty(self, path: str) -> None:
        """Flush the queues."""
        for queue in (QUEUE, WARM_UP):
            storage = _storage(path, queue)
            storage.flush_queue()
            storage.close()

    def open(self, path: str) -> Client:
        """Return a client."""
        return Client(path)


class Client(PeerClient):
    """A storage for each queue, and so a connection."""

    def __init__(self, path: str) -> None:
        self._storages = {queue: _storage(path, queue) for queue in (QUEUE, WARM_UP)}

    def put(self, queue: str) -> None:
        """Enqueue a task."""
        self._storages[queue].enqueue(BODY)

    def take(self, queue: str) -> bool:
        """Dequeue a task, which deletes it."""
        return self._storages[queue].dequeue() is not None

    def close(self) -> None:
        """Close the connections."""
        for storage in self._storages.values():
            storage.close()


def _storage(path: str, queue: str) -> Any:
    return SqliteStorage(name=queue, filename=path, fsync=True, timeout=60)
