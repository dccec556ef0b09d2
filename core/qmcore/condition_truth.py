"""Evaluates conditions on messages without a database. `qmcore.condition` says what they mean.

A condition is compiled once, into functions that call each other, and then asked of any number of messages: what it
compares with is prepared, and its patterns are read, when it is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from qmcore.condition import (
    COMPARED,
    EQUALITY,
    And,
    Between,
    BodyPath,
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
"""Returns a message's value of a property, a header or a path in its body; None where it has none."""

Test: TypeAlias = Callable[[Facts], "bool | None"]
"""Returns whether a condition is true or false of a message, or None where that is unknown."""

_Check: TypeAlias = Callable[[Any], bool]
"""Returns whether a value that a message has is what is asked for."""


def compiled(condition: Condition) -> Test:
    """Return the function that tests a message."""
    match condition:
        case And(parts):
            return _all(tuple(map(compiled, parts)))
        case Or(parts):
            return _any(tuple(map(compiled, parts)))
        case Not(part):
            return _not(compiled(part))
        case IsNull(subject):
            return lambda facts: facts(subject) is None
        case _:
            return _of_fact(condition.property, _check(condition), _literal_of(condition))


def _all(tests: tuple[Test, ...]) -> Test:
    def holds(facts: Facts) -> bool | None:
        known: bool | None = True
        for test in tests:
            found = test(facts)
            if found is False:
                return False
            if found is None:
                known = None
        return known

    return holds


def _any(tests: tuple[Test, ...]) -> Test:
    def holds(facts: Facts) -> bool | None:
        known: bool | None = False
        for test in tests:
            found = test(facts)
            if found:
                return True
            if found is None:
                known = None
        return known

    return holds


def _not(test: Test) -> Test:
    def holds(facts: Facts) -> bool | None:
        found = test(facts)
        return None if found is None else not found

    return holds


def _of_fact(subject: Subject, check: _Check, literal: Any) -> Test:
    def holds(facts: Facts) -> bool | None:
        fact = facts(subject)
        return None if fact is None else check(fact)

    def holds_in_body(facts: Facts) -> bool | None:
        fact = facts(subject)
        # Of another type than what it is compared with, it is neither that nor something else.
        return check(fact) if fact.__class__ is of else None

    of = literal.__class__
    return holds_in_body if isinstance(subject, BodyPath) else holds


def _literal_of(condition: Comparison | Between | OneOf | Like) -> Any:
    """Return a value that the condition compares with; all are of one type."""
    match condition:
        case Comparison(_, _, value) | Between(_, value, _) | OneOf(_, (value, *_)):
            return value
        case Like(_, pattern):
            return pattern


def _check(condition: Comparison | Between | OneOf | Like) -> _Check:
    match condition:
        case Comparison(_, how, value):
            compare = COMPARED[how]
            if how in EQUALITY or not isinstance(value, str):
                return lambda fact: bool(compare(fact, value))
            key = value.encode()
            return lambda fact: bool(compare(fact.encode(), key))
        case Between(_, low, high):
            if isinstance(low, str) and isinstance(high, str):
                least, most = low.encode(), high.encode()
                return lambda fact: least <= fact.encode() <= most
            return lambda fact: bool(low <= fact <= high)
        case OneOf(_, values):
            return frozenset(values).__contains__
        case Like(_, pattern):
            return _is_like(pattern)


def _is_like(pattern: str) -> _Check:
    """Return the test whether a text, or bytes, are of a pattern."""
    signs = list(wildcards(pattern))
    of_text = _expression(signs) if ("_", True) in signs else _pieces(signs)
    # Without a wildcard but a single % at its end, it compares bytes, be they text or not.
    of_bytes = None if any(wild for _, wild in signs[:-1]) or signs[-1:] == [("_", True)] else _beginning(signs)

    def holds(fact: str | bytes) -> bool:
        if isinstance(fact, str):
            return of_text(fact)
        if of_bytes is not None:
            return of_bytes(fact)
        if b"\0" in fact:
            return False
        try:
            return of_text(fact.decode())
        except UnicodeDecodeError:
            return False

    return holds


def _beginning(signs: Sequence[tuple[str, bool]]) -> Callable[[bytes], bool]:
    """Return the test whether bytes are a text, or begin with it if a % ends the pattern."""
    whole = "".join(sign for sign, wild in signs if not wild).encode()
    if signs and signs[-1][1]:
        return lambda fact: fact.startswith(whole)
    return whole.__eq__


def _pieces(signs: Iterable[tuple[str, bool]]) -> Callable[[str], bool]:
    """Return the test whether a text is of a pattern whose only wildcards are %, without an expression to be compiled.

    What stands between two % is looked for once, at the first place where it can be.
    """
    first, *others = _split(signs)
    if not others:
        return first.__eq__
    *between, last = others
    ends = len(first) + len(last)

    def holds(fact: str) -> bool:
        if len(fact) < ends or not fact.startswith(first) or not fact.endswith(last):
            return False
        at, end = len(first), len(fact) - len(last)
        for piece in between:
            at = fact.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return True

    return holds


def _split(signs: Iterable[tuple[str, bool]]) -> list[str]:
    """Return the texts before, between and after the % of a pattern."""
    pieces = [""]
    for sign, wild in signs:
        if wild:
            pieces.append("")
        else:
            pieces[-1] += sign
    return pieces


def _expression(signs: Iterable[tuple[str, bool]]) -> Callable[[str], bool]:
    """Return the test whether a text is of any pattern; what stands between two % is looked for once here, too."""
    pieces = [""]
    for sign, wild in signs:
        if wild and sign == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if wild else re.escape(sign)
    first, *between = pieces
    last = f".*{between.pop()}" if between else ""
    # An atomic group keeps what it has found: others would take a time that grows with the power of their number.
    whole = first + "".join([f"(?>.*?{piece})" for piece in between if piece]) + last
    fullmatch = re.compile(whole, re.DOTALL).fullmatch
    return lambda fact: fullmatch(fact) is not None
