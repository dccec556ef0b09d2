"""huey: its storage in an SQLite file, told to sync each commit; and its consumer, with a task above it.

The consumer deletes a task before it runs it, and has no second commit when it has ended well: what runs when the
process dies is lost.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from benchmarks.sqlite.peer import PeerClient
from benchmarks.subject import BODY, QUEUE, WARM_UP, version_of
from benchmarks.working import Function

# Installed in another environment than the one that types are checked in.
huey: Any = importlib.import_module("huey")
SqliteStorage: Any = importlib.import_module("huey.storage").SqliteStorage

_LOOK = 0.25
"""Seconds between two looks whether a consumer has done everything."""

_INSERT = "insert into task (queue, data, priority) values (?, ?, 0)"


class Measured:
    """Its table, and a storage for each queue. A reply is a commit of its own."""

    commits: ClassVar = {"produce": 1, "consume": 1, "answer": 2, "work": 1}

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

    def hand_out(self, path: str, count: int) -> None:
        """Enqueue a task for each number."""
        queue, task = _tasks(path, _do_nothing)
        for number in range(count):
            task(number)
        queue.storage.close()

    def work(self, path: str, workers: int, function: Function) -> None:
        """Run its consumer with so many threads."""
        queue, _ = _tasks(path, function)
        consumer = queue.create_consumer(workers=workers, periodic=False)
        consumer.start()
        over = threading.Event()
        while queue.pending_count():
            over.wait(_LOOK)
        # It waits for the tasks that run.
        consumer.stop(graceful=True)

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


def _tasks(path: str, function: Function) -> tuple[Any, Callable[[int], Any]]:
    """Return huey over a file, and the task that calls a function with a number."""
    queue = huey.SqliteHuey(name=QUEUE, filename=path, fsync=True, timeout=60)

    def called(number: int) -> None:
        function(number)

    return queue, queue.task(name="called")(called)


def _do_nothing(_number: int) -> None:
    """Stand for the function where tasks are only enqueued."""
