"""What a condition is of a message at hand is what it is of one in a store."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qmcore.condition import BY_NAME, PROPERTIES, Condition, Header, Like, Subject
from qmcore.condition_truth import compiled
from qmcore.message_attributes import ValueKind
from tests import fix_condition

FACTS = st.fixed_dictionaries(
    {known.name: st.none() | fix_condition.LITERALS[known.kind] for known in PROPERTIES}
    | {"headers": st.dictionaries(fix_condition.header_names, fix_condition.texts, max_size=3)}
)


def facts_of(values: dict[str, Any]) -> Any:
    def fact(subject: Subject) -> Any:
        return values["headers"].get(subject.name) if isinstance(subject, Header) else values[subject.name]

    return fact


@given(condition=fix_condition.conditions, values=FACTS)
def test_a_condition_is_of_a_message_at_hand_what_the_model_says(condition: Condition, values: dict[str, Any]) -> None:
    assert compiled(condition)(facts_of(values)) is fix_condition.truth(condition, values)


@given(raw=st.binary(max_size=4))
@example(raw=b"\xff")
@example(raw=b"a\0")
def test_bytes_that_are_no_text_are_like_nothing_but_a_beginning(raw: bytes) -> None:
    facts = facts_of({"corrid": raw, "headers": {}})
    assert compiled(Like(BY_NAME["corrid"], "%"))(facts) is True
    assert BY_NAME["corrid"].kind is ValueKind.BYTES
    if b"\0" in raw or raw == b"\xff":
        assert compiled(Like(BY_NAME["corrid"], "_%_"))(facts) is False


@pytest.mark.parametrize(
    ("pattern", "fitting", "other"),
    [
        ("%a%b%", "xaxbx", "xbxax"),
        ("ab%ba", "abba", "aba"),
        ("%ab%ab%", "abab", "aab"),
        ("_%_", "ab", "a"),
        ("%_b%_d", "abcbd", "abd"),
        ("%a_%a_%c", "axayc", "axc"),
        ("%%", "", None),
    ],
)
def test_what_stands_between_two_wildcards_is_found_where_it_can_be(pattern, fitting, other):
    test = compiled(Like(Header("x"), pattern))
    assert test(lambda _: fitting) is True
    assert other is None or test(lambda _: other) is False


@pytest.mark.parametrize("pattern", ["%a" * 100 + "%c", "%a_" * 100 + "%c"])
def test_no_pattern_takes_a_time_that_grows_with_its_wildcards(pattern):
    assert compiled(Like(Header("x"), pattern))(lambda _: "ab" * 2000) is False
