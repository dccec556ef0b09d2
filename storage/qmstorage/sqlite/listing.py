"""Listing the messages of a queue on SQLite, whose texts may be anything."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from qmcore.condition import Condition
from qmcore.message import State
from qmcore.queue import Queue
from qmcore.records import Cursor
from qmcore.records import Listing as Listed
from qmcore.space import Space
from qmstorage.listing import Listing
from qmstorage.sqlite import translate

if TYPE_CHECKING:
    from qmstorage.sqlite.unit import SqliteMemoryStore, SqliteUnit


class DecodedListing(Listing):
    """The messages of a queue, a part at a time."""

    store: SqliteUnit | SqliteMemoryStore

    def messages(
        self,
        space: Space,
        in_queue: Queue,
        state: State,
        after: Cursor | None,
        limit: int,
        condition: Condition | None = None,
    ) -> Listed:
        """Return at most `limit` messages of the queue in one state, those after the cursor, each with its cursor."""
        asked = space, in_queue, state, after, limit, condition
        try:
            return super().messages(*asked)
        except sqlite3.OperationalError as error:
            if not translate.is_undecodable(error):
                raise
        with self.store.messages.undecoded():
            return super().messages(*asked)
