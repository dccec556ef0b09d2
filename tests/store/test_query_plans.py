"""On SQLite, the statements of the hot path find their rows through keys: none scans a table or sorts."""

import re
from itertools import product

import pytest
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler

from qmcore.acts import enqueue_in_transaction
from qmcore.acts.stores import stores
from qmcore.bulk_rows import Run
from qmcore.condition_parser import parse
from qmcore.message import EnqueueControl, State
from qmcore.queue import Delivery
from tests.fix_store import attachment_of, connection_of, make_queue

SORT_OR_SCAN = ("SCAN", "TEMP B-TREE")
QUEUES = {
    "PLAIN": {"retries": 1, "retry_delay": 5, "out_of_order": "top,msgid"},
    "ORDERED": {"order": "priority,time,lifo"},
    "GROUPED": {"grouping": True, "retries": 3, "retry_delay": 5},
    "KEPT": {"retention": 10},
    "MOVED": {"keep_expired": True},
    "MEMORY": {"delivery": Delivery.NONPERSIST, "retries": 1},
}
SELECTIONS = {
    "the first": {},
    "by corrid": {"corrid": "c"},
    "by pattern": {"corrid_like": "c%"},
    "by condition": {"condition": "priority > 10 AND header.a = 'b'"},
}


@pytest.fixture
def space(sqlite_store):
    opened = sqlite_store.space(error_queue="ERRORS")
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
    connection = connection_of(space)
    found = {}
    for statement in dict.fromkeys(statements):
        if statement.split()[0] in {"SELECT", "INSERT", "UPDATE", "DELETE"}:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            found[statement] = [row[3] for row in rows]
    return found


def test_no_statement_that_moves_messages_scans_or_sorts(space, clock):
    statements = []
    connection = connection_of(space)
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


def test_statements_are_compiled_once_each(space, clock, monkeypatch):
    hot_path(space, clock)
    compiled = []
    monkeypatch.setattr(SQLiteCompiler, "__init__", lambda *given, **how: compiled.append(given))
    hot_path(space, clock)
    assert compiled == []


@pytest.fixture
def rich(sqlite_store, monkeypatch, tmp_path):
    """A queue space with every kind of queue, and with memory for non-persistent messages."""
    monkeypatch.setenv("QM_SHM_DIR", str(tmp_path))
    opened = sqlite_store.space(error_queue="ERRORS", memory=4_000_000, pages=19_000)
    for name, definition in QUEUES.items():
        make_queue(opened, name, **definition)
    make_queue(opened, "ERRORS")
    return opened


def traced(space, act):
    """Return one statement of each form that `act` runs."""
    statements = []
    connection = connection_of(space)
    connection.set_trace_callback(statements.append)
    act()
    connection.set_trace_callback(None)
    forms = {re.sub(r"x'[0-9a-fA-F]*'|'[^']*'|\b[0-9]+\b", "?", statement): statement for statement in statements}
    return list(forms.values())


def unwanted(space, statements, allowed=()):
    """Return the statements, with their plans, that scan a table or sort."""
    return {
        statement: steps
        for statement, steps in plans(space, statements).items()
        if any(
            word in step and step not in ("SCAN CONSTANT ROW", "SCAN chosen")
            for step in steps
            for word in SORT_OR_SCAN
            if word not in allowed
        )
        and not re.search(r"FROM (owner|trans)\b", statement)
        # What is held in memory, and by whom, is looked at once a second.
        and not statement.startswith("SELECT DISTINCT memory_")
    }


def fill(space, queue, count=9):
    control = EnqueueControl(corrid=b"c", headers={"a": "b"}, lifetime=10**9)
    space.enqueue_many(queue, ["x"] * count, control)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_no_way_to_select_a_message_scans_or_sorts(rich, queue, selection):
    how = SELECTIONS[selection]
    for _ in range(3):
        fill(rich, queue)

    def take():
        assert rich.peek(queue, **how)
        assert rich.dequeue(queue, **how)
        assert len(rich.dequeue_many(queue, 2, **how)) == 2
        assert rich.remove(queue, **how)
        assert rich.listen([queue]) == queue
        with rich.transaction():
            for _ in range(2):
                assert rich.lock(queue, **how)
            assert rich.dequeue(queue, **how)
            assert rich.dequeue(queue)
            assert rich.dequeue_many(queue, 3)
        with rich.transaction() as transaction:
            assert rich.dequeue_many(queue, 2, **how)
            transaction.rollback()

    statements = traced(rich, take)
    # Only a range of correlation identifiers is in another order than its messages.
    allowed = ("TEMP B-TREE",) if selection == "by pattern" else ()
    assert len(statements) > 20
    assert unwanted(rich, statements, allowed) == {}


def test_no_statement_around_them_scans_or_sorts(rich, clock, monkeypatch):
    # So that little is spilled already.
    monkeypatch.setattr(enqueue_in_transaction, "SPILL_BYTES", 2_000)

    def work():
        for queue in QUEUES:
            fill(rich, queue)
            with rich.transaction():
                assert rich.dequeue(queue, msgid=rich.peek(queue).msgid)
                for _ in range(2):
                    rich.enqueue(queue, b"x", delay=3)
                rich.enqueue(queue, b"x" * 2_000)
            list(rich.browse(queue))
            list(rich.browse(queue, condition="priority > 10"))
            list(rich.messages(queue))
            list(rich.messages(queue, condition="priority > 10"))
            clock.advance(6)
            rich.purge(queue, condition="priority > 90")
            rich.purge(queue, condition="size > 100")
            rich.enqueue(queue, b"x", expires_in=5)
            rich.enqueue(queue, b"x", delay=50)
        rich.enqueue("KEPT", bytes(1_100_000))
        first = rich.enqueue("PLAIN", b"x", top=True)
        rich.enqueue("PLAIN", b"x", before=first)
        rich.enqueue("PLAIN", b"x", before=first, persistent=False)
        for info in list(rich.history("KEPT", condition="size = 1")):
            assert rich.recall("KEPT", info.info.msgid)
        clock.advance(6)
        for queue in QUEUES:
            rich.dequeue(queue)
            rich.purge(queue)
        rich.purge_history("KEPT")

    statements = traced(rich, work)
    assert any(statement.startswith("INSERT INTO chunk") for statement in statements)
    assert len(statements) > 120
    assert unwanted(rich, statements) == {}


