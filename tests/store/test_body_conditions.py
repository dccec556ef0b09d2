"""Conditions on values in JSON bodies, and on topics: they mean the same to the engine and in the SQL of each store."""

import contextlib
import itertools
import json
import sqlite3

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qmcore.condition import And, BodyPath, Header, Not, Operator, Or, compared
from qmcore.condition_parser import parse
from qmcore.condition_truth import compiled
from qmcore.errors import InvalidArgumentError
from qmcore.json_values import BodyValues
from qmcore.message import EnqueueControl
from qmcore.queue import Delivery
from qmcore.space import Space, SpaceDefinition
from qmstorage.conditions import where
from qmstorage.postgres import tables
from qmstorage.schema import message
from qmstorage.sql import select
from qmstorage.sqlite.files import DIALECT
from qmstorage.statements import Texts
from tests.body_cases import CASES, MIB, padded
from tests.fix_applications import KINDS
from tests.fix_store import make_queue

JSON = EnqueueControl(type="JSON")


@pytest.fixture
def space(store, memory_dir):
    opened = store.space(memory=400_000, pages=19_900, error_queue="ERRORS")
    make_queue(opened, "Q", retries=3, retention=60)
    make_queue(opened, "ERRORS")
    make_queue(opened, "MEMORY", delivery=Delivery.NONPERSIST)
    return opened


def truth_by_the_engine(body, condition):
    values = BodyValues.of("JSON", len(body or b""), body)
    return compiled(condition)(lambda subject: values.at(subject.steps))


def selected(space, condition, queue="Q"):
    return {info.msgid for info in space.messages(queue, condition=condition)}


def truths(space, condition, msgids):
    """Return of each message whether the condition is true, false, or neither."""
    holds, fails = selected(space, condition), selected(space, Not(condition))
    return {msgid: True if msgid in holds else False if msgid in fails else None for msgid in msgids}


@pytest.mark.parametrize(("body", "text", "expected"), CASES, ids=itertools.count())
def test_the_engine_finds_what_the_table_says(body, text, expected):
    assert truth_by_the_engine(body, parse(text)) is expected


def test_each_store_finds_what_the_table_says(space):
    bodies = list(dict.fromkeys(body for body, _, _ in CASES))
    msgids = dict(zip(bodies, space.put_many([("Q", body, JSON) for body in bodies]), strict=True))
    found, wanted = {}, {}
    for body, text, expected in CASES:
        # Of its own body alone: some take long to read.
        condition, alone = parse(text), compared("msgid", Operator.EQUAL, msgids[body])
        both = [parse(f"{alone} AND ({each})") for each in (condition, Not(condition))]
        holds, fails = (space.peek("Q", condition=each) is not None for each in both)
        found[body, text], wanted[body, text] = (holds, fails), (expected is True, expected is False)
    assert found == wanted


def test_conditions_of_all_cases_mean_the_same_for_every_body(space):
    bodies = [body for body in dict.fromkeys(body for body, _, _ in CASES) if len(body or b"") < 1000]
    msgids = space.put_many([("Q", body, JSON) for body in bodies])
    # Each of the others is held against its own body.
    for text in list(dict.fromkeys(text for _, text, _ in CASES if len(text) < 200))[::4]:
        condition = parse(text)
        by_engine = {msgid: truth_by_the_engine(body, condition) for msgid, body in zip(msgids, bodies, strict=True)}
        assert truths(space, condition, msgids) == by_engine, text


SOUND = [body for body in dict.fromkeys(body for body, _, _ in CASES) if body and len(body) < 200]
PIECES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"0",
    b"1",
    b"e",
    b".",
    b"-",
    b"\\u0000",
    b"\\ud83d",
    b"\\ude00",
]
PIECES += [b"null", b"true", b"\xc3", b"\xa9", b"\0", b" ", b"\n", b'"a":', b"\xef\xbb\xbf", b"NaN"]
ASKED = [parse(text) for text in ("body.a = 1", "body.a LIKE '%'", "body.a = true", "body.a IS NULL", "body[0] > 0")]


@st.composite
def nearly_json(draw):
    """Return a body of the table in which something was replaced or put in."""
    body = draw(st.sampled_from(SOUND))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.sampled_from(PIECES)) + body[at + draw(st.integers(0, 2)) :]
    return body


