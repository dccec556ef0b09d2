"""Generated conditions and messages, and what a condition is of a message, worked out without SQL."""

from __future__ import annotations

import operator
import re
from typing import Any

from hypothesis import strategies as st

from qmcore.condition import (
    EQUALITY,
    PROPERTIES,
    And,
    Between,
    Comparison,
    Condition,
    Header,
    IsNull,
    Like,
    Not,
    OneOf,
    Operator,
    Or,
    Subject,
    ValueKind,
)

INCARNATION = "0123456789abcdef"
STRANGER = "fedcba9876543210"

HEADERS = [
    "region",
    "Region",
    "a.b",
    "x-1",
    "a b",
    "it's",
    "a[0]",
    "$",
    "\\",
    "a\\u00e9",
    "é",
    "日本",
    "😀",
    "\n",
    "'",
    "*",
]
TEXTS = ["", "a", "A", "ab", "aB", "a%b", "a_b", "a*b", "a?b", "[a]", "a[b", "]", "it's", '"', "\\", "a\\b", "é", "É"]
TEXTS += ["e\u0301", "日本", "😀", "\U0010ffff", "\uff5e", "\n", "\x1b[31m", "a" * 32]
NUMBERS = [0, 1, -1, 2, 3, 50, 100, 32767, 32768, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
MOMENTS = [0, 1, -1, 1_795_262_400_000_000, 1_795_262_400_000_001, -62_135_596_800_000_000, 253_402_300_799_000_000]
SEQUENCES = [0, 1, 2, 2**48 - 1]

# SQLite takes these for the same in a pattern, as `qmstorage.conditions` says.
NO_CHARACTERS = "\0\ufffd\ufffe\uffff"
characters = st.characters(blacklist_categories=("Cs",), blacklist_characters=NO_CHARACTERS)
texts = st.sampled_from(TEXTS) | st.text(characters, max_size=4)
whole_numbers = st.sampled_from(NUMBERS) | st.integers(-(2**63), 2**63 - 1)
moments = st.sampled_from(MOMENTS)
msgids = st.builds(
    lambda incarnation, sequence: f"{incarnation}{sequence:016x}",
    st.sampled_from([INCARNATION, INCARNATION, STRANGER]),
    st.sampled_from(SEQUENCES),
)
LITERALS: dict[ValueKind, st.SearchStrategy[Any]] = {
    ValueKind.WHOLE: whole_numbers,
    ValueKind.TIME: moments,
    ValueKind.TEXT: texts,
    ValueKind.BYTES: texts.map(str.encode),
    ValueKind.MSGID: msgids,
}
header_names = st.sampled_from(HEADERS) | st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters='"\0'), min_size=1, max_size=3
)
subjects = st.sampled_from(PROPERTIES) | header_names.map(Header)
patterns = st.lists(
    st.sampled_from(["%", "%", "_", "\\%", "\\_", "\\\\", "\\a", "a", "A", "b", "é", "*", "?", "[", "]", "'", "😀"])
    | texts.map(lambda text: text.replace("\\", "\\\\")),
    max_size=4,
).map("".join)


def comparisons(subject: Subject) -> st.SearchStrategy[Condition]:
    """Return conditions about one property."""
    literals = LITERALS[subject.kind]
    operators = EQUALITY if subject.kind is ValueKind.MSGID else Operator
    kinds = [
        st.builds(Comparison, st.just(subject), st.sampled_from(sorted(operators, key=str)), literals),
        st.builds(OneOf, st.just(subject), st.lists(literals, min_size=1, max_size=4).map(tuple)),
        st.just(IsNull(subject)),
    ]
    if subject.kind is not ValueKind.MSGID:
        kinds.append(st.builds(Between, st.just(subject), literals, literals))
    if subject.kind in {ValueKind.TEXT, ValueKind.BYTES}:
        kinds.append(st.builds(Like, st.just(subject), patterns))
    return st.one_of(kinds)


def _larger(parts: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, parts) | st.builds(And, several) | st.builds(Or, several)


tests_of_one = subjects.flatmap(comparisons)
conditions = st.recursive(tests_of_one, _larger, max_leaves=6)


def truth(condition: Condition, facts: dict[str, Any]) -> bool | None:
    """Return what the condition is of a message with these properties: true, false, or None where it is unknown."""
    match condition:
        case And(parts):
            found = [truth(part, facts) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [truth(part, facts) for part in parts]
            return True if True in found else None if None in found else False
        case Not(part):
            found = truth(part, facts)
            return None if found is None else not found
        case IsNull(subject):
            return _fact(subject, facts) is None
    fact = _fact(condition.property, facts)
    return None if fact is None else _truth_of(condition, fact)


def _truth_of(condition: Condition, fact: Any) -> bool:
    match condition:
        case Comparison(_, how, value):
            return COMPARE[how](_ordered(fact), _ordered(value))
        case Between(_, low, high):
            return _ordered(low) <= _ordered(fact) <= _ordered(high)
        case OneOf(_, values):
            return fact in values
        case Like(_, pattern):
            return _is_like(fact, pattern)
    raise AssertionError(condition)


COMPARE = {
    Operator.EQUAL: operator.eq,
    Operator.UNEQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.GREATER: operator.gt,
    Operator.AT_LEAST: operator.ge,
}


def _fact(subject: Subject, facts: dict[str, Any]) -> Any:
    return facts["headers"].get(subject.name) if isinstance(subject, Header) else facts[subject.name]


def _ordered(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _is_like(fact: str | bytes, pattern: str) -> bool:
    if isinstance(fact, bytes):
        if re.fullmatch(r"([^%_\\]|\\.)*%?", pattern, re.DOTALL):
            return re.fullmatch(_expression(pattern).encode(), fact, re.DOTALL) is not None
        if b"\0" in fact:
            return False
        fact = fact.decode()
    return re.fullmatch(_expression(pattern), fact, re.DOTALL) is not None


def _expression(pattern: str) -> str:
    signs = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(sign) or re.escape(sign[-1]) for sign in signs)
