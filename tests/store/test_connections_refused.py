"""Connections of applications that no call can join, and what of them makes no difference."""

import asyncio
import contextlib
import gc
import sqlite3
import sys
import threading

import psycopg
import pytest
import sqlalchemy
from psycopg.adapt import Dumper, Loader
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from qmcore.errors import AbortedError, BadQueueError, InvalidArgumentError, ProtocolError, QueueError
from qmcore.queue import Delivery
from qmstorage.sqlite import joining
from tests.fix_applications import configured
from tests.fix_postgres import database_of
from tests.fix_store import Work, drain, make_queue

PAGE = 4096


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(memory_dir):
    pass


def refused(space, connection, match, kind=InvalidArgumentError):
    """Both directions are refused with the same sentence."""
    for call in (
        lambda: space.enqueue("Q", "x", connection=connection),
        lambda: space.dequeue("Q", connection=connection),
    ):
        with pytest.raises(kind, match=match) as refusal:
            call()
        assert refusal.value.hint
    return refusal.value


@pytest.fixture
def space(file_store):
    opened = file_store.space(memory=100 * PAGE)
    make_queue(opened, "Q")
    return opened


@pytest.fixture
def connection(space, file_store):
    with contextlib.closing(sqlite3.connect(file_store.path)) as made:
        yield made


@pytest.fixture
def remote(arena):
    made = arena.space()
    make_queue(made, "Q")
    return made


@pytest.fixture
def driver(arena, remote):
    with contextlib.closing(psycopg.connect(database_of(arena.url)[0])) as made:
        yield made


@pytest.fixture
def django(space, file_store):
    configured(file_store.path)
    import django.db

    yield django.db
    django.db.connection.close()


class TestWhatIsNoConnection:
    @pytest.mark.parametrize(
        ("wrong", "name"),
        [("a str", "str"), (5, "int"), (object(), "object"), (sqlite3, "module"), (sqlite3.Connection, "type")],
    )
    def test_is_named_by_its_type(self, space, wrong, name):
        error = refused(space, wrong, f"must be one of SQLAlchemy, Django, psycopg 3 or sqlite3, got {name}$")
        assert "django.db.connection" in error.hint

    def test_such_as_an_engine_a_cursor_or_all_connections_of_django(self, space, file_store, connection, django):
        engine = sqlalchemy.create_engine(f"sqlite:///{file_store.path}")
        refused(space, engine, "got sqlalchemy.engine.base.Engine$")
        refused(space, connection.cursor(), "got sqlite3.Cursor$")
        refused(space, django.connections, "got django.db.utils.ConnectionHandler$")

    def test_such_as_what_stands_for_a_cache_of_django(self, space, django):
        from django.utils.connection import ConnectionProxy

        refused(
            space, ConnectionProxy({"default": object()}, "default"), "got django.utils.connection.ConnectionProxy$"
        )

    def test_such_as_one_for_asyncio(self, space, arena):
        async def asked():
            async with await psycopg.AsyncConnection.connect(database_of(arena.url)[0]) as connection:
                refused(space, connection, "for asyncio, as psycopg.AsyncConnection is")

        asyncio.run(asked())
        from sqlalchemy.ext.asyncio import AsyncSession

        refused(space, AsyncSession(), "for asyncio, as sqlalchemy.ext.asyncio.session.AsyncSession is")


