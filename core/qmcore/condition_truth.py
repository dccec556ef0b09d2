"""Evaluates conditions on messages without a database. `qmcore.condition` says what they mean."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from qmcore.condition import (
    COMPARED,
    And,
    Between,
    Comparison,
    Condition,
    IsNull,
    Like,
    Not,
    OneOf,
    Or,
    Subject,
    wildcards,
)

Facts: TypeAlias = Callable[[Subject], Any]
"""Returns a message's value of a property or a header; None where it has none."""


def truth(condition: Condition, facts: Facts) -> bool | None:
    """Return whether a condition is true or false of a message, or None where that is unknown."""
    match condition:
        case And(parts):
            return _all(parts, facts)
        case Or(parts):
            found = _all(tuple(Not(part) for part in parts), facts)
            return None if found is None else not found
        case Not(part):
            found = truth(part, facts)
            return None if found is None else not found
        case IsNull(subject):
            return facts(subject) is None
    fact = facts(condition.property)
    return None if fact is None else _of(condition, fact)


def _all(parts: tuple[Condition, ...], facts: Facts) -> bool | None:
    known: bool | None = True
    for part in parts:
        found = truth(part, facts)
        if found is False:
            return False
        known = known if found else None
    return known


def _of(condition: Comparison | Between | OneOf | Like, fact: Any) -> bool:
    match condition:
        case Comparison(_, how, value):
            return bool(COMPARED[how](_ordered(fact), _ordered(value)))
        case Between(_, low, high):
            return bool(_ordered(low) <= _ordered(fact) <= _ordered(high))
        case OneOf(_, values):
            return fact in values
        case Like(_, pattern):
            return _is_like(fact, pattern)


def _ordered(value: Any) -> Any:
    """Return the sort key of a value: for text the bytes of its UTF-8."""
    return value.encode() if isinstance(value, str) else value


def _is_like(fact: str | bytes, pattern: str) -> bool:
    if isinstance(fact, bytes):
        if _compares_bytes(pattern):
            return _expression(pattern)[1].fullmatch(fact) is not None
        if b"\0" in fact:
            return False
        try:
            fact = fact.decode()
        except UnicodeDecodeError:
            return False
    return _expression(pattern)[0].fullmatch(fact) is not None


@functools.lru_cache(maxsize=64)
def _compares_bytes(pattern: str) -> bool:
    """Return whether a pattern has no wildcard but a single `%` at its end, so that bytes can be compared."""
    signs = list(wildcards(pattern))
    return not any(wild for _, wild in signs[:-1]) and (not signs or signs[-1] == ("%", True) or not signs[-1][1])


@functools.lru_cache(maxsize=64)
def _expression(pattern: str) -> tuple[re.Pattern[str], re.Pattern[bytes]]:
    """Return a LIKE pattern as regular expressions over text and over bytes."""
    text = "".join({"%": ".*", "_": "."}[sign] if wild else re.escape(sign) for sign, wild in wildcards(pattern))
    return re.compile(text, re.DOTALL), re.compile(text.encode(), re.DOTALL)
