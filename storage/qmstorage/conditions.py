"""Conditions on the properties of messages in SQL: every literal is a parameter, none becomes text of a statement.

What LIKE does on every store: it is case-sensitive, and `_` is one character. A correlation identifier need not be
text. Patterns without a wildcard, and with a single `%` at the end, compare its bytes, whatever they are; other
patterns read it as UTF-8 and match none that has a NUL byte. Bytes that are not UTF-8 match nothing on PostgreSQL, and
on SQLite whatever it decodes them to; neither fails. SQLite does not distinguish the characters U+FFFD, U+FFFE and
U+FFFF in a pattern. Of a text or a header with a NUL it reads the part before that.

Values in JSON bodies mean the same on every store, and to the engine: the databases' own functions for JSON differ in
what they make of an escaped NUL, of members of the same name, of long numbers, and of what is no JSON. SQLite calls a
function of ours for each message, which tests its body as the engine does (`sqlite/body_tests.py`); PostgreSQL has a
function that reads one value out of a body by the same rules (`qm_body` in `postgres/functions.sql`). What asks for a
body stands last among parts that are connected by AND, so that no body is read that need not be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from qmcore import condition as tree
from qmcore import json_values, numbers
from qmcore.condition import (
    COMPARED,
    BodyPath,
    Condition,
    Header,
    Operator,
    Subject,
    Truth,
    Value,
    asks_body,
    reads_body,
    wildcards,
)
from qmcore.message_attributes import ValueKind
from qmcore.space import Space
from qmstorage.schema import chunk, message
from qmstorage.sql import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    LargeBinary,
    Numeric,
    Text,
    and_,
    case,
    elements,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    tuple_,
)

if TYPE_CHECKING:
    from sqlalchemy.types import TypeEngine

# Not the columns' own types: a column can be compared with a number that is too large for it.
_TYPES: Final[dict[ValueKind, TypeEngine[Any]]] = {
    ValueKind.WHOLE: BigInteger(),
    ValueKind.TIME: BigInteger(),
    ValueKind.TEXT: Text(),
    ValueKind.BYTES: LargeBinary(),
    ValueKind.MSGID: BigInteger(),
}
_FIELDS: Final = {type(None): "BodyFound", str: "BodyText", Decimal: "BodyNumber", Truth: "BodyTruth"}
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


_BODY_APART: Final = (
    select(chunk.c.content)
    .where(chunk.c.body_id == message.c.body_id, chunk.c.number == literal_column("0"))
    .correlate(message)
    .scalar_subquery()
)
"""A body that a transaction has spilled stays apart, however small; one that is read is a single chunk."""

_CONTENT: Final = case(
    (
        and_(message.c.type == json_values.TYPE, message.c.size <= json_values.READ_MAX),
        func.coalesce(message.c.body, _BODY_APART),
    )
)
"""The body of a message that may have values for a condition, else NULL; it is read where it is looked at."""


class _Writer:
    """Writes conditions, with these columns in place of those of `message`."""

    def __init__(self, columns: dict[str, ColumnElement[Any]], space: Space) -> None:
        self._columns = columns
        self._space = space

    def expression(self, condition: Condition) -> ColumnElement[bool]:
        if asks_body(condition):
            return elements.BodyHolds(_CONTENT, literal(str(condition)), self._parts(condition, self._in_body))
        return self._parts(condition, self.expression)

    def _in_body(self, condition: Condition) -> ColumnElement[bool]:
        return self._parts(condition, self._in_body)

    def _parts(self, condition: Condition, written: Callable[[Condition], ColumnElement[bool]]) -> ColumnElement[bool]:
        match condition:
            case tree.And(parts):
                return and_(*map(written, _bodies_last(parts)))
            case tree.Or(parts):
                return or_(*map(written, parts))
            case tree.Not(part):
                return not_(written(part))
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
        column = self._column(of, value)
        if isinstance(value, str) and how not in tree.EQUALITY:
            column = elements.InOrderOfBytes(column)
        compared: ColumnElement[bool] = COMPARED[how](column, self._literal(of, value))
        return compared

    def _like(self, of: Subject, pattern: str) -> ColumnElement[bool]:
        column = self._column(of, pattern)
        if of.kind is not ValueKind.BYTES:
            return elements.Like(column, literal(_glob(pattern)), literal(pattern))
        if _is_prefix(pattern):
            low, high = prefix_range(pattern)
            return column >= literal(low) if high is None else and_(column >= literal(low), column < literal(high))
        return elements.BytesLike(column, literal(_glob(pattern)), literal(pattern))

    def _column(self, of: Subject, value: Value | None = None) -> ColumnElement[Any]:
        """Return what a property is in SQL; a value in a body only if it is of the type of what it is compared with."""
        if isinstance(of, BodyPath):
            steps = literal([f"[{step}" if isinstance(step, int) else f".{step}" for step in of.steps], ARRAY(Text()))
            field: ColumnElement[Any] = getattr(elements, _FIELDS[value.__class__])(_CONTENT, steps)
            return field
        if isinstance(of, Header):
            return elements.HeaderText(message.c.headers, literal(_path(of.name)), literal(of.name))
        return self._columns[of.name] if of.name in self._columns else message.c[of.name]

    def _is_one_of(self, of: Subject, values: Sequence[Value]) -> ColumnElement[bool]:
        column = self._column(of, values[0])
        if of.kind is ValueKind.MSGID:
            values = [number for msgid in values for number in _message_numbers(msgid, self._space)]
        if len(values) == 1:
            return column == self._literal(of, values[0])
        # Not in_(), whose parameters are only known when a statement runs.
        return column.op("IN", is_comparison=True)(tuple_(*(self._literal(of, value) for value in values)))

    def _literal(self, of: Subject, value: Value) -> ColumnElement[Any]:
        if isinstance(value, Truth):
            return literal(value is Truth.TRUE, Boolean())
        return literal(value, Numeric() if isinstance(value, Decimal) else _TYPES.get(of.kind, Text()))


def _bodies_last(parts: Sequence[Condition]) -> Sequence[Condition]:
    """Return the parts of a conjunction, those that read bodies last, and what only asks for bodies as one."""
    of_bodies = [part for part in parts if asks_body(part)]
    others = sorted((part for part in parts if not asks_body(part)), key=reads_body)
    as_one = tree.all_of(of_bodies)
    return [*others, as_one] if as_one is not None and others else parts


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
