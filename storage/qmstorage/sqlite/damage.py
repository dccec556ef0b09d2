"""Damaged messages on SQLite, whose texts may be anything."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from qmstorage.damage import Damage

if TYPE_CHECKING:
    from qmstorage.sqlite.unit import SqliteMemoryStore, SqliteUnit


class DecodedDamage(Damage):
    """Damaged messages. All of this is done while nothing changes."""

    store: SqliteUnit | SqliteMemoryStore

    def undecoded(self) -> AbstractContextManager[None]:
        """Read texts that are not UTF-8 as something that no rule allows, instead of refusing them."""
        return self.store.messages.undecoded()
