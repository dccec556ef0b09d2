"""Conditions in SQL select what they select by their own meaning, and no literal becomes text of a statement."""

import contextlib
import json
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.schema import CreateTable

from qmcore import numbers
from qmcore.condition import PROPERTIES, And, Comparison, Header, Like, Operator
from qmcore.condition_parser import DEPTH_MAX, LITERALS_MAX, parse
from qmcore.message import message_id
from qmcore.message_attributes import ValueKind
from qmcore.space import Space, SpaceDefinition
from qmstorage.conditions import prefix_range, where
from qmstorage.postgres import tables
from qmstorage.schema import message, ready
from qmstorage.sql import delete, exists, made, select
from qmstorage.sqlite.files import DIALECT
from qmstorage.statements import Texts
from tests.fix_condition import (
    HEADERS,
    INCARNATION,
    SEQUENCES,
    STRANGER,
    TEXTS,
    conditions,
    header_names,
    moments,
    patterns,
    texts,
    truth,
    whole_numbers,
)
from tests.fix_store import SOURCES

SPACE = Space(
    id=3,
    incarnation=INCARNATION,
    definition=SpaceDefinition(
        name="S", ipc_key=32_769, pages=100, queues=2, transactions=2, processes=2, messages=100
    ),
    initialized=True,
    created_at=0,
)

VALUES = {
    ValueKind.WHOLE: whole_numbers,
    ValueKind.TIME: moments,
    ValueKind.TEXT: texts,
    ValueKind.BYTES: texts.map(str.encode) | st.sampled_from([b"a\0b", b"\0", b"ab\0", b"a" * 33]),
}
ALWAYS = {"priority", "size", "retries", "enqueued_at", "urcode", "appkey", "type"}
"""Properties that every message has."""

facts_of_a_message = st.fixed_dictionaries(
    {
        known.name: VALUES[known.kind] if known.name in ALWAYS else st.none() | VALUES[known.kind]
        for known in PROPERTIES
        if known.kind is not ValueKind.MSGID
    }
    | {"headers": st.dictionaries(header_names, texts, max_size=4)}
)
messages = st.lists(
    st.tuples(st.sampled_from(SEQUENCES), facts_of_a_message), max_size=4, unique_by=lambda one: one[0]
).map(lambda several: [facts | {"msgid": message_id(INCARNATION, sequence)} for sequence, facts in several])

A_MESSAGE = dict.fromkeys((known.name for known in PROPERTIES), None) | {
    "msgid": message_id(INCARNATION, 1),
    "priority": 50,
    "size": 0,
    "retries": 0,
    "enqueued_at": 0,
    "urcode": 0,
    "appkey": 0,
    "type": "STRING",
    "headers": {},
}


def number_of(facts):
    return numbers.number(SPACE.id, int(facts["msgid"][16:], 16))


def insert(connection, table, **values):
    """Insert a row, in which what is not given is NULL or, where the table wants something, nothing of its type."""
    nothing = {bytes: b"", str: "", int: 0, bool: False}
    row = {
        column.name: None if column.nullable else nothing[column.type.python_type] for column in made(table).columns
    } | values
    names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    connection.execute(f"INSERT INTO {table.name} ({names}) VALUES ({places})", row)


