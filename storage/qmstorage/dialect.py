"""SQL elements that make statements find their rows by keys, whatever the planner believes of the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, ColumnClause, ColumnElement, Select, Table, func, select
from sqlalchemy.ext.compiler import compiles

from qmstorage.schema import message

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.operators import OperatorType


class Among(ColumnElement[bool]):
    """The condition that a column is among the results of a SELECT of one column, which may have a limit and lock rows.

    On PostgreSQL the SELECT runs once, first, whatever its planner makes of the rest: it would not only plan for the
    many rows that an unknown limit may mean, but might run a SELECT that locks rows several times.
    """

    type = Boolean()
    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], chosen: Select[Any]) -> None:
        self.column = column
        self.chosen = chosen

    def self_group(self, against: OperatorType | None = None) -> Among:
        """Return the element unchanged: SQLite would compare it with 1, and use no index for that."""
        del against
        return self


class Named(ColumnElement[bool]):
    """The condition of a join that a column equals a column of another table.

    PostgreSQL can use it only to look up rows by the first column. With two plain columns it would also merge their
    whole indexes where it believes that one of them is empty.
    """

    type = Boolean()
    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], by: ColumnElement[Any]) -> None:
        self.column = column
        self.by = by

    def self_group(self, against: OperatorType | None = None) -> Named:
        """Return the element unchanged."""
        del against
        return self


def says(number: ColumnElement[int], condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that the message of this number meets another one, which is checked row by row.

    With a join the planner could begin with the messages that meet it, of which there may be many elsewhere.
    """
    return select(condition).where(message.c.id == number).scalar_subquery()


class Row(ColumnElement[Any]):
    """The address of a row of a table whose rows are only inserted and deleted: on SQLite this column of its key.

    On PostgreSQL it is the ctid, so that the planner has no other way to the row.
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
    """A condition on the other columns of the key beside `Row`, which only SQLite needs."""

    type = Boolean()
    inherit_cache = False

    def __init__(self, condition: ColumnElement[bool]) -> None:
        self.condition = condition

    def self_group(self, against: OperatorType | None = None) -> Where:
        """Return the element unchanged."""
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
