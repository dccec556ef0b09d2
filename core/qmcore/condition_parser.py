"""Reading conditions on the properties of messages from text.

    condition   = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation    = { NOT } ( "(" condition ")" | test )
    test        = property ( = | <> | != | < | <= | > | >= ) literal
                | property [NOT] BETWEEN literal AND literal
                | property [NOT] IN "(" literal { "," literal } ")"
                | property [NOT] LIKE 'pattern'
                | property IS [NOT] NULL
    property    = a name of `qmcore.condition.PROPERTIES` | topic | header.NAME | header."any name" | body step { step }
    step        = .NAME | ."any name, with "" for a quote" | [index]
    literal     = 'text, with '' for a quote' | 12 | -1 | 1700000000.5 | TRUE | FALSE

Words and the names of properties are case-insensitive; the names of headers, those in a path, and all text are
case-sensitive. A time is text of ISO 8601 with its zone, or a number of seconds since 1970 with at most six decimals. A
value of a body is compared with text, with a number of any length, or with TRUE or FALSE.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Final, NoReturn

from qmcore import condition as tree
from qmcore import times
from qmcore.condition import BodyPath, Condition, Operator, Subject, Truth, Value
from qmcore.errors import BadMessageIdError, InvalidArgumentError
from qmcore.message import checked_id
from qmcore.message_attributes import ValueKind
from qmcore.names import TOPIC_HEADER
from qmcore.values import dataclass

TEXT_MAX: Final = 4000
"""Characters of a condition, as it is given and as `str` gives it again."""

DEPTH_MAX: Final = 20
"""How many parentheses and NOTs may be open at one place.

SQLite's parser has a stack of a hundred symbols, of which a level may take three: 25 levels inside of a statement with
two selects of its own were too many (measured).
"""

LITERALS_MAX: Final = 1000

_INT64: Final = (-(2**63), 2**63 - 1)
_DIGITS_MAX: Final = 19
_DECIMALS_MAX: Final = 6
_WORDS: Final = frozenset(("AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL"))
_OPERATORS: Final = {operator.value: operator for operator in Operator} | {"!=": Operator.UNEQUAL}
_TIMES: Final = "Write a time such as '2026-11-21T12:00:00Z', or a number of seconds since 1970."
_KNOWN: Final = f"Known are {', '.join(known.name for known in tree.LISTED[:-1])} and {tree.BODY.name}."
_BY_NAME: Final[dict[str, Subject]] = {**tree.BY_NAME, tree.TOPIC.name: tree.Header(TOPIC_HEADER)}
_TRUTHS: Final = {value.value: value for value in Truth}
_A_PATH: Final = "expected a path into the body, such as body.customer.name or body.lines[0]"
_UNUSABLE: Final = re.compile("[\0\ud800-\udfff]")
_TOKEN: Final = re.compile(
    rf"""
    (?P<blank> [ \t\r\n\f\v]+ )
    | (?P<text> '(?:[^']|'')*+' )
    | (?P<number> [+-]?[0-9]+(?:\.[0-9]+)? ) (?![A-Za-z0-9_.])
    | (?i:header) \. (?: "(?P<quoted>[^"]+)" | (?P<header>{tree.PLAIN_HEADER_NAME}) )
    | (?i:body) (?P<path> (?: \. (?: "(?:[^"]|"")*+" | {tree.PLAIN_STEP} ) | \[[0-9]{{1,9}}\] )+ )
    | (?P<word> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<sign> <> | != | <= | >= | [=<>(),] )
    """,
    re.VERBOSE,
)

_STEP: Final = re.compile(rf'\."(?P<quoted>(?:[^"]|"")*+)"|\.(?P<name>{tree.PLAIN_STEP})|\[(?P<index>[0-9]+)\]')


def parse(text: str) -> Condition:
    """Read a condition. InvalidArgumentError for anything else; its fact `column` says where it is wrong.

    Columns count characters from 1. An error of the condition as a whole has none.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"the condition must be a str, got {text!r}")
    if len(text) > TEXT_MAX:
        raise InvalidArgumentError(f"the condition has {_too_many(text)}", column=TEXT_MAX + 1)
    found = _Reader(list(_tokens(text))).read()
    written = str(found)
    if len(written) > TEXT_MAX:
        # It could not be read again.
        raise InvalidArgumentError(f"written out with blanks and full times, the condition has {_too_many(written)}")
    return found


