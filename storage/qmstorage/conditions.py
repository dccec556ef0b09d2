"""Conditions on the properties of messages in SQL: every literal is a parameter, none becomes text of a statement.

What LIKE does on every store: it is case-sensitive, and `_` is one character. A correlation identifier need not be
text. Patterns without a wildcard, and with a single `%` at the end, compare its bytes, whatever they are; other
patterns read it as UTF-8 and match none that has a NUL byte. Bytes that are not UTF-8 match nothing on PostgreSQL, and
on SQLite whatever it decodes them to; neither fails. SQLite does not distinguish the characters U+FFFD, U+FFFE and
U+FFFF in a pattern. Of a text or a header with a NUL it reads the part before that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Boolean, ColumnElement, LargeBinary, Text, and_, literal, not_, or_, tuple_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from qmcore import condition as tree
from qmcore import numbers
from qmcore.condition import COMPARED, Condition, Header, Operator, Subject, Value, wildcards
from qmcore.message_attributes import ValueKind
from qmcore.space import Space
from qmstorage.schema import message

if TYPE_CHECKING:
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

# Not the columns' own types: a column can be compared with a number that is too large for it.
_TYPES: Final[dict[ValueKind, TypeEngine[Any]]] = {
    ValueKind.WHOLE: BigInteger(),
    ValueKind.TIME: BigInteger(),
    ValueKind.TEXT: Text(),
    ValueKind.BYTES: LargeBinary(),
    ValueKind.MSGID: BigInteger(),
}
_NO_MESSAGE: Final = -1
"""A number that no message has."""


def where(
    condition: Condition,
    *,
    retries: ColumnElement[int],
    space: Space,
    available_at: ColumnElement[int] | None = None,
) -> ColumnElement[bool]:
    """Return the condition on rows of `message`.

    `retries` is the column of the state's table that counts them. `available_at` is the column that says when a delayed
    message becomes available, where that is not what the message itself says. The identifiers in the condition are
    those of `space`.
    """
    columns: dict[str, ColumnElement[Any]] = {"retries": retries, "msgid": message.c.id}
    if available_at is not None:
        columns["available_at"] = available_at
    return _Writer(columns, space).expression(condition)


def prefix_range(pattern: str) -> tuple[bytes, bytes | None]:
    """Return the range of bytes of all text that a LIKE pattern matches: from the first, to before the second if any.

    The range holds nothing else where the pattern has no wildcard, and where its only one is a `%` at its end.
    """
    prefix = ""
    for character, is_wildcard in wildcards(pattern):
        if is_wildcard:
            first = prefix.encode()
            # The last byte of UTF-8 is never the highest one.
            return first, first[:-1] + bytes((first[-1] + 1,)) if first else None
        prefix += character
    return prefix.encode(), prefix.encode() + b"\0"


class _Writer:
    """Writes conditions, with these columns in place of those of `message`."""

    def __init__(self, columns: dict[str, ColumnElement[Any]], space: Space) -> None:
        self._columns = columns
        self._space = space

    def expression(self, condition: Condition) -> ColumnElement[bool]:
        match condition:
            case tree.And(parts):
                return and_(*map(self.expression, parts))
            case tree.Or(parts):
                return or_(*map(self.expression, parts))
            case tree.Not(part):
                return not_(self.expression(part))
            case _:
                return self._test(condition)

    def _test(
        self, condition: tree.Comparison | tree.Between | tree.OneOf | tree.Like | tree.IsNull
    ) -> ColumnElement[bool]:
        match condition:
            case tree.IsNull(of):
                return self._column(of).is_(None)
            case tree.OneOf(of, values):
                return self._is_one_of(of, values)
            case tree.Like(of, pattern):
                return self._like(of, pattern)
            case tree.Between(of, low, high):
                return and_(
                    self._compared(of, Operator.AT_LEAST, low),
                    self._compared(of, Operator.AT_MOST, high),
                )
            case tree.Comparison(of, how, value):
                return self._compared(of, how, value)

    def _compared(self, of: Subject, how: Operator, value: Value) -> ColumnElement[bool]:
        if of.kind is ValueKind.MSGID:
            is_it = self._is_one_of(of, (value,))
            return is_it if how is Operator.EQUAL else not_(is_it)
        column = self._column(of)
        if of.kind is ValueKind.TEXT and how not in tree.EQUALITY:
            column = _InOrderOfBytes(column)
        compared: ColumnElement[bool] = COMPARED[how](column, self._literal(of, value))
        return compared

    def _like(self, of: Subject, pattern: str) -> ColumnElement[bool]:
        column = self._column(of)
        if of.kind is not ValueKind.BYTES:
            return _Like(column, literal(_glob(pattern)), literal(pattern))
        if _is_prefix(pattern):
            low, high = prefix_range(pattern)
            return column >= literal(low) if high is None else and_(column >= literal(low), column < literal(high))
        return _BytesLike(column, literal(_glob(pattern)), literal(pattern))

    def _column(self, of: Subject) -> ColumnElement[Any]:
        if isinstance(of, Header):
            return _HeaderText(message.c.headers, literal(_path(of.name)), literal(of.name))
        return self._columns[of.name] if of.name in self._columns else message.c[of.name]

    def _is_one_of(self, of: Subject, values: Sequence[Value]) -> ColumnElement[bool]:
        column = self._column(of)
        if of.kind is ValueKind.MSGID:
            values = [number for msgid in values for number in _message_numbers(msgid, self._space)]
        if len(values) == 1:
            return column == self._literal(of, values[0])
        # Not in_(), whose parameters are only known when a statement runs.
        return column.op("IN", is_comparison=True)(tuple_(*(self._literal(of, value) for value in values)))

    def _literal(self, of: Subject, value: Value) -> ColumnElement[Any]:
        return literal(value, _TYPES[of.kind])


def named(condition: Condition, space: Space) -> Sequence[int]:
    """Return the numbers of the only messages that a condition can be true for, if it names one; mostly it is one."""
    if isinstance(condition, tree.And):
        return next((found for part in condition.parts if (found := named(part, space))), ())
    match condition:
        case tree.Comparison(tree.Property(kind=ValueKind.MSGID), Operator.EQUAL, msgid):
            return _message_numbers(msgid, space)
        case _:
            return ()


def is_of_few(condition: Condition) -> bool:
    """Return whether a condition can only be true for messages that it names, by either of their identifiers."""
    if isinstance(condition, tree.And):
        return any(map(is_of_few, condition.parts))
    match condition:
        case tree.Comparison(tree.Property(name="corrid" | "msgid"), Operator.EQUAL, _):
            return True
        case tree.OneOf(tree.Property(name="corrid" | "msgid"), _):
            return True
        case tree.Like(tree.Property(name="corrid"), pattern):
            return _is_prefix(pattern)
        case _:
            return False


def _message_numbers(msgid: Value, space: Space) -> Sequence[int]:
    return [numbers.number(space.id, sequence) for sequence in space.sequences_of(msgid)] or [_NO_MESSAGE]


def _is_prefix(pattern: str) -> bool:
    signs = list(wildcards(pattern))
    return not any(is_wildcard for _, is_wildcard in signs[:-1]) and signs[-1:] != [("_", True)]


def _glob(pattern: str) -> str:
    """Return what SQLite's GLOB, which unlike its LIKE is case-sensitive, reads as the LIKE pattern."""
    return "".join(
        {"%": "*", "_": "?"}[sign] if is_wildcard else f"[{sign}]" if sign in "*?[" else sign
        for sign, is_wildcard in wildcards(pattern)
    )


