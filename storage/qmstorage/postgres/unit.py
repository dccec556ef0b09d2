"""The unit of work on PostgreSQL: every verb of the port, in a transaction of one session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qmcore import numbers
from qmcore.queue import Queue
from qmcore.records import Use
from qmstorage import rows
from qmstorage.postgres import keys
from qmstorage.postgres.bodies import SharedBodies
from qmstorage.postgres.bulk_load import SharedBulkLoad
from qmstorage.postgres.bulk_read import SharedBulkRead
from qmstorage.postgres.capacity_commands import SharedCapacityCommands
from qmstorage.postgres.counters import SharedCounters, SharedHighest
from qmstorage.postgres.history import SharedHistory
from qmstorage.postgres.imports import SharedImports
from qmstorage.postgres.messages import SharedMessages
from qmstorage.postgres.owners import SharedWaits
from qmstorage.postgres.queues import SharedQueues
from qmstorage.postgres.shares import SharedShares
from qmstorage.postgres.spaces import SharedSpaces
from qmstorage.postgres.states import SharedStates
from qmstorage.postgres.tables import memory_schema
from qmstorage.postgres.transitions import Transitions
from qmstorage.schema import chunk, counter, due, expiring, held, message, ready
from qmstorage.sql import bindparam, delete
from qmstorage.statements import Cursor, Row, Texts, given
from qmstorage.unit import MemoryStore
from qmstorage.unit_part import LastingPartOf, PartOf

if TYPE_CHECKING:
    from qmcore.port import Unit
    from qmcore.times import Clock
    from qmstorage.postgres.liveness import Liveness

_REMOVE_MESSAGES = rows.forgetting(message.c.id.between(bindparam("low"), bindparam("high")))
_REMOVE_BODIES = delete(chunk).where(chunk.c.body_id.between(bindparam("low"), bindparam("high")))
_EMPTY = [delete(table).where(given(table.c.queue_id, "of_queue")) for table in (ready, due, held, expiring)]
_REMOVE_COUNTERS = delete(counter).where(given(counter.c.space_id, "space_id"))


class PostgresMemoryStore(MemoryStore):
    """The non-persistent messages of a queue space, in tables that are not logged."""

    bulk_read = PartOf(SharedBulkRead)
    bulk_load = PartOf(SharedBulkLoad)
    counters = LastingPartOf(SharedCounters)
    states = LastingPartOf(SharedStates)
    messages = LastingPartOf(SharedMessages)
    bodies = LastingPartOf(SharedBodies)

    slot: int
    schema: str
    heard: list[str]

    def clear(self, space_id: int, queues: Sequence[Queue]) -> None:
        """Delete all messages, and reset the counters."""
        low, high = numbers.number(space_id, 0), numbers.number(space_id + 1, 0) - 1
        for removal in (_REMOVE_MESSAGES, _REMOVE_BODIES):
            self.run(removal, low=low, high=high)
        for queue in queues:
            for statement in _EMPTY:
                self.run(statement, of_queue=queue.id)
        self.run(_REMOVE_COUNTERS, space_id=space_id)
        for queue_id in (0, *(queue.id for queue in queues)):
            self.counters.add(space_id, queue_id)


class PostgresUnit(Transitions):
    """One short transaction of a session. `slot` is the session's: which counters it writes."""

    commits_memory = True
    bulk_read = PartOf(SharedBulkRead)
    bulk_load = PartOf(SharedBulkLoad)
    counters = LastingPartOf(SharedCounters)
    states = LastingPartOf(SharedStates)
    messages = LastingPartOf(SharedMessages)
    shares = LastingPartOf(SharedShares)
    bodies = LastingPartOf(SharedBodies)
    queues = PartOf(SharedQueues)
    history = PartOf(SharedHistory)
    capacity_commands = PartOf(SharedCapacityCommands)
    spaces = PartOf(SharedSpaces)
    imports = PartOf(SharedImports)
    highest = PartOf(SharedHighest)
    waits = PartOf(SharedWaits)

    def __init__(
        self,
        cursor: Cursor,
        texts: Texts,
        *,
        schema: str,
        slot: int,
        lock_key: int | None = None,
        row_type: int = 0,
        memories: Mapping[int, Texts] | None = None,
        liveness: Liveness | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(cursor, texts, memories)
        self.clock = clock or self.clock
        self.schema = schema
        self.lock_key = keys.key(schema, keys.Kind.VOLUME, 0) if lock_key is None else lock_key
        self.slot = slot
        self.row_type = row_type
        self.heard: list[str] = []
        self.awaited: dict[int, bool] = {}
        self.liveness = liveness

    @property
    def transaction_number(self) -> str:
        """The number of the database transaction, known where messages came or went; "" before."""
        return self.heard[-1] if self.heard else ""

    def memory_of(self, texts: Texts) -> PostgresMemoryStore:
        """Return the store of non-persistent messages that the texts lead to."""
        memory = PostgresMemoryStore(self.cursor, texts, self.notifications)
        memory.slot, memory.schema, memory.heard = self.slot, memory_schema(self.schema), self.heard
        return memory

    def memory_level(self, space_id: int) -> Use:
        """Return how much the memory of a queue space holds."""
        memory = self.memory(space_id)
        return Use(0, 0, 0) if memory is None else memory.counters.level(space_id)

    def know_generations(self, generations: Iterable[tuple[int, int]]) -> None:
        """Note the generations of queue spaces, which nobody changes before the unit is committed."""
        self._generations.update(generations)

    def asked(self, statement: str) -> Row | None:
        """Run a statement without parameters and return its first row."""
        self.cursor.execute(statement)
        row: Row | None = self.cursor.fetchone()
        return row


def ours(unit: Unit) -> PostgresUnit:
    """Return a unit that a volume on PostgreSQL has made, as what it is."""
    assert isinstance(unit, PostgresUnit)  # noqa: S101 - the volume made it
    return unit
