"""SQL elements of our own: what SQLAlchemy has no expression for, and how each store writes it.

Statements reach them through `sql`, so that this module is loaded, and SQLAlchemy with it, only where one is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Boolean, ColumnClause, ColumnElement, Integer, LargeBinary, Numeric, Select, Table, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from qmcore.order import LEVEL_BYTES
from qmstorage.texts import BODY_HOLDS, FUNCTIONS

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


class Like(FunctionElement[bool]):
    """Text matches a pattern: the text, the pattern for GLOB, the pattern for LIKE."""

    type = Boolean()
    inherit_cache = True


class BytesLike(FunctionElement[bool]):
    """Bytes that are text match a pattern: the bytes, the pattern for GLOB, the pattern for LIKE."""

    type = Boolean()
    inherit_cache = True


class HeaderText(FunctionElement[str]):
    """The text of a header: the headers, SQLite's path to it, its name."""

    type = Text()
    inherit_cache = True


class BodyHolds(FunctionElement[bool]):
    """A condition on values in a body is true: the body, or NULL; the text of the condition; the same in SQL.

    The latter is for a store whose server reads bodies; it is made of the elements that follow.
    """

    type = Boolean()
    inherit_cache = True


class BodyFound(FunctionElement[bool]):
    """True where a value is at a path, NULL where none is, or null: the body, or NULL; the steps of the path."""

    type = Boolean()
    inherit_cache = True


class BodyText(FunctionElement[str]):
    """The text at a path in a body, NULL for any other value."""

    type = Text()
    inherit_cache = True


class BodyNumber(FunctionElement[Any]):
    """The number at a path in a body, NULL for any other value."""

    type = Numeric()
    inherit_cache = True


class BodyTruth(FunctionElement[bool]):
    """The true or false at a path in a body, NULL for any other value."""

    type = Boolean()
    inherit_cache = True


class InOrderOfBytes(FunctionElement[str]):
    """Text that is compared by the bytes of its UTF-8, not by the rules of a language."""

    type = Text()
    inherit_cache = True


class BehindLevel(FunctionElement[bytes]):
    """What comes after an order key, and after all that begin with the same `LEVEL_BYTES`: the key."""

    type = LargeBinary()
    inherit_cache = True


class Octets(FunctionElement[int]):
    """How many bytes a text has in UTF-8."""

    type = Integer()
    inherit_cache = True


_BEHIND: Final = "ff" * 32
"""More than follows those bytes in a key. In a damaged file another one may: what is after the key itself goes on."""


@compiles(BehindLevel, "sqlite")
def _behind_level_on_sqlite(element: BehindLevel, compiler: SQLCompiler, **options: Any) -> str:
    key = _written(element, compiler, options, 0)[0]
    return f"max({key}, CAST(substr({key}, 1, {LEVEL_BYTES}) || x'{_BEHIND}' AS BLOB))"


@compiles(BehindLevel, "postgresql")
def _behind_level_on_postgresql(element: BehindLevel, compiler: SQLCompiler, **options: Any) -> str:
    key = _written(element, compiler, options, 0)[0]
    return f"greatest({key}, substr({key}, 1, {LEVEL_BYTES}) || decode('{_BEHIND}', 'hex'))"


@compiles(Octets)
def _octets(element: Octets, compiler: SQLCompiler, **options: Any) -> str:
    return f"length(CAST({compiler.process(element.clauses, **options)} AS BLOB))"