class TestOfSqlite3:
    @pytest.mark.parametrize("begun", [False, True])
    def test_in_autocommit_is_refused_unless_a_transaction_is_open(self, space, connection, begun):
        connection.isolation_level = None
        if begun:
            connection.execute("BEGIN")
            space.enqueue("Q", "joined", connection=connection)
            connection.commit()
            assert drain(space) == ["joined"]
        refused(space, connection, "AUTOCOMMIT")
        assert not connection.in_transaction

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="the attribute is of Python 3.12")
    def test_with_the_attribute_autocommit_is_refused(self, space, connection):
        connection.autocommit = True
        refused(space, connection, "AUTOCOMMIT")
        assert not connection.in_transaction

    def test_of_another_thread(self, space, connection):
        assert Work(lambda: refused(space, connection, "was made in another thread") and None).results() == [None]
        space.enqueue("Q", "here", connection=connection)
        connection.commit()
        assert drain(space) == ["here"]

    def test_that_may_be_used_in_other_threads_is_used_there(self, space, file_store):
        shared = sqlite3.connect(file_store.path, check_same_thread=False)
        assert Work(lambda: space.enqueue("Q", "there", connection=shared) and None).results() == [None]
        shared.commit()
        shared.close()
        assert drain(space) == ["there"]

    def test_whose_commits_do_not_reach_the_disk(self, space, connection):
        connection.execute("PRAGMA synchronous = NORMAL")
        error = refused(space, connection, "PRAGMA synchronous is 1")
        assert "synchronous=FULL" in error.hint

    def test_that_has_the_file_of_the_device_beside_its_own(self, space, file_store):
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            connection.execute("ATTACH ? AS queues", (file_store.path,))
            refused(space, connection, "leads to 'a database in memory'")

    def test_for_non_persistent_messages(self, space, connection):
        make_queue(space, "MEMORY", delivery=Delivery.NONPERSIST)
        for call in (
            lambda: space.enqueue("MEMORY", "x", connection=connection),
            lambda: space.dequeue("MEMORY", connection=connection),
        ):
            with pytest.raises(InvalidArgumentError, match="of the application"):
                call()
        assert not connection.in_transaction

    @pytest.mark.parametrize("declared", ["TEXT", "blob", "Integer"])
    def test_that_converts_what_is_read(self, space, file_store, declared, monkeypatch):
        monkeypatch.setitem(sqlite3.converters, declared.upper(), lambda raw: f"<{raw}>")
        space.enqueue("Q", "request")
        with contextlib.closing(sqlite3.connect(file_store.path, detect_types=sqlite3.PARSE_DECLTYPES)) as connection:
            refused(space, connection, f"converts what it reads from columns of type {declared.upper()}")
        with contextlib.closing(sqlite3.connect(file_store.path)) as connection:
            assert space.dequeue("Q", connection=connection).text == "request"
            connection.commit()

    def test_may_have_rows_texts_and_cursors_of_any_kind(self, space, file_store):
        class Rows(sqlite3.Connection):
            def cursor(self, *_):
                raise AssertionError("this is for the application")

        space.enqueue("Q", "request", corrid="ü", reply_queue="Q")
        with contextlib.closing(sqlite3.connect(file_store.path, factory=Rows)) as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = bytes
            message = space.dequeue("Q", connection=connection)
            assert (message.text, message.reply_queue, message.corrid) == ("request", "Q", "ü".encode())
            assert connection.text_factory is bytes
            with pytest.raises(BadQueueError):
                space.enqueue("NONE", "x", connection=connection)
            assert connection.text_factory is bytes

    def test_a_call_beside_its_transaction_is_refused_in_the_same_thread(self, space, connection, monkeypatch):
        monkeypatch.setattr(joining, "PATIENCE_SECONDS", 0.0)
        space.enqueue("Q", "joined", connection=connection)
        for call in (lambda: space.enqueue("Q", "plain"), lambda: space.dequeue("Q")):
            with pytest.raises(ProtocolError, match="this thread has a transaction of its own") as refusal:
                call()
            assert "connection=" in refusal.value.hint
        connection.rollback()
        space.enqueue("Q", "plain")
        assert drain(space) == ["plain"]

    def test_that_nobody_has_any_more_is_rolled_back(self, space, file_store):
        space.enqueue("Q", "lost", connection=sqlite3.connect(file_store.path))
        gc.collect()
        space.enqueue("Q", "plain")
        assert drain(space) == ["plain"]

    def test_to_a_database_of_postgresql(self, remote, connection):
        refused(remote, connection, "leads to sqlite3, the device is a database of PostgreSQL")


