"""The unit of work: every verb of the port, in one database transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from qmcore.port import Unit
from qmstorage import translate
from qmstorage.definitions import Definitions
from qmstorage.messages import Messages
from qmstorage.runner import Texts
from qmstorage.transactions import Transactions

T = TypeVar("T")


class SqlUnit(Definitions, Messages, Transactions):
    """One short database transaction on a volume."""

    def pages_to_allocate(self, pages: int) -> int:
        """Return how many pages the file must grow by to have `pages` free ones."""
        (free,) = self._cursor.execute("PRAGMA freelist_count").fetchone()
        return max(pages - int(free), 0)

    def start_allocation(self) -> None:
        """Make room to be filled. What an interrupted allocation left is filled further."""
        self._cursor.execute("CREATE TABLE IF NOT EXISTS allocation (filling BLOB NOT NULL)")

    def allocate(self, pages: int) -> None:
        """Fill `pages` pages."""
        (size,) = self._cursor.execute("PRAGMA page_size").fetchone()
        self._cursor.execute("INSERT INTO allocation VALUES (zeroblob(?))", (pages * size,))

    def end_allocation(self) -> None:
        """Free what was filled: the file keeps its size, and its pages are there for whoever needs them."""
        self._cursor.execute("DROP TABLE allocation")


def read_once(connection: sqlite3.Connection, texts: Texts, path: str, work: Callable[[Unit], T]) -> T:
    """Run `work` in one database transaction that is rolled back."""
    cursor = connection.cursor()
    try:
        cursor.execute("BEGIN")
        return work(SqlUnit(cursor, texts))
    except sqlite3.Error as error:
        raise translate.from_sqlite(error, path) from error
    finally:
        roll_back(connection)


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what the connection has begun, if anything."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