def _too_many(text: str) -> str:
    return f"{len(text)} characters, the limit is {TEXT_MAX}"


class _Form(enum.Enum):
    """What a token is.

    A word of the grammar or a name, a header's name, a path in a body, a literal, a sign, or the end of the text.
    """

    WORD = enum.auto()
    HEADER = enum.auto()
    PATH = enum.auto()
    TEXT = enum.auto()
    NUMBER = enum.auto()
    SIGN = enum.auto()
    END = enum.auto()


@dataclass(frozen=True, slots=True)
class _Token:
    """A token: words in upper case, text without its quotes. `column` counts characters from 1, `shown` is as given."""

    form: _Form
    content: str
    column: int
    shown: str


def _tokens(text: str) -> Iterator[_Token]:
    if unusable := _UNUSABLE.search(text):
        _refuse(unusable.start() + 1, f"the character {unusable[0]!a} cannot be stored in text")
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            _refuse_start(text, at)
        if match.lastgroup != "blank":
            yield _token(match)
        at = match.end()
    yield _Token(_Form.END, "", len(text) + 1, "the end")


def _token(match: re.Match[str]) -> _Token:
    column, shown = match.start() + 1, _shown(match[0])
    match match.lastgroup:
        case "text":
            return _Token(_Form.TEXT, match["text"][1:-1].replace("''", "'"), column, shown)
        case "number":
            return _Token(_Form.NUMBER, match["number"], column, shown)
        case "word":
            return _Token(_Form.WORD, match["word"].upper(), column, shown)
        case "sign":
            return _Token(_Form.SIGN, match["sign"], column, shown)
        case "path":
            return _Token(_Form.PATH, match["path"], column, shown)
        case _:
            return _Token(_Form.HEADER, match["quoted"] or match["header"], column, shown)


