"""Devices on PostgreSQL that were made once: a test gets one that was emptied, under a name that no test had before.

To make the tables of a device takes longer than most tests that use them. What another test could notice is gone or
changed: all rows, the numbers that sequences gave, the identifier of the device, the name of the schema and with it the
keys of advisory locks and the channels of notifications. A device of which a test has changed more than rows - a table,
an index, a right - is dropped instead.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from qmadmin.opening import create_device, open_device

if TYPE_CHECKING:
    from qmadmin.device import Device

_STATE = """
WITH class AS (
    SELECT oid, relkind, xmin AS writer FROM pg_class
    WHERE relnamespace IN ('{schema}'::regnamespace, '{schema}_memory'::regnamespace) AND oid NOT IN ({numbers})
),
part (writer) AS (
    SELECT writer FROM class
    UNION ALL SELECT pg_attribute.xmin FROM pg_attribute JOIN class ON class.oid = attrelid WHERE relkind <> 'S'
    UNION ALL SELECT pg_constraint.xmin FROM pg_constraint JOIN class ON class.oid = conrelid
    UNION ALL SELECT xmin FROM pg_proc
        WHERE pronamespace IN ('{schema}'::regnamespace, '{schema}_memory'::regnamespace)
    UNION ALL SELECT xmin FROM pg_namespace
        WHERE oid IN ('{schema}'::regnamespace, '{schema}_memory'::regnamespace)
)
SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE age(writer) <= age('{since}'::xid)),
    (SELECT version_num FROM {schema}.alembic_version)) FROM part
"""
"""How many rows of the catalogue say what a device consists of, how many were written since, and its version.

Each change of it writes another one of them, or leaves one out.
"""

_NUMBERS = """
SELECT oid FROM pg_class WHERE relkind = 'S' AND relnamespace = '{schema}'::regnamespace AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND refobjsubid > 0
)
"""
"""The sequences of queue spaces, which belong to no column."""

_WRITTEN = """
SELECT oid FROM pg_class WHERE relkind = 'r' AND pg_relation_size(oid) > 0
AND relnamespace IN ('{schema}'::regnamespace, '{schema}_memory'::regnamespace) AND relname <> 'alembic_version'
"""
"""The tables that have or had rows."""

_FUNCTIONS = "SELECT oid FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace"

_FOUND = """
SELECT ({state}), ARRAY({written})::regclass[]::text[], ARRAY({numbers})::regclass[]::text[],
    ARRAY({functions})::regprocedure[]::text[]
