"""Messages that are loaded and removed many at a time on PostgreSQL, in queues that are hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from qmcore.records import Use
from qmstorage.bulk_load import STANDING, BulkLoad, StateTable
from qmstorage.postgres.copying import copy_rows
from qmstorage.postgres.counters import ADJUST
from qmstorage.schema import message
from qmstorage.sql import ARRAY, BigInteger, Table, bindparam, func
from qmstorage.statements import Row

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresMemoryStore, PostgresUnit

_STANDING: Final = {
    table: statement.where(message.c.id == func.any(bindparam("ids", type_=ARRAY(BigInteger)))).with_for_update(
        skip_locked=True, of=table.table
    )
    for table, statement in STANDING.items()
}


class SharedBulkLoad(BulkLoad):
    """Messages that are loaded and removed many at a time, in queues that are hidden."""

    store: PostgresUnit | PostgresMemoryStore

    def adjust(self, space_id: int, queue_id: int, use: Use, *, passed: int = 0) -> None:
        """Add to the counters of a queue alone: its use, and how many messages were enqueued."""
        values = {"count": use.messages, "by_pages": use.pages, "by_size": use.size, "by_passed": passed}
        self.run(ADJUST, space_id=space_id, of_queue=queue_id, slot=self.store.slot, **values)

    def standing(self, table: StateTable, queue_id: int, message_ids: Sequence[int]) -> list[Row]:
        """Return those of these messages of a queue that are in the table, and that no other session is taking."""
        return self.all(_STANDING[table], of_queue=queue_id, ids=list(message_ids))

    def put_rows(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows, whose values are in the order of the columns."""
        copy_rows(self.cursor, table, self.store.schema, rows)