def test_what_is_taken_out_of_a_table_is_found_by_its_whole_key(rich, clock):
    def work():
        for queue in QUEUES:
            for how in SELECTIONS.values():
                fill(rich, queue)
                assert rich.dequeue(queue, **how)
                assert rich.dequeue_many(queue, 2, **how)
            rich.enqueue(queue, b"x", delay=3, expires_in=4)
            rich.enqueue(queue, b"x", delay=1)
            clock.advance(2)
            rich.dequeue_many(queue, 100)
            rich.purge(queue, condition="priority > 1")
            fill(rich, queue)
            rich.purge(queue)
            rich.enqueue(queue, b"x", expires_in=4)
            clock.advance(20)
            rich.dequeue(queue)

    removals = [statement for statement in traced(rich, work) if re.match(r"DELETE FROM (\w+\.)?ready", statement)]
    found = plans(rich, removals)
    assert len(found) == 2, "one on disk, one in memory"
    assert [statement for statement, steps in found.items() if "order_key=?" not in steps[0]] == []


@pytest.mark.parametrize("queue", ["PLAIN", "MEMORY"])
def test_the_last_of_those_given_back_is_found_without_those_that_were_delayed(rich, queue):
    rich.enqueue(queue, b"x", delay=50)
    statements = [each for each in traced(rich, lambda: rich.given_back_until(queue)) if "given_back" in each]
    assert len(statements) == 2, "on disk and in memory"
    for steps in plans(rich, statements).values():
        (step,) = steps
        assert re.search(
            r"INDEX due_given_back \(queue_id=\? AND given_back=\? AND available_at>\? AND available_at<\?\)", step
        )


@pytest.mark.parametrize("look", [lambda space: space.usages(), lambda space: space.usage("PLAIN")], ids=["all", "one"])
def test_the_figures_of_queues_are_found_through_keys(rich, look):
    for queue in QUEUES:
        fill(rich, queue)
        rich.enqueue(queue, b"x", delay=5)
    rich.enqueue("PLAIN", b"x", top=True)
    its = re.compile(r"FROM (\w+\.)?counter\b.*GROUP BY", re.DOTALL)
    statements = [statement for statement in traced(rich, lambda: look(rich)) if its.search(statement)]
    assert len(statements) == 5, "on disk and in memory: figures, and the first of each level; on disk also the last"
    for statement, steps in plans(rich, statements).items():
        searches = [step for step in steps if step.startswith("SEARCH")]
        # The levels that were found are a table of their own.
        assert [step for step in steps if re.search("SCAN (?!level)|TEMP B-TREE", step)] == [], statement
        assert [step for step in searches if not re.search(r"\((space_id|queue_id|rowid)=\?", step)] == [], statement


@pytest.mark.parametrize("queue", ["PLAIN", "MEMORY"])
@pytest.mark.parametrize("form", ["msgid = '{}'", "priority > 1 AND msgid = '{}'"])
def test_a_ready_message_that_is_named_is_found_by_its_place(rich, queue, form):
    fill(rich, queue)
    msgid = rich.enqueue(queue, b"x")
    found = []
    condition = form.format(msgid)
    statements = traced(rich, lambda: found.extend(rich.messages(queue, condition=condition)))
    assert [message.msgid for message in found] == [msgid]
    listings = [statement for statement in statements if "ready" in statement and "LIMIT" in statement]
    assert listings
    for statement, steps in plans(rich, listings).items():
        assert any("ready" in step and "order_key=?" in step for step in steps), (statement, steps)
    assert rich.count(queue, condition=condition) == 1
    assert rich.count(queue, condition=form.format("0" * 32)) == 0


@pytest.mark.parametrize("condition", [None, "priority > 10 AND header.a = 'b'"])
def test_reading_in_bulk_goes_by_keys(rich, clock, condition):
    for queue in QUEUES:
        fill(rich, queue)
        rich.enqueue(queue, b"x", delay=5)
    assert rich.dequeue("KEPT")

    def read_all(unit):
        known = attachment_of(rich).opened.definitions(unit)
        chosen = condition and parse(condition)
        for store, (name, queue), state in product(stores(unit, known.space.id), known.queues.items(), State):
            tallied = store.bulk_read.tally(queue.id, state).messages
            places = store.bulk_read.boundaries(known.space, queue, state, 2, chosen)
            assert sum(count for _, count in places) <= tallied
            assert (
                list(store.bulk_read.places(known.space, queue, state, chosen))[-1:]
                == [until for until, _ in places][-1:]
            )
            for until in (None, (places or [[None]])[0][0]):
                run = Run(name, state, store is not unit, until, until, 0)
                list(store.bulk_read.rows(known.space, queue, run, chosen))

    with rich.transaction():
        assert rich.dequeue("PLAIN")
        statements = traced(rich, lambda: attachment_of(rich).volume.read(read_all))
    for table in ("ready", "due", "held", "history", r"memory_\w+\.ready"):
        assert any(re.search(rf"FROM {table}\b", statement) for statement in statements), table
    assert unwanted(rich, statements) == {}
