"""Messages that stand and fall with a transaction of the application in the same database of PostgreSQL."""

import sys
import threading

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row

from qmadmin import capacity
from qmadmin.opening import open_device
from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.purpose import WrongPurposeError
from qmcore.queue import Delivery
from qmstorage import application_connections
from qmstorage.postgres.joining import ApplicationTransactions
from tests.fix_postgres import database_of
from tests.fix_store import Work, attachment_of, drain, eventually, make_queue

PAGE = 4096


@pytest.fixture
def engine(arena):
    url = sqlalchemy.engine.make_url(database_of(arena.url)[0]).set(drivername="postgresql+psycopg")
    made = sqlalchemy.create_engine(url)
    yield made
    made.dispose()


def seen(engine, isolation):
    """A transaction of this isolation level that has begun to see."""
    connection = engine.connect().execution_options(isolation_level=isolation)
    connection.execute(sqlalchemy.text("SELECT count(*) FROM pg_class"))
    return connection


def test_a_non_persistent_queue_takes_and_gives_messages_in_a_transaction_of_the_application(arena, engine):
    space = arena.space(memory=100 * PAGE)
    make_queue(space, "MEMORY", delivery=Delivery.NONPERSIST)
    with engine.begin() as connection:
        space.enqueue("MEMORY", "event", connection=connection)
    with engine.connect() as connection:
        assert space.dequeue("MEMORY", connection=connection).text == "event"
        connection.rollback()
        assert space.dequeue("MEMORY", connection=connection).text == "event"
        connection.commit()
    assert drain(space, "MEMORY") == []
    arena.check_counters()


def test_a_work_in_the_transaction_of_an_application_changes_no_definitions(arena, engine):
    space = arena.space()
    queue = make_queue(space)
    with engine.begin() as connection, pytest.raises(WrongPurposeError):
        attachment_of(space).volume.write_on(connection, lambda unit: unit.queues.change(queue))
    assert space.queues() == [queue]


def test_a_purge_beside_a_transaction_of_the_application_is_recorded_whatever_becomes_of_that(arena, engine):
    space = arena.space()
    make_queue(space)
    space.enqueue("Q", "before")
    with engine.connect() as connection:
        space.enqueue("Q", "joined", connection=connection)
        assert space.purge("Q") == 1
        connection.rollback()
    assert [(entry.target, entry.outcome) for entry in arena.device.audited()] == [
        ("queue SPACE/Q", "1 message deleted")
    ]
    arena.check_counters()


def test_a_two_phase_transaction_of_the_application_is_refused_and_goes_on(arena, engine):
    space = arena.space()
    make_queue(space)
    space.enqueue("Q", "request")
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE orders (number int)"))
        connection.commit()
        transaction = connection.begin_twophase()
        calls = (
            lambda: space.enqueue("Q", "x", connection=connection),
            lambda: space.dequeue("Q", connection=connection),
        )
        for call in calls:
            with pytest.raises(InvalidArgumentError, match="is in a two-phase transaction"):
                call()
        connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (1)"))
        transaction.rollback()
        assert space.dequeue("Q", connection=connection).text == "request"
        connection.commit()
        connection.execute(sqlalchemy.text("DROP TABLE orders"))
        connection.commit()
    assert drain(space) == []


@pytest.mark.parametrize("kind", ["Cursor", "ClientCursor", "RawCursor"])
def test_the_application_may_have_cursors_and_rows_of_any_kind(arena, engine, kind):
    space = arena.space()
    make_queue(space)
    space.enqueue("Q", "request")
    with engine.begin() as connection:
        driver = connection.connection.driver_connection
        driver.cursor_factory, driver.row_factory = getattr(psycopg, kind), dict_row
        assert space.dequeue("Q", connection=connection).text == "request"
        space.enqueue("Q", "reply", corrid=b"\0\xff%s", connection=connection)
    assert space.dequeue("Q").corrid == b"\0\xff%s"
    arena.check_counters()


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_whom_the_server_breaks_off_for_others_has_to_run_the_whole_of_its_transaction_again(arena, engine, state):
    def broken_off(unit):
        unit.asked(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}'; END $$")

    volume = attachment_of(arena.space()).volume
    with engine.begin() as connection, pytest.raises(SystemFailureError, match="in the way") as caught:
        volume.write_on(connection, broken_off)
    assert "application's transaction" in caught.value.message
    assert caught.value.hint == "Roll back the application's transaction, and run all of it again."
    assert caught.value.blocked