@contextlib.contextmanager
def stored(several):
    """Give a database with the messages, as the engine writes them, in the ready state."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for table in (message, ready):
            connection.execute(str(CreateTable(made(table)).compile(dialect=DIALECT.loaded())))
        for facts in several:
            number, key = number_of(facts), str(number_of(facts)).encode()
            columns = {name: value for name, value in facts.items() if name in message.c} | {"id": number}
            columns["headers"] = json.dumps(facts["headers"], separators=(",", ":")) if facts["headers"] else None
            insert(connection, message, order_key=key, **columns)
            insert(connection, ready, order_key=key, message_id=number, retries=facts["retries"])
        yield connection


def statement_of(condition):
    return (
        select(message.c.id)
        .join(ready, ready.c.message_id == message.c.id)
        .where(where(condition, retries=ready.c.retries, space=SPACE))
    )


def selected(condition, several):
    """Return the numbers of the messages that the condition selects in a database."""
    with stored(several) as connection:
        text, constants = Texts(DIALECT).of(statement_of(condition))
        return {number for (number,) in connection.execute(text, constants)}


def expected(condition, several):
    return {number_of(facts) for facts in several if truth(condition, facts) is True}


@given(conditions, messages)
def test_a_condition_selects_the_messages_for_which_it_is_true(condition, several):
    assert selected(condition, several) == expected(condition, several)


# Messages of random properties seldom are what a random condition wants, so each kind of property is asked for alone.


def about(condition, values):
    """Return messages that differ in the property of the condition only, one for each of the values."""
    of = condition.property
    found = []
    for at, value in enumerate(values):
        asked = {"headers": {} if value is None else {of.name: value}} if isinstance(of, Header) else {of.name: value}
        found.append(A_MESSAGE | {"msgid": message_id(INCARNATION, at)} | asked)
    return found


def compared(subject, values):
    return st.builds(Comparison, st.just(subject), st.sampled_from(Operator), values)


TEXT_SUBJECTS = [*(known for known in PROPERTIES if known.name in {"type", "subtype"}), Header("region")]


@pytest.mark.parametrize("how", Operator)
@pytest.mark.parametrize("subject", TEXT_SUBJECTS, ids=str)
def test_text_is_compared_sign_by_sign(subject, how):
    for literal in TEXTS:
        condition = Comparison(subject, how, literal)
        several = about(condition, TEXTS if subject.name in ALWAYS else [None, *TEXTS])
        assert selected(condition, several) == expected(condition, several)


@pytest.mark.parametrize("name", HEADERS, ids=ascii)
def test_a_header_is_found_by_its_whole_name_and_no_other_is(name):
    others = [A_MESSAGE | {"msgid": message_id(INCARNATION, at), "headers": {}} for at in range(3)]
    others[0]["headers"] = dict.fromkeys(HEADERS, "other") | {name: "wanted"}
    others[1]["headers"] = {other: "wanted" for other in HEADERS if other != name}
    condition = Comparison(Header(name), Operator.EQUAL, "wanted")
    assert selected(condition, others) == {number_of(others[0])}


@given(st.sampled_from(TEXT_SUBJECTS), patterns, st.lists(texts, max_size=5))
@example(Header("region"), "a[b]%", ["a[b]c", "ab", "abc"])
@example(Header("region"), "a?", ["a?", "ab"])
@example(Header("region"), "a*", ["a*", "ab"])
@example(Header("region"), "A_", ["ab", "AB", "A", "A😀"])
@example(Header("region"), "%\\%\\_\\\\", ["%_\\", "a%_\\", "ab\\"])
@example(Header("region"), "_", ["é", "e\u0301", "日", "😀", ""])
@example(Header("region"), "^a-]", ["^a-]", "a"])
def test_a_pattern_selects_text_sign_by_sign(subject, pattern, values):
    condition = Like(subject, pattern)
    several = about(condition, [*values, *TEXTS])
    assert selected(condition, several) == expected(condition, several)


BYTES = [b"", b"a", b"A", b"ab", b"a\0", b"a\0b", b"\0", "é".encode(), "éa".encode(), b"a" * 32, "😀".encode(), None]
NO_TEXT = [b"\xff", b"a\xff", b"a\xc3", b"\x80", b"\xc3", b"a\xed\xa0\x80"]
CORRID = parse("corrid IS NULL").property


@given(compared(CORRID, texts.map(str.encode)))
def test_correlation_identifiers_are_compared_as_bytes(condition):
    several = about(condition, BYTES + NO_TEXT)
    assert selected(condition, several) == expected(condition, several)


@given(patterns)
@example("a%")
@example("a")
@example("")
@example("%")
@example("%a")
@example("_")
@example("a_%")
def test_a_pattern_selects_correlation_identifiers(pattern):
    condition = Like(CORRID, pattern)
    several = about(condition, BYTES)
    assert selected(condition, several) == expected(condition, several)


@pytest.mark.parametrize("pattern", ["a%", "a", "", "%", "é%", "\\%"])
def test_a_beginning_is_found_in_correlation_identifiers_that_are_no_text(pattern):
    condition = Like(CORRID, pattern)
    several = about(condition, NO_TEXT)
    assert selected(condition, several) == expected(condition, several)


@pytest.mark.parametrize("pattern", ["%a", "_%", "a_", "%%"])
def test_a_pattern_does_not_fail_at_correlation_identifiers_that_are_no_text(pattern):
    assert selected(Like(CORRID, pattern), about(Like(CORRID, pattern), [b"xa", b"ax", *NO_TEXT])) >= {
        number_of(facts)
        for facts in about(Like(CORRID, pattern), [b"xa", b"ax"])
        if truth(Like(CORRID, pattern), facts)
    }


@given(texts, st.lists(texts.map(str.encode) | st.binary(max_size=4), max_size=5))
def test_the_range_of_a_beginning_holds_just_what_begins_so(beginning, values):
    escaped = beginning.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    low, high = prefix_range(escaped + "%")
    for value in [*values, beginning.encode(), beginning.encode() + b"\xff"]:
        assert (low <= value and (high is None or value < high)) == value.startswith(beginning.encode())
    only, above = prefix_range(escaped)
    assert [value for value in [*values, beginning.encode() + b"\0"] if only <= value < above] == [
        value for value in values if value == beginning.encode()
    ]


@given(patterns, st.lists(texts, max_size=5))
@example("_a", ["xa"])
@example("a_%b", ["axb"])
def test_the_range_of_a_pattern_leaves_out_nothing_that_it_matches(pattern, values):
    low, high = prefix_range(pattern)
    for value in [*values, *TEXTS]:
        if truth(Like(CORRID, pattern), {"corrid": value.encode()}):
            assert low <= value.encode()
            assert high is None or value.encode() < high


def test_a_range_names_its_ends():
    assert prefix_range("ORDER-%") == (b"ORDER-", b"ORDER.")
    assert prefix_range("ORDER-1") == (b"ORDER-1", b"ORDER-1\0")
    assert prefix_range("a\\%_") == (b"a%", b"a&")
    assert prefix_range("%a") == (b"", None)
    assert prefix_range("") == (b"", b"\0")


def test_an_identifier_of_another_queue_space_names_no_message():
    ours, theirs = message_id(INCARNATION, 1), message_id(STRANGER, 1)
    assert selected(parse(f"msgid = '{ours}'"), [A_MESSAGE]) == {number_of(A_MESSAGE)}
    assert selected(parse(f"msgid = '{theirs}'"), [A_MESSAGE]) == set()
    assert selected(parse(f"msgid <> '{theirs}'"), [A_MESSAGE]) == {number_of(A_MESSAGE)}


def test_a_state_may_say_when_a_message_becomes_available():
    condition = parse("available_at = 7")
    with stored([A_MESSAGE]) as connection:
        expression = where(condition, retries=ready.c.retries, space=SPACE, available_at=ready.c.queue_id + 7_000_000)
        text, constants = Texts(DIALECT).of(
            select(message.c.id).join(ready, ready.c.message_id == message.c.id).where(expression)
        )
        assert connection.execute(text, constants).fetchall() == [(number_of(A_MESSAGE),)]
    assert selected(condition, [A_MESSAGE]) == set()


MARKED = """
    type = 'MARK' OR type < 'MARK' OR type LIKE '%MARK_' OR header."MARK'MARK" LIKE 'MARK' OR header.MARK >= 'MARK'
    OR corrid = 'MARK' OR corrid LIKE 'MARK%' OR corrid LIKE '%MARK' OR size IN (987654321, 98765432100)
    OR urcode BETWEEN 987654321 AND 987654321 OR enqueued_at = 987654321 OR header."987654321" IS NULL
