"""Being among the rows that a part of a statement has chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, ColumnElement, Select
from sqlalchemy.ext.compiler import compiles

if TYPE_CHECKING:
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.sql.compiler import SQLCompiler


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


@compiles(Among)
def _among(element: Among, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.column.in_(element.chosen), **options)


@compiles(Among, "postgresql")
def _among_on_postgresql(element: Among, compiler: SQLCompiler, **options: Any) -> str:
    column = compiler.process(element.column, **options)
    return f"{column} = ANY (ARRAY{compiler.process(element.chosen.scalar_subquery(), **options)})"
