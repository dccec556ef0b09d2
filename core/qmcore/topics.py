"""Patterns of topics: words between dots, of which `*` is any one, and `#` any number of them, or none.

A topic is words between dots, too; a word may be empty. `order.*.created` is the pattern of `order.eu.created`, and
`order.#` that of `order` and of all that begins with `order.`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from qmcore import names
from qmcore.errors import InvalidArgumentError

PATTERNS_MAX: Final = 100
"""Patterns that a subscription may name."""

ONE: Final = "*"
ANY: Final = "#"

T = TypeVar("T")


def checked(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return patterns in their order as text, each once; InvalidArgumentError names one that is none."""
    if isinstance(patterns, str):
        raise InvalidArgumentError(
            f"topics are several patterns, got the text {names.shown(patterns)}", hint="Give a list of them."
        )
    if not isinstance(patterns, Iterable):
        raise InvalidArgumentError(f"topics are several patterns, got {patterns!r}", hint="Give a list of them.")
    found = tuple(sorted(set(map(_checked, patterns))))
    if len(found) > PATTERNS_MAX:
        raise InvalidArgumentError(f"{len(found)} topic patterns are given, the limit is {PATTERNS_MAX}")
    return found


def _checked(pattern: str) -> str:
    size = len(names.encoded(names.plain(pattern, "topic pattern"), "topic pattern"))
    if not 1 <= size <= names.TOPIC_MAX:
        raise InvalidArgumentError(
            f"the topic pattern {names.shown(pattern)} has {size} bytes, and needs 1 to {names.TOPIC_MAX}"
        )
    if "," in pattern:
        raise InvalidArgumentError(
            f"the topic pattern {names.shown(pattern)} has a comma, which separates patterns",
            hint=f"Give several patterns, or {ONE} in place of a word that has a comma.",
        )
    for word in pattern.split("."):
        if len(word) > 1 and (ONE in word or ANY in word):
            raise InvalidArgumentError(
                f"the topic pattern {names.shown(pattern)} has {names.shown(word)} between dots",
                hint=f"{ONE} stands for a whole word, and {ANY} for any number of words.",
            )
    return pattern


class Trie(Generic[T]):
    """Values by the patterns of topics that lead to them, found without looking at patterns that do not fit.

    The words of a topic are followed one after the other, so that neither many `#` in a pattern nor many patterns that
    begin with other words take longer.
    """

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        """Add a value for a pattern."""
        node = self._root
        for word in pattern.split("."):
            # Two in a row are what one is.
            if not (word == ANY and node.is_any):
                node = node.next(word)
        node.values.append(value)

    def found(self, topic: str) -> Iterator[T]:
        """Yield the values of the patterns that fit a topic."""
        # Dictionaries, and no sets: the order is always the same.
        at = _reached([self._root])
        for word in topic.split("."):
            at = _reached(following for node in at for following in node.after(word))
        for node in at:
            yield from node.values


class _Node(Generic[T]):
    """A place in patterns: what may follow, and the values of those that end there."""

    __slots__ = ("is_any", "values", "words")

    def __init__(self, *, is_any: bool = False) -> None:
        self.is_any = is_any
        self.words: dict[str, _Node[T]] = {}
        self.values: list[T] = []

    def next(self, word: str) -> _Node[T]:
        """Return the place behind a word of a pattern."""
        return self.words.setdefault(word, _Node(is_any=word == ANY))

    def after(self, word: str) -> Iterator[_Node[T]]:
        """Yield the places that a word of a topic leads to from here."""
        if self.is_any:
            yield self
        # No word of a pattern means itself where it is one of these two.
        for each in (ONE,) if word in (ONE, ANY) else (word, ONE):
            if (found := self.words.get(each)) is not None:
                yield found


def _reached(nodes: Iterable[_Node[T]]) -> dict[_Node[T], None]:
    """Return places, each once, with those that are reached without any further word."""
    found: dict[_Node[T], None] = {}
    for node in nodes:
        found[node] = None
        if (without_words := node.words.get(ANY)) is not None:
            found[without_words] = None
    return found
