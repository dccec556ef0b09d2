"""The tables of a volume on PostgreSQL: those of every store, and the settings that only PostgreSQL needs.

A volume is a schema. Non-persistent messages are in tables of the same names in a second one, which are unlogged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DDLElement

from qmstorage.schema import (
    DATABASE_VERSION,
    IN_MEMORY,
    chunk,
    counter,
    due,
    expiring,
    forwarding,
    held,
    message,
    metadata,
    ready,
)

if TYPE_CHECKING:
    from sqlalchemy import Column, Index, Table

# SQLAlchemy's dialects are not typed.
DIALECT: Final = PGDialect_psycopg()  # type: ignore[no-untyped-call]

_CHURNS: Final = {
    # Each row is written once and deleted once. Vacuum has to come by the number of dead rows, not by their share of
    # what is stored: a scan from the head of a queue passes over those that it has not removed.
    table.name: "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = {threshold},"
    " autovacuum_analyze_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0"
    for table in (message, ready, due, held, expiring, chunk)
}
_READ_FROM_THE_HEAD: Final = (ready.name, due.name, expiring.name)
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

TYPE_NAMES: Final[dict[type, str]] = {
    BigInteger: "int8",
    Integer: "int4",
    SmallInteger: "int2",
    Text: "text",
    LargeBinary: "bytea",
}
"""What the server calls the types of columns."""

PARTITIONED: Final = {message.name: "id", chunk.name: "body_id"}
"""Tables that are split by the hash of a column where a device asks for partitions."""


class _ExactTypes(PGTypeCompiler):
    """Texts are compared byte by byte, whatever the collation of the database is."""

    def visit_TEXT(self, type_: object, **options: object) -> str:  # noqa: N802 - SQLAlchemy finds it by this name
        del type_, options
        return 'TEXT COLLATE "C"'


class _DdlDialect(PGDialect_psycopg):
    type_compiler_cls = _ExactTypes


_DDL: Final = _DdlDialect()  # type: ignore[no-untyped-call]


def quoted(schema: str) -> str:
    """Return the name of a schema, which has letters, digits and underscores only, quoted for a statement."""
    return f'"{schema}"'


def memory_schema(schema: str) -> str:
    """Return the name of the schema for the non-persistent messages of a volume."""
    return f"{schema}_memory"


def creation(schema: str, partitions: int = 0) -> Iterator[str]:
    """Yield the statements that make the tables of a volume, in schemas that exist; with `partitions` of messages."""
    for table in metadata.sorted_tables:
        yield from _table(table, schema, partitions=partitions if table.name in PARTITIONED else 0)
    yield from creation_of_memory(schema)
    yield f"INSERT INTO {quoted(schema)}.alembic_version VALUES ('{DATABASE_VERSION:04d}')"  # noqa: S608 - names of ours


def creation_of_memory(schema: str) -> Iterator[str]:
    """Yield the statements that make the tables for the non-persistent messages of a volume."""
    for table in IN_MEMORY:
        yield from _table(table, memory_schema(schema), unlogged=True)
    # A row shows that the tables are as they were when it was written: a crash of the server empties all.
    yield f"CREATE UNLOGGED TABLE {quoted(memory_schema(schema))}.residence (space_id INTEGER PRIMARY KEY)"


def adding(column: Column[Any], schema: str) -> str:
    """Return the statement that adds a column to its table in a schema."""
    text = CreateColumn(column).compile(dialect=_DDL)
    return f"ALTER TABLE {quoted(schema)}.{column.table.name} ADD COLUMN {text}"


def indexes_of(name: str, schema: str) -> dict[str, str]:
    """Return the indexes of a table by their names, and the statement that makes each."""
    table = metadata.tables[name]
    made = {str(index.name): _index(index, schema) for index in table.indexes}
    for constraint in table.constraints:
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint):
            kind = "PRIMARY KEY" if isinstance(constraint, PrimaryKeyConstraint) else "UNIQUE"
            columns = ", ".join(column.name for column in constraint.columns)
            full = DIALECT.identifier_preparer.format_constraint(constraint)
            made[str(full)] = f"ALTER TABLE {quoted(schema)}.{name} ADD CONSTRAINT {full} {kind} ({columns})"
    return made


def _table(table: Table, schema: str, *, unlogged: bool = False, partitions: int = 0) -> Iterator[str]:
    text = _rendered(CreateTable(table), schema).rstrip()
    if unlogged:
        text = text.replace("CREATE TABLE", "CREATE UNLOGGED TABLE", 1)
    settings = f" WITH ({SETTINGS[table.name]})" if table.name in SETTINGS else ""
    if partitions:
        yield f"{text} PARTITION BY HASH ({PARTITIONED[table.name]})"
        for number in range(partitions):
            yield (
                f"CREATE TABLE {quoted(schema)}.{table.name}_{number} PARTITION OF {quoted(schema)}.{table.name}"
                f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number}){settings}"
            )
    else:
        yield text + settings
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        yield _index(index, schema)
    if table in (message, chunk):
        # A body is stored as it is: most are compressed already, or too small to gain.
        column = "body" if table is message else "content"
        for name in [table.name, *(f"{table.name}_{number}" for number in range(partitions))]:
            yield f"ALTER TABLE {quoted(schema)}.{name} ALTER COLUMN {column} SET STORAGE EXTERNAL"


def _index(index: Index, schema: str) -> str:
    text = _rendered(CreateIndex(index), schema)
    # Partial on every store, which the schema can say for one dialect only: the others would be loaded at every start.
    condition = index.dialect_options["sqlite"]["where"]
    if condition is None:
        return text
    only = condition.compile(dialect=DIALECT, compile_kwargs={"literal_binds": True})
    return f"{text} WHERE {str(only).replace(f'{index.table.name}.', '')}"  # type: ignore[union-attr]


def _rendered(statement: DDLElement, schema: str) -> str:
    return str(
        statement.compile(dialect=_DDL, schema_translate_map={None: schema}, render_schema_translate=True)
    ).strip()


def generations(schema: str) -> str:
    """Return the question for the generation of each queue space.

    It is asked together with the lock: every unit checks whether it still knows the current definitions.
    """
    return (
        # Row by row: there may be very many counters, of which no key but the whole leads to these.
        f"SELECT space.id, main.generation FROM {quoted(schema)}.space, LATERAL (SELECT generation"  # noqa: S608
        f" FROM {quoted(schema)}.counter WHERE space_id = space.id AND queue_id = 0 AND slot = 0 OFFSET 0) AS main"
    )