@compiles(Octets, "postgresql")
def _octets_on_postgresql(element: Octets, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length({compiler.process(element.clauses, **options)})"


@compiles(Like, "sqlite")
def _like_on_sqlite(element: Like, compiler: SQLCompiler, **options: Any) -> str:
    text, glob = _written(element, compiler, options, 0, 1)
    return f"({text} GLOB {glob})"


@compiles(Like, "postgresql")
def _like_on_postgresql(element: Like, compiler: SQLCompiler, **options: Any) -> str:
    text, pattern = _written(element, compiler, options, 0, 2)
    # The backslash is the default escape character.
    return f"({text} LIKE {pattern})"


@compiles(BytesLike, "sqlite")
def _bytes_like_on_sqlite(element: BytesLike, compiler: SQLCompiler, **options: Any) -> str:
    raw, glob = _written(element, compiler, options, 0, 1)
    # GLOB ends at a NUL.
    return f"(CAST({raw} AS TEXT) GLOB {glob} AND instr({raw}, x'00') = 0)"


_CONTINUED: Final = "[89ab][0-9a-f]"
_UTF8_IN_HEX: Final = (
    "^(0[1-9a-f]|[1-7][0-9a-f]"
    f"|(c[2-9a-f]|d[0-9a-f]){_CONTINUED}"
    f"|(e0[ab][0-9a-f]|ed[89][0-9a-f]|e[1-9abcef]{_CONTINUED}){_CONTINUED}"
    f"|(f0[9ab][0-9a-f]|f48[0-9a-f]|f[123]{_CONTINUED}){_CONTINUED}{_CONTINUED})*$"
)


@compiles(BytesLike, "postgresql")
def _bytes_like_on_postgresql(element: BytesLike, compiler: SQLCompiler, **options: Any) -> str:
    raw, pattern = _written(element, compiler, options, 0, 2)
    # Decoding what is not UTF-8 would end the statement.
    return (
        f"CASE WHEN {raw} IS NULL THEN NULL WHEN encode({raw}, 'hex') ~ '{_UTF8_IN_HEX}'"
        f" THEN convert_from({raw}, 'UTF8') LIKE {pattern} ELSE false END"
    )


@compiles(HeaderText, "sqlite")
def _header_on_sqlite(element: HeaderText, compiler: SQLCompiler, **options: Any) -> str:
    headers, path = _written(element, compiler, options, 0, 1)
    # In a damaged file what is not JSON has no header, and must not make the statement fail.
    return f"CASE WHEN json_valid({headers}) THEN json_extract({headers}, {path}) END"


@compiles(HeaderText, "postgresql")
def _header_on_postgresql(element: HeaderText, compiler: SQLCompiler, **options: Any) -> str:
    headers, name = _written(element, compiler, options, 0, 2)
    return f"(CAST({headers} AS JSONB) ->> CAST({name} AS TEXT))"


@compiles(BodyHolds, "sqlite")
def _body_holds_on_sqlite(element: BodyHolds, compiler: SQLCompiler, **options: Any) -> str:
    body, condition = _written(element, compiler, options, 0, 1)
    return f"{BODY_HOLDS}({body}, {condition})"


@compiles(BodyHolds, "postgresql")
def _body_holds_on_postgresql(element: BodyHolds, compiler: SQLCompiler, **options: Any) -> str:
    return f"({_written(element, compiler, options, 2)[0]})"


def _field_on_postgresql(element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:
    body, steps = _written(element, compiler, options, 0, 1)
    return f"({FUNCTIONS}.qm_body({body}, {steps})).{_FIELDS[type(element)]}"


_FIELDS: Final[dict[type[FunctionElement[Any]], str]] = {
    BodyFound: "is_there",
    BodyText: "words",
    BodyNumber: "number",
    BodyTruth: "truth",
}
for _field in _FIELDS:
    compiles(_field, "postgresql")(_field_on_postgresql)


@compiles(InOrderOfBytes, "sqlite")
def _in_order_on_sqlite(element: InOrderOfBytes, compiler: SQLCompiler, **options: Any) -> str:
    return _written(element, compiler, options, 0)[0]


@compiles(InOrderOfBytes, "postgresql")
def _in_order_on_postgresql(element: InOrderOfBytes, compiler: SQLCompiler, **options: Any) -> str:
    return f'({_written(element, compiler, options, 0)[0]} COLLATE "C")'


def _written(element: FunctionElement[Any], compiler: SQLCompiler, options: dict[str, Any], *wanted: int) -> list[str]:
    """Return the text of the arguments that are wanted; a parameter that is written becomes one of the statement."""
    arguments = list(element.clauses)
    return [compiler.process(arguments[at], **options) for at in wanted]
