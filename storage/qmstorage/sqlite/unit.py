"""The unit of work on SQLite, which also fills the file ahead of time, and runs on a connection for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import TypeVar

from qmcore.port import Unit
from qmcore.purpose import WrongPurposeError
from qmstorage.notifications import ALL
from qmstorage.schema import waiter
from qmstorage.sql import select
from qmstorage.sqlite import translate
from qmstorage.sqlite.bulk_load import LoggedBulkLoad
from qmstorage.sqlite.counters import ExclusiveCounters
from qmstorage.sqlite.holdings import ExclusiveHoldings
from qmstorage.sqlite.listing import DecodedListing
from qmstorage.sqlite.messages import ExclusiveMessages
from qmstorage.sqlite.states import ExclusiveStates
from qmstorage.sqlite.transitions import Transitions
from qmstorage.sqlite.wakeups import is_in_turn
from qmstorage.statements import Texts, given
from qmstorage.unit import MemoryStore
from qmstorage.unit_part import LastingPartOf, PartOf

T = TypeVar("T")

_WAITERS = select(waiter.c.address).where(given(waiter.c.queue_id, "of_queue")).order_by(waiter.c.address)


class SqliteMemoryStore(MemoryStore):
    """The non-persistent messages of a queue space, in its memory."""

    counters = LastingPartOf(ExclusiveCounters)
    states = LastingPartOf(ExclusiveStates)
    messages = LastingPartOf(ExclusiveMessages)
    holdings = LastingPartOf(ExclusiveHoldings)
    listing = PartOf(DecodedListing)


class SqliteUnit(Transitions):
    """One short database transaction on an SQLite file."""

    listing = PartOf(DecodedListing)
    bulk_load = PartOf(LoggedBulkLoad)

    brought_many = False
    """Whether there was so much that the log may have become long."""

    def begin(self) -> None:
        """Begin another database transaction: nothing that was read, or is to be told, holds any more."""
        self.cursor.execute("BEGIN IMMEDIATE")
        self.actions, self._generations = [], {}
        self.counters.main, self.brought_many = None, False
        notifications = self.notifications
        if notifications.turns:
            notifications.queues.clear()
            notifications.turns.clear()

    def start_work(self) -> None:
        """Begin the work of one caller: what was read for another, whose work may have been undone, is forgotten."""
        self.actions = []
        self._generations = {}
        self.counters.main = None

    def commit(self) -> None:
        """Commit it."""
        self.cursor.execute("COMMIT")

    def roll_back(self) -> None:
        """Undo it; what a question was still to give is given up too."""
        self.cursor.execute("ROLLBACK")

    def begin_part(self) -> None:
        """Begin a part that may be undone alone."""
        self.cursor.execute("SAVEPOINT part")

    def undo_part(self) -> None:
        """Undo what was done since."""
        self.cursor.execute("ROLLBACK TO part")

    def end_part(self) -> None:
        """Let what was done since stand or fall with the rest."""
        self.cursor.execute("RELEASE part")

    def close(self) -> None:
        """Give the cursor up."""
        self.cursor.close()

    def wakeups_to_send(self) -> list[tuple[list[str], int]]:
        """Return whom to wake once the unit is committed: addresses in their order, and how many of them."""
        wanted: list[tuple[list[str], int]] = []
        for queue_id, turns in self.notifications.turns.items():
            rows = self.cursor.execute(self.texts.in_order[_WAITERS], (queue_id,)).fetchall()
            # Mostly nobody waits.
            in_turn = [address for (address,) in rows if is_in_turn(address)] if rows else []
            if in_turn:
                wanted.append((in_turn, turns))
            if len(in_turn) < len(rows) and queue_id in self.notifications.queues:
                wanted.append(([address for (address,) in rows if not is_in_turn(address)], ALL))
        return wanted

    def memory_of(self, texts: Texts) -> SqliteMemoryStore:
        """Return the store of non-persistent messages that the texts lead to."""
        return SqliteMemoryStore(self.cursor, texts, self.notifications)


def ours(unit: Unit) -> SqliteUnit:
    """Return a unit that a volume on SQLite has made, as what it is."""
    assert isinstance(unit, SqliteUnit)  # noqa: S101 - the volume made it
    return unit


def read_once(
    connection: sqlite3.Connection,
    texts: Texts,
    path: str,
    work: Callable[[Unit], T],
    memories: Mapping[int, Texts] | None = None,
) -> T:
    """Run `work` in one database transaction that is rolled back."""
    cursor, before = connection.cursor(), connection.total_changes
    try:
        cursor.execute("BEGIN")
        result = work(SqliteUnit(cursor, texts, memories))
        if connection.total_changes != before:
            raise WrongPurposeError(None)
        return result
    except sqlite3.Error as error:
        raise translate.from_sqlite(error, path) from error
    finally:
        if connection.in_transaction:
            cursor.execute("ROLLBACK")
        # A statement that an interrupt has left in its middle would keep the log from being written again.
        cursor.close()


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what the connection has begun, if anything."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
