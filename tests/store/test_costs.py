"""What an operation costs on SQLite, counted and not timed: statements that change, statements that read, syncs.

A figure here may fall. One that rises has made every message slower, and needs a reason.
"""

import re
from collections import Counter

import pytest

from qmcore.message import EnqueueControl
from qmcore.probe import Point
from qmstorage import compiling
from qmstorage.sqlite import files
from qmstorage.statements import Texts
from tests.fix_store import connection_of, make_queue, noted

CHANGES = ("INSERT", "UPDATE", "DELETE")
ENDS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


class Cost:
    """How many statements of each kind were run, the transactions of the database, and the syncs of its log."""

    def __init__(self, statements, syncs):
        kinds = Counter(statement.split(None, 1)[0].upper() for statement in statements)
        self.commits = kinds["COMMIT"]
        self.changes = sum(kinds[word] for word in CHANGES)
        self.reads = sum(count for word, count in kinds.items() if word not in (*CHANGES, *ENDS))
        self.syncs = syncs

    def __repr__(self):
        return f"<{self.commits} commits, {self.changes} changes, {self.reads} reads, {self.syncs} syncs>"


@pytest.fixture
def space(file_store):
    opened = file_store.space(error_queue="ERRORS")
    for name in ("Q", "R", "ERRORS"):
        make_queue(opened, name, retries=3)
    # So that definitions are known, sequence numbers for replies are there, and it is not the first transaction ever.
    with opened.transaction():
        opened.enqueue("Q", b"x")
        opened.enqueue("R", b"x")
    with opened.transaction():
        assert opened.dequeue("Q")
    assert opened.dequeue("R")
    return opened


@pytest.fixture
def cost(space):
    """Return what an operation costs."""
    connection, synced = connection_of(space), noted(space.probe, Point.AFTER_SYNC)

    def of(operation):
        statements = []
        synced.clear()
        connection.set_trace_callback(statements.append)
        operation()
        connection.set_trace_callback(None)
        return Cost(statements, len(synced))

    return of


def costs(found):
    return found.commits, found.changes, found.reads, found.syncs


def test_an_enqueue_stores_a_message_its_place_and_two_counters_and_reads_two_rows(space, cost):
    assert costs(cost(lambda: space.enqueue("Q", bytes(1024)))) == (1, 4, 2, 1)


def test_options_of_a_message_cost_a_row_only_where_they_have_one(space, cost):
    options = {"corrid": "c", "priority": 3, "headers": {"a": "b"}, "reply_queue": "R", "type": "STRING"}
    assert costs(cost(lambda: space.enqueue("Q", "x", **options))) == (1, 4, 2, 1)
    assert costs(cost(lambda: space.enqueue("Q", "x", expires_in=100, delay=10))) == (1, 5, 2, 1)


def test_many_messages_take_two_rows_each_and_the_rest_once(space, cost):
    assert costs(cost(lambda: space.enqueue_many("Q", [bytes(1024)] * 100))) == (1, 2 * 100 + 2, 2, 1)


def test_a_dequeue_removes_a_message_and_its_place_and_changes_two_counters(space, cost):
    space.enqueue("Q", bytes(1024))
    assert costs(cost(lambda: space.dequeue("Q"))) == (1, 4, 2, 1)


def test_many_are_dequeued_by_reading_all_of_them_at_once(space, cost):
    space.enqueue_many("Q", [bytes(1024)] * 96)
    assert costs(cost(lambda: space.dequeue_many("Q", 96))) == (1, 2 * 96 + 2, 2, 1)


def test_a_transaction_that_answers_a_message_is_synced_once(space, cost):
    space.enqueue("Q", bytes(1024))

    def answer():
        with space.transaction():
            request = space.dequeue("Q")
            space.enqueue("R", bytes(1024), corrid=request.msgid)

    assert costs(cost(answer)) == (2, 11, 6, 1)


def test_a_commit_that_takes_the_next_message_too_is_one_for_each_message(space, cost):
    """What a worker of the forwarder does who answers one message after the other."""
    space.enqueue_many("Q", [bytes(1024)] * 2)
    with space.transaction() as transaction:
        request = space.dequeue("Q")
        reply = ("R", bytes(1024), EnqueueControl(corrid=request.msgid.encode()))
        successor = transaction.successor(None)
        found = cost(lambda: transaction.commit_and_take([reply], successor, "Q"))
    with successor:
        assert costs(found) == (1, 11, 5, 1)


def test_a_dequeue_that_finds_nothing_changes_and_syncs_nothing(space, cost):
    found = cost(lambda: space.dequeue("Q"))
    assert (found.changes, found.syncs) == (0, 0)


def test_what_an_operation_costs_does_not_grow_with_what_is_stored(space, cost):
    space.enqueue_many("Q", [b"x"] * 10)
    few = [costs(cost(lambda: space.enqueue("Q", b"x"))), costs(cost(lambda: space.dequeue("Q")))]
    space.enqueue_many("Q", [b"x"] * 900)
    for number in range(10):
        make_queue(space, f"MORE{number}")
    space.dequeue("Q")
    assert [costs(cost(lambda: space.enqueue("Q", b"x"))), costs(cost(lambda: space.dequeue("Q")))] == few


def test_a_look_at_all_queues_costs_the_same_however_many_there_are(space, cost):
    make_queue(space, "FIRST", order="priority,fifo")
    make_queue(space, "LAST", order="priority,lifo")

    def fill(queue):
        for priority in (50, 7, 100):
            space.enqueue(queue, b"x", priority=priority)

    fill("FIRST")
    fill("LAST")
    few = costs(cost(space.usages))
    for number in range(12):
        make_queue(space, f"MORE{number}", order=("fifo", "priority,fifo", "lifo", "priority,lifo")[number % 4])
        fill(f"MORE{number}")
    space.usages()
    assert costs(cost(space.usages)) == few


def statements():
    """Return the SQL text of all statements that are constants of the modules of the storage."""
    texts = Texts(files.DIALECT)
    return [texts[statement][0] for statement in compiling.statements(files.DIALECT)]


def test_no_statement_is_given_a_value_for_which_sqlite_compiles_it_again():
    """A value for the column of a partial index is one: it might say that the index can be used."""
    found = statements()
    assert len(found) > 100
    assert [each for each in found if re.search(r"held\.role = :", each)] == []
