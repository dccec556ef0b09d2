"""What messages a consumer wants of a queue for several, by a rule and by topics, and who of many wants one.

A rule is a condition, and a message is for a consumer whose rule is true of it as it takes its place. Who wants a
message is found without asking those who do not: by the words of its topic (`qmcore.topics`), and by the values that
rules compare with. What neither finds is asked one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from qmcore import topics
from qmcore.condition import And, Comparison, Condition, Header, Not, OneOf, Operator, Or, Subject, all_of
from qmcore.condition_parser import parse
from qmcore.condition_truth import Facts, Test, compiled
from qmcore.errors import InvalidArgumentError
from qmcore.names import TOPIC_HEADER

NOT_YET: Final = ("msgid", "enqueued_at", "available_at", "expires_at", "moved_at")
"""Properties that a store gives a message with its place, which is after its consumers are known."""

_TOPIC: Final = Header(TOPIC_HEADER)
_Key: TypeAlias = "tuple[Subject, tuple[Any, ...]]"
"""A property, and the values of which it has to have one."""


def checked_rule(text: str | None) -> str:
    """Return a rule as it is kept, empty for none.

    InvalidArgumentError for what is no condition, and for one that asks what is not known when a message arrives.
    """
    if text is None:
        return ""
    condition = parse(text)
    for subject in _subjects(condition):
        if str(subject) in NOT_YET:
            raise InvalidArgumentError(
                f"a rule cannot ask for {subject}, which a message gets with its place",
                hint=f"Leave it out; nor can a rule ask for {', '.join(NOT_YET[:-1])} and {NOT_YET[-1]}.",
                property=str(subject),
            )
    return str(condition)


class Interest:
    """What messages a consumer wants: the rule, if any, is true, and the topic fits a pattern, if any.

    `keys` are the properties that have to have one of some values for the rule to be true.
    """

    __slots__ = ("_parts", "_tests", "keys", "topics")

    def __init__(self, rule: str, patterns: tuple[str, ...]) -> None:
        self.topics = patterns
        self._parts: tuple[Condition, ...] = tuple(_conjuncts(parse(rule))) if rule else ()
        found = [(_key(part), at) for at, part in enumerate(self._parts)]
        self.keys = [(key, at) for key, at in found if key is not None]
        self._tests: dict[int | None, Test | None] = {}

    def test(self, known: int | None = None) -> Test | None:
        """Return the test of all parts of the rule but the one that is `known` to be true; None where that is all."""
        if known not in self._tests:
            condition = all_of([part for at, part in enumerate(self._parts) if at != known])
            self._tests[known] = None if condition is None else compiled(condition)
        return self._tests[known]


class Index:
    """Who wants a message, of many consumers, each by its number with what it wants; None is every message."""

    __slots__ = ("_by_topic", "_of_any")

    def __init__(self, interests: Iterable[tuple[int, Interest | None]]) -> None:
        of_any: list[tuple[int, Interest | None]] = []
        by_pattern: dict[str, list[tuple[int, Interest | None]]] = {}
        for number, its in interests:
            if its is None or not its.topics:
                of_any.append((number, its))
            else:
                for pattern in its.topics:
                    by_pattern.setdefault(pattern, []).append((number, its))
        self._of_any = _ByValue(of_any)
        self._by_topic: topics.Trie[_ByValue] | None = topics.Trie() if by_pattern else None
        if self._by_topic is not None:
            for pattern, some in by_pattern.items():
                self._by_topic.add(pattern, _ByValue(some))

    def wanted_by(self, facts: Facts, headers: Mapping[str, str]) -> tuple[int, ...]:
        """Return the numbers of the consumers that want a message, in their order."""
        found = set[int]()
        self._of_any.find(facts, headers, found)
        topic = None if self._by_topic is None else facts(_TOPIC)
        if self._by_topic is not None and topic is not None:
            for some in self._by_topic.found(topic):
                some.find(facts, headers, found)
        return tuple(sorted(found))


class _Candidate(NamedTuple):
    """A consumer, and what is left to be true of a message; None where nothing is."""

    number: int
    test: Test | None


class _ByValue:
    """Consumers by a value that each compares a property with, where its rule says so in an AND at its top."""

    __slots__ = ("_by_header", "_by_property", "_others")

    def __init__(self, interests: Iterable[tuple[int, Interest | None]]) -> None:
        some = list(interests)
        shared = _shared(its for _, its in some if its is not None) if len(some) > 1 else Counter()
        self._others: list[_Candidate] = []
        self._by_property: dict[Subject, dict[Any, list[_Candidate]]] = {}
        self._by_header: dict[str, dict[Any, list[_Candidate]]] = {}
        for number, its in some:
            if its is None or not its.keys:
                self._others.append(_Candidate(number, None if its is None else its.test()))
                continue
            # What the fewest have in common leads to the fewest that are asked in vain.
            (of, values), at = min(its.keys, key=lambda key: sum(shared[key[0][0], value] for value in key[0][1]))
            if isinstance(of, Header):
                by_value = self._by_header.setdefault(of.name, {})
            else:
                by_value = self._by_property.setdefault(of, {})
            candidate = _Candidate(number, its.test(at))
            for value in values:
                by_value.setdefault(value, []).append(candidate)

    def find(self, facts: Facts, headers: Mapping[str, str], found: set[int]) -> None:
        """Add the numbers of those that want a message."""
        if self._others:
            _ask(self._others, facts, found)
        if self._by_header:
            # Whichever are fewer: a message may have many, and so may all rules together.
            for name in headers if len(headers) < len(self._by_header) else self._by_header:
                if name in self._by_header and name in headers:
                    _ask(self._by_header[name].get(headers[name], ()), facts, found)
        for of, by_value in self._by_property.items():
            _ask(by_value.get(facts(of), ()), facts, found)


def _shared(interests: Iterable[Interest]) -> Counter[tuple[Subject, Any]]:
    """Return how many rules compare a property with a value."""
    return Counter((of, value) for its in interests for (of, values), _ in its.keys for value in values)


def _ask(candidates: Iterable[_Candidate], facts: Facts, found: set[int]) -> None:
    for number, test in candidates:
        if number not in found and (test is None or test(facts)):
            found.add(number)


def _conjuncts(condition: Condition) -> Iterator[Condition]:
    """Yield the parts that all have to be true for a condition to be true."""
    if isinstance(condition, And):
        for part in condition.parts:
            yield from _conjuncts(part)
    else:
        yield condition


def _key(condition: Condition) -> _Key | None:
    """Return the property that has to have one of some values for a condition to be true, where it says just that."""
    match condition:
        case Comparison(of, Operator.EQUAL, value):
            return of, (value,)
        case OneOf(of, values):
            return of, tuple(dict.fromkeys(values))
        case _:
            return None


def _subjects(condition: Condition) -> Iterator[Subject]:
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _subjects(part)
        case Not(part):
            yield from _subjects(part)
        case _:
            yield condition.property
