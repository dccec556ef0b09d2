"""Conditions on the properties of messages: their parts, and their text.

A condition selects the messages for which it is true. As in SQL, comparing a property that a message does not have
gives neither true nor false but unknown: `subtype <> 'x'` leaves out messages without a subtype, and so does `NOT
subtype = 'x'`. `qmcore.condition_parser` reads conditions, and is the only place that creates them: values here are of
the kind of their property, within its range, and not nested too deeply.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from qmcore import times
from qmcore.message_attributes import ATTRIBUTES, ValueKind
from qmcore.names import TOPIC_HEADER
from qmcore.values import dataclass


@dataclass(frozen=True, slots=True)
class Property:
    """A property that every message may have; `meaning` is one line for help and manuals."""

    name: str
    kind: ValueKind
    meaning: str

    def __str__(self) -> str:
        return self.name


PROPERTIES: Final = tuple(
    Property(known.name, known.kind, known.in_short) for known in ATTRIBUTES.values() if known.asked
)

HEADER: Final = Property(
    "header.NAME", ValueKind.TEXT, 'a header by its name; header."any name" if the name has other characters'
)
"""How headers are listed among the properties: their names are the sender's choice."""

TOPIC: Final = Property("topic", ValueKind.TEXT, "the topic that the sender gave it, which is the header topic")
BODY: Final = Property(
    "body.PATH",
    ValueKind.JSON,
    'a value in a body of type JSON, such as body.customer.name or body.lines[0].sku; body."any name" if a name in it'
    " has other characters",
)
"""How values in bodies are listed among the properties."""

LISTED: Final = (*PROPERTIES, TOPIC, HEADER, BODY)
"""What a condition can ask for, as people see it."""

BY_NAME: Final[Mapping[str, Property]] = MappingProxyType({known.name: known for known in PROPERTIES})

PLAIN_HEADER_NAME: Final = r"[A-Za-z0-9_.\-]+"
"""Names of headers that need no quotes."""


@dataclass(frozen=True, slots=True)
class Header:
    """The property that a message has if it carries a header of this name: the header's text."""

    name: str

    @property
    def kind(self) -> ValueKind:
        """Headers are text."""
        return HEADER.kind

    def __str__(self) -> str:
        if self.name == TOPIC_HEADER:
            return TOPIC.name
        return f"header.{self.name}" if re.fullmatch(PLAIN_HEADER_NAME, self.name) else f'header."{self.name}"'


PLAIN_STEP: Final = r"[A-Za-z0-9_\-]+"
"""Names in the path to a value that need no quotes."""


@dataclass(frozen=True, slots=True)
class BodyPath:
    """The property that a message has if its body is JSON with a value here: that value.

    A step is the name of an object's member, or the index of an element of a list, from 0. `qmcore.json_values` says
    what is there.
    """

    steps: tuple[str | int, ...]

    @property
    def kind(self) -> ValueKind:
        """Whatever a value of JSON is; a literal says which of them it is compared with."""
        return BODY.kind

    def __str__(self) -> str:
        return "body" + "".join(map(_step, self.steps))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if re.fullmatch(PLAIN_STEP, step):
        return f".{step}"
    return '."' + step.replace('"', '""') + '"'


Subject: TypeAlias = Property | Header | BodyPath
"""What a condition tests."""


class Truth(enum.Enum):
    """The values true and false of JSON. Python's own are equal to 1 and 0, which are numbers of JSON."""

    FALSE = "FALSE"
    TRUE = "TRUE"


Value: TypeAlias = int | str | bytes | Decimal | Truth
"""A literal as the kind of its property requires: times are microseconds since 1970, message ids in lower case.

Those for a `BodyPath` are a str, a Decimal or a `Truth`, all of one comparison of the same type.
"""


class Operator(enum.Enum):
    """How a property is compared with a value. Text and bytes are ordered by the bytes of their UTF-8."""

    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


COMPARED: Final[Mapping[Operator, Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        Operator.EQUAL: operator.eq,
        Operator.UNEQUAL: operator.ne,
        Operator.LESS: operator.lt,
        Operator.AT_MOST: operator.le,
        Operator.GREATER: operator.gt,
        Operator.AT_LEAST: operator.ge,
    }
)
"""Functions that compare two values, or build the expression that does."""

EQUALITY: Final = frozenset((Operator.EQUAL, Operator.UNEQUAL))
"""The operators that require no order of values."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The property compares with the value by the operator."""

    property: Subject
    operator: Operator
    value: Value

    def __str__(self) -> str:
        return f"{self.property} {self.operator.value} {_literal(self.property, self.value)}"


