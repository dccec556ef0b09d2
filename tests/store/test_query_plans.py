"""The statements of the hot path find their rows through keys: none scans a table or sorts."""

import re

import pytest

from tests.fix_store import make_queue

SORT_OR_SCAN = ("SCAN", "TEMP B-TREE")


@pytest.fixture
def space(store):
    opened = store.space(error_queue="ERRORS")
    make_queue(opened, "Q", retries=1, retry_delay=5)
    make_queue(opened, "P", order="priority,time")
    make_queue(opened, "ERRORS")
    opened.enqueue("Q", b"so that definitions are read")
    opened.dequeue("Q")
    return opened


def hot_path(space, clock):
    """Do everything that an application does with messages."""
    everything = {"corrid": "c", "delay": 5, "expires_in": 50, "headers": {"a": "b"}, "reply_queue": "R"}
    space.enqueue("Q", b"x", **everything)
    space.enqueue("P", b"x")
    assert space.dequeue("Q") is None
    clock.advance(6)
    assert space.dequeue("Q", corrid="c")
    for _ in range(3):
        space.enqueue("P", b"x", corrid="c", expires_in=10)
    assert space.dequeue("P", msgid=space.enqueue("P", b"x"))
    assert space.dequeue("P")
    with space.transaction():
        assert space.dequeue("P")
        assert space.dequeue("P", corrid="c")
        space.enqueue("Q", b"y", **everything)
        space.enqueue("Q", b"z")
    for _ in range(3):
        with space.transaction() as transaction:
            assert space.dequeue("Q")
            transaction.rollback()
        clock.advance(6)
    clock.advance(100)
    assert space.dequeue("P") is None
    with space.transaction() as transaction:
        assert space.dequeue("ERRORS")
        assert space.dequeue("ERRORS") is None
        transaction.rollback()
    while space.dequeue("Q") or space.dequeue("ERRORS"):
        pass
    assert space.usage("Q").moved
    assert space.usage("P").expired


def plans(space, statements):
    """Return the plan of each statement, as SQLite tells it."""
    connection = space._attachment.volume._connection
    found = {}
    for statement in dict.fromkeys(statements):
        if statement.split()[0] in {"SELECT", "INSERT", "UPDATE", "DELETE"}:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            found[statement] = [row[3] for row in rows]
    return found


def test_no_statement_that_moves_messages_scans_or_sorts(space, clock):
    statements = []
    connection = space._attachment.volume._connection
    connection.set_trace_callback(statements.append)
    hot_path(space, clock)
    connection.set_trace_callback(None)
    found = plans(space, statements)
    bad = {
        statement: steps
        for statement, steps in found.items()
        if any(word in step and step != "SCAN CONSTANT ROW" for step in steps for word in SORT_OR_SCAN)
        # Of processes and transactions there are few, and these are looked at once a second.
        and not re.search(r"FROM (owner|trans)\b", statement)
    }
    assert len(found) > 40
    assert bad == {}


def test_statements_are_compiled_once_each(space, clock):
    hot_path(space, clock)
    texts = space._attachment.volume._texts
    known = dict(texts)
    hot_path(space, clock)
    assert dict(texts) == known
