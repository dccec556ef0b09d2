"""Messages that are loaded many at a time on SQLite, where they make the log long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmcore.bulk_rows import Row
from qmcore.message import State
from qmstorage.bulk_load import BulkLoad

if TYPE_CHECKING:
    from qmstorage.sqlite.unit import SqliteUnit


class LoggedBulkLoad(BulkLoad):
    """Messages that are loaded and removed many at a time, in queues that are hidden."""

    store: SqliteUnit

    def load(self, space_id: int, queue_id: int, state: State, rows: Sequence[Row]) -> None:
        """Store messages from bulk rows in their states. Nobody is notified, and nothing is counted."""
        self.store.brought_many = True
        super().load(space_id, queue_id, state, rows)
