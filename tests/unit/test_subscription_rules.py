"""Rules and topics of many consumers: together they find what each by itself says, and do not ask those who do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmcore.condition import BY_NAME, BodyPath, Header, Subject
from qmcore.condition_parser import TEXT_MAX, parse
from qmcore.condition_truth import compiled
from qmcore.errors import InvalidArgumentError
from qmcore.json_values import BodyValues
from qmcore.subscription_rules import NOT_YET, Index, Interest, checked_rule
from qmcore.topics import Trie
from tests import fix_condition

SMALL = st.sampled_from(["a", "b", "c"])
TESTS = st.one_of(
    st.builds("header.{} = '{}'".format, SMALL, SMALL),
    st.builds("header.{} IN ('{}','{}')".format, SMALL, SMALL, SMALL),
    st.builds("topic = '{}.{}'".format, SMALL, SMALL),
    st.builds("topic LIKE '{}.%'".format, SMALL),
    st.builds("priority = {}".format, st.integers(1, 3)),
    st.builds("priority > {}".format, st.integers(1, 3)),
    st.builds("body.{} = '{}'".format, SMALL, SMALL),
    st.builds("body.{} = {}".format, SMALL, st.sampled_from(["1", "1.0", "2", "TRUE", "FALSE"])),
    st.builds("body.{} IN ({},2)".format, SMALL, st.sampled_from(["1", "1.0"])),
    st.builds("subtype IS NULL".format),
    st.just("origin_queue <> 'x'"),
)
RULES = st.recursive(
    TESTS,
    lambda parts: st.one_of(
        st.builds("({} AND {})".format, parts, parts),
        st.builds("({} OR {})".format, parts, parts),
        st.builds("NOT ({})".format, parts),
    ),
    max_leaves=5,
)
ANY_RULES = RULES | fix_condition.conditions.map(str).filter(lambda text: len(text) <= TEXT_MAX)
TOPICS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=3).map(".".join)
CONSUMERS = st.lists(st.tuples(st.just("") | ANY_RULES, st.lists(TOPICS, max_size=2).map(tuple)), max_size=12)
VALUES = st.sampled_from(['"a"', '"b"', "1", "1.0", "1e0", "2", "true", "false", "null", "[1]"])
BODIES = st.none() | st.dictionaries(SMALL, VALUES, max_size=3).map(
    lambda its: ("{" + ",".join(f'"{name}":{value}' for name, value in its.items()) + "}").encode()
)
MESSAGES = st.fixed_dictionaries(
    {
        "priority": st.integers(1, 3),
        "headers": st.dictionaries(SMALL, SMALL, max_size=3),
        "topic": st.none() | st.lists(SMALL, min_size=1, max_size=3).map(".".join),
        "body": BODIES,
        "subtype": st.none() | SMALL,
    }
)


class Asked:
    """The facts of a message, and how often anybody has asked for one."""

    def __init__(self, *, headers: dict[str, str], topic: str | None = None, body: bytes | None = None, **values: Any):
        self.count = 0
        self.headers = headers if topic is None else {**headers, "topic": topic}
        self._values = values
        self._body = BodyValues(body)

    def __call__(self, subject: Subject) -> Any:
        self.count += 1
        if isinstance(subject, Header):
            return self.headers.get(subject.name)
        if isinstance(subject, BodyPath):
            return self._body.at(subject.steps)
        return self._values.get(subject.name)


def wants(rule: str, topics: tuple[str, ...], message: Asked) -> bool:
    """Return whether one consumer wants a message, by its own rule and topics alone."""
    if rule and compiled(parse(rule))(message) is not True:
        return False
    return not topics or ("topic" in message.headers and any(_fits(each, message.headers["topic"]) for each in topics))


def _fits(pattern: str, topic: str) -> bool:
    trie = Trie[bool]()
    trie.add(pattern, True)
    return any(trie.found(topic))


def index_of(consumers: list[tuple[str, tuple[str, ...]]]) -> Index:
    return Index((at, Interest(*each) if any(each) else None) for at, each in enumerate(consumers))


@given(consumers=CONSUMERS, values=MESSAGES)
def test_all_together_find_what_each_by_itself_says(consumers, values):
    message = Asked(**values)
    expected = tuple(at for at, each in enumerate(consumers) if wants(*each, message))
    assert index_of(consumers).wanted_by(message, message.headers) == expected


@pytest.mark.parametrize(
    ("of_others", "of_some"),
    [
        ("header.region = 'r{}'", "header.region = 'eu'"),
        ("header.region = 'r{}' AND priority > 10", "header.region = 'eu' AND priority > 10"),
        # What all have in common is no way to the few.
        ("priority = 50 AND header.region = 'r{}'", "priority = 50 AND header.region = 'eu'"),
        ("header.region IN ('r{0}','s{0}')", "header.region IN ('r','eu')"),
        ("header.h{} = 'eu'", "header.region = 'eu'"),
        ("body.customer.id = {}", "body.customer.id = -7"),
        ("body.paid = TRUE AND (body.id = {} AND body.x IS NULL)", "body.paid = TRUE AND body.id = -7"),
    ],
)
def test_what_does_not_want_a_message_is_not_asked(of_others, of_some):
    def asked(others: int) -> int:
        rules = [of_others.format(number) for number in range(others)] + [of_some] * 3
        message = Asked(
            headers={"region": "eu"}, body=b'{"customer":{"id":-7},"paid":true,"id":-7}', priority=50, topic="a.b"
        )
        found = index_of([(checked_rule(rule), ()) for rule in rules]).wanted_by(message, message.headers)
        assert found == tuple(range(others, others + 3))
        return message.count

    assert asked(1_000) == asked(2) <= asked(0) + 1


def test_what_has_other_topics_is_not_asked_nor_what_has_other_values_among_the_same():
    def asked(others: int) -> int:
        consumers = [("priority > 10", (f"order.{number}.#", f"*.{number}")) for number in range(others)]
        consumers += [(f"header.region = 'r{number}'", ("order.#",)) for number in range(others)]
        consumers += [("", ("order.#",)), ("header.region = 'eu'", ("order.#", "#")), ("priority > 60", ("*.eu",))]
        message = Asked(headers={"region": "eu"}, topic="order.eu", priority=50)
        found = index_of(consumers).wanted_by(message, message.headers)
        assert found == (2 * others, 2 * others + 1)
        return message.count

    assert asked(1_000) == asked(1)


def test_a_rule_is_kept_as_it_reads_again():
    assert checked_rule(None) == ""
    kept = checked_rule("header.region='eu'   and(priority>20)")
    assert kept == "header.region = 'eu' AND priority > 20"
    assert checked_rule(kept) == kept


@pytest.mark.parametrize("name", NOT_YET)
def test_what_a_message_gets_with_its_place_cannot_be_asked_for(name):
    literal = f"'{'0' * 32}'" if name == "msgid" else "5"
    with pytest.raises(InvalidArgumentError, match=f"a rule cannot ask for {name}, which a message gets") as refused:
        checked_rule(f"priority > 5 AND NOT (urcode = 1 OR {name} = {literal})")
    assert refused.value.facts["property"] == name
    assert name in BY_NAME


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("", "column 1 of the condition: expected a property, got the end"),
        ("priority >", "column 11 of the condition"),
        ("consumer = 'x'", "column 1 of the condition"),
        ("priority > 1 --", "column 14 of the condition"),
        (
            "(" * 21 + "urcode = 1" + ")" * 21,
            "column 21 of the condition: parentheses and NOT are nested more than 20 deep",
        ),
        ("urcode = 1 OR " * 400 + "urcode = 1", "the limit is 4000"),
        ("__import__('os')", "of the condition"),
        (5, "the condition must be a str"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_with_its_place(rule, sentence):
    with pytest.raises(InvalidArgumentError) as refused:
        checked_rule(rule)
    assert sentence in refused.value.message