"""


@pytest.mark.parametrize("dialect", [DIALECT, tables.DIALECT], ids=lambda dialect: dialect.name)
def test_no_literal_is_in_the_text_of_a_statement(dialect):
    text, constants = Texts(dialect).of(statement_of(parse(MARKED)))
    assert "MARK" not in text.upper()
    assert "98765" not in text
    assert "MARK" in constants.values()
    assert 98765432100 in constants.values()


@given(conditions)
def test_a_condition_compiles_for_postgresql_with_all_its_parameters(condition):
    text, constants = Texts(tables.DIALECT).of(statement_of(condition))
    # Each name that the driver looks for is there.
    assert text % dict.fromkeys(constants, "")


@pytest.mark.parametrize("dialect", [DIALECT, tables.DIALECT], ids=lambda dialect: dialect.name)
def test_what_one_store_alone_understands_is_written_for_it_alone(dialect):
    text, constants = Texts(dialect).of(statement_of(parse("header.a LIKE 'x_' AND corrid LIKE '%x_' AND type < 'x'")))
    own = {"sqlite": {"GLOB", "json_extract"}, "postgresql": {" LIKE ", "JSONB", 'COLLATE "C"', "convert_from"}}
    values = {"sqlite": {'$."a"', "x?", "*x?", "x"}, "postgresql": {"a", "x_", "%x_", "x"}}
    assert {word for words in own.values() for word in words if word in text} == own[dialect.name]
    assert set(constants.values()) == values[dialect.name]


def test_the_engine_statements_of_two_conditions_are_told_apart():
    """SQLAlchemy keeps the text of statements that look alike: their literals must not be part of the look."""
    one, other = (made(statement_of(parse(f"header.{name} LIKE '{name}%'")))._generate_cache_key() for name in "ab")
    assert one.key == other.key
    assert [bind.value for bind in one.bindparams] != [bind.value for bind in other.bindparams]


LEAVES = ["corrid NOT LIKE '%a'", "header.x IN ('a','b')", "NOT header.x BETWEEN 'a' AND 'b'", "header.x LIKE '_'"]
NESTS = {
    "groups at the end": lambda at, core: f"size = 1 {'AND' if at % 2 else 'OR'} ({core})",
    "groups at the start": lambda at, core: f"({core}) {'AND' if at % 2 else 'OR'} size = 1",
    "NOT before each": lambda at, core: f"size = 1 AND {'NOT ' if at % 2 else '('}{core}{'' if at % 2 else ')'}",
    "parentheses alone": lambda at, core: f"({core})",
    "NOT alone": lambda at, core: f"NOT {core}",
}


@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("nest", NESTS)
def test_the_deepest_conditions_run_inside_of_a_statement_with_selects_of_its_own(nest, leaf):
    text = leaf
    for at in range(DEPTH_MAX - leaf.startswith("NOT")):
        text = NESTS[nest](at, text)
    condition = parse(text)
    one_of_them = exists().where(
        ready.c.message_id == message.c.id, where(condition, retries=ready.c.retries, space=SPACE)
    )
    key = select(message.c.order_key).where(one_of_them).order_by(message.c.order_key).limit(1).scalar_subquery()
    with stored([A_MESSAGE]) as connection:
        text, constants = Texts(DIALECT).of(delete(ready).where(ready.c.order_key == key))
        removed = connection.execute(text, constants).rowcount
    assert removed == len(expected(condition, [A_MESSAGE]))


@pytest.mark.parametrize(
    "text",
    [
        f"size IN ({','.join(str(at % 9) for at in range(LITERALS_MAX))})",
        " OR ".join(["size = 0"] * 330),
        " AND ".join(["size = 0"] * 300),
        " OR ".join(["type IS NULL"] * 240),
        f"type LIKE '{'%_' * 1900}'",
        f"type LIKE '{'%S' * 1900}'",
        f"type = '{'😀' * 3900}'",
    ],
    ids=lambda text: text[:20],
)
def test_the_widest_conditions_run(text):
    condition = parse(text)
    assert selected(condition, [A_MESSAGE]) == expected(condition, [A_MESSAGE])


def test_a_deep_condition_becomes_a_statement_in_the_depth_of_a_program():
    text = "size = 1"
    for at in range(DEPTH_MAX):
        text = NESTS["groups at the end"](at, text)

    def deep(calls):
        return deep(calls - 1) if calls else selected(parse(text), [A_MESSAGE])

    assert deep(500) == set()


def test_conditions_load_nothing_of_postgresql():
    code = "import sys, qmstorage.conditions; print([name for name in sys.modules if 'postgresql' in name])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCES}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_model_knows_unknown_from_false():
    """What the other tests compare with: the table of SQL's logic."""
    known, unknown = parse("size = 1"), parse("subtype = 'x'")
    facts = A_MESSAGE | {"size": 1}
    assert truth(unknown, facts) is None
    assert truth(And((known, unknown)), facts) is None
    assert truth(parse("size = 2 AND subtype = 'x'"), facts) is False
    assert truth(parse("size = 1 OR subtype = 'x'"), facts) is True
    assert truth(parse("NOT subtype = 'x'"), facts) is None
    assert truth(parse("subtype IS NULL"), facts) is True
