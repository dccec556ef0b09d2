"""Making the tables of a volume on PostgreSQL, as SQLAlchemy writes them, which is loaded here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DDLElement

from qmstorage.postgres.tables import DIALECT, SETTINGS, memory_schema, quoted
from qmstorage.schema import IN_MEMORY, VERSION, chunk, message, metadata
from qmstorage.sql import made

if TYPE_CHECKING:
    from sqlalchemy import Column, Index, Table

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


def creation(schema: str, partitions: int = 0) -> Iterator[str]:
    """Yield the statements that make the tables of a volume, in schemas that exist; with `partitions` of messages."""
    for table in made(metadata).sorted_tables:
        yield from _table(table, schema, partitions=partitions if table.name in PARTITIONED else 0)
    yield from creation_of_memory(schema)
    yield f"INSERT INTO {quoted(schema)}.alembic_version VALUES ('{VERSION:04d}')"  # noqa: S608 - names of ours


def creation_of_memory(schema: str) -> Iterator[str]:
    """Yield the statements that make the tables for the non-persistent messages of a volume."""
    for table in made(IN_MEMORY):
        yield from _table(table, memory_schema(schema), unlogged=True)
    # A row shows that the tables are as they were when it was written: a crash of the server empties all.
    yield f"CREATE UNLOGGED TABLE {quoted(memory_schema(schema))}.residence (space_id INTEGER PRIMARY KEY)"


def adding(column: Column[Any], schema: str) -> str:
    """Return the statement that adds a column to its table in a schema."""
    column = made(column)
    text = CreateColumn(column).compile(dialect=_DDL)
    return f"ALTER TABLE {quoted(schema)}.{column.table.name} ADD COLUMN {text}"


def indexes_of(name: str, schema: str) -> dict[str, str]:
    """Return the indexes of a table by their names, and the statement that makes each."""
    table = made(metadata).tables[name]
    found = {str(index.name): _index(index, schema) for index in table.indexes}
    for constraint in table.constraints:
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint):
            kind = "PRIMARY KEY" if isinstance(constraint, PrimaryKeyConstraint) else "UNIQUE"
            columns = ", ".join(column.name for column in constraint.columns)
            full = DIALECT.loaded().identifier_preparer.format_constraint(constraint)
            found[str(full)] = f"ALTER TABLE {quoted(schema)}.{name} ADD CONSTRAINT {full} {kind} ({columns})"
    return found


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
    if table.name in (message.name, chunk.name):
        # A body is stored as it is: most are compressed already, or too small to gain.
        column = "body" if table.name == message.name else "content"
        for name in [table.name, *(f"{table.name}_{number}" for number in range(partitions))]:
            yield f"ALTER TABLE {quoted(schema)}.{name} ALTER COLUMN {column} SET STORAGE EXTERNAL"


def _index(index: Index, schema: str) -> str:
    text = _rendered(CreateIndex(index), schema)
    # Partial on every store, which the schema can say for one dialect only: the others would be loaded at every start.
    condition = index.dialect_options["sqlite"]["where"]
    if condition is None:
        return text
    only = condition.compile(dialect=DIALECT.loaded(), compile_kwargs={"literal_binds": True})
    return f"{text} WHERE {str(only).replace(f'{index.table.name}.', '')}"  # type: ignore[union-attr]


def _rendered(statement: DDLElement, schema: str) -> str:
    return str(
        statement.compile(dialect=_DDL, schema_translate_map={None: schema}, render_schema_translate=True)
    ).strip()
