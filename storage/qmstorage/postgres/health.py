"""What can make a device on PostgreSQL slow or unsafe beyond its own tables: the server and its sessions.

Nothing of a session's content is reported, such as its statements: only who it is and since when.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from qmcore.device import FULL, DeviceInfo
from qmcore.findings import Finding, Severity
from qmcore.times import MICROS, show
from qmstorage.postgres import table_health
from qmstorage.postgres.table_health import Limits, found

if TYPE_CHECKING:
    import psycopg

    from qmstorage.postgres.address import Address

DEFAULT_LIMITS = Limits()

_SESSIONS = """
SELECT pid, application_name, state, xact_start
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND now() - xact_start >= %s ORDER BY xact_start
"""
_HIDDEN = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND NOT pg_has_role(usesysid, 'USAGE')
  AND NOT pg_has_role('pg_read_all_stats', 'USAGE')
"""
_PREPARED = """
SELECT gid, owner, prepared FROM pg_prepared_xacts
WHERE database = current_database() AND now() - prepared >= %s ORDER BY prepared
"""
_SLOTS = """
SELECT slot_name, active, xmin IS NOT NULL AND age(xmin) >= %s, coalesce(age(xmin), 0),
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint
FROM pg_replication_slots WHERE NOT coalesce(temporary, false) ORDER BY slot_name
"""
_STANDBYS = """
SELECT pid, application_name, age(backend_xmin) FROM pg_stat_replication
WHERE backend_xmin IS NOT NULL AND age(backend_xmin) >= %s ORDER BY pid
"""
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
_LAX_ROLES = """
SELECT CASE setrole WHEN 0 THEN 'all roles' ELSE 'role ' || pg_get_userbyid(setrole) END,
       coalesce('database ' || datname, 'all databases')
FROM pg_db_role_setting LEFT JOIN pg_database ON pg_database.oid = setdatabase
WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
  AND 'synchronous_commit=off' = ANY(setconfig)
"""
_ROOM = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()), datconnlimit,
       pg_encoding_to_char(encoding), age(datfrozenxid), datname
FROM pg_database WHERE datname = current_database()
"""
_FLOW = """
SELECT coalesce(sum(n_tup_del), 0) / greatest(extract(epoch FROM now() - greatest(
         coalesce(stats_reset, pg_postmaster_start_time()), pg_postmaster_start_time())), 1)::float