def test_bodies_that_are_nearly_json_mean_the_same(space):
    @settings(deadline=None, max_examples=10)
    @given(st.lists(nearly_json(), min_size=20, max_size=20))
    @example([b'{"a":1,"b":"\\ud83d\\u0000\\ude00"}', b'{"a":"\\\\\\ud83d\\ude00"}', b'{"a" :\x0b1}', b"[1", b"1]"])
    def same(bodies):
        msgids = space.put_many([("Q", body, JSON) for body in bodies])
        for condition in ASKED:
            by_engine = {
                msgid: truth_by_the_engine(body, condition) for msgid, body in zip(msgids, bodies, strict=True)
            }
            assert truths(space, condition, msgids) == by_engine, (str(condition), bodies)
        space.purge("Q")

    same()


def test_a_body_of_another_type_has_no_values(space):
    for kind in ("STRING", "CARRAY", "json", "JSONB"):
        space.put("Q", b'{"a":1}', EnqueueControl(type=kind))
    assert space.dequeue("Q", condition="body.a = 1") is None
    assert len(selected(space, "body.a IS NULL")) == 4
    assert selected(space, "NOT body.a = 2") == set()


def test_what_takes_messages_takes_those_whose_body_is_asked_for(space):
    for number in range(8):
        space.enqueue("Q", {"number": number, "even": number % 2 == 0}, priority=10 + number)
    assert space.dequeue("Q", condition="body.number = 3").json()["number"] == 3
    assert [each.json()["number"] for each in space.dequeue_many("Q", 2, condition="body.even = true")] == [0, 2]
    assert space.peek("Q", condition="body.even = true AND priority > 14").json()["number"] == 6
    assert [each.json()["number"] for each in space.browse("Q", condition="body.number >= 6")] == [6, 7]
    assert len(selected(space, "body.number < 5")) == 2
    with space.transaction() as transaction:
        assert space.lock("Q", condition="body.number = 5").msgid
        assert space.dequeue("Q", condition="body.number = 5").json()["number"] == 5
        transaction.rollback()
    assert space.purge("Q", condition="body.number IN (1,5)") == 2
    assert [each.info.priority for each in space.history("Q", condition="body.number = 3")] == [13]


def test_a_body_that_a_transaction_has_spilled_is_read_where_it_stands(space):
    with space.transaction():
        space.put("Q", padded(9 * MIB), JSON)
        space.enqueue("Q", {"a": 1})
        space.put("Q", padded(MIB), JSON)
        space.put("Q", padded(MIB + 1), JSON)
    assert sorted(info.size for info in space.messages("Q", condition="body.a = 1")) == [7, MIB]


def test_values_are_found_in_bodies_that_are_kept_in_memory(space):
    space.enqueue("MEMORY", {"a": "x"})
    wanted = space.enqueue("MEMORY", {"a": "y"})
    assert selected(space, "body.a > 'x'", "MEMORY") == {wanted}
    assert space.dequeue("MEMORY", condition="body.a LIKE '_' AND body.a <> 'x'").msgid == wanted


def test_a_topic_is_a_header_by_which_messages_are_chosen(space):
    space.enqueue("Q", "one", topic="order.eu.created")
    space.enqueue("Q", "two", headers={"topic": "order.us.created", "region": "us"})
    space.put("Q", b"three", EnqueueControl(topic="order.eu.deleted", headers={"region": "eu"}))
    space.enqueue("Q", "four")
    assert space.dequeue("Q", condition="topic LIKE 'order.us.%'").topic == "order.us.created"
    found = space.dequeue("Q", condition="TOPIC = 'order.eu.deleted' AND header.topic <> 'x'")
    assert (found.topic, found.headers) == (
        "order.eu.deleted",
        {"region": "eu", "topic": "order.eu.deleted"},
    )
    assert space.dequeue("Q", condition="topic IS NULL").topic is None
    assert space.dequeue("Q").topic == "order.eu.created"


@pytest.mark.parametrize("topic", ["x" * 256, "é" * 128, "a\0b", "\ud800", b"x", 5], ids=ascii)
def test_what_is_no_topic_is_refused(space, topic):
    with pytest.raises(InvalidArgumentError, match="topic"):
        space.enqueue("Q", "x", topic=topic)


def test_a_topic_is_given_once(space):
    space.enqueue("Q", "x", topic="é" * 127, headers={"topic": "é" * 127})
    assert space.dequeue("Q").topic == "é" * 127
    with pytest.raises(InvalidArgumentError, match="the topic 'a' is not that of the headers, 'b'"):
        space.enqueue("Q", "x", topic="a", headers={"topic": "b"})


