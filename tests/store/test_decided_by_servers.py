"""A server of PostgreSQL that decides: the decision and the commit are one message, and all is done, or nothing."""

from __future__ import annotations

import contextlib
import tempfile
import threading

import pytest

import qmadmin
from qmcore.errors import AbortedError, OutcomeUnknownError
from tests.fix_applications import application_at, connected
from tests.fix_databases import decisions_in
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

pytestmark = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
EACH = [("server", "psycopg"), ("server", "SQLAlchemy"), ("server", "Session"), ("server", "Django")]
LIBRARIES = pytest.mark.parametrize("shop", EACH, indirect=True, ids="-".join)
DRIVER, CONNECTION, SESSION, DJANGO = (
    pytest.mark.parametrize("shop", [each], indirect=True, ids="-".join) for each in EACH
)


@contextlib.contextmanager
def moving(pair, shop):
    """Move a message and record an order, in a transaction that the server of the application decides."""
    with qmadmin.transaction(pair.a, shop.connection, decider=shop.connection) as tx:
        pair.a.enqueue("OUT", pair.a.dequeue("Q").text)
        shop.order("x")
        yield tx


def nothing_is_done(pair, shop, retries=1):
    """Return whether nothing of it is left, and the message is where it was, with a try more."""
    message = pair.a.dequeue("Q")
    left = message.text, message.retries, drain(pair.a, "OUT"), shop.orders(), decisions_in(shop.place)
    return left == ("x", retries, [], [], 0) and pair.a.tpc_recover() == []


def works_again(pair, shop):
    """Return whether the connection takes part in the next transaction as ever."""
    pair.a.enqueue("Q", "again")
    with moving(pair, shop) as tx:
        pass
    with shop.transaction():
        shop.order("y")
    return tx.complete and (drain(pair.a, "OUT"), shop.orders()) == (["again"], ["x", "y"])


@LIBRARIES
def test_all_is_committed_and_the_library_knows_it(pair, shop):
    pair.a.enqueue("Q", "x")
    with moving(pair, shop) as tx:
        pass
    assert tx.complete
    assert decisions_in(shop.place) == 1
    assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == ([], ["x"], ["x"])
    with shop.transaction():
        shop.execute("DELETE FROM shop_order")
    assert works_again(pair, shop)


@DRIVER
def test_it_takes_three_messages_to_the_server_beside_those_of_the_application(pair, shop):
    pair.a.enqueue("Q", "x")
    pair.a.enqueue("Q", "y")
    with moving(pair, shop):
        pass
    with tempfile.TemporaryFile() as told:
        connection = shop.connection.pgconn
        connection.trace(told.fileno())
        with qmadmin.transaction(pair.a, shop.connection, decider=shop.connection):
            pair.a.enqueue("OUT", pair.a.dequeue("Q").text)
            before = shop.connection.cursor().execute("INSERT INTO shop_order VALUES ('y')").rowcount
        connection.untrace()
        told.seek(0)
        sent = [line.split(b"\t") for line in told.read().splitlines() if b"\tF\t" in line]
    queries = [line[4] for line in sent if line[3] == b"Query"]
    assert before == 1
    # What begins it, the application's own, the look whether anything was changed, and the decision.
    assert [query.split()[0].strip(b' "') for query in queries] == [b"BEGIN;", b"INSERT", b"SELECT", b"SELECT"], queries
    assert queries[-1].rstrip(b'" ').endswith(b"COMMIT")


