"""Devices on PostgreSQL that were made once: a test gets one that was emptied, under a name that no test had before.

To make the tables of a device takes longer than most tests that use them. What another test could notice is gone or
changed: all rows, the numbers that sequences gave, the identifier of the device, the name of the schema and with it the
keys of advisory locks and the channels of notifications. A device of which a test has changed more than rows - a table,
an index, a right - is dropped instead.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from qmadmin.opening import create_device, open_device

if TYPE_CHECKING:
    from qmadmin.device import Device

_STATE = """
WITH class AS (
    SELECT oid, relkind, xmin AS writer FROM pg_class
    WHERE relnamespace IN (%(schema)s::regnamespace, %(memory)s::regnamespace) AND oid NOT IN ({numbers})
),
part (name) AS (
    SELECT concat_ws(' ', oid, writer) FROM class
    UNION ALL SELECT concat_ws(' ', attrelid, attnum, pg_attribute.xmin)
        FROM pg_attribute JOIN class ON class.oid = attrelid WHERE relkind <> 'S'
    UNION ALL SELECT concat_ws(' ', pg_constraint.oid, pg_constraint.xmin)
        FROM pg_constraint JOIN class ON class.oid = conrelid
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_proc
        WHERE pronamespace IN (%(schema)s::regnamespace, %(memory)s::regnamespace)
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_namespace
        WHERE oid IN (%(schema)s::regnamespace, %(memory)s::regnamespace)
    UNION ALL SELECT version_num FROM {schema}.alembic_version
)
SELECT md5(string_agg(name, ',' ORDER BY name)) FROM part
"""
"""Which rows of the catalogue say what a device consists of: each change of it writes another one of them."""

_NUMBERS = """
SELECT oid FROM pg_class WHERE relkind = 'S' AND relnamespace = %(schema)s::regnamespace AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND refobjsubid > 0
)
"""
"""The sequences of queue spaces, which belong to no column."""

_WRITTEN = """
SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND pg_relation_size(oid) > 0
AND relnamespace IN (%(schema)s::regnamespace, %(memory)s::regnamespace) AND relname <> 'alembic_version'
"""
"""The tables that have or had rows."""


class _Lent(NamedTuple):
    """A device that a test has: its description when it got it, and the rows that a new one has."""

    state: str
    device: dict[str, Any]
    entry: dict[str, Any]


class EmptiedDevices:
    """The devices of a test process in its database; `connect` gives a connection that commits each statement."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._lent: dict[str, _Lent] = {}
        self._spare: list[tuple[str, _Lent]] = []

    def device(self, url: str, pages: int, *, clock: Any = None) -> Device:
        """Return an open device as `create_device` makes it; it is given back with `empty`."""
        schema = schema_of(url)
        if self._spare:
            with self._connect() as connection:
                self._lent[schema] = _taken(connection, *self._spare.pop(), schema, pages, clock)
            return open_device(url, clock=clock)
        made = create_device(url, pages, clock=clock)
        with self._connect() as connection:
            rows = [_row(connection, schema, table) for table in ("device", "entry")]
            self._lent[schema] = _Lent(_state(connection, schema), *rows)
        return made

    def empty(self, connection: Any, schema: str) -> tuple[str, ...]:
        """Take back the device of a schema in which nobody is at work; return the schemas that are kept."""
        lent = self._lent.pop(schema, None)
        if lent is None or not _is_unchanged(connection, schema, lent):
            return ()
        written = _found(connection, schema, _WRITTEN)
        numbers = _found(connection, schema, _NUMBERS.replace("oid", "oid::regclass", 1))
        # A process that the test has left behind writes before all of it, or finds no such schema.
        with connection.transaction():
            connection.execute("SET LOCAL client_min_messages = warning")
            if numbers:
                connection.execute(f"DROP SEQUENCE {', '.join(numbers)}")
            if written:
                connection.execute(f"TRUNCATE {', '.join(written)} RESTART IDENTITY CASCADE")
            _rename(connection, schema, spare := f"spare_{schema}")
        self._spare.append((spare, lent))
        return schema, f"{schema}_memory"


def schema_of(url: str) -> str:
    """Return the name of the schema in the URL of a device of the tests."""
    return url.rpartition("schema=")[2]


def _rename(connection: Any, old: str, new: str) -> None:
    connection.execute(f"ALTER SCHEMA {old} RENAME TO {new}; ALTER SCHEMA {old}_memory RENAME TO {new}_memory")


def _taken(connection: Any, old: str, lent: _Lent, schema: str, pages: int, clock: Any) -> _Lent:
    """Give an emptied device the name of a schema, and the rows of a new device."""
    now = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()[0]
    device = lent.device | {"id": secrets.token_hex(16), "created_at": clock.now() if clock else now}
    entry = lent.entry | {"path": lent.entry["path"].rpartition("schema=")[0] + f"schema={schema}", "pages": pages}
    _rename(connection, old, schema)
    for table, row in (("device", device), ("entry", entry)):
        connection.execute(
            f"INSERT INTO {schema}.{table} SELECT * FROM jsonb_populate_record(NULL::{schema}.{table}, %s)",
            [json.dumps(row)],
        )
    return _Lent(_state(connection, schema), device, entry)


def _row(connection: Any, schema: str, table: str) -> dict[str, Any]:
    (row,) = connection.execute(f"SELECT to_jsonb(one) FROM {schema}.{table} AS one").fetchone()
    return dict(row)


def _is_unchanged(connection: Any, schema: str, lent: _Lent) -> bool:
    """Return whether a test has changed no more than rows."""
    # Loaded here: who has no server need not have the driver.
    import psycopg

    try:
        return _state(connection, schema) == lent.state
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedTable):
        return False


def _state(connection: Any, schema: str) -> str:
    found = connection.execute(_STATE.format(numbers=_NUMBERS, schema=schema), _names(schema)).fetchone()[0]
    return str(found)


def _found(connection: Any, schema: str, text: str) -> list[str]:
    return [str(name) for (name,) in connection.execute(text, _names(schema)).fetchall()]


def _names(schema: str) -> dict[str, str]:
    return {"schema": schema, "memory": f"{schema}_memory"}