class TestOfPsycopg:
    def test_in_autocommit_outside_a_block(self, remote, driver):
        driver.autocommit = True
        refused(remote, driver, "AUTOCOMMIT")
        with driver.transaction():
            remote.enqueue("Q", "joined", connection=driver)
        assert drain(remote) == ["joined"]

    def test_in_a_two_phase_transaction_prepared_or_not(self, remote, driver):
        driver.tpc_begin("qmadmin-test")
        refused(remote, driver, "is in a two-phase transaction")
        driver.execute("SELECT 1")
        refused(remote, driver, "is in a two-phase transaction")
        driver.tpc_rollback()
        remote.enqueue("Q", "joined", connection=driver)
        driver.commit()
        assert drain(remote) == ["joined"]

    def test_in_which_a_statement_has_failed(self, remote, driver):
        with pytest.raises(psycopg.Error):
            driver.execute("SELECT 1/0")
        error = refused(remote, driver, "can only be rolled back, because a statement in it has failed", AbortedError)
        assert "savepoint" in error.hint
        driver.rollback()
        remote.enqueue("Q", "joined", connection=driver)
        driver.commit()
        assert drain(remote) == ["joined"]

    def test_in_the_middle_of_a_statement(self, remote, driver):
        rows = driver.cursor().stream("SELECT generate_series(1, 3)")
        assert next(rows) == (1,)
        refused(remote, driver, "in the middle of a statement")
        rows.close()
        driver.rollback()

    def test_in_a_pipeline(self, remote, driver):
        with driver.pipeline():
            refused(remote, driver, "in the middle of a statement, a COPY or a pipeline")

    def test_in_another_encoding(self, remote, driver):
        driver.execute("SET client_encoding = 'LATIN1'")
        refused(remote, driver, "client_encoding LATIN1")

    def test_whose_commits_may_be_lost(self, remote, driver):
        driver.execute("SET synchronous_commit = off")
        refused(remote, driver, "synchronous_commit is off")

    def test_whose_commits_may_be_lost_from_one_transaction_on(self, remote, driver):
        remote.enqueue("Q", "joined", connection=driver)
        driver.commit()
        driver.execute("SET LOCAL synchronous_commit = off")
        refused(remote, driver, "synchronous_commit is off")
        driver.execute("SET LOCAL synchronous_commit = local")
        remote.enqueue("Q", "durable", connection=driver)
        driver.commit()
        assert drain(remote) == ["joined", "durable"]

    def test_that_was_lost(self, remote, driver, arena):
        arena.looking.execute("SELECT pg_terminate_backend(%s, 10000)", [driver.info.backend_pid])
        with pytest.raises(QueueError, match="was lost"):
            remote.enqueue("Q", "x", connection=driver)
        refused(remote, driver, "the connection is closed")

    def test_to_a_file(self, space, driver):
        refused(space, driver, "leads to psycopg, the device is an SQLite file")

    def test_may_have_rows_and_types_of_any_kind(self, remote, driver):
        class Loaded(Loader):
            def load(self, data):
                raise AssertionError("this is for the application")

        class Dumped(Dumper):
            def dump(self, obj):
                raise AssertionError("this is for the application")

        remote.enqueue("Q", "request", corrid="ü", reply_queue="Q")
        driver.row_factory = dict_row
        for name in ("int2", "int4", "int8", "text", "bytea", "bool", "numeric"):
            driver.adapters.register_loader(name, Loaded)
        for kind in (str, int, bytes, list):
            driver.adapters.register_dumper(kind, Dumped)
        message = remote.dequeue("Q", connection=driver)
        assert (message.text, message.reply_queue, message.corrid) == ("request", "Q", "ü".encode())
        remote.enqueue_many("Q", ["a", bytes(3_000_000)], connection=driver)
        driver.commit()
        assert remote.dequeue("Q").text == "a"

    def test_hears_what_the_application_listens_for(self, remote, driver):
        heard = []
        driver.add_notify_handler(heard.append)
        driver.execute("LISTEN application")
        driver.commit()
        driver.execute("NOTIFY application, 'a'")
        driver.commit()
        remote.enqueue("Q", "joined", connection=driver)
        driver.commit()
        assert [notice.payload for notice in heard] == ["a"]
        assert drain(remote) == ["joined"]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orm_order"
    number: Mapped[int] = mapped_column(primary_key=True)


