"""Messages that stand and fall with a transaction of the application on the same file."""

import contextlib
import sqlite3
import threading
import time
from types import SimpleNamespace

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, event, insert
from sqlalchemy.orm import Session

from qmadmin import capacity
from qmadmin.opening import open_device
from qmcore.errors import InvalidArgumentError, NoSpaceError, ProtocolError, QueueError, Resource, TransactionStartError
from qmcore.limits import Threshold, parse_high, parse_low
from qmcore.message import EnqueueControl
from qmcore.probe import Point
from qmcore.purpose import WrongPurposeError
from qmcore.queue import Delivery
from qmcore.times import SystemClock
from qmstorage.sqlite import joining
from tests.fix_store import MovableClock, Work, attachment_of, drain, eventually, make_queue, noted, truth, waiting_for

PAGE = 4096
ORDERS = Table("orders", MetaData(), Column("id", Integer, primary_key=True), Column("text", String))


def full(connection, _record):
    connection.execute("PRAGMA synchronous = FULL")


def driver_default(path):
    engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", full)
    return engine


def begun_by_events(path, how="BEGIN"):
    """An engine as SQLAlchemy's documentation makes it for SAVEPOINT: the driver begins nothing by itself."""
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def connected(connection, record):
        connection.isolation_level = None
        full(connection, record)

    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(how))
    return engine


MAKERS = {
    "driver": driver_default,
    "events": begun_by_events,
    "immediate": lambda path: begun_by_events(path, "BEGIN IMMEDIATE"),
}


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir):
    pass


@pytest.fixture
def space(file_store):
    opened = file_store.space(error_queue="ERRORS", memory=100 * PAGE)
    make_queue(opened, "Q", retries=3)
    make_queue(opened, "ERRORS")
    make_queue(opened, "MEMORY", delivery=Delivery.NONPERSIST)
    return opened


@pytest.fixture(params=list(MAKERS))
def engine(request, space, file_store):
    """An application's engine on the same file, with a table of its own in it."""
    made = MAKERS[request.param](file_store.path)
    with made.begin() as connection:
        ORDERS.create(connection)
    yield made
    made.dispose()


@pytest.fixture
def plain(space, file_store):
    made = driver_default(file_store.path)
    with made.begin() as connection:
        ORDERS.create(connection)
    yield made
    made.dispose()


def orders(engine):
    with contextlib.closing(sqlite3.connect(engine.url.database)) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM orders ORDER BY id")]


def test_a_work_in_the_transaction_of_an_application_changes_no_definitions(space, plain):
    attachment = attachment_of(space)
    with plain.begin() as connection, pytest.raises(WrongPurposeError):
        attachment.volume.write_on(connection, lambda unit: unit.queues.change(space.queue("Q")))


