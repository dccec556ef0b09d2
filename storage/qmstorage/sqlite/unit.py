"""The unit of work on SQLite, which also fills the file ahead of time, and runs on a connection for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from qmcore.port import Unit
from qmcore.purpose import WrongPurposeError
from qmstorage.notifications import ALL
from qmstorage.schema import counter, space, waiter
from qmstorage.sql import bindparam, func, literal_column, select, update
from qmstorage.sqlite import translate
from qmstorage.sqlite.bulk_load import LoggedBulkLoad
from qmstorage.sqlite.counters import ExclusiveCounters
from qmstorage.sqlite.damage import DecodedDamage
from qmstorage.sqlite.listing import DecodedListing
from qmstorage.sqlite.messages import ExclusiveMessages
from qmstorage.sqlite.states import ExclusiveStates
from qmstorage.sqlite.transactions import ExclusiveHoldings
from qmstorage.sqlite.transitions import Transitions
from qmstorage.sqlite.wakeups import is_in_turn
from qmstorage.statements import Row, Texts, given
from qmstorage.unit import MemoryStore
from qmstorage.unit_part import LastingPartOf, PartOf

T = TypeVar("T")

_WAITERS = select(waiter.c.address).where(given(waiter.c.queue_id, "of_queue")).order_by(waiter.c.address)
_ALLOCATION = "CREATE TABLE IF NOT EXISTS allocation (filling BLOB NOT NULL)"
_PROMISED = (
    select(func.sum(space.c.pages - counter.c.pages))
    .join_from(space, counter, (counter.c.space_id == space.c.id) & (counter.c.queue_id == 0))
    .where(space.c.initialized)
)
"""Pages that queue spaces have been promised and do not use yet."""


_OF_HANDOFF: Final = (counter.c.space_id == literal_column("0"), given(counter.c.queue_id, "of_handoff"))
_HANDOFF_COMMIT: Final = select(counter.c.sequence).where(*_OF_HANDOFF)
_COUNT_HANDOFF_COMMIT: Final = (
    update(counter).where(*_OF_HANDOFF, counter.c.sequence < bindparam("later")).values(sequence=bindparam("commit"))
)
"""Where no queue space is: they are numbered from 1. It is a row of a page that most commits write to anyway."""


class SqliteMemoryStore(MemoryStore):
    """The non-persistent messages of a queue space, in its memory."""

    counters = LastingPartOf(ExclusiveCounters)
    states = LastingPartOf(ExclusiveStates)
    messages = LastingPartOf(ExclusiveMessages)
    holdings = LastingPartOf(ExclusiveHoldings)
    listing = PartOf(DecodedListing)
    damage = PartOf(DecodedDamage)


class SqliteUnit(Transitions):
    """One short database transaction on an SQLite file."""

    listing = PartOf(DecodedListing)
    bulk_load = PartOf(LoggedBulkLoad)
    damage = PartOf(DecodedDamage)

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

    def handoff_commit(self, handoff: int) -> int:
        """Return the number of the last commit that did works of several processes."""
        found: Row | None = self.run_in_order(_HANDOFF_COMMIT, handoff).fetchone()
        return int(found[0]) if found is not None else 0

    def count_handoff_commit(self, handoff: int, commit: int) -> int:
        """Note that this is such a commit, and return its number: the one that is given, if it is a later one."""
        if self.run_in_order(_COUNT_HANDOFF_COMMIT, commit, handoff, commit).rowcount == 0:
            last = self.handoff_commit(handoff)
            if not last:
                self.counters.add(0, handoff)
            commit = last + 1
            self.run_in_order(_COUNT_HANDOFF_COMMIT, commit, handoff, commit)
        return commit

    def memory_of(self, texts: Texts) -> SqliteMemoryStore:
        """Return the store of non-persistent messages that the texts lead to."""
        return SqliteMemoryStore(self.cursor, texts, self.notifications)

    def pages_to_allocate(self, pages: int) -> int:
        """Return how many pages must be filled so that `pages` are free besides those that are promised already.

        What is filled takes the free pages first, so that it is either all of them or none.
        """
        (free,) = self.cursor.execute("PRAGMA freelist_count").fetchone()
        ((promised,),) = self.all(_PROMISED)
        wanted = pages + int(promised or 0)
        return wanted if wanted > free else 0

    def start_allocation(self) -> None:
        """Make room to be filled. What an interrupted allocation left is filled further."""
        self.cursor.execute(_ALLOCATION)

    def allocate(self, pages: int) -> None:
        """Fill `pages` pages."""
        (size,) = self.cursor.execute("PRAGMA page_size").fetchone()
        # Another allocation may have ended meanwhile and taken the table away.
        self.cursor.execute(_ALLOCATION)
        self.cursor.execute("INSERT INTO allocation VALUES (zeroblob(?))", (pages * size,))

    def end_allocation(self) -> None:
        """Free what was filled: the file keeps its size, and its pages are there for whoever needs them."""
        self.cursor.execute("DROP TABLE IF EXISTS allocation")


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
