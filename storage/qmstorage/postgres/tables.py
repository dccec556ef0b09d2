"""The tables of a volume on PostgreSQL: those of every store, and the settings that only PostgreSQL needs.

A volume is a schema. Non-persistent messages are in tables of the same names in a second one, which are unlogged.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from qmstorage.schema import chunk, counter, due, expiring, forwarding, held, message, ready, share, spent
from qmstorage.texts import Dialect

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql.base import PGDialect


@functools.cache
def _dialect() -> PGDialect:
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    # SQLAlchemy's dialects are not typed.
    return PGDialect_psycopg()  # type: ignore[no-untyped-call]


DIALECT: Final = Dialect("postgresql", "qmstorage.postgres", _dialect, is_typed=True)

_CHURNS: Final = {
    # Each row is written once and deleted once. Vacuum has to come by the number of dead rows, not by their share of
    # what is stored: a scan from the head of a queue passes over those that it has not removed.
    table.name: "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = {threshold},"
    " autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0"
    for table in (message, ready, due, held, expiring, chunk, share, spent)
}
_READ_FROM_THE_HEAD: Final = (ready.name, due.name, expiring.name, spent.name)
"""Vacuum leaves the entries of an index where few pages of a table have dead rows; with a large backlog those at the
head, which each dequeue passes over, are always few."""
DEAD_ROWS: Final = 20_000
"""Dead rows of a table that start autovacuum."""

_CHANGING: Final = "fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"
"""Each row changes all the time and no index has what changes, so that a page with free space takes the new version."""

SETTINGS: Final = {
    name: text.format(threshold=DEAD_ROWS) + (", vacuum_index_cleanup = on" if name in _READ_FROM_THE_HEAD else "")
    for name, text in _CHURNS.items()
} | dict.fromkeys((counter.name, forwarding.name), _CHANGING)
"""Storage parameters of tables, as CREATE TABLE takes them."""

TYPE_NAMES: Final = {
    "BigInteger": "int8",
    "Integer": "int4",
    "SmallInteger": "int2",
    "Text": "text",
    "LargeBinary": "bytea",
}
"""What the server calls the types of columns, by their names in SQLAlchemy."""


def quoted(schema: str) -> str:
    """Return the name of a schema, which has letters, digits and underscores only, quoted for a statement."""
    return f'"{schema}"'


def memory_schema(schema: str) -> str:
    """Return the name of the schema for the non-persistent messages of a volume."""
    return f"{schema}_memory"


def generations(schema: str) -> str:
    """Return the question for the generation of each queue space.

    It is asked together with the lock: every unit checks whether it still knows the current definitions.
    """
    return (
        # Row by row: there may be very many counters, of which no key but the whole leads to these.
        f"SELECT space.id, main.generation FROM {quoted(schema)}.space, LATERAL (SELECT generation"  # noqa: S608
        f" FROM {quoted(schema)}.counter WHERE space_id = space.id AND queue_id = 0 AND slot = 0 OFFSET 0) AS main"
    )
