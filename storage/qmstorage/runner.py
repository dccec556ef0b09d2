"""Running statements: SQLAlchemy writes the SQL once for each dialect, the driver's own cursor runs it.

A statement that is built or compiled per call costs twenty-five times the one that is kept (measured), so statements
are constants of their modules, and their text is kept here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import ColumnElement, Table, bindparam, insert
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

Statement: TypeAlias = ClauseElement
Row: TypeAlias = tuple[Any, ...]


class Texts(dict[Statement, tuple[str, dict[str, Any]]]):
    """The SQL text of each statement in one dialect, compiled when it is first asked for, and its constants."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__()
        self._dialect = dialect

    def __missing__(self, statement: Statement) -> tuple[str, dict[str, Any]]:
        compiled = statement.compile(dialect=self._dialect)
        assert isinstance(compiled, SQLCompiler)  # noqa: S101 - statements of this package are no DDL
        constants = {name: bind.value for name, bind in compiled.binds.items() if not bind.required}
        found = self[statement] = (str(compiled), constants)
        return found


class Runner:
    """Runs statements in the database transaction that its cursor is in, and remembers which bells to ring."""

    def __init__(self, cursor: sqlite3.Cursor, texts: Texts) -> None:
        self._cursor = cursor
        self._texts = texts
        self.arrivals: set[int] = set()

    def run(self, statement: Statement, **values: Any) -> sqlite3.Cursor:
        """Run a statement and return the cursor."""
        text, constants = self._texts[statement]
        if constants:
            values.update(constants)
        return self._cursor.execute(text, values)

    def one(self, statement: Statement, **values: Any) -> Row | None:
        """Run a statement and return its first row."""
        row: Row | None = self.run(statement, **values).fetchone()
        return row

    def all(self, statement: Statement, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        return self.run(statement, **values).fetchall()

    def many(self, statement: Statement, rows: Iterable[dict[str, Any]]) -> None:
        """Run a statement without constants for each of the rows."""
        self._cursor.executemany(self._texts[statement][0], rows)


def insert_into(table: Table) -> ClauseElement:
    """Return the statement that inserts one row, every column given by its name."""
    return insert(table).values({column.name: bindparam(column.name) for column in table.columns})


def given(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that a column equals the value given by that name."""
    return column == bindparam(name, type_=column.type)