class TestOfSqlAlchemy:
    @pytest.fixture
    def engine(self, space, file_store):
        made = sqlalchemy.create_engine(f"sqlite:///{file_store.path}")
        Base.metadata.create_all(made)
        yield made
        made.dispose()

    @pytest.fixture
    def on_server(self, arena, remote):
        url = sqlalchemy.engine.make_url(database_of(arena.url)[0]).set(drivername="postgresql+psycopg")
        made = sqlalchemy.create_engine(url)
        yield made
        made.dispose()

    def test_a_session_of_several_engines_is_asked_for_a_connection_of_the_right_one(self, space, engine):
        with Session(binds={Order: engine}) as session, session.begin():
            error = refused(space, session, "the session has no engine of its own")
            assert "bind_arguments" in error.hint
            session.add(Order(number=1))
            space.enqueue("Q", "joined", connection=session.connection(bind_arguments={"mapper": Order}))
        assert drain(space) == ["joined"]

    def test_a_session_whose_flush_has_failed(self, space, engine):
        with Session(engine) as session:
            session.add(Order(number=1))
            session.commit()
            session.add(Order(number=1))
            with pytest.raises(sqlalchemy.exc.IntegrityError):
                session.flush()
            refused(space, session, "can only be rolled back", AbortedError)
            session.rollback()
            space.enqueue("Q", "joined", connection=session)
            session.commit()
        assert drain(space) == ["joined"]

    def test_a_session_in_two_phases(self, remote, on_server):
        with Session(on_server, twophase=True) as session:
            refused(remote, session, "is in a two-phase transaction")

    def test_a_connection_of_another_thread(self, space, engine):
        made = sqlalchemy.create_engine(
            engine.url, connect_args={"check_same_thread": True}, poolclass=sqlalchemy.pool.StaticPool
        )
        with made.connect() as connection:
            assert Work(lambda: refused(space, connection, "was made in another thread") and None).results() == [None]
        made.dispose()

    def test_a_commit_that_the_server_would_turn_into_a_rollback_is_refused(self, remote, on_server):
        """The application has swallowed the failure of a statement of its own."""
        with on_server.connect() as connection:
            remote.enqueue("Q", "x", connection=connection)
            with contextlib.suppress(sqlalchemy.exc.DBAPIError):
                connection.execute(sqlalchemy.text("SELECT 1/0"))
            with pytest.raises(AbortedError, match="was rolled back and not committed"):
                connection.commit()
            connection.rollback()
            remote.enqueue("Q", "y", connection=connection)
            connection.commit()
        with Session(on_server) as session:
            with contextlib.suppress(AbortedError), session.begin():
                remote.enqueue("Q", "x", connection=session)
                with contextlib.suppress(sqlalchemy.exc.DBAPIError):
                    session.execute(sqlalchemy.text("SELECT 1/0"))
            remote.enqueue("Q", "z", connection=session)
            session.commit()
        assert drain(remote) == ["y", "z"]

    def test_a_connection_that_leads_to_another_database_after_it_was_lost(self, arena, remote, on_server):
        """As where a pool makes its connections to one of several servers."""
        url = on_server.url
        leads_to = [url.database, "postgres"]
        made = sqlalchemy.create_engine(
            url, creator=lambda: psycopg.connect(database_of(arena.url)[0], dbname=leads_to.pop(0))
        )
        with made.connect() as connection:
            remote.enqueue("Q", "joined", connection=connection)
            connection.commit()
            connection.invalidate()
            refused(remote, connection, "leads to database 'postgres'")
        made.dispose()
        assert drain(remote) == ["joined"]

    @pytest.mark.parametrize("end", ["invalidate", "commit", "rollback", "close"])
    @pytest.mark.parametrize("where", ["file", "server"])
    def test_what_ends_behind_its_back_keeps_the_thread_from_nothing(self, request, where, end):
        space = request.getfixturevalue("space" if where == "file" else "remote")
        engine = request.getfixturevalue("engine" if where == "file" else "on_server")
        with engine.connect() as connection:
            space.enqueue("Q", "joined", connection=connection)
            if end == "invalidate":
                connection.invalidate()
            else:
                getattr(connection.connection.driver_connection, end)()
            space.enqueue("Q", "plain")
            make_queue(space, "NEW")
            if end in ("commit", "rollback"):
                # SQLAlchemy takes its own transaction for open, which ends as ever.
                space.enqueue("Q", "again", connection=connection)
                connection.commit()
            else:
                connection.invalidate()
        texts = {"commit": ["joined", "plain", "again"], "rollback": ["plain", "again"]}.get(end, ["plain"])
        assert drain(space) == texts