@dataclass(frozen=True, slots=True)
class Between:
    """The property is neither below `low` nor above `high`."""

    property: Subject
    low: Value
    high: Value

    def __str__(self) -> str:
        return _between(self, "BETWEEN")


@dataclass(frozen=True, slots=True)
class OneOf:
    """The property is one of these values, of which there is at least one."""

    property: Subject
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return _one_of(self, "IN")


@dataclass(frozen=True, slots=True)
class Like:
    """The property is text of this pattern: `%` is any text, `_` one character, and a backslash escapes either.

    It is case-sensitive. `wildcards` reads a pattern.
    """

    property: Subject
    pattern: str

    def __str__(self) -> str:
        return _like(self, "LIKE")


@dataclass(frozen=True, slots=True)
class IsNull:
    """The message does not have the property."""

    property: Subject

    def __str__(self) -> str:
        return f"{self.property} IS NULL"


@dataclass(frozen=True, slots=True)
class And:
    """All parts are true; there are at least two."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " AND ".join(_grouped(part, And, Or) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """One of the parts is true; there are at least two."""

    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return " OR ".join(_grouped(part, Or) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false, which is more than not being true: it may be unknown."""

    part: Condition

    def __str__(self) -> str:
        match self.part:
            case Between():
                return _between(self.part, "NOT BETWEEN")
            case OneOf():
                return _one_of(self.part, "NOT IN")
            case Like():
                return _like(self.part, "NOT LIKE")
            case IsNull():
                return f"{self.part.property} IS NOT NULL"
            case _:
                return f"NOT {_grouped(self.part, And, Or)}"


Condition: TypeAlias = Comparison | Between | OneOf | Like | IsNull | And | Or | Not
"""It is true, false or unknown for a message. `str` of it is text that reads as the same condition."""


def compared(name: str, how: Operator, value: Value) -> Comparison:
    """Return a comparison of the property of that name."""
    return Comparison(BY_NAME[name], how, value)


def all_of(parts: Sequence[Condition]) -> Condition | None:
    """Return the conjunction of conditions, of which there may be one or none."""
    return And(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)


def available(operator: Operator, micros: int) -> Condition:
    """Return the condition that a message becomes available before or after a time.

    As for the order of a queue, a message that names no time has been available since it was enqueued.
    """
    at_once = And((IsNull(BY_NAME["available_at"]), Comparison(BY_NAME["enqueued_at"], operator, micros)))
    return Or((Comparison(BY_NAME["available_at"], operator, micros), at_once))


def asks_body(condition: Condition) -> bool:
    """Return whether all that a condition tests is in the body."""
    return _tests(condition, all)


def reads_body(condition: Condition) -> bool:
    """Return whether something that a condition tests is in the body."""
    return _tests(condition, any)


def _tests(condition: Condition, of_parts: Callable[[Iterator[bool]], bool]) -> bool:
    match condition:
        case And(parts) | Or(parts):
            return of_parts(_tests(part, of_parts) for part in parts)
        case Not(part):
            return _tests(part, of_parts)
        case _:
            return isinstance(condition.property, BodyPath)


def wildcards(pattern: str) -> Iterator[tuple[str, bool]]:
    """Yield each effective character of a LIKE pattern, and whether it is a wildcard, `%` or `_`."""
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            yield next(characters, character), False
        else:
            yield character, character in "%_"


def _grouped(part: Condition, *weaker: type[And | Or]) -> str:
    return f"({part})" if isinstance(part, weaker) else str(part)


def _between(it: Between, word: str) -> str:
    return f"{it.property} {word} {_literal(it.property, it.low)} AND {_literal(it.property, it.high)}"


def _one_of(it: OneOf, word: str) -> str:
    # No blanks: long lists bring a condition near the limit of its length.
    return f"{it.property} {word} ({','.join(_literal(it.property, value) for value in it.values)})"


def _like(it: Like, word: str) -> str:
    return f"{it.property} {word} {_quoted(it.pattern)}"


def _literal(of: Subject, value: Value) -> str:
    if isinstance(value, Truth):
        return value.value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return _quoted(value.decode())
    if isinstance(value, str):
        return _quoted(value)
    if of.kind is ValueKind.TIME:
        return _quoted(times.to_datetime(value).isoformat().replace("+00:00", "Z"))
    return str(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