class TestRefused:
    """What the server refuses is not committed, and that is known."""

    @LIBRARIES
    def test_a_constraint_that_is_checked_at_the_commit(self, pair, shop):
        with shop.transaction():
            shop.execute("CREATE TABLE one (x INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        pair.a.enqueue("Q", "x")
        with pytest.raises(AbortedError, match="has refused the transaction: duplicate key"), moving(pair, shop):
            shop.execute("INSERT INTO one VALUES (1), (1)")
        assert nothing_is_done(pair, shop)
        assert works_again(pair, shop)
        with shop.transaction():
            shop.execute("DROP TABLE one")

    @LIBRARIES
    @pytest.mark.parametrize("change", ["DELETE FROM qmadmin_decision", "UPDATE qmadmin_decision SET decisions = 0"])
    def test_where_the_table_was_set_back_meanwhile(self, pair, shop, change):
        pair.a.enqueue("Q", "y")
        with moving(pair, shop):
            pass
        drain(pair.a, "OUT")
        with shop.transaction():
            shop.execute("DELETE FROM shop_order")
        pair.a.enqueue("Q", "x")
        with (
            pytest.raises(AbortedError, match="was set back to an earlier state"),
            moving(pair, shop),
            contextlib.closing(connected(shop.place)) as other,
        ):
            other.execute("DELETE FROM qmadmin_decision WHERE kind = 'commit'")
            other.execute(f"{change} WHERE kind = 'era'")
            other.commit()
        assert nothing_is_done(pair, shop)
        assert works_again(pair, shop)

    @DRIVER
    def test_what_cannot_be_committed_after_another_one(self, pair, shop):
        import psycopg

        shop.connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        pair.a.enqueue("Q", "x")
        with (
            pytest.raises(AbortedError, match="could not serialize access"),
            moving(pair, shop),
            contextlib.closing(connected(shop.place)) as other,
        ):
            # Each reads what the other one writes.
            other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            for its in (shop.connection, other):
                its.execute("SELECT count(*) FROM shop_order")
            other.execute("INSERT INTO shop_order VALUES ('other')")
            other.commit()
        shop.connection.isolation_level = None
        with shop.transaction():
            shop.execute("DELETE FROM shop_order")
        assert nothing_is_done(pair, shop)

    @DRIVER
    def test_a_commit_inside_a_block_of_the_driver(self, pair, shop):
        pair.a.enqueue("Q", "x")
        block = shop.connection.transaction()
        with pytest.raises(AbortedError, match="Explicit commit"), moving(pair, shop):
            block.__enter__()
        with contextlib.suppress(Exception):
            block.__exit__(None, None, None)
        assert nothing_is_done(pair, shop)


AT_COMMIT = """
CREATE TABLE seen (text varchar(80) NOT NULL);
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON shop_order DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
EXECUTE FUNCTION at_commit()
"""


@pytest.fixture
def at_commit(shop):
    """Have the server run statements in each commit of an order."""

    def run(statements):
        with contextlib.closing(connected(shop.place)) as connection:
            connection.execute(AT_COMMIT.format(statements))
            connection.commit()

    yield run
    with contextlib.closing(connected(shop.place)) as connection:
        connection.execute("DROP FUNCTION at_commit CASCADE; DROP TABLE seen")
        connection.commit()


@LIBRARIES
def test_it_is_on_the_disk_whatever_is_set_in_the_transaction(pair, shop, at_commit):
    at_commit("INSERT INTO seen VALUES (current_setting('synchronous_commit'));")
    pair.a.enqueue("Q", "x")
    with moving(pair, shop):
        shop.execute("SET LOCAL synchronous_commit = off")
    with contextlib.closing(connected(shop.place)) as connection:
        assert connection.execute("SELECT text FROM seen").fetchall() == [("on",)]


class TestLost:
    """A connection that is lost between the message and its answer leaves an outcome that can be asked for."""

    @LIBRARIES
    def test_before_it_is_committed(self, pair, shop, at_commit):
        at_commit("PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(60);")
        pair.a.enqueue("Q", "x")
        with pytest.raises(OutcomeUnknownError, match="it is unknown whether transaction") as lost, moving(pair, shop):
            pass
        with contextlib.closing(connected(shop.place)) as other:
            assert qmadmin.outcome(other, lost.value.facts["gtrid"]) is False
            eventually(lambda: qmadmin.recover(other) == 0, "the end of what was in doubt")
        assert nothing_is_done(pair, shop)

    def test_after_it_is_committed(self, pair, own_cluster):
        own_cluster.sql("CREATE DATABASE shop")
        shop = application_at(own_cluster.url("shop"), "psycopg")
        with shop.transaction() as connection:
            qmadmin.create_decision_table(connection)

        def lose():
            # A commit is done, and waits for a standby that never comes.
            waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            own_cluster.wait_until(f"SELECT count(*) {waits}")
            own_cluster.sql(f"SELECT pg_terminate_backend(pid, 10000) {waits}")

        loser = threading.Thread(target=lose)
        pair.a.enqueue("Q", "x")
        with pytest.raises(OutcomeUnknownError, match="it is unknown whether transaction") as lost, moving(pair, shop):
            own_cluster.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            own_cluster.sql("SELECT pg_reload_conf()")
            loser.start()
        loser.join()
        own_cluster.sql("ALTER SYSTEM RESET synchronous_standby_names")
        own_cluster.sql("SELECT pg_reload_conf()")
        with contextlib.closing(connected(shop.place)) as other:
            assert qmadmin.outcome(other, lost.value.facts["gtrid"]) is True
            eventually(lambda: qmadmin.recover(other) == 0, "the end of what was in doubt")
        assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == ([], ["x"], ["x"])
        shop.close()


class TestHooks:
    """What an application has its library do at the commit is done then, and inside of the transaction if before."""

    @CONNECTION
    def test_of_a_connection_of_sqlalchemy(self, pair, shop):
        import sqlalchemy

        def write(connection):
            connection.execute(sqlalchemy.text("INSERT INTO shop_order VALUES ('hook')"))

        sqlalchemy.event.listen(shop.engine, "commit", write)
        pair.a.enqueue("Q", "x")
        with pytest.raises(LookupError), moving(pair, shop):
            raise LookupError
        assert nothing_is_done(pair, shop)
        pair.a.enqueue("Q", "x")
        with moving(pair, shop):
            pass
        sqlalchemy.event.remove(shop.engine, "commit", write)
        assert shop.orders() == ["hook", "x"]

    @SESSION
    def test_of_a_session_of_sqlalchemy(self, pair, shop):
        import sqlalchemy

        told = []

        def write(session):
            session.execute(sqlalchemy.text("INSERT INTO shop_order VALUES ('hook')"))

        def tell(_session):
            told.append((shop.orders(), decisions_in(shop.place)))

        sqlalchemy.event.listen(shop.connection, "after_commit", tell)
        for text in ("x", "y"):
            pair.a.enqueue("Q", text)
            with moving(pair, shop):
                pass
            sqlalchemy.event.listen(shop.connection, "before_commit", write)
        sqlalchemy.event.remove(shop.connection, "before_commit", write)
        sqlalchemy.event.remove(shop.connection, "after_commit", tell)
        assert told == [(["x"], 1), (["hook", "x", "x"], 2)]
        assert drain(pair.a, "OUT") == ["x", "y"]

    @SESSION
    def test_of_a_session_with_a_savepoint_open(self, pair, shop):
        from sqlalchemy import text

        pair.a.enqueue("Q", "x")
        with moving(pair, shop):
            shop.connection.begin_nested()
            shop.connection.execute(text("INSERT INTO shop_order VALUES ('inner')"))
        assert shop.orders() == ["inner", "x"]
        with shop.transaction():
            shop.order("y")

    @DJANGO
    def test_of_django(self, pair, shop):
        told = []
        pair.a.enqueue("Q", "x")
        with moving(pair, shop), shop.savepoint():
            shop.connection.on_commit(lambda: told.append((shop.orders(), decisions_in(shop.place))))
        assert told == [(["x"], 1)]