@pytest.mark.parametrize("how", ["engine", "connection", "driver"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_connection_in_autocommit_is_refused_and_left_as_it_was(space, plain, file_store, how, begun):
    space.enqueue("Q", "request")
    level = {"isolation_level": "AUTOCOMMIT"}
    engine = create_engine(f"sqlite:///{file_store.path}", **(level if how == "engine" else {}))
    event.listen(engine, "connect", full)
    with engine.connect() as connection:
        if how == "connection":
            connection.execution_options(**level)
        elif how == "driver":
            connection.connection.driver_connection.isolation_level = None
        if begun:
            connection.execute(insert(ORDERS).values(text="before"))
        for call in (
            lambda: space.enqueue("Q", "x", connection=connection),
            lambda: space.dequeue("Q", connection=connection),
        ):
            with pytest.raises(InvalidArgumentError, match="AUTOCOMMIT") as refusal:
                call()
            assert "another isolation level" in refusal.value.hint
        assert connection.in_transaction() == begun
        connection.execute(insert(ORDERS).values(text="after"))
    engine.dispose()
    assert orders(plain) == [*(["before"] if begun else []), "after"]
    assert drain(space) == ["request"]


class TestStandsOrFalls:
    def test_with_the_commit_of_a_block(self, space, engine):
        with engine.begin() as connection:
            connection.execute(insert(ORDERS).values(text="order"))
            msgid = space.enqueue("Q", "event", connection=connection)
            assert space.peek("Q") is None
            assert orders(engine) == []
        assert orders(engine) == ["order"]
        message = space.dequeue("Q")
        assert (message.msgid, message.text) == (msgid, "event")

    def test_with_its_exception(self, space, engine):
        space.enqueue("Q", "request")
        with pytest.raises(ZeroDivisionError), engine.begin() as connection:
            assert space.dequeue("Q", connection=connection).text == "request"
            connection.execute(insert(ORDERS).values(text="order"))
            space.enqueue("Q", "event", connection=connection)
            _ = 1 / 0
        assert orders(engine) == []
        (info,) = space.messages("Q")
        assert (info.size, info.retries) == (7, 0)
        assert drain(space) == ["request"]

    def test_whatever_comes_first(self, space, engine):
        with engine.begin() as connection:
            space.enqueue("Q", "event", connection=connection)
            connection.execute(insert(ORDERS).values(text="order"))
        with engine.begin() as connection:
            assert space.dequeue("Q", connection=connection).text == "event"
            connection.execute(ORDERS.delete())
            connection.rollback()
        assert orders(engine) == ["order"]
        assert drain(space) == ["event"]

    def test_with_a_connection_that_begins_by_itself(self, space, engine):
        with engine.connect() as connection:
            space.enqueue("Q", "a", connection=connection)
            connection.rollback()
            space.enqueue("Q", "b", connection=connection)
            connection.commit()
            space.enqueue("Q", "c", connection=connection)
        assert drain(space) == ["b"]

    def test_with_a_session(self, space, engine):
        with Session(engine) as session, session.begin():
            session.execute(insert(ORDERS).values(text="order"))
            space.enqueue("Q", "event", connection=session.connection())
        with Session(engine) as session:
            session.execute(insert(ORDERS).values(text="lost"))
            space.enqueue("Q", "lost", connection=session.connection())
        assert (orders(engine), drain(space)) == (["order"], ["event"])

    def test_many_at_once_and_removal(self, space, engine):
        with engine.begin() as connection:
            ids = space.enqueue_many("Q", ["a", "b", "c", "d"], connection=connection)
        with engine.begin() as connection:
            assert space.remove("Q", msgid=ids[1], connection=connection).msgid == ids[1]
            assert [message.text for message in space.dequeue_many("Q", 2, connection=connection)] == ["a", "c"]
            assert space.dequeue("Q", corrid="none", connection=connection) is None
        assert drain(space) == ["d"]
        assert space.usage("Q").dequeued == 4

    def test_what_the_transaction_has_enqueued_it_may_dequeue(self, space, engine):
        with engine.begin() as connection:
            space.enqueue("Q", "a", connection=connection)
            assert space.dequeue("Q", connection=connection).text == "a"
        assert truth(space) == ([], [])

    def test_a_refused_call_undoes_itself_and_nothing_else(self, space, engine):
        with engine.begin() as connection:
            connection.execute(insert(ORDERS).values(text="order"))
            space.enqueue("Q", "a", connection=connection)
            with pytest.raises(NoSpaceError) as refusal:
                space.enqueue("Q", bytes(3_000 * PAGE), connection=connection)
            assert refusal.value.resource is Resource.PAGES
            with pytest.raises(QueueError):
                space.enqueue_many("NONE", ["x"], connection=connection)
            space.enqueue("Q", "b", connection=connection)
        assert (orders(engine), drain(space)) == (["order"], ["a", "b"])

    def test_the_order_and_the_counters_are_those_of_any_message(self, space, engine, clock):
        space.enqueue("Q", "first")
        with engine.begin() as connection:
            space.enqueue("Q", "second", connection=connection)
            space.enqueue("Q", "late", delay=10, connection=connection)
            space.enqueue("Q", "brief", expires_in=10, connection=connection)
        space.enqueue("Q", "third")
        usage = space.usage("Q")
        assert (usage.ready, usage.delayed, usage.enqueued) == (4, 1, 5)
        clock.advance(11)
        with engine.begin() as connection:
            assert [message.text for message in space.dequeue_many("Q", 9, connection=connection)] == [
                "first",
                "second",
                "late",
                "third",
            ]
        usage = space.usage("Q")
        assert (usage.messages, usage.dequeued, usage.expired) == (0, 4, 1)

    def test_a_savepoint_of_the_application_that_is_rolled_back_takes_its_messages(self, space, engine):
        with engine.begin() as connection:
            space.enqueue("Q", "outer", connection=connection)
            with pytest.raises(ZeroDivisionError), connection.begin_nested():
                connection.execute(insert(ORDERS).values(text="inner"))
                space.enqueue("Q", "inner", connection=connection)
                _ = 1 / 0
            with connection.begin_nested():
                space.enqueue("Q", "second", connection=connection)
        assert (orders(engine), drain(space)) == ([], ["outer", "second"])

    def test_large_bodies(self, space, file_store, engine):
        body = bytes(range(256)) * 8_000
        with engine.begin() as connection:
            space.enqueue("Q", body, connection=connection)
        with engine.begin() as connection:
            assert space.dequeue("Q", connection=connection).body == body

    def test_a_kill_before_the_commit_leaves_nothing_and_after_it_everything(self, file_device, start):
        source = (
            "from tests.store.test_joining import driver_default, ORDERS\n"
            "space = open_device(sys.argv[1]).open_space('SPACE')\n"
            "engine = driver_default(sys.argv[1])\n"
            "ORDERS.metadata.create_all(engine)\n"
            "connection = engine.connect()\n"
            "connection.execute(ORDERS.insert().values(text='order'))\n"
            "said = space.dequeue('Q', connection=connection).text\n"
            "space.enqueue('Q', 'event', connection=connection)\n"
            "if sys.argv[2] == 'after': connection.commit()\n"
            "say(said)\nheard()\n"
        )
        with file_device.open_space("SPACE") as space:
            space.enqueue("Q", "request")
            child = start(source, file_device.path, "before")
            child.expect("request")
            child.kill()
            assert [message.text for message in space.browse("Q")] == ["request"]
            assert space.usage("Q").dequeued == 0
            child = start(source, file_device.path, "after")
            child.expect("request")
            child.kill()
            assert drain(space) == ["event"]
            engine = driver_default(file_device.path)
            assert orders(engine) == ["order"]
            engine.dispose()


class TestRefused:
    def test_a_savepoint_that_the_driver_would_take_for_the_whole_transaction(self, space, plain):
        """Python's driver begins no transaction for SAVEPOINT: its end would be the commit."""
        with plain.connect() as connection:
            with connection.begin_nested(), pytest.raises(InvalidArgumentError, match="SAVEPOINT") as refusal:
                space.enqueue("Q", "x", connection=connection)
            assert "begin" in refusal.value.hint
            connection.rollback()
        assert drain(space) == []

    def test_a_connection_whose_commits_do_not_reach_the_disk(self, space, file_store):
        engine = create_engine(f"sqlite:///{file_store.path}")
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA synchronous = NORMAL")
            with pytest.raises(InvalidArgumentError, match="PRAGMA synchronous is 1") as refusal:
                space.enqueue("Q", "x", connection=connection)
        assert "synchronous=FULL" in refusal.value.hint
        engine.dispose()

    def test_another_file(self, space, tmp_path):
        engine = driver_default(tmp_path / "other.db")
        with engine.connect() as connection, pytest.raises(InvalidArgumentError, match=r"leads to '.*other\.db'"):
            space.enqueue("Q", "x", connection=connection)
        engine.dispose()

    def test_a_database_in_memory(self, space):
        engine = create_engine("sqlite://")
        with engine.connect() as connection, pytest.raises(InvalidArgumentError, match="a database in memory"):
            space.dequeue("Q", connection=connection)
        engine.dispose()

    @pytest.mark.parametrize("wrong", ["a str", object(), 5])
    def test_what_is_no_connection(self, space, wrong):
        with pytest.raises(InvalidArgumentError, match="must be one of SQLAlchemy"):
            space.enqueue("Q", "x", connection=wrong)

    def test_another_database(self, space):
        from sqlalchemy import Engine
        from sqlalchemy.dialects import sqlite
        from sqlalchemy.pool import StaticPool

        class Driver:
            def __getattr__(self, name):
                return lambda *_: None

        dialect = sqlite.dialect()
        dialect.name = "other"
        engine = Engine(StaticPool(Driver), dialect, "other://")
        connection = engine.connect()
        with pytest.raises(InvalidArgumentError, match="leads to other"):
            space.enqueue("Q", "x", connection=connection)

    def test_waiting(self, space, plain):
        with plain.connect() as connection, pytest.raises(InvalidArgumentError, match="cannot wait"):
            space.dequeue("Q", wait=1, connection=connection)

    def test_non_persistent_messages(self, space, plain):
        with plain.begin() as connection:
            for act in (
                lambda: space.enqueue("Q", "x", persistent=False, connection=connection),
                lambda: space.enqueue("MEMORY", "x", connection=connection),
                lambda: space.dequeue("MEMORY", connection=connection),
                lambda: space.dequeue_many("MEMORY", 3, connection=connection),
                lambda: space.remove("MEMORY", connection=connection),
            ):
                with pytest.raises(InvalidArgumentError, match="of the application"):
                    act()
            space.enqueue("MEMORY", "kept", persistent=True, connection=connection)
        assert drain(space, "MEMORY") == ["kept"]

    def test_two_transactions_at_once(self, space, plain):
        with plain.begin() as connection, space.transaction():
            for act in (
                lambda: space.enqueue("Q", "x", connection=connection),
                lambda: space.dequeue("Q", connection=connection),
            ):
                with pytest.raises(ProtocolError):
                    act()
            space.enqueue("Q", "outside", transactional=False, connection=connection)
        assert drain(space) == ["outside"]

    def test_a_connection_that_is_closed(self, space, plain):
        connection = plain.connect()
        connection.close()
        with pytest.raises(InvalidArgumentError, match="closed"):
            space.enqueue("Q", "x", connection=connection)


class TestOthers:
    """Who waits for the application, and for whom it waits."""

    def test_a_plain_call_in_the_same_thread_is_refused_at_once(self, space, plain):
        with plain.begin() as connection:
            space.enqueue("Q", "joined", connection=connection)
            for act in (
                lambda: space.enqueue("Q", "plain"),
                lambda: space.dequeue("Q"),
                lambda: space.dequeue("Q", wait=5),
            ):
                with pytest.raises(ProtocolError, match="this thread has a transaction of its own") as refusal:
                    act()
                assert "connection=" in refusal.value.hint
            assert space.peek("Q") is None
            assert list(space.messages("Q")) == []
        space.enqueue("Q", "plain")
        assert drain(space) == ["joined", "plain"]

    def test_after_a_rollback_or_a_closed_connection_plain_calls_go_on(self, space, plain):
        connection = plain.connect()
        space.enqueue("Q", "lost", connection=connection)
        connection.close()
        space.enqueue("Q", "one")
        with plain.connect() as connection:
            space.enqueue("Q", "lost", connection=connection)
            connection.rollback()
            space.enqueue("Q", "two")
        assert drain(space) == ["one", "two"]

    def test_other_threads_wait_until_the_application_commits(self, space, plain):
        with plain.begin() as connection:
            space.enqueue("Q", "joined", connection=connection)
            writing = noted(space.probe, Point.BEFORE_WRITE)
            other = Work(lambda: space.enqueue("Q", "other"))
            eventually(lambda: writing, "the other is at work")
        other.results()
        assert drain(space) == ["joined", "other"]

    def test_others_are_refused_with_a_clear_sentence_and_not_for_ever(self, file_device, start):
        child = start(
            "from qmstorage.sqlite import translate\ntranslate.BUSY_SECONDS = 0.2\n"
            "from qmcore.errors import QueueError\n"
            "space = open_device(sys.argv[1]).open_space('SPACE')\nsay('open')\nheard()\n"
            "try:\n    space.enqueue('Q', 'x')\nexcept QueueError as error:\n    say(error.name, error.message)\n",
            file_device.path,
        )
        child.expect("open")
        engine = driver_default(file_device.path)
        with file_device.open_space("SPACE") as space, engine.begin() as connection:
            space.enqueue("Q", "joined", connection=connection)
            child.say()
            line = child.line()
        engine.dispose()
        assert line.startswith("QMESYSTEM")
        assert "stayed locked by another program for 0.2 seconds" in line

    def test_a_thread_that_waits_for_the_application_does_not_keep_it_from_going_on(self, space, plain, clock):
        with plain.begin() as connection:
            connection.execute(insert(ORDERS).values(text="order"))
            writing = noted(space.probe, Point.BEFORE_WRITE)
            other = Work(lambda: space.enqueue("Q", "other"))
            eventually(lambda: writing, "the other is at work")
            # The housekeeping of each second is due.
            clock.advance(2)
            space.enqueue("Q", "joined", connection=connection)
            assert space.dequeue("Q", connection=connection).text == "joined"
        other.results()
        assert drain(space) == ["other"]

    def test_what_a_dead_process_left_is_no_reason_to_refuse_the_application(self, file_device, start):
        engine, moved = driver_default(file_device.path), MovableClock(SystemClock().now())
        with open_device(file_device.path, clock=moved) as device, device.open_space("SPACE") as space:
            space.enqueue("Q", "held")
            space.enqueue("Q", "free")
            child = start(
                "space = open_device(sys.argv[1]).open_space('SPACE')\ntransaction = space.transaction()\n"
                "transaction.join_context()\nsay(space.dequeue('Q').text)\nheard()\n",
                file_device.path,
            )
            child.expect("held")
            with engine.begin() as connection:
                assert space.dequeue("Q", connection=connection).text == "free"
                child.kill()
                moved.advance(2)
                space.enqueue("Q", "event", connection=connection)
                moved.advance(2)
                assert space.usage("Q").held == 1
            attachment_of(space).do_housekeeping(now=True)
            assert drain(space) == ["held", "event"]
        engine.dispose()


class TestAfterwards:
    def test_a_waiter_in_another_process_is_woken_after_the_commit_and_not_before(self, file_device, start):
        child = start(
            "from qmcore.acts import waiting\nwaiting.CHECK_SECONDS = 1000.0\n"
            "space = open_device(sys.argv[1]).open_space('SPACE')\n"
            "say(space.dequeue('Q', wait=60).text)\n",
            file_device.path,
        )
        engine = driver_default(file_device.path)
        with file_device.open_space("SPACE") as space:
            eventually(lambda: waiting_for(file_device.path) == 1, "the other waits")
            with engine.connect() as connection:
                space.enqueue("Q", "lost", connection=connection)
                connection.rollback()
                space.enqueue("Q", "event", connection=connection)
                assert waiting_for(file_device.path) == 1
                connection.commit()
            child.expect("event")
            child.finish()
        engine.dispose()

    def threads_after_commits(self, space, engine):
        """Return how many threads were seen at once that see to what follows commits."""
        most, others = 0, set(threading.enumerate())
        for number in range(30):
            with engine.begin() as connection:
                space.enqueue("Q", str(number), connection=connection)
            names = [thread.name for thread in set(threading.enumerate()) - others]
            most = max(most, names.count("qmadmin-follow"))
        return most

    def test_commits_take_no_thread_where_nobody_waits(self, space, plain):
        assert self.threads_after_commits(space, plain) == 0

    def test_commits_take_one_thread_together_where_some_wait(self, space, plain, file_store):
        waiting = Work(*[lambda: space.dequeue("Q", corrid="last", wait=240).text] * 2)
        eventually(lambda: waiting_for(file_store.path) == 2, "two wait")
        assert self.threads_after_commits(space, plain) == 1
        with plain.begin() as connection:
            space.enqueue_many("Q", ["end"] * 2, EnqueueControl(corrid="last"), connection=connection)
        assert waiting.results() == ["end", "end"]

    @pytest.fixture
    def started(self, monkeypatch, trusted):
        self.others = set(threading.enumerate())
        events = []
        monkeypatch.setattr(capacity, "start", events.append)
        return events

    def limited(self, space):
        high = parse_high("2m")
        make_queue(space, "LIMITED", threshold=Threshold(high, parse_low("0", high), "notify"))

    def settled(self, space):
        """No claim is open any more, and nobody is about to start a command."""
        its = attachment_of(space)
        claims = its.volume.read(lambda unit: unit.capacity_commands.of_space(its.opened.space.id))
        ours = set(threading.enumerate()) - self.others
        return not claims and not any(thread.name == "qmadmin-follow" for thread in ours)

    def test_a_capacity_command_runs_after_the_commit(self, space, plain, started):
        self.limited(space)
        with plain.begin() as connection:
            space.enqueue_many("LIMITED", ["a", "b"], connection=connection)
            assert started == []
        eventually(lambda: self.settled(space) and bool(started), "the command is started")
        assert [(event.queue, event.value) for event in started] == [("LIMITED", 2)]

    def test_and_not_after_a_rollback(self, space, plain, started):
        self.limited(space)
        with plain.connect() as connection:
            space.enqueue_many("LIMITED", ["a", "b"], connection=connection)
            connection.rollback()
            space.enqueue("LIMITED", "c", connection=connection)
            connection.commit()
        eventually(lambda: self.settled(space), "all is done")
        assert started == []

    def test_nor_after_that_of_a_savepoint(self, space, plain, started):
        self.limited(space)
        with plain.begin() as connection:
            space.enqueue("LIMITED", "a", connection=connection)
            nested = connection.begin_nested()
            space.enqueue("LIMITED", "b", connection=connection)
            nested.rollback()
        eventually(lambda: self.settled(space), "all is done")
        assert started == []
        assert space.usage("LIMITED").messages == 1

    def test_what_the_application_consumes_arms_it_again(self, space, plain, started):
        self.limited(space)
        for times in (1, 2):
            with plain.begin() as connection:
                space.enqueue_many("LIMITED", ["a", "b"], connection=connection)
            eventually(lambda times=times: len(started) == times and self.settled(space), "it runs")
            with plain.begin() as connection:
                assert len(space.dequeue_many("LIMITED", 9, connection=connection)) == 2


def test_limits_of_the_queue_space_hold_and_what_has_expired_makes_room(file_store, clock):
    opened = file_store.space("SMALL", messages=3, memory=10 * PAGE)
    make_queue(opened, "Q")
    engine = driver_default(file_store.path)
    opened.enqueue("Q", "x", expires_in=5)
    opened.enqueue("Q", "Y", persistent=False)
    with engine.begin() as connection:
        opened.enqueue("Q", "z", connection=connection)
        with pytest.raises(NoSpaceError) as refusal:
            opened.enqueue("Q", "too many", connection=connection)
        assert (refusal.value.resource, refusal.value.used, refusal.value.limit) == (Resource.MESSAGES, 3, 3)
        clock.advance(6)
        opened.enqueue("Q", "fits", connection=connection)
    assert drain(opened) == ["Y", "z", "fits"]
    engine.dispose()


def test_a_transaction_that_has_read_what_others_changed_since_is_told_so(space, file_store):
    engine = begun_by_events(file_store.path)
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM message").fetchone()
        space.enqueue("Q", "by another")
        with pytest.raises(TransactionStartError, match="others have written since") as refusal:
            space.enqueue("Q", "joined", connection=connection)
        assert "begin again" in refusal.value.hint
        connection.rollback()
        space.enqueue("Q", "joined", connection=connection)
        connection.commit()
    assert drain(space) == ["by another", "joined"]
    engine.dispose()


@pytest.mark.parametrize("has_read", [True, False])
def test_a_transaction_that_begins_late_waits_until_it_may_write(space, file_store, monkeypatch, has_read):
    """SQLite refuses at once, without a wait, to let one write that has read before."""
    engine = begun_by_events(file_store.path)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        if has_read:
            connection.exec_driver_sql("SELECT count(*) FROM message").fetchone()
        other = sqlite3.connect(file_store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        pauses = []
        # Not that of the module `time`, in which other threads sleep too.
        sleeping = SimpleNamespace(
            monotonic=time.monotonic, sleep=lambda seconds: (pauses.append(seconds), other.rollback())
        )
        monkeypatch.setattr(joining, "time", sleeping)
        space.enqueue("Q", "joined", connection=connection)
        connection.commit()
        other.close()
    assert len(pauses) == 1
    assert drain(space) == ["joined"]
    engine.dispose()
