"""The bar: a queue as one writes it by hand, one table and one statement for each commit."""

from __future__ import annotations

import threading
from typing import ClassVar

import psycopg

from benchmarks.subject import BODY, QUEUE, WARM_UP, GoesOn, version_of
from benchmarks.working import Function

_TABLE = """
CREATE TABLE message (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX message_order ON message (queue, id);
"""
_ENQUEUE = "INSERT INTO message (queue, body) VALUES ($1, $2)"
_DEQUEUE = """
DELETE FROM message WHERE id = (
    SELECT id FROM message WHERE queue = $1 ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1
) RETURNING id, body
"""
_DEQUEUE_MANY = """
DELETE FROM message WHERE id IN (
    SELECT id FROM message WHERE queue = $1 ORDER BY id FOR UPDATE SKIP LOCKED LIMIT $2
) RETURNING id, body
"""


class Measured:
    """The hand-written loop."""

    commits: ClassVar = {"produce": 1, "consume": 1, "produce_many": 1, "consume_many": 1, "answer": 1, "work": 1,
                         "work_together": 1}  # fmt: skip

    def __init__(self) -> None:
        self.version = version_of("psycopg")

    def set_up(self, url: str) -> None:
        """Make the table."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_TABLE)

    def fill(self, url: str, count: int) -> None:
        """Copy rows into the table."""
        statement = "COPY message (queue, body) FROM STDIN"
        with psycopg.connect(url) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
            for _ in range(count):
                copy.write_row((QUEUE, BODY))

    def hand_out(self, url: str, count: int) -> None:
        """Insert a row for each number."""
        with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as connection:
            cursor = connection.cursor()
            cursor.executemany(_ENQUEUE, [(QUEUE, b"%d" % number) for number in range(count)])

    def work(self, url: str, workers: int, function: Function) -> None:
        """Delete rows in threads, each in a transaction in which the function is called."""
        threads = [threading.Thread(target=_work, args=(url, 1, function)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work_together(self, url: str, size: int, function: Function) -> None:
        """Delete so many rows in each transaction."""
        _work(url, size, function)

    def empty(self, url: str) -> None:
        """Remove all rows."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("TRUNCATE message")

    def open(self, url: str) -> Client:
        """Return a client."""
        return Client(url)


class Client:
    """One connection in autocommit, its statements prepared."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)
        self._cursor = self._connection.cursor(binary=True)

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Insert rows."""
        while goes_on(True):
            self._cursor.execute(_ENQUEUE, (queue, BODY), prepare=True)

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Delete rows and read them."""
        found = True
        while goes_on(found):
            self._cursor.execute(_DEQUEUE, (queue,), prepare=True)
            found = self._cursor.fetchone() is not None

    def produce_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Insert so many rows in each commit, sent together."""
        while goes_on(True):
            with self._connection.transaction():
                self._cursor.executemany(_ENQUEUE, [(queue, BODY)] * size)

    def consume_many(self, queue: str, size: int, goes_on: GoesOn) -> None:
        """Delete so many rows in each commit, and read them."""
        found = True
        while goes_on(found):
            self._cursor.execute(_DEQUEUE_MANY, (queue, size), prepare=True)
            found = bool(self._cursor.fetchall())

    def answer(self, queue: str, goes_on: GoesOn) -> None:
        """Delete a row and insert a reply in one transaction."""
        found = True
        while goes_on(found):
            with self._connection.transaction():
                self._cursor.execute(_DEQUEUE, (queue,), prepare=True)
                found = self._cursor.fetchone() is not None
                if found:
                    self._cursor.execute(_ENQUEUE, (WARM_UP, BODY), prepare=True)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _work(url: str, size: int, function: Function) -> None:
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        cursor = connection.cursor(binary=True)
        while True:
            with connection.transaction():
                cursor.execute(_DEQUEUE_MANY, (QUEUE, size), prepare=True)
                rows = cursor.fetchall()
                if not rows:
                    return
                for _, body in rows:
                    function(int(body))