def test_whose_connection_is_lost_has_to_run_the_whole_of_its_transaction_again(arena, engine):
    volume = attachment_of(arena.space()).volume
    with engine.connect() as connection:
        with pytest.raises(SystemFailureError, match="was lost") as caught:
            volume.write_on(connection, lambda unit: unit.asked("SELECT pg_terminate_backend(pg_backend_pid())"))
        connection.invalidate()
    assert "run all of it again" in caught.value.hint


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
class TestATransactionThatSeesWhatWasThereWhenItBegan:
    def test_brings_nothing_to_a_queue_that_was_destroyed_since(self, arena, engine, isolation):
        space = arena.space()
        make_queue(space)
        with seen(engine, isolation) as connection:
            space.destroy_queue("Q")
            with pytest.raises(SystemFailureError, match="could not serialize") as caught:
                space.enqueue("Q", "event", connection=connection)
            assert caught.value.blocked
            assert "run all of it again" in caught.value.hint
            connection.commit()
        assert arena.sql("SELECT count(*) FROM qm.message") == [(0,)]
        arena.check_counters()

    def test_brings_nothing_to_a_queue_that_was_stopped_since(self, arena, engine, isolation):
        space = arena.space()
        make_queue(space)
        with seen(engine, isolation) as connection:
            space.stop_queue("Q")
            with pytest.raises(SystemFailureError, match="could not serialize"):
                space.enqueue("Q", "event", connection=connection)

    def test_works_where_no_definition_has_changed_since(self, arena, engine, isolation):
        space = arena.space()
        make_queue(space)
        space.enqueue("Q", "request")
        with seen(engine, isolation) as connection:
            space.enqueue("Q", "later")
            assert space.dequeue("Q", connection=connection).text == "request"
            space.enqueue("Q", "reply", connection=connection)
            connection.commit()
        assert sorted(drain(space)) == ["later", "reply"]
        arena.check_counters()


class TestAThresholdThatATransactionOfTheApplicationHasReached:
    @pytest.fixture
    def space(self, arena):
        made = arena.space()
        high = parse_high("2m")
        make_queue(made, threshold=Threshold(high, parse_low("0", high), "true"))
        arena.device.set_commands(enabled=False)
        arena.open_sessions(2)
        return made

    def test_keeps_nobody_waiting_who_reaches_it_too(self, arena, engine, space):
        space.enqueue("Q", "a")
        with engine.connect() as connection:
            space.enqueue("Q", "b", connection=connection)
            assert Work(lambda: space.enqueue("Q", "c") and None).results() == [None]
            connection.rollback()
        assert arena.sql("SELECT count(*) FROM qm.threshold") == [(0,)]
        space.enqueue("Q", "d")
        assert arena.sql("SELECT count(*) FROM qm.threshold") == [(1,)]

    def test_keeps_nobody_waiting_when_it_arms_it_again(self, arena, engine, space):
        space.enqueue_many("Q", ["a", "b"])
        with engine.connect() as connection:
            space.dequeue_many("Q", 2, connection=connection)
            assert arena.sql("SELECT claimed_by FROM qm.threshold") == [(None,)]
            assert Work(lambda: space.enqueue_many("Q", ["c", "d"]) and None).results() == [None]
            connection.commit()
        assert drain(space) == ["c", "d"]
        assert arena.sql("SELECT count(*) FROM qm.threshold") == [(0,)]


@pytest.fixture
def trap(arena):
    """A schema with functions of names that the server has too, which nobody is to call."""
    name = f"{arena.schema}_trap"
    arena.looking.execute(
        f"CREATE SCHEMA {name}; CREATE FUNCTION {name}.generate_series(integer, bigint) RETURNS SETOF bigint"
        " LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$"
    )
    yield name
    arena.looking.execute(f"DROP SCHEMA {name} CASCADE")


def test_functions_that_others_have_made_are_not_called(arena, engine, trap):
    space = arena.space()
    make_queue(space)
    with open_device(f"{arena.url}&options=-csearch_path%3D{trap}") as device, device.open_space("SPACE") as trapped:
        trapped.enqueue("Q", "a")
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"SET LOCAL search_path = {trap}"))
            trapped.enqueue("Q", "b", connection=connection)
    assert drain(space) == ["a", "b"]


@pytest.mark.usefixtures("trusted")
def test_a_capacity_command_waits_for_its_own_transaction_and_for_no_other(arena, engine, monkeypatch):
    started = []
    monkeypatch.setattr(capacity, "start", started.append)
    space = arena.space()
    high = parse_high("2m")
    make_queue(space, threshold=Threshold(high, parse_low("0", high), "true"))
    make_queue(space, "OTHER")
    with engine.connect() as other:
        assert Work(lambda: space.enqueue("OTHER", "x", connection=other) and None).results() == [None]
        with engine.begin() as connection:
            space.enqueue_many("Q", ["a", "b"], connection=connection)
        eventually(lambda: arena.sql("SELECT claimed_by FROM qm.threshold") == [(None,)], "the command is started")
        other.rollback()
    assert [(event.queue, event.value) for event in started] == [("Q", 2)]


@pytest.fixture
def _switched_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_switched_often")
def test_who_works_in_a_transaction_can_be_asked_while_others_begin_theirs(engine):
    joined_transactions, stopped = ApplicationTransactions(None), threading.Event()

    def join():
        for _ in range(100):
            with engine.connect() as one, engine.connect() as other:
                for connection in (one, other):
                    joined_transactions.of(application_connections.found(connection))
        stopped.set()

    def ask():
        while not stopped.is_set():
            assert not joined_transactions.is_joined_here()

    assert Work(join, ask, ask).results() == [None] * 3