"""

_NOW = "SELECT pg_snapshot_xmax(pg_current_snapshot())::xid::text"
"""Asks for the number of the next transaction."""

_NEW_ROWS = """
INSERT INTO {schema}.device
SELECT * FROM jsonb_populate_record(NULL::{schema}.device, {device} || jsonb_build_object('created_at', {now}));
INSERT INTO {schema}.entry SELECT * FROM jsonb_populate_record(NULL::{schema}.entry, {entry})
"""
_SERVERS_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class _Lent(NamedTuple):
    """A device that a test has: since which transaction, its description, and the rows that a new one has."""

    since: str
    state: str
    device: dict[str, Any]
    entry: dict[str, Any]


class EmptiedDevices:
    """The devices of a test process in its database; `connect` gives a connection that commits each statement."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._lent: dict[str, _Lent] = {}
        self._spare = defaultdict[int, list[tuple[str, _Lent]]](list)

    def device(self, url: str, pages: int, *, clock: Any = None, partitions: int = 0) -> Device:
        """Return an open device as `create_device` makes it; it is given back with `empty`."""
        schema = schema_of(url)
        if self._spare[partitions]:
            spare, lent = self._spare[partitions].pop()
            _take(connection := self.connection(), spare, lent, schema, pages, clock)
            device = open_device(url, clock=clock)
            self._lent[schema] = lent._replace(since=_now(connection))
        else:
            device = create_device(url, pages, clock=clock, partitions=partitions)
            since = _now(connection := self.connection())
            rows = [_row(connection, schema, table) for table in ("device", "entry")]
            self._lent[schema] = _Lent(since, _found(connection, schema, since).state, *rows)
        return device

    def connection(self) -> Any:
        """Return a connection that is kept from test to test: to make one takes longer than what is done with it."""
        # Loaded here: who has no server need not have the driver.
        import psycopg

        try:
            if self._connection:
                self._connection.execute("SELECT 1")
        except psycopg.OperationalError:
            # A test has ended it, with all others.
            self.close()
        if not self._connection:
            self._connection = self._connect()
        return self._connection

    def close(self) -> None:
        """Forget all; what there is goes with the database."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def empty(self, schema: str) -> tuple[str, ...]:
        """Take back the device of a schema in which nobody is at work; return the schemas that are kept."""
        lent = self._lent.pop(schema, None)
        if lent is None:
            return ()
        connection = self.connection()
        found = _found(connection, schema, lent.since)
        if found.state != lent.state:
            return ()
        # They name the schema: whoever gets the device next gets those of its own.
        steps = ["SET client_min_messages = warning", f"DROP FUNCTION {', '.join(found.functions)}"]
        if found.numbers:
            steps.append(f"DROP SEQUENCE {', '.join(found.numbers)}")
        if found.written:
            steps.append(f"TRUNCATE {', '.join(found.written)} RESTART IDENTITY CASCADE")
        # All or nothing: a process that the test has left behind writes before it, or finds no such schema.
        connection.execute("; ".join((*steps, *_renaming(schema, spare := f"spare_{schema}"))))
        self._spare[lent.device["partitions"]].append((spare, lent))
        return schema, f"{schema}_memory"


def schema_of(url: str) -> str:
    """Return the name of the schema in the URL of a device of the tests."""
    return url.rpartition("schema=")[2]


def _renaming(old: str, new: str) -> list[str]:
    return [f"ALTER SCHEMA {old}{part} RENAME TO {new}{part}" for part in ("", "_memory")]


def _take(connection: Any, old: str, lent: _Lent, schema: str, pages: int, clock: Any) -> None:
    """Give an emptied device the name of a schema, and the functions and rows of a new device."""
    # Loaded here: who has no server need not have the driver.
    from qmstorage.postgres import functions

    device = lent.device | {"id": secrets.token_hex(16)}
    entry = lent.entry | {"path": lent.entry["path"].rpartition("schema=")[0] + f"schema={schema}", "pages": pages}
    rows = {name: _literal(connection, row) for name, row in (("device", device), ("entry", entry))}
    new_rows = _NEW_ROWS.format(schema=schema, now=clock.now() if clock else _SERVERS_NOW, **rows)
    # The server need not look at them once more: each that is called is read then.
    unread = "SET LOCAL check_function_bodies = off"
    connection.execute("; ".join((*_renaming(old, schema), unread, *functions.creation(schema), new_rows)))


def _literal(connection: Any, row: dict[str, Any]) -> str:
    from psycopg import sql

    return f"{sql.Literal(json.dumps(row)).as_string(connection)}::jsonb"


def _row(connection: Any, schema: str, table: str) -> dict[str, Any]:
    (row,) = connection.execute(f"SELECT to_jsonb(one) FROM {schema}.{table} AS one").fetchone()
    return dict(row)


class _Found(NamedTuple):
    """The state of a device, its tables that have or had rows, the sequences of its queue spaces, and its functions."""

    state: str = ""
    written: Sequence[str] = ()
    numbers: Sequence[str] = ()
    functions: Sequence[str] = ()


def _found(connection: Any, schema: str, since: str) -> _Found:
    import psycopg

    numbers = _NUMBERS.format(schema=schema)
    state = _STATE.format(numbers=numbers, schema=schema, since=since)
    others = {"written": _WRITTEN.format(schema=schema), "functions": _FUNCTIONS.format(schema=schema)}
    try:
        return _Found(*connection.execute(_FOUND.format(state=state, numbers=numbers, **others)).fetchone())
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable):
        return _Found()


def _now(connection: Any) -> str:
    """Return the number of the next transaction, as the catalogue notes who has written a row."""
    return str(connection.execute(_NOW).fetchone()[0])