class TestOfDjango:
    def test_outside_atomic(self, space, django):
        error = refused(space, django.connection, "Django's connection 'default' is not inside atomic()")
        assert "ATOMIC_REQUESTS" in error.hint
        django.connection.ensure_connection()
        refused(space, django.connection, "is not inside atomic()")

    def test_in_a_transaction_of_its_own_management(self, space, django):
        django.transaction.set_autocommit(autocommit=False)
        refused(space, django.connection, "is not inside atomic()")
        django.transaction.set_autocommit(autocommit=True)

    def test_that_has_to_be_rolled_back(self, space, django):
        with django.transaction.atomic():
            django.transaction.set_rollback(True)
            refused(space, django.connection, "can only be rolled back", AbortedError)

    def test_of_another_thread(self, space, django):
        with django.transaction.atomic():
            wrapper = django.connections["default"]
            assert Work(lambda: refused(space, wrapper, "was made in another thread") and None).results() == [None]
            space.enqueue("Q", "here", connection=wrapper)
        assert drain(space) == ["here"]

    def test_to_another_database(self, remote, django):
        with django.transaction.atomic():
            refused(
                remote, django.connection, "leads to sqlite through sqlite3, the device is a database of PostgreSQL"
            )

    def test_wrappers_of_what_it_executes_see_the_applications_statements_only(self, space, django):
        seen = []

        def noted(execute, sql, *others):
            seen.append(sql)
            return execute(sql, *others)

        with django.transaction.atomic(), django.connection.execute_wrapper(noted):
            with django.connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            space.enqueue("Q", "joined", connection=django.connection)
        assert seen == ["SELECT 1"]
        assert drain(space) == ["joined"]

    def test_its_functions_for_a_commit_run_beside_ours(self, space, django):
        done = []
        with django.transaction.atomic():
            django.transaction.on_commit(lambda: done.append(space.dequeue("Q").text))
            space.enqueue("Q", "joined", connection=django.connection)
        assert done == ["joined"]


class TestACallThatDoesNothing:
    """It has begun a transaction where none was open: what it leaves open would keep others waiting."""

    def ask(self, space, connection):
        with pytest.raises(BadQueueError):
            space.enqueue("NONE", "x", connection=connection)
        assert space.dequeue("Q", connection=connection) is None
        assert space.dequeue("Q", corrid="none", connection=connection) is None

    def test_leaves_no_transaction_open_on_a_file(self, space, connection):
        self.ask(space, connection)
        assert not connection.in_transaction
        make_queue(space, "NEW")
        space.enqueue("Q", "plain")
        assert drain(space) == ["plain"]

    def test_leaves_no_transaction_open_on_a_server(self, remote, driver):
        self.ask(remote, driver)
        assert driver.info.transaction_status == TransactionStatus.IDLE
        make_queue(remote, "NEW")

    def test_leaves_one_open_that_was(self, remote, driver):
        driver.execute("SELECT 1")
        self.ask(remote, driver)
        assert driver.info.transaction_status == TransactionStatus.INTRANS

    def test_releases_what_is_due_all_the_same(self, space, connection, clock):
        space.enqueue("Q", "late", delay=10)
        clock.advance(11)
        assert space.dequeue("Q", connection=connection).text == "late"
        connection.rollback()
        assert drain(space) == ["late"]


def test_threads_are_told_apart(space, connection):
    """Another thread has no transaction open and waits; so does one that has ended."""
    space.enqueue("Q", "joined", connection=connection)
    asked = threading.Event()
    other = Work(lambda: asked.set() or (space.enqueue("Q", "other") and None))
    asked.wait()
    connection.commit()
    assert other.results() == [None]
    assert sorted(drain(space)) == ["joined", "other"]