class _Reader:
    """Reads tokens from left to right; each method reads what it is named after."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._literals = 0

    def read(self) -> Condition:
        found = self._condition()
        if self._next.form is not _Form.END:
            self._expected("AND, OR or the end")
        return found

    def _condition(self) -> Condition:
        parts = [self._conjunction()]
        while self._has("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else tree.Or(tuple(parts))

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self._has("AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else tree.And(tuple(parts))

    def _negation(self) -> Condition:
        column = self._next.column
        if self._has("NOT"):
            self._go_deeper(column)
            found: Condition = tree.Not(self._negation())
            self._depth -= 1
            return found
        if self._has("("):
            self._go_deeper(column)
            found = self._condition()
            self._take(")", "AND, OR or )")
            self._depth -= 1
            return found
        return self._test()

    def _go_deeper(self, column: int) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            _refuse(column, f"parentheses and NOT are nested more than {DEPTH_MAX} deep")

    def _test(self) -> Condition:
        of = self._property()
        if self._has("IS"):
            inverted = self._has("NOT")
            self._take("NULL", "NULL" if inverted else "NULL or NOT NULL")
            found: Condition = tree.IsNull(of)
        elif self._next.content in _OPERATORS and self._next.form is _Form.SIGN:
            return self._comparison(of)
        else:
            inverted = self._has("NOT")
            found = self._membership(of)
        return tree.Not(found) if inverted else found

    def _property(self) -> Subject:
        token = self._next
        if token.form is _Form.HEADER:
            self._at += 1
            return tree.Header(token.content)
        if token.form is _Form.PATH:
            self._at += 1
            return BodyPath(tuple(map(_step, _STEP.finditer(token.content))))
        if token.form is not _Form.WORD or token.content in _WORDS:
            self._expected("a property", hint=_KNOWN)
        known = _BY_NAME.get(token.content.lower())
        if known is None and token.content == "BODY":
            after = token.column + len(token.shown)
            _refuse(after, _A_PATH)
        if known is None:
            _refuse(token.column, f"{token.shown} is not a property of messages", hint=_KNOWN)
        self._at += 1
        return known

    def _comparison(self, of: Subject) -> Condition:
        sign = self._next
        operator = _OPERATORS[sign.content]
        self._at += 1
        if of.kind is ValueKind.MSGID and operator not in tree.EQUALITY:
            self._refuse_unordered(of, sign)
        value = self._literal(of)
        if isinstance(value, Truth) and operator not in tree.EQUALITY:
            self._refuse_unordered(value.value.lower(), sign)
        return tree.Comparison(of, operator, value)

    def _membership(self, of: Subject) -> Condition:
        word = self._next
        if self._has("IN"):
            self._take("(", "(")
            values = [self._literal(of)]
            while self._has(","):
                values.append(self._literal(of, values[0]))
            self._take(")", ", or )")
            return tree.OneOf(of, tuple(values))
        if self._has("BETWEEN"):
            if of.kind is ValueKind.MSGID:
                self._refuse_unordered(of, word)
            low = self._literal(of)
            if isinstance(low, Truth):
                self._refuse_unordered(low.value.lower(), word)
            self._take("AND", "AND")
            return tree.Between(of, low, self._literal(of, low))
        if self._has("LIKE"):
            return tree.Like(of, self._pattern(of, word))
        return self._expected("a comparison such as =, <>, <, IN, LIKE, BETWEEN or IS NULL")

    def _literal(self, of: Subject, first: Value | None = None) -> Value:
        """Read a value for a property; one in a body has to be of the same type as the `first` of its comparison."""
        token = self._next
        is_truth = token.form is _Form.WORD and token.content in _TRUTHS and of.kind is ValueKind.JSON
        if token.form not in {_Form.TEXT, _Form.NUMBER} and not is_truth:
            self._expected(f"a value for {_shown(str(of))}", hint="Write IS NULL." if token.content == "NULL" else "")
        self._count()
        value = _TRUTHS[token.content] if is_truth else _value(of, token)
        if first is not None and value.__class__ is not first.__class__:
            _refuse(
                token.column,
                f"{token.shown} is of another type than the values before it",
                "Compare with text, with numbers, or with TRUE and FALSE, and connect the comparisons with OR.",
            )
        return value

    def _pattern(self, of: Subject, like: _Token) -> str:
        if of.kind not in {ValueKind.TEXT, ValueKind.BYTES, ValueKind.JSON}:
            _refuse(like.column, f"LIKE is for text, and {of} is {of.kind.value}")
        token = self._next
        if token.form is not _Form.TEXT:
            self._expected("a pattern in single quotes")
        if (len(token.content) - len(token.content.rstrip("\\"))) % 2:
            _refuse(token.column, "the pattern ends in a backslash with nothing after it", hint="Double it.")
        self._count()
        return token.content

    def _count(self) -> None:
        self._literals += 1
        if self._literals > LITERALS_MAX:
            _refuse(self._next.column, f"the condition has more than {LITERALS_MAX} values")
        self._at += 1

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _has(self, content: str) -> bool:
        """Take the next token if it is this word or sign; return whether it was."""
        found = self._next.form in {_Form.WORD, _Form.SIGN} and self._next.content == content
        self._at += found
        return found

    def _take(self, content: str, expected: str) -> None:
        if not self._has(content):
            self._expected(expected)

    def _expected(self, what: str, hint: str = "") -> NoReturn:
        _refuse(self._next.column, f"expected {what}, got {self._next.shown}", hint)

    def _refuse_unordered(self, of: Subject | str, token: _Token) -> NoReturn:
        _refuse(token.column, f"{of} has no order, so {token.shown} has no meaning for it", "Use =, <>, IN or IS NULL.")


def _value(of: Subject, token: _Token) -> Value:
    is_text = token.form is _Form.TEXT
    if of.kind not in {ValueKind.TIME, ValueKind.JSON} and is_text is (of.kind is ValueKind.WHOLE):
        hint = "Remove the quotes." if is_text else "Put it in single quotes."
        _refuse(token.column, f"{_shown(str(of))} is {of.kind.value}, got {token.shown}", hint)
    match of.kind:
        case ValueKind.TIME:
            return _micros_of_text(of, token) if is_text else _micros_of_seconds(of, token)
        case ValueKind.WHOLE:
            return _whole(of, token)
        case ValueKind.MSGID:
            return _msgid(token)
        case ValueKind.JSON:
            return token.content if is_text else Decimal(token.content)
        case ValueKind.BYTES:
            return token.content.encode()
        case ValueKind.TEXT:
            return token.content


def _step(found: re.Match[str]) -> str | int:
    if found["index"] is not None:
        return int(found["index"])
    return found["name"] if found["quoted"] is None else found["quoted"].replace('""', '"')


def _whole(of: Subject, token: _Token) -> int:
    if "." in token.content:
        _refuse(token.column, f"{of} is a whole number, got {token.shown}")
    number = _number(token.content)
    if number is None or not _INT64[0] <= number <= _INT64[1]:
        _refuse(token.column, f"numbers go from {_INT64[0]} to {_INT64[1]}, got {token.shown}")
    return number


def _number(text: str) -> int | None:
    """Return the number in digits with a sign; None where it is far beyond 64 bits."""
    digits = text.lstrip("+-0") or "0"
    # Python refuses to read thousands of digits.
    if len(digits) > _DIGITS_MAX:
        return None
    return -int(digits) if text.startswith("-") else int(digits)


def _micros_of_text(of: Subject, token: _Token) -> int:
    try:
        moment = datetime.fromisoformat(token.content)
    except (ValueError, OverflowError):
        _refuse(token.column, f"{of} is a time, got {token.shown}", _TIMES)
    if moment.utcoffset() is None:
        _refuse(token.column, f"the time {token.shown} has no zone", _TIMES)
    return _moment(times.from_datetime(moment), token)


def _micros_of_seconds(of: Subject, token: _Token) -> int:
    whole, _, decimals = token.content.partition(".")
    if len(decimals) > _DECIMALS_MAX:
        _refuse(token.column, f"{of} is a time of at most {_DECIMALS_MAX} decimals, got {token.shown}")
    return _moment(_number(whole + decimals.ljust(_DECIMALS_MAX, "0")), token)


def _moment(micros: int | None, token: _Token) -> int:
    try:
        return times.checked_moment(micros, "time")
    except InvalidArgumentError:
        _refuse(token.column, f"times are between the years 1 and 9999, got {token.shown}", _TIMES)


def _msgid(token: _Token) -> str:
    try:
        return checked_id(token.content)
    except BadMessageIdError:
        _refuse(token.column, f"a message identifier has 32 hexadecimal digits, got {token.shown}")


def _refuse_start(text: str, at: int) -> NoReturn:
    rest, column = text[at:], at + 1
    if rest.startswith("'"):
        _refuse(column, "the text that begins here has no closing quote", "Write a quote within text as ''.")
    if rest.startswith('"'):
        _refuse(column, "double quotes are only for the names of headers, and in paths", "Put text in single quotes.")
    if text[:at].lower().endswith("header") and rest.startswith("."):
        _refuse(column, 'expected the name of a header, such as header.region or header."any name"')
    if re.search(r"\bbody$", text[:at], re.IGNORECASE) and rest[0] in ".[":
        _refuse(column, _A_PATH)
    if number := re.match(r"[+-]?[0-9][A-Za-z0-9_.]*", rest):
        _refuse(column, f"{_shown(number[0])} is not a number", "Write a number such as 5, -1 or 1.5.")
    _refuse(column, f"the character {rest[0]!a} has no meaning here")


def _shown(text: str) -> str:
    short = text if len(text) <= 40 else text[:37] + "..."
    return short if short.isprintable() else ascii(short)


def _refuse(column: int, sentence: str, hint: str = "") -> NoReturn:
    raise InvalidArgumentError(f"column {column} of the condition: {sentence}", hint=hint, column=column)
