"""What the server knows of sessions: which owners' processes live, which session is ours, since when it runs itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import tuple_row

from qmcore.records import Owner

if TYPE_CHECKING:
    from psycopg import Connection

WHO_AM_I = """
SELECT pid, (extract(epoch FROM backend_start) * 1000000)::bigint,
       (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
"""Asks for our session's process and its start, and the server's start, in microseconds."""

END_SESSION = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = {pid} AND (extract(epoch FROM backend_start) * 1000000)::bigint = {started}
"""
"""Ends a session, if it is still the same: process numbers come again."""

_SERVER_START = "SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint"

_UNLOCKED = "SELECT asked FROM unnest(%s::bigint[]) AS asked WHERE pg_try_advisory_xact_lock_shared(asked)"


def key_of(owner: Owner) -> int | None:
    """Return the key that an owner has locked while it lives; None where it is no owner of a server's."""
    try:
        return int(owner.lock)
    except ValueError:
        return None


def alive(owners: Sequence[Owner], connection: Connection) -> list[Owner]:
    """Return those of the owners that live.

    The connection may be any of ours that has no lock of an owner. Where it is in a transaction, that has to end soon:
    until then it holds a shared lock of each owner that is dead, and one that only lost its session cannot come back.
    """
    keys = {owner.id: key_of(owner) for owner in owners}
    asked = sorted({each for each in keys.values() if each is not None})
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        unlocked = {found for (found,) in cursor.execute(_UNLOCKED, [asked])} if asked else set()
    return [owner for owner in owners if (lock := keys[owner.id]) is not None and lock not in unlocked]


def server_start(connection: Connection) -> str:
    """Return what tells this start of the server from an earlier one, and from that of a standby."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        ((started,),) = cursor.execute(_SERVER_START)
    return str(started)
