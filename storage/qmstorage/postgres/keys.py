"""Names that all users of a database share: the keys of advisory locks, and the channels of notifications."""

from __future__ import annotations

import enum
import functools
import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_KEY_BYTES = 8
"""An advisory lock's key is a signed number of 64 bits."""


class Kind(enum.StrEnum):
    """What an advisory lock stands for."""

    VOLUME = "volume"
    OWNER = "owner"
    SLOT = "slot"
    QUEUE = "queue"
    CLAIM = "claim"
    TURN = "turn"
    SWEEP = "sweep"
    JOINED = "joined"


@functools.lru_cache(maxsize=256)
def key(schema: str, kind: Kind, number: int) -> int:
    """Return the key of an advisory lock, apart from those of other devices and programs in the database."""
    named = f"qmadmin\0{schema}\0{kind}\0{number}".encode()
    return int.from_bytes(hashlib.blake2b(named, digest_size=_KEY_BYTES).digest(), signed=True)


def holders(connection: psycopg.Connection[Any], key: int) -> list[int]:
    """Return the process ids of the sessions that have an advisory lock, but for the one that asks."""
    rows = connection.execute(
        # In other databases the same key is other people's.
        "SELECT DISTINCT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE locktype = 'advisory' AND datname = current_database() AND classid = %s::bigint::oid"
        " AND objid = %s::bigint::oid AND objsubid = 1 AND granted AND pid <> pg_backend_pid() ORDER BY pid",
        [(key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF],
    )
    return [pid for (pid,) in rows]


def channel(schema: str, queue_id: int) -> str:
    """Return the channel on which it is told that a queue has got messages; it needs no quotes in SQL."""
    device = hashlib.blake2b(schema.encode(), digest_size=_KEY_BYTES).hexdigest()
    return f"qmadmin_{device}_{queue_id}"
