"""How one part of a statement leads to the rows of another: by keys, whatever the planner believes of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, ColumnClause, ColumnElement, Select, Table, func, select
from sqlalchemy.ext.compiler import compiles

from qmstorage.schema import message

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.operators import OperatorType


class Among(ColumnElement[bool]):
    """The condition that a column is among what a SELECT of one column gives, which may have a limit and lock rows.

    On PostgreSQL the SELECT runs once, before, whatever its planner makes of the rest: it would not only plan for the
    many rows that an unknown limit may mean, but may run what locks rows several times.
    """

    type = Boolean()
    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], chosen: Select[Any]) -> None:
        self.column = column
        self.chosen = chosen

    def self_group(self, against: OperatorType | None = None) -> Among:
        """Stand as it is among other conditions: SQLite would compare it with 1, and find no index for that."""
        del against
        return self


class Named(ColumnElement[bool]):
    """The condition of a join that a column is what the row of another table says.

    PostgreSQL can use it for nothing but to look up rows by the column. Of two columns that equal each other it would
    also walk the whole index of one beside the other, where it believes that there are no rows in it.
    """

    type = Boolean()
    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], by: ColumnElement[Any]) -> None:
        self.column = column
        self.by = by

    def self_group(self, against: OperatorType | None = None) -> Named:
        """Stand as it is among other conditions."""
        del against
        return self


def says(number: ColumnElement[int], condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that the message of this number fulfils another one, which is looked at row by row.

    A join would let the planner begin with the messages that fulfil it, of which there may be many elsewhere.
    """
    return select(condition).where(message.c.id == number).scalar_subquery()


class Row(ColumnElement[Any]):
    """Which row of a table it is, where rows are only inserted and deleted: on SQLite, by this column of its key.

    On PostgreSQL the place of the row itself: no belief about the table leads the planner to another way to it.
    """

    inherit_cache = False

    def __init__(self, key: ColumnElement[Any], table: Table) -> None:
        self.key_column = key
        self.type = key.type
        self.place: ColumnElement[Any] = ColumnClause("ctid", _selectable=table)


@compiles(Row)
def _row(element: Row, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.key_column, **options)


@compiles(Row, "postgresql")
def _row_on_postgresql(element: Row, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.place, **options)


class Where(ColumnElement[bool]):
    """What a statement that goes by `Row` says of the other columns of the key, which only SQLite needs."""

    type = Boolean()
    inherit_cache = False

    def __init__(self, condition: ColumnElement[bool]) -> None:
        self.condition = condition

    def self_group(self, against: OperatorType | None = None) -> Where:
        """Stand as it is among other conditions."""
        del against
        return self


@compiles(Where)
def _where(element: Where, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.condition, **options)


@compiles(Where, "postgresql")
def _where_on_postgresql(element: Where, compiler: SQLCompiler, **options: Any) -> str:
    del element, compiler, options
    return "true"


@compiles(Named)
def _named(element: Named, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.column == element.by, **options)


@compiles(Named, "postgresql")
def _named_on_postgresql(element: Named, compiler: SQLCompiler, **options: Any) -> str:
    column, by = (compiler.process(part, **options) for part in (element.column, element.by))
    return f"{column} = ANY (ARRAY[{by}])"


@compiles(Among)
def _among(element: Among, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.column.in_(element.chosen), **options)


@compiles(Among, "postgresql")
def _among_on_postgresql(element: Among, compiler: SQLCompiler, **options: Any) -> str:
    column = compiler.process(element.column, **options)
    return f"{column} = ANY (ARRAY{compiler.process(element.chosen.scalar_subquery(), **options)})"


def first_of_each(table: Table, moment: ColumnElement[int]) -> Select[tuple[int, int]]:
    """Return the statement for the first moment of each queue in a table, which has an index by queue and moment.

    It goes from one queue to the next in that index, whatever the number of rows of each.
    """
    queue = table.c.queue_id
    found = select(func.min(queue).label("id")).cte(f"queue_in_{table.name}", recursive=True)
    following = select(func.min(queue)).where(queue > found.c.id).scalar_subquery()
    found = found.union_all(select(following).where(found.c.id.is_not(None)))
    first = select(func.min(moment)).where(queue == found.c.id).scalar_subquery()
    return select(found.c.id, first).where(found.c.id.is_not(None))
