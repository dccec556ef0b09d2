"""What the server knows of sessions: which owners are alive, which session is ours, since when the server runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from qmcore.records import Owner
from qmstorage.postgres.clock import NOW, Reading, elapsed

if TYPE_CHECKING:
    from psycopg import Connection

GRACE_SECONDS = 15.0
"""How long processes that were attached before an outage of server or network may take to be known again."""

_MICROSECONDS = "(extract(epoch FROM {}) * 1000000)::bigint"
_STARTED = _MICROSECONDS.format("pg_postmaster_start_time()")
_COUNTS_SINCE = _MICROSECONDS.format("coalesce((SELECT stats_reset FROM pg_stat_bgwriter), 'epoch')")

_BOOT = f"{_STARTED} || '.' || {_COUNTS_SINCE}"
"""What distinguishes this run of the server from an earlier one: when it was started, and since when it counts.

It counts from 0 again after the crash of one of its processes, which ends all sessions, and after that of the machine.
"""

_AGE = f"extract(epoch FROM clock_timestamp()) - greatest({_STARTED}, {_COUNTS_SINCE}) / 1000000.0"

_OURS = "pg_stat_get_activity(pg_backend_pid())"
"""Our row of pg_stat_activity, without what that view joins to it, which a new session would take longer to look up."""

WHO_AM_I = f"SELECT pid, {_MICROSECONDS.format('backend_start')}, {_BOOT} FROM {_OURS}"  # noqa: S608 - words of ours
"""Asks for our session's process and its start in microseconds, and for what identifies this run of the server."""

_IDENTITY = f"SELECT pid, {_MICROSECONDS.format('backend_start')}, pg_is_in_recovery(), {NOW} FROM {_OURS}"  # noqa: S608 - the same

_OF_SESSION = (
    f"FROM pg_stat_activity WHERE pid = {{pid}} AND {_MICROSECONDS.format('backend_start')} = {{started}}"
    " AND pid <> pg_backend_pid()"
)
"""Another session than the one that asks: a pooler may hand on to us the very session that we have lost, emptied."""

_IS_THERE = f"SELECT {_OF_SESSION}"

END_SESSION = f"SELECT pg_terminate_backend(pid) {_OF_SESSION}"
"""Ends a session, if it is still the same: process numbers are reused."""

_SERVER = f"SELECT {_BOOT}, ({_AGE})::float8"

_UNLOCKED = "SELECT asked FROM unnest(%s::bigint[]) AS asked WHERE pg_try_advisory_xact_lock_shared(asked)"


def key_of(owner: Owner) -> int | None:
    """Return the key that an owner has locked while it lives; None where it is not an owner of a server."""
    try:
        return int(owner.lock)
    except ValueError:
        return None


def alive(owners: Sequence[Owner], connection: Connection) -> list[Owner]:
    """Return those of the owners that are alive.

    The connection may be any of ours that has no lock of an owner. Where it is in a transaction, that has to end soon:
    until then it holds a shared lock of each owner that is dead, and one that only lost its session cannot come back.
    """
    keys = {owner.id: key_of(owner) for owner in owners}
    asked = sorted({each for each in keys.values() if each is not None})
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        unlocked = {found for (found,) in cursor.execute(_UNLOCKED, [asked])} if asked else set()
    return [owner for owner in owners if (lock := keys[owner.id]) is not None and lock not in unlocked]


class Server(NamedTuple):
    """What distinguishes this run of a server from earlier ones and from that of a standby, and its age in seconds."""

    boot: str
    age_seconds: float


class Identity(NamedTuple):
    """Identifies a session of the server: process numbers are reused, with another start, in microseconds.

    The start is None where the role that the session has taken on may not see it.
    """

    pid: int
    started: int | None
    on_standby: bool


def introduced(connection: Connection) -> tuple[Identity, Reading]:
    """Return which session of the server a connection is, and what time it is there."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        asked = elapsed()
        ((pid, started, on_standby, said),) = cursor.execute(_IDENTITY)
        return Identity(pid, started, on_standby), Reading(asked, said, elapsed())


def reading(connection: Connection) -> Reading:
    """Return what time it is at the server."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        asked = elapsed()
        ((said,),) = cursor.execute(f"SELECT {NOW}")
        return Reading(asked, said, elapsed())


def end_session(connection: Connection, session: Identity) -> None:
    """End another session than that of the connection, if it is still the same."""
    connection.execute(END_SESSION.format(**session._asdict()))


def is_there(connection: Connection, session: Identity) -> bool:
    """Return whether another session than that of the connection has not ended yet."""
    return connection.execute(_IS_THERE.format(**session._asdict())).fetchone() is not None


def server(connection: Connection) -> Server:
    """Return which run of the server the connection belongs to."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        ((boot, age),) = cursor.execute(_SERVER)
    return Server(boot, age)