FROM pg_stat_database JOIN pg_stat_user_tables ON schemaname = %s AND relname = 'ready'
WHERE datname = current_database() GROUP BY stats_reset
"""

_WANTED: dict[str, tuple[str, Severity, str, str]] = {
    "autovacuum": (
        "on",
        Severity.ERROR,
        "dead rows are never removed, and dequeues become ever slower",
        "Set autovacuum to on in the server's configuration, and reload it.",
    ),
    "track_counts": (
        "on",
        Severity.ERROR,
        "autovacuum does not notice dead rows, and dequeues become ever slower",
        "Set track_counts to on in the server's configuration, and reload it.",
    ),
    "fsync": (
        "on",
        Severity.ERROR,
        "a power failure loses messages, and may leave the whole database unusable",
        "Set fsync to on in the server's configuration, and reload it.",
    ),
    "full_page_writes": (
        "on",
        Severity.ERROR,
        "a power failure may leave pages half written, unless the file system writes them as a whole",
        "Set full_page_writes to on in the server's configuration, and reload it.",
    ),
}


def examined(
    connection: psycopg.Connection[Any], address: Address, info: DeviceInfo, limits: Limits = DEFAULT_LIMITS
) -> list[Finding]:
    """Look at the server and at the tables of a volume, in a session of its own, and return what is wrong.

    On a standby only what a standby can show is checked.
    """
    standby = bool(_one(connection, "SELECT pg_is_in_recovery()")[0])
    findings = [*_settings(connection, info), *_room(connection, limits)]
    if not standby:
        findings += [*_naptime(connection, address, limits), *_held_back(connection, limits)]
        findings += table_health.examined(connection, address, info, limits)
    return findings


# ---- what holds vacuum back -----------------------------------------------------------------------------------------


def _held_back(connection: psycopg.Connection[Any], limits: Limits) -> Iterator[Finding]:
    open_for = dt.timedelta(seconds=limits.open_seconds)
    for pid, name, state, since in connection.execute(_SESSIONS, [open_for]):
        yield found(
            Severity.WARNING,
            "vacuum-held-back",
            f"session {pid}{_named(name)}",
            f"its transaction has been open since {_shown(since)} ({state}), and no dead row since then can be removed",
            f"End it: where its program cannot, SELECT pg_terminate_backend({pid}) does.",
        )
    for gid, owner, since in connection.execute(_PREPARED, [open_for]):
        yield found(
            Severity.WARNING,
            "vacuum-held-back",
            f"prepared transaction {gid}",
            f"it is open since {_shown(since)}, of role {owner}, and no dead row since then can be removed",
            "End it with COMMIT PREPARED or ROLLBACK PREPARED, as its transaction manager says.",
        )
    yield from _replication(connection, limits)
    hidden = _one(connection, _HIDDEN)[0]
    if hidden:
        yield found(
            Severity.INFO,
            "sessions-hidden",
            "server",
            f"this user may not see what {hidden} sessions of other roles do, so that what they hold back is not"
            f" reported",
            "GRANT pg_read_all_stats to this user.",
        )


def _replication(connection: psycopg.Connection[Any], limits: Limits) -> Iterator[Finding]:
    for name, active, holds, age, kept in connection.execute(_SLOTS, [limits.old_transactions]):
        if holds:
            yield found(
                Severity.WARNING,
                "vacuum-held-back",
                f"replication slot {name}",
                f"it keeps all rows that died in the last {age} transactions",
                f"Bring its standby back, or SELECT pg_drop_replication_slot('{name}').",
            )
        if not active and kept is not None and kept >= limits.kept_log:
            yield found(
                Severity.WARNING,
                "slot-idle",
                f"replication slot {name}",
                f"nothing reads it, and {kept // 2**20} MiB of the server's log are kept for it, which keeps growing",
                f"Bring its standby back, or SELECT pg_drop_replication_slot('{name}').",
            )
    for pid, name, age in connection.execute(_STANDBYS, [limits.old_transactions]):
        yield found(
            Severity.WARNING,
            "vacuum-held-back",
            f"standby{_named(name)}, session {pid}",
            f"by hot_standby_feedback it keeps all rows that died in the last {age} transactions",
            "End the long query on the standby, or set hot_standby_feedback to off there.",
        )


# ---- settings and room ----------------------------------------------------------------------------------------------


def _settings(connection: psycopg.Connection[Any], info: DeviceInfo) -> Iterator[Finding]:
    settings = dict(connection.execute(_SETTINGS, [list(_WANTED)]).fetchall())
    for name, (wanted, severity, what, remedy) in _WANTED.items():
        if settings.get(name, wanted) != wanted:
            yield found(severity, "server-setting", f"setting {name}", f"it is {settings[name]}: {what}", remedy)
    if info.durability == FULL:
        yield from _lax(connection)


def _lax(connection: psycopg.Connection[Any]) -> Iterator[Finding]:
    """Yield where commits would be acknowledged before they are on the disk. Our own sessions set what they need."""
    places = [f"{role} in {where}" for role, where in connection.execute(_LAX_ROLES)]
    (configured,) = _one(connection, "SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'")
    if not places and configured == "off":
        places = ["the server"]
    for place in places:
        yield found(
            Severity.WARNING,
            "server-setting",
            "setting synchronous_commit",
            f"it is off for {place}, and the device is durable: transactions of applications that messages should join"
            " are refused",
            "Set it to on there, or where the application connects.",
        )


def _naptime(connection: psycopg.Connection[Any], address: Address, limits: Limits) -> Iterator[Finding]:
    (naptime,) = _one(connection, "SELECT setting::int FROM pg_settings WHERE name = 'autovacuum_naptime'")
    row = connection.execute(_FLOW, [address.schema]).fetchone()
    flow = float(row[0]) if row else 0.0
    if flow >= limits.flow and naptime * flow > limits.dead_at_head:
        yield found(
            Severity.WARNING,
            "server-setting",
            "setting autovacuum_naptime",
            f"it is {naptime} seconds, in which some {round(flow * naptime)} rows die in front of the queues at the"
            f" {round(flow)} messages a second of this server's time",
            "Set it to 10 seconds or less in the server's configuration, and reload it.",
        )


def _room(connection: psycopg.Connection[Any], limits: Limits) -> Iterator[Finding]:
    sessions, most, here, most_here, encoding, age, database = _one(connection, _ROOM)
    for what, used, limit in (("server", sessions, most), (f"database {database}", here, most_here)):
        if limit >= 0 and used * 100 >= limit * limits.near_percent:
            yield found(
                Severity.WARNING,
                "limit-near",
                what,
                f"{used} of {limit} connections are in use",
                "Raise the limit, or check pg_stat_activity for programs that keep unused connections.",
            )
    if encoding != "UTF8":
        yield found(
            Severity.ERROR,
            "encoding",
            f"database {database}",
            f"its encoding is {encoding}: names and headers in other characters fail, or come out damaged",
            "Move the device to a database that was made with ENCODING 'UTF8', with pg_dump and pg_restore.",
        )
    if age >= limits.frozen_age:
        yield found(
            Severity.ERROR if age >= limits.frozen_age_most else Severity.WARNING,
            "wraparound",
            f"database {database}",
            f"{age} transactions have come since all of it was frozen, and at some 2.1 billion the server stops",
            "Find what holds vacuum back, then run VACUUM FREEZE in this database.",
        )


# ---- words ----------------------------------------------------------------------------------------------------------


def _one(connection: psycopg.Connection[Any], statement: str, values: Sequence[Any] | None = None) -> Any:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None  # noqa: S101 - each gives a row
    return row


def _named(application: str | None) -> str:
    return f" of {application}" if application else ""


def _shown(moment: dt.datetime) -> str:
    return show(int(moment.timestamp() * MICROS))
