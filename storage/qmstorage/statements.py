"""Running statements: SQLAlchemy compiles the SQL when the package is built, the driver's own cursor runs it.

A statement that is built or compiled per call costs twenty-five times a cached one (measured), so statements are
constants of their modules, and their text is cached here.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from qmstorage import texts
from qmstorage.notifications import Notifications
from qmstorage.sql import ClauseElement, ColumnElement, Table, bindparam, insert, literal_column
from qmstorage.texts import Dialect

Statement: TypeAlias = ClauseElement
Row: TypeAlias = tuple[Any, ...]


class Cursor(Protocol):
    """What the cursor of every driver offers."""

    @property
    def connection(self) -> Any:
        """The connection of the cursor."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed."""

    def execute(self, text: str, values: Any = ..., /) -> Any:
        """Run a statement."""

    def executemany(self, text: str, rows: Iterable[Any], /) -> Any:
        """Run a statement for each of the rows."""

    def close(self) -> Any:
        """Close the cursor."""

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return at most `size` of the rows that are left."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows that are left."""


class Texts(dict[Statement, tuple[str, dict[str, Any]]]):
    """The SQL text of each statement in one dialect, looked up or compiled on first use, and its constants.

    `schema` names where the tables are, as a statement does: None is the volume itself, otherwise an attached memory.
    `functions` is the schema of a store's functions where that is another one.
    What is built while the program runs goes through `of`, which drops the text together with the statement.
    """

    def __init__(self, dialect: Dialect, schema: str | None = None, functions: str | None = None) -> None:
        super().__init__()
        self._dialect = dialect
        self._schema = schema or ""
        self._functions = functions or ""
        self.in_order = _InOrder(self)
        """The texts of statements with positional values, on SQLite."""
        self._built: weakref.WeakKeyDictionary[Statement, tuple[str, dict[str, Any]]] = weakref.WeakKeyDictionary()

    def of(self, statement: Statement) -> tuple[str, dict[str, Any]]:
        """Return the text and the constants of a statement that is not a constant of its module."""
        found = self._built.get(statement)
        if found is None:
            from qmstorage.compiling import compiled

            built = compiled(statement, self._dialect)
            found = self._built[statement] = built.on(self._schema, self._functions), built.constants
        return found

    def kinds(self, statement: Statement) -> dict[str, str]:
        """Return the types of a statement's values, by what SQLAlchemy calls them."""
        return _text_of(statement, self._dialect).kinds

    def __missing__(self, statement: Statement) -> tuple[str, dict[str, Any]]:
        # A process may have many volumes and memories; what differs between them is a name.
        text = _text_of(statement, self._dialect)
        found = self[statement] = text.on(self._schema, self._functions), text.constants
        return found


class _InOrder(dict[Statement, str]):
    """The texts of statements with `?` in place of each named value."""

    def __init__(self, texts: Texts) -> None:
        super().__init__()
        # It is a part of them, and must not keep them alive.
        self._texts = weakref.proxy(texts)

    def __missing__(self, statement: Statement) -> str:
        found = self[statement] = re.sub(r":\w+", "?", self._texts[statement][0])
        return found


@functools.cache
def _text_of(statement: Statement, dialect: Dialect) -> texts.Text:
    """Return the text of a constant of a module: the number of those built at run time is not limited."""
    found = texts.find(statement, dialect)
    if found is None:
        from qmstorage.compiling import compiled

        found = compiled(statement, dialect)
    return found


class Runner:
    """Runs statements in the database transaction of its cursor, and collects notifications for waiters."""

    def __init__(self, cursor: Cursor, texts: Texts, notifications: Notifications | None = None) -> None:
        self.cursor = cursor
        self.texts = texts
        self.notifications = Notifications() if notifications is None else notifications

    @property
    def session(self) -> tuple[Cursor, Texts, Notifications]:
        """What the parts of a unit work with, as the unit does."""
        return self.cursor, self.texts, self.notifications

    def run(self, statement: Statement, **values: Any) -> Cursor:
        """Run a statement and return the cursor."""
        text, constants = self.texts[statement]
        if constants:
            values.update(constants)
        self.cursor.execute(text, values)
        return self.cursor

    def run_in_order(self, statement: Statement, *values: Any) -> Cursor:
        """Run a statement with positional values: SQLite looks up no names."""
        self.cursor.execute(self.texts.in_order[statement], values)
        return self.cursor

    def one(self, statement: Statement, **values: Any) -> Row | None:
        """Run a statement and return its first row."""
        row: Row | None = self.run(statement, **values).fetchone()
        return row

    def all(self, statement: Statement, **values: Any) -> list[Row]:
        """Run a statement and return its rows."""
        return self.run(statement, **values).fetchall()

    def built(self, statement: Statement, **values: Any) -> list[Row]:
        """Run a statement that is not a constant of its module, and return its rows."""
        text, constants = self.texts.of(statement)
        self.cursor.execute(text, {**constants, **values})
        return self.cursor.fetchall()

    def many(self, statement: Statement, rows: Sequence[dict[str, Any]]) -> int:
        """Run a statement without constants for each of the rows; return how many rows of its table it changed."""
        if not rows:
            return 0
        text = self.texts[statement][0]
        if len(rows) == 1:
            self.cursor.execute(text, rows[0])
        else:
            self.cursor.executemany(text, rows)
        return self.cursor.rowcount


def insert_into(table: Table) -> ClauseElement:
    """Return the statement that inserts one row, every column given by its name."""
    return insert(table).values({column.name: bindparam(column.name) for column in table.columns})


def written(column: ColumnElement[Any], value: int) -> ColumnElement[bool]:
    """Return the condition that a column equals a number, which becomes part of the text.

    SQLite compiles a statement again whenever it is given a value that may tell whether a partial index can be used.
    """
    return column == literal_column(str(int(value)))


def given(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that a column equals the value given by that name."""
    return column == bindparam(name, type_=column.type)
