"""Patterns of topics: which topics they fit, and that a trie of many finds what each by itself fits."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qmcore.errors import InvalidArgumentError
from qmcore.topics import PATTERNS_MAX, Trie, checked

WORDS = st.sampled_from(["a", "b", "ab", ""])
TOPICS = st.lists(WORDS | st.sampled_from(["*", "#"]), min_size=1, max_size=6).map(".".join)
PATTERNS = st.lists(WORDS | st.sampled_from(["*", "#", "#"]), min_size=1, max_size=6).map(".".join).filter(bool)


def fits(pattern: list[str], topic: list[str]) -> bool:
    """Return whether a pattern fits a topic, both as words, by the definition alone."""
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return any(fits(pattern[1:], topic[at:]) for at in range(len(topic) + 1))
    return bool(topic) and (pattern[0] == "*" or pattern[0] == topic[0]) and fits(pattern[1:], topic[1:])


def found(patterns: list[str], topic: str) -> list[int]:
    trie = Trie[int]()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    return sorted(trie.found(topic))


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("order.created", ["order.created"], ["order", "order.created.eu", "Order.created", ""]),
        ("order.*", ["order.created", "order."], ["order", "order.created.eu"]),
        ("*.created", ["order.created", ".created"], ["created", "order.eu.created"]),
        ("order.#", ["order", "order.a", "order.a.b", "order."], ["orders", "an.order"]),
        ("#.created", ["created", "a.created", "a.b.created"], ["created.a"]),
        ("order.#.created", ["order.created", "order.a.b.created"], ["order", "created"]),
        ("#", ["", "a", "a.b", "#", "*"], []),
        ("*", ["", "a", "*", "#"], ["a.b"]),
        ("*.#", ["", "a", "a.b"], []),
        ("#.a.#.b.#", ["a.b", "x.a.x.b.x", "a.a.b.b"], ["b.a", "a", "b"]),
    ],
)
def test_a_word_is_itself_a_star_is_one_and_a_hash_is_any_number(pattern, fitting, others):
    assert [topic for topic in (*fitting, *others) if found([pattern], topic)] == fitting


@given(patterns=st.lists(PATTERNS, max_size=12), topic=TOPICS)
@example(patterns=["#.#", "#.*.#", "#.#.a"], topic="a")
def test_many_together_find_what_each_by_itself_fits(patterns, topic):
    expected = [at for at, each in enumerate(patterns) if fits(each.split("."), topic.split("."))]
    assert found(patterns, topic) == expected


def test_no_pattern_takes_a_time_that_grows_with_its_wildcards():
    pattern, topic = ".".join(["#", "a"] * 60), ".".join(["a"] * 120)
    assert found([pattern, f"{pattern}.b"], topic) == [0]


@pytest.mark.parametrize(
    ("patterns", "sentence"),
    [
        ("order.#", "topics are several patterns, got the text 'order.#'"),
        ([""], "the topic pattern '' has 0 bytes, and needs 1 to 255"),
        (["é" * 128], "has 256 bytes, and needs 1 to 255"),
        (["order.a*"], "the topic pattern 'order.a*' has 'a*' between dots"),
        (["order.##"], "the topic pattern 'order.##' has '##' between dots"),
        ([5], "the topic pattern must be"),
        (5, "topics are several patterns, got 5"),
        (["a", "b,c"], "the topic pattern 'b,c' has a comma, which separates patterns"),
        (["\ud800"], "topic pattern"),
        ([f"a.{number}" for number in range(PATTERNS_MAX + 1)], "101 topic patterns are given, the limit is 100"),
    ],
)
def test_what_is_no_pattern_is_refused(patterns, sentence):
    with pytest.raises(InvalidArgumentError) as refused:
        checked(patterns)
    assert sentence in refused.value.message


def test_patterns_are_kept_once_each_in_one_order():
    assert checked(["b.#", "a", "b.#"]) == checked(iter(["a", "b.#"])) == ("a", "b.#")
