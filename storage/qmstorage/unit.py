"""The unit of work: every verb of the port, in one database transaction."""

from __future__ import annotations

from qmstorage.definitions import Definitions
from qmstorage.messages import Messages
from qmstorage.transactions import Transactions


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
