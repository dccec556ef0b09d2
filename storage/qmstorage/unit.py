"""The unit of work: every verb of the port, in one database transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import delete, func, select, union_all

from qmcore.port import Unit
from qmcore.queue import Delivery, Queue
from qmcore.records import Use
from qmstorage.auditing import Audits
from qmstorage.claims import Claims
from qmstorage.counters import Counters
from qmstorage.definitions import Definitions
from qmstorage.history import History
from qmstorage.listing import Listings
from qmstorage.runner import Texts, given
from qmstorage.schema import IN_MEMORY, chunk, counter, due, expiring, held, message, ready, space
from qmstorage.soundness import Soundness
from qmstorage.sqlite import translate
from qmstorage.transactions import Transactions

T = TypeVar("T")

_MESSAGES = union_all(
    *(select(table.c.message_id).where(given(table.c.queue_id, "of_queue")) for table in (ready, due, held))
)
_EMPTY_QUEUE = [
    delete(chunk).where(chunk.c.body_id.in_(select(message.c.body_id).where(message.c.id.in_(_MESSAGES)))),
    delete(message).where(message.c.id.in_(_MESSAGES)),
    *(delete(table).where(given(table.c.queue_id, "of_queue")) for table in (ready, due, held, expiring)),
]
_COUNTED = select(counter.c.queue_id).where(given(counter.c.space_id, "of_space"), counter.c.queue_id > 0)
_CLEAR = [delete(table) for table in IN_MEMORY]
_ALLOCATION = "CREATE TABLE IF NOT EXISTS allocation (filling BLOB NOT NULL)"
_PROMISED = (
    select(func.sum(space.c.pages - counter.c.pages))
    .join_from(space, counter, (counter.c.space_id == space.c.id) & (counter.c.queue_id == 0))
    .where(space.c.initialized)
)
"""Pages that queue spaces have been promised and do not use yet."""


class MemoryStore(Counters, Listings, Soundness):
    """The non-persistent messages of a queue space, in its memory."""

    delivery = Delivery.NONPERSIST
    in_memory = True

    def counted(self, space_id: int) -> set[int]:
        """Return the queues that are counted."""
        return {row[0] for row in self.all(_COUNTED, of_space=space_id)}

    def abandon(self, space_id: int, queue_id: int) -> None:
        """Delete all messages of a queue and count it no longer."""
        for statement in _EMPTY_QUEUE:
            self.run(statement, of_queue=queue_id)
        self.remove_counters(space_id, queue_id)

    def clear(self, space_id: int, queues: Sequence[Queue]) -> None:
        """Delete all messages, and begin to count anew."""
        for statement in _CLEAR:
            self.run(statement)
        for queue_id in (0, *(queue.id for queue in queues)):
            self.add_counters(space_id, queue_id)


class SqlUnit(Definitions, Listings, History, Transactions, Claims, Audits, Soundness):
    """One short database transaction on a volume."""

    def __init__(
        self,
        cursor: sqlite3.Cursor,
        texts: Texts,
        memories: Mapping[int, Texts] | None = None,
        elsewhere: Mapping[int, Use] | None = None,
    ) -> None:
        super().__init__(cursor, texts)
        self._memories = memories or {}
        self._elsewhere = elsewhere or {}
        self.start_work()

    def start_work(self) -> None:
        """Begin the work of one caller: what was read for another, whose work may have been undone, is forgotten."""
        self.actions: list[Callable[[], None]] = []
        self._generations = {}

    def memory(self, space_id: int) -> MemoryStore | None:
        """Return the store of a queue space's non-persistent messages, where it has one and this process can use it."""
        texts = self._memories.get(space_id)
        return None if texts is None else MemoryStore(self._cursor, texts, self.arrivals)

    def memory_level(self, space_id: int) -> Use:
        """Return how much the memory of a queue space holds, also where this unit has no part in it."""
        memory = self.memory(space_id)
        return self._elsewhere.get(space_id, Use(0, 0, 0)) if memory is None else memory.level(space_id)

    def afterwards(self, action: Callable[[], None]) -> None:
        """Have something done by whoever asked for the unit, once it is committed."""
        self.actions.append(action)

    def pages_to_allocate(self, pages: int) -> int:
        """Return how many pages must be filled so that `pages` are free besides those that are promised already.

        What is filled takes the free pages first, so that it is either all of them or none.
        """
        (free,) = self._cursor.execute("PRAGMA freelist_count").fetchone()
        ((promised,),) = self.all(_PROMISED)
        wanted = pages + int(promised or 0)
        return wanted if wanted > free else 0

    def start_allocation(self) -> None:
        """Make room to be filled. What an interrupted allocation left is filled further."""
        self._cursor.execute(_ALLOCATION)

    def allocate(self, pages: int) -> None:
        """Fill `pages` pages."""
        (size,) = self._cursor.execute("PRAGMA page_size").fetchone()
        # Another allocation may have ended meanwhile and taken the table away.
        self._cursor.execute(_ALLOCATION)
        self._cursor.execute("INSERT INTO allocation VALUES (zeroblob(?))", (pages * size,))

    def end_allocation(self) -> None:
        """Free what was filled: the file keeps its size, and its pages are there for whoever needs them."""
        self._cursor.execute("DROP TABLE IF EXISTS allocation")


def read_once(
    connection: sqlite3.Connection,
    texts: Texts,
    path: str,
    work: Callable[[Unit], T],
    memories: Mapping[int, Texts] | None = None,
) -> T:
    """Run `work` in one database transaction that is rolled back."""
    cursor = connection.cursor()
    try:
        cursor.execute("BEGIN")
        return work(SqlUnit(cursor, texts, memories))
    except sqlite3.Error as error:
        raise translate.from_sqlite(error, path) from error
    finally:
        roll_back(connection)


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what the connection has begun, if anything."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
