"""Messages that are loaded and removed many at a time on PostgreSQL, in queues that are hidden."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmcore.records import Use
from qmstorage.bulk_load import STANDING, BulkLoad, StateTable
from qmstorage.postgres.counters import ADJUST
from qmstorage.postgres.tables import TYPE_NAMES, quoted
from qmstorage.schema import message
from qmstorage.sql import ARRAY, BigInteger, Table, bindparam, func, type_of
from qmstorage.statements import Cursor, Row

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
        _copy_rows(self.cursor, table, self.store.schema, rows)


def _copy_rows(cursor: Cursor, table: Table, schema: str, rows: Iterable[Row]) -> None:
    """Insert rows by COPY, which takes a fraction of the time of as many statements."""
    text, types = _copying(table, schema)
    driver: Any = cursor
    with driver.copy(text) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


@functools.cache
def _copying(table: Table, schema: str) -> tuple[str, list[str]]:
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    text = f"COPY {quoted(schema)}.{table.name} ({names}) FROM STDIN (FORMAT BINARY)"
    return text, [TYPE_NAMES[type_of(column)] for column in table.columns]
