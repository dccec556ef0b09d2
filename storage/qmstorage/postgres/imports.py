"""Imports on PostgreSQL, where several loaders of one import work at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qmcore.records import Use
from qmstorage.imports import Imports
from qmstorage.schema import import_batch
from qmstorage.sql import bindparam, postgresql

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresUnit

_adding = postgresql.insert(import_batch).values(
    {column.name: bindparam(column.name) for column in import_batch.columns}
)
_ADD_BATCH: Final = _adding.on_conflict_do_update(
    index_elements=["import_id", "part", "first_row"],
    set_={name: _adding.excluded[name] for name in ("messages", "pages", "size")},
    where=import_batch.c.messages < 0,
).returning(import_batch.c.part)


class SharedImports(Imports):
    """Imports, what of them is loaded, and the queues that they hide."""

    unit: PostgresUnit

    def add_batch(self, import_id: int, part: str, first_row: int, use: Use) -> bool:
        """Record that a batch is loaded; False where it was before. Waits for one that is being recorded."""
        own = {"import_id": import_id, "part": part, "first_row": first_row}
        return self.one(_ADD_BATCH, **own, messages=use.messages, pages=use.pages, size=use.size) is not None

    def reserve_block(self, space_id: int, least: int, count: int) -> int:
        """Reserve `count` consecutive sequence numbers, from `least` or later; return the first."""
        name = self.unit.counters.sequence_name(space_id)
        self.cursor.execute(f"SELECT greatest(nextval('{name}'), {least:d})")
        first = int(self.cursor.fetchone()[0])
        self.cursor.execute(f"SELECT setval('{name}', {first + count - 1:d})")
        return first