def test_the_topic_of_a_schedule_is_that_of_its_messages(space, store):
    space.create_schedule("S", "Q", "every 1h", "x", EnqueueControl(topic="due", headers={"a": "b"}))
    assert space.schedule("S").control.topic == "due"
    store.clock.advance(3601)
    due = space.dequeue("Q", condition="topic = 'due'", wait=10)
    assert (due.topic, due.headers["a"], due.headers["schedule"]) == ("due", "b", "S")


LEAVES = ["priority > 50", "header.x = 'y'", "body.a = 1", "body.b LIKE 'x%'", "body.c[0] IS NULL", "body.a = true"]
trees = st.recursive(
    st.sampled_from(LEAVES).map(parse),
    lambda parts: (
        st.builds(Not, parts)
        | st.builds(And, st.lists(parts, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(parts, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


def test_conditions_on_bodies_and_on_all_else_are_combined(space):
    told = {}
    for body in ({"a": 1, "b": "xy"}, {"a": True, "c": [None]}, {"a": "1", "b": 5, "c": ["x"]}, None):
        for priority, headers in itertools.product((10, 90), ({}, {"x": "y"}, {"x": "z"})):
            msgid = space.enqueue("Q", body, type="JSON", priority=priority, headers=headers)
            told[msgid] = priority, headers, json.dumps(body).encode()

    def fact_of(priority, headers, body):
        values = BodyValues(body)

        def fact(subject):
            if isinstance(subject, BodyPath):
                return values.at(subject.steps)
            return headers.get(subject.name) if isinstance(subject, Header) else priority

        return fact

    @settings(deadline=None, max_examples=20)
    @given(trees)
    def same(condition):
        test = compiled(condition)
        assert truths(space, condition, told) == {msgid: test(fact_of(*each)) for msgid, each in told.items()}

    same()


def test_a_condition_that_asks_for_no_body_reads_none():
    for dialect in (DIALECT, tables.DIALECT):
        text, _ = Texts(dialect).of(select(message.c.id).where(sql_of("priority > 50 AND topic = 'x'")))
        assert "body" not in text


def test_bodies_are_looked_at_last():
    for dialect in (DIALECT, tables.DIALECT):
        text, _ = Texts(dialect).of(
            select(message.c.id).where(sql_of("body.a = 1 AND priority > 50 AND NOT body.b = 2 AND topic = 'x'"))
        )
        assert max(text.index("priority"), text.index("headers")) < text.index("body")
    assert Texts(DIALECT).of(select(message.c.id).where(sql_of("body.a = 1 OR body.b = 2")))[0].count("qm_body") == 1


def sql_of(text):
    definition = SpaceDefinition(
        name="S", ipc_key=32_769, pages=100, queues=2, transactions=2, processes=2, messages=100
    )
    its = Space(id=3, incarnation="0123456789abcdef", definition=definition, initialized=True, created_at=0)
    return where(parse(text), retries=message.c.priority, space=its)


@pytest.mark.parametrize("joined_store", KINDS, indirect=True, ids="-".join)
def test_the_connection_of_an_application_tests_bodies_too(joined_store, application):
    opened = joined_store.space()
    make_queue(opened, "Q")
    its = application.space_of(opened, joined_store.device)
    for number in range(4):
        its.enqueue("Q", {"number": number})
    for number in (2, 1):
        with application.transaction() as connection:
            application.order(f"order {number}")
            taken = its.dequeue("Q", condition=f"body.number = {number}", connection=connection)
            assert taken.json() == {"number": number}
            assert its.dequeue("Q", condition="body.number = 7", connection=connection) is None
    assert sorted(info.priority for info in its.messages("Q")) == [50, 50]


def test_a_statement_of_the_application_may_run_meanwhile(file_store):
    space = file_store.space()
    make_queue(space, "Q")
    for number in range(4):
        space.enqueue("Q", {"number": number})
    with contextlib.closing(sqlite3.connect(file_store.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        for _ in range(2):
            connection.execute("BEGIN IMMEDIATE")
            rows = connection.execute("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
            assert rows.fetchone() == (1,)
            assert space.dequeue("Q", condition="body.number >= 1", connection=connection) is not None
            assert rows.fetchall() == [(2,), (3,)]
            connection.execute("COMMIT")
    assert [each.json()["number"] for each in space.browse("Q")] == [0, 3]
