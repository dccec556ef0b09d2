"""Messages that are loaded and removed many at a time on PostgreSQL, in queues that are hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import ARRAY, BigInteger, Table, bindparam, func
from sqlalchemy.dialects.postgresql import insert

from qmcore.records import Use
from qmstorage.bulk_load import STANDING, BulkLoad, StateTable
from qmstorage.imports import Imports
from qmstorage.postgres.copying import copy_rows
from qmstorage.postgres.counters import ADJUST, SharedCounters
from qmstorage.schema import import_batch, message
from qmstorage.statements import Row

_adding = insert(import_batch).values({column.name: bindparam(column.name) for column in import_batch.columns})
_ADD_BATCH: Final = _adding.on_conflict_do_update(
    index_elements=["import_id", "part", "first_row"],
    set_={name: _adding.excluded[name] for name in ("messages", "pages", "size")},
    where=import_batch.c.messages < 0,
).returning(import_batch.c.part)


_STANDING: Final = {
    table: statement.where(message.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger)))).with_for_update(
        skip_locked=True, of=table.table
    )
    for table, statement in STANDING.items()
}


class SharedBulkLoad(SharedCounters, BulkLoad):
    """Messages that are loaded and removed many at a time, in queues that are hidden."""

    def adjust(self, space_id: int, queue_id: int, use: Use, *, passed: int = 0) -> None:
        """Add to the counters of a queue alone: its use, and how many messages were enqueued."""
        values = {"count": use.messages, "by_pages": use.pages, "by_size": use.size, "by_passed": passed}
        self.run(ADJUST, space_id=space_id, of_queue=queue_id, slot=self.slot, **values)

    def standing(self, table: StateTable, queue_id: int, message_ids: Sequence[int]) -> list[Row]:
        """Return those of these messages of a queue that are in the table, and that no other session is taking."""
        return self.all(_STANDING[table], of_queue=queue_id, ids=list(message_ids))

    def put_rows(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows, whose values are in the order of the columns."""
        copy_rows(self._cursor, table, self.schema, rows)


class SharedImports(SharedCounters, Imports):
    """Imports, where several loaders of one import work at the same time."""

    def add_batch(self, import_id: int, part: str, first_row: int, use: Use) -> bool:
        """Record that a batch is loaded; False where it was before. Waits for one that is being recorded."""
        own = {"import_id": import_id, "part": part, "first_row": first_row}
        return self.one(_ADD_BATCH, **own, messages=use.messages, pages=use.pages, size=use.size) is not None

    def reserve_block(self, space_id: int, least: int, count: int) -> int:
        """Reserve `count` consecutive sequence numbers, from `least` or later; return the first."""
        name = self.sequence_name(space_id)
        self._cursor.execute(f"SELECT greatest(nextval('{name}'), {least:d})")
        first = int(self._cursor.fetchone()[0])
        self._cursor.execute(f"SELECT setval('{name}', {first + count - 1:d})")
        return first
