"""litequeue: pop and done, two commits, after which the message stays in the table.

It asks SQLite for commits that are not synced; where they are to be, that is changed on its connection. The names of
its indexes are the same for all queues, so that each queue has a file of its own. Bodies are text.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from benchmarks.sqlite.peer import PeerClient
from benchmarks.subject import BODY, QUEUE, WARM_UP, GoesOn, version_of

# Installed in another environment than the one that types are checked in.
LiteQueue: Any = importlib.import_module("litequeue").LiteQueue

_BODY = "x" * len(BODY)


class Measured:
    """Each commit is synced. A reply is a commit of its own."""

    commits: ClassVar = {"produce": 1, "produce_many": 1, "consume": 2, "answer": 3}
    level = "FULL"

    def __init__(self) -> None:
        self.version = version_of("litequeue")

    def set_up(self, path: str) -> None:
        """Make the tables."""
        for queue in (QUEUE, WARM_UP):
            _queue(path, queue, self.level).close()

    def fill(self, path: str, count: int) -> None:
        """Put all in one commit."""
        queue = _queue(path, QUEUE, self.level)
        _put(queue, count)
        queue.close()

    def empty(self, path: str) -> None:
        """Delete all rows, which it has no call for."""
        for name in (QUEUE, WARM_UP):
            queue = _queue(path, name, self.level)
            queue.conn.execute(f"DELETE FROM {queue.table}")  # noqa: S608 - a name of ours
            queue.close()

    def open(self, path: str) -> Client:
        """Return a client."""
        return Client(path, self.level)


class Relaxed(Measured):
    """As it is: only checkpoints are synced."""

    commits: ClassVar = dict.fromkeys(Measured.commits, 0)
    level = "NORMAL"


class Client(PeerClient):
    """A queue object for each queue, and so a connection."""

    def __init__(self, path: str, level: str) -> None:
        self._queues = {queue: _queue(path, queue, level) for queue in (QUEUE, WARM_UP)}

    def put(self, queue: str) -> None:
        """Put a message."""
        self._queues[queue].put(_BODY)

    def take(self, queue: str) -> bool:
        """Pop a message, and note that it is done."""
        message = self._queues[queue].pop()
        if message is None:
            return False
        self._queues[queue].done(message.message_id)
        return True

    def produce_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Put so many messages in a transaction."""
        while goes_on(True):
            _put(self._queues[queue], size)

    def close(self) -> None:
        """Close the connections."""
        for queue in self._queues.values():
            queue.close()


def _queue(path: str, name: str, level: str) -> Any:
    queue = LiteQueue(f"{path}-{name}", timeout=60)
    queue.conn.execute(f"PRAGMA synchronous = {level}")
    return queue


def _put(queue: Any, count: int) -> None:
    with queue.transaction():
        for _ in range(count):
            queue.put(_BODY)
