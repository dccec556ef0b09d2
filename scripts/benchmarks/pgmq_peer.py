"""pgmq: messages are sent and popped through its client, which calls its functions in the server.

One connection in autocommit is given to each call, so that a call is one journey, and none goes through a pool. A pop
reads a message and deletes it in one commit, as a dequeue outside of a transaction does. What it stores is JSON, so the
body is text of the same length.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from benchmarks.subject import BODY, QUEUE, WARM_UP, GoesOn, version_of

# Installed in another environment than the one that types are checked in.
psycopg: Any = importlib.import_module("psycopg")
psycopg_pool: Any = importlib.import_module("psycopg_pool")
pgmq: Any = importlib.import_module("pgmq")

_MESSAGE = {"body": "x" * len(BODY)}
_AT_A_TIME = 1000


class Measured:
    """pgmq with psycopg."""

    commits: ClassVar = {"produce": 1, "consume": 1, "produce_many": 1, "consume_many": 1, "answer": 1}

    def __init__(self) -> None:
        self.version = f"{version_of('pgmq', 'psycopg')}, functions {pgmq.get_embedded_sql_version()}"

    def set_up(self, url: str) -> None:
        """Install its tables and functions, and make the queues."""
        with psycopg.connect(url) as connection:
            pgmq.install_pgmq_from_sql(conn=connection)
        client = Client(url)
        client.create(QUEUE, WARM_UP)
        client.close()

    def fill(self, url: str, count: int) -> None:
        """Send a thousand messages at a time."""
        client = Client(url)
        client.send(QUEUE, count)
        client.close()

    def empty(self, url: str) -> None:
        """Purge the queues."""
        client = Client(url)
        client.purge(QUEUE, WARM_UP)
        client.close()

    def open(self, url: str) -> Client:
        """Return a client."""
        return Client(url)


class Client:
    """One connection, in autocommit."""

    def __init__(self, url: str) -> None:
        self._pool = psycopg_pool.ConnectionPool(url, min_size=1, max_size=1, open=True, kwargs={"autocommit": True})
        self._queue = pgmq.PGMQueue(pool=self._pool, init_extension=False)
        self._connection = self._pool.getconn()

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Send messages."""
        while goes_on(True):
            self._queue.send(queue, _MESSAGE, conn=self._connection)

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Pop messages."""
        found = True
        while goes_on(found):
            found = self._queue.pop(queue, conn=self._connection) is not None

    def produce_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Send so many messages in each call."""
        while goes_on(True):
            self._queue.send_batch(queue, [_MESSAGE] * size, conn=self._connection)

    def consume_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Pop so many messages in each call."""
        found = True
        while goes_on(found):
            found = bool(self._queue.pop(queue, size, conn=self._connection))

    def answer(self, queue: str, goes_on: GoesOn) -> None:
        """Pop a message and send its reply in one transaction."""
        found = True
        while goes_on(found):
            with self._connection.transaction():
                found = self._queue.pop(queue, conn=self._connection) is not None
                if found:
                    self._queue.send(WARM_UP, _MESSAGE, conn=self._connection)

    def create(self, *queues: str) -> None:
        """Create queues."""
        for queue in queues:
            self._queue.create_queue(queue, conn=self._connection)

    def purge(self, *queues: str) -> None:
        """Remove all messages of queues."""
        for queue in queues:
            self._queue.purge(queue, conn=self._connection)

    def send(self, queue: str, count: int) -> None:
        """Send messages, many at a time."""
        for done in range(0, count, _AT_A_TIME):
            some = min(_AT_A_TIME, count - done)
            self._queue.send_batch(queue, [_MESSAGE] * some, conn=self._connection)

    def close(self) -> None:
        """Close the connection."""
        self._pool.putconn(self._connection)
        self._pool.close()