def _path(header: str) -> str:
    """Return SQLite's path to a header, its name written as in the stored text."""
    return f"$.{json.dumps(header)}"


class _Like(FunctionElement[bool]):
    """Text matches a pattern: the text, the pattern for GLOB, the pattern for LIKE."""

    type = Boolean()
    inherit_cache = True


class _BytesLike(FunctionElement[bool]):
    """Bytes that are text match a pattern: the bytes, the pattern for GLOB, the pattern for LIKE."""

    type = Boolean()
    inherit_cache = True


class _HeaderText(FunctionElement[str]):
    """The text of a header: the headers, SQLite's path to it, its name."""

    type = Text()
    inherit_cache = True


class _InOrderOfBytes(FunctionElement[str]):
    """Text that is compared by the bytes of its UTF-8, not by the rules of a language."""

    type = Text()
    inherit_cache = True


@compiles(_Like, "sqlite")
def _like_on_sqlite(element: _Like, compiler: SQLCompiler, **options: Any) -> str:
    text, glob = _written(element, compiler, options, 0, 1)
    return f"({text} GLOB {glob})"


@compiles(_Like, "postgresql")
def _like_on_postgresql(element: _Like, compiler: SQLCompiler, **options: Any) -> str:
    text, pattern = _written(element, compiler, options, 0, 2)
    # The backslash is the default escape character.
    return f"({text} LIKE {pattern})"


@compiles(_BytesLike, "sqlite")
def _bytes_like_on_sqlite(element: _BytesLike, compiler: SQLCompiler, **options: Any) -> str:
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


@compiles(_BytesLike, "postgresql")
def _bytes_like_on_postgresql(element: _BytesLike, compiler: SQLCompiler, **options: Any) -> str:
    raw, pattern = _written(element, compiler, options, 0, 2)
    # Decoding what is not UTF-8 would end the statement.
    return (
        f"CASE WHEN {raw} IS NULL THEN NULL WHEN encode({raw}, 'hex') ~ '{_UTF8_IN_HEX}'"
        f" THEN convert_from({raw}, 'UTF8') LIKE {pattern} ELSE false END"
    )


@compiles(_HeaderText, "sqlite")
def _header_on_sqlite(element: _HeaderText, compiler: SQLCompiler, **options: Any) -> str:
    headers, path = _written(element, compiler, options, 0, 1)
    # In a damaged file what is not JSON has no header, and must not make the statement fail.
    return f"CASE WHEN json_valid({headers}) THEN json_extract({headers}, {path}) END"


@compiles(_HeaderText, "postgresql")
def _header_on_postgresql(element: _HeaderText, compiler: SQLCompiler, **options: Any) -> str:
    headers, name = _written(element, compiler, options, 0, 2)
    return f"(CAST({headers} AS JSONB) ->> CAST({name} AS TEXT))"


@compiles(_InOrderOfBytes, "sqlite")
def _in_order_on_sqlite(element: _InOrderOfBytes, compiler: SQLCompiler, **options: Any) -> str:
    return _written(element, compiler, options, 0)[0]


@compiles(_InOrderOfBytes, "postgresql")
def _in_order_on_postgresql(element: _InOrderOfBytes, compiler: SQLCompiler, **options: Any) -> str:
    return f'({_written(element, compiler, options, 0)[0]} COLLATE "C")'


def _written(element: FunctionElement[Any], compiler: SQLCompiler, options: dict[str, Any], *wanted: int) -> list[str]:
    """Return the text of the arguments that are wanted; a parameter that is written becomes one of the statement."""
    arguments = list(element.clauses)
    return [compiler.process(arguments[at], **options) for at in wanted]
