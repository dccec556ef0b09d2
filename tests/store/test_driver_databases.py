"""Databases of the application whose drivers are known only by PEP 249, in transactions over several resources."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

import qmadmin
from qmadmin.opening import database_of
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError, QueueError
from qmcore.probe import Point
from qmstorage import driver_calls, participating_drivers, xid_forms
from tests.fix_applications import application_at, connected_by
from tests.fix_databases import decisions_in, prepared_in
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually
from tests.interrupts import at_every_line

ONE = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
BARE = [("server", "psycopg2"), ("server", "pg8000")]
WITH_SQLALCHEMY = [
    ("server", "SQLAlchemy with psycopg2"), ("server", "SQLAlchemy with pg8000"), ("server", "Session with psycopg2"),
]  # fmt: skip
DRIVERS = pytest.mark.parametrize("shop", BARE, indirect=True, ids="-".join)
ALL = pytest.mark.parametrize("shop", [*BARE, *WITH_SQLALCHEMY], indirect=True, ids="-".join)


def settle(shop, pair, connection):
    """Do what recovery has to do with the database, until nothing is left."""
    eventually(lambda: not qmadmin.recover(connection) and not decisions_in(shop.place), "the end of all decisions")
    pair.wait_until_settled()
    assert prepared_in(shop.place) == 0


@ONE
@ALL
class TestTogether:
    def test_messages_and_rows_are_committed_together(self, pair, shop):
        pair.a.enqueue("Q", "x")
        for text in "ab":
            with qmadmin.transaction(pair.a, pair.b, shop.connection) as tx:
                if message := pair.a.dequeue("Q"):
                    pair.b.enqueue("OUT", message.text)
                pair.a.enqueue("OUT", text)
                shop.order(text)
            assert tx.complete
            assert prepared_in(shop.place) == 0
        assert (drain(pair.a), drain(pair.a, "OUT"), drain(pair.b, "OUT")) == ([], ["a", "b"], ["x"])
        assert shop.orders() == ["a", "b"]
        settle(shop, pair, shop.connection)

    def test_neither_is_there_after_an_exception(self, pair, shop):
        with pytest.raises(LookupError), qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            raise LookupError
        with shop.transaction():
            shop.order("y")
        assert (drain(pair.a, "OUT"), shop.orders()) == ([], ["y"])

    def test_rows_alone_are_committed_in_one_phase(self, pair, shop):
        with qmadmin.transaction(pair.a, shop.connection):
            shop.order("x")
        assert shop.orders() == ["x"]
        assert pair.rows("trans") == pair.rows("decision") == 0

    def test_it_decides_where_the_application_wants_that(self, pair, shop):
        with qmadmin.transaction(pair.a, pair.b, shop.connection, decider=shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
        assert decisions_in(shop.place) == 1
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])
        settle(shop, pair, shop.connection)

    def test_an_sqlite_file_decides_for_it(self, pair, shop, tmp_path):
        with contextlib.closing(sqlite3.connect(tmp_path / "books.db")) as books:
            qmadmin.create_decision_table(books)
            books.execute("CREATE TABLE book (what)")
            for changes in (True, False):
                with qmadmin.transaction(pair.a, shop.connection, books):
                    pair.a.enqueue("OUT", "x")
                    shop.order("x")
                    if changes:
                        books.execute("INSERT INTO book VALUES (1)")
            assert books.execute("SELECT count(*) FROM book").fetchone() == (1,)
            eventually(lambda: not qmadmin.recover(books, shop.connection), "the end of all in doubt")
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x", "x"], ["x", "x"])

    def test_a_statement_that_has_failed_rolls_all_back(self, pair, shop):
        for others in ([], [pair.b]):
            with (
                pytest.raises(AbortedError, match=r"can only be rolled back: .*is aborted"),
                qmadmin.transaction(pair.a, *others, shop.connection),
            ):
                shop.order("x")
                with contextlib.suppress(Exception):
                    shop.execute("SELECT nothing FROM nowhere")
        with shop.transaction():
            shop.order("y")
        assert shop.orders() == ["y"]

    def test_what_the_server_does_not_prepare_rolls_all_back_in_its_words(self, pair, shop):
        with (
            pytest.raises(QueueError, match="cannot PREPARE a transaction that has executed LISTEN, UNLISTEN"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            shop.execute("NOTIFY somebody")
        with shop.transaction():
            shop.order("y")
        assert (drain(pair.a, "OUT"), shop.orders(), prepared_in(shop.place)) == ([], ["y"], 0)


@ONE
class TestRefused:
    @ALL
    def test_a_transaction_that_is_open(self, pair, shop):
        with (
            shop.transaction() as connection,
            pytest.raises(InvalidArgumentError, match="has a transaction open already"),
        ):
            shop.order("x")
            with qmadmin.transaction(pair.a, connection):
                raise AssertionError("it has begun")
        assert shop.orders() == ["x"]

    @DRIVERS
    def test_one_in_autocommit(self, pair, shop):
        shop.connection.autocommit = True
        with (
            pytest.raises(InvalidArgumentError, match="commits each statement by itself"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            raise AssertionError("it has begun")

    @DRIVERS
    def test_a_closed_one(self, pair, shop):
        shop.connection.close()
        with (
            pytest.raises(QueueError, match=r"closed"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            raise AssertionError("it has begun")

    @ALL
    def test_a_database_without_the_table_by_which_it_is_known(self, pair, shop):
        with shop.transaction():
            shop.execute("DROP TABLE qmadmin_decision")
        with (
            pytest.raises(ProtocolError, match="needs the table qmadmin_decision, by which") as refused,
            qmadmin.transaction(pair.a, shop.connection),
        ):
            raise AssertionError("it has begun")
        assert "qmadmin.create_decision_table(connection)" in refused.value.hint
        qmadmin.create_decision_table(shop.connection)
        qmadmin.create_decision_table(shop.connection)
        with qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])

    @ALL
    def test_the_applications_own_commit(self, pair, shop):
        # The rules of PEP 249 forbid it, and a driver that does not keep them is found out.
        with (
            pytest.raises(Exception, match=r"has ended the transaction|cannot be used during a two-phase"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            shop.connection.commit()
        assert drain(pair.a, "OUT") == []
        with shop.transaction():
            shop.order("y")

    def test_a_driver_that_does_not_list_what_is_prepared(self, pair):
        import psycopg2

        class Forgetful(psycopg2.extensions.connection):
            tpc_recover = None

        with pytest.raises(InvalidArgumentError, match=r"Forgetful has no tpc_recover\(\), so that nobody could end"):
            qmadmin.transaction(pair.a, Forgetful.__new__(Forgetful))

    @DRIVERS
    def test_one_that_has_to_decide_and_joins_after_others_have_begun(self, pair, shop, tmp_path):
        with contextlib.closing(sqlite3.connect(tmp_path / "books.db")) as books:
            qmadmin.create_decision_table(books)
            with qmadmin.transaction(pair.a, shop.connection) as tx:
                pair.a.enqueue("OUT", "x")
                shop.order("x")
                late = database_of(books)
                tx.databases.take(late)
                with pytest.raises(ProtocolError, match=r"has to decide: .*, but others have begun already") as refused:
                    tx.databases.open([])
                tx.databases.drop(late)
            assert "before the others" in refused.value.hint
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])

    def test_a_server_that_does_not_prepare(self, pair, own_cluster):
        own_cluster.sql("ALTER SYSTEM SET max_prepared_transactions = 0")
        own_cluster.stop()
        own_cluster.start()
        own_cluster.sql("CREATE DATABASE shop")
        for kind in ("psycopg2", "pg8000"):
            made = application_at(own_cluster.url("shop"), kind)
            qmadmin.create_decision_table(made.connection)
            with qmadmin.transaction(pair.a, made.connection):
                pair.a.enqueue("OUT", "x")
                made.order("x")
            assert (drain(pair.a, "OUT"), made.orders(), decisions_in(made.place)) == (["x"], ["x"], 1)
            with pytest.raises(ProtocolError, match=r"has to decide: it has prepared nothing .*are disabled"):
                qmadmin.transaction(pair.a, made.connection, decider=pair.a).__enter__()
            eventually(lambda its=made: not qmadmin.recover(its.connection) and not decisions_in(its.place), "the end")
            made.close()


@ONE
@DRIVERS
@pytest.mark.parametrize("by", ["psycopg", "psycopg2", "pg8000"])
def test_what_one_driver_has_prepared_another_one_ends(pair, shop, by):
    def lose(_):
        with contextlib.closing(connected_by("psycopg", shop.place)) as other:
            other.autocommit = True
            other.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'to be lost'"
            )

    pair.a.enqueue("Q", "x")
    with qmadmin.transaction(pair.a, shop.connection) as tx:
        pair.a.enqueue("OUT", pair.a.dequeue("Q").text)
        shop.order("x")
        shop.execute("SET application_name = 'to be lost'")
        pair.a.device.probe.at(Point.AFTER_COMMIT, lose)
    pair.a.device.probe.leave(Point.AFTER_COMMIT)
    assert not tx.complete
    assert (prepared_in(shop.place), shop.orders()) == (1, [])
    with contextlib.closing(connected_by(by, shop.place)) as connection:
        eventually(lambda: not qmadmin.recover(connection) and pair.is_settled(), "the end of all in doubt")
    assert (prepared_in(shop.place), shop.orders(), drain(pair.a, "OUT")) == (0, ["x"], ["x"])


@pytest.mark.matrix(apart=True)
@ONE
@DRIVERS
@pytest.mark.parametrize("decides", ["database", "space"])
@pytest.mark.parametrize("module", [participating_drivers, driver_calls, xid_forms], ids=lambda its: its.__name__)
def test_an_interrupt_at_any_line_leaves_all_or_nothing(pair, shop, decides, module):
    number, done = 0, []

    def move():
        decider = pair.a if decides == "space" else shop.connection
        with qmadmin.transaction(pair.a, shop.connection, decider=decider):
            pair.a.enqueue("OUT", str(number))
            shop.order(str(number))

    for number in at_every_line(module, move):  # noqa: B007 - the call has it
        # Where it was interrupted it is closed, unless that was interrupted, too.
        with contextlib.suppress(Exception):
            shop.connection.close()
        shop.open()
        eventually(lambda: not qmadmin.recover(shop.connection) and not pair.a.tpc_recover(), "the end of all in doubt")
        assert prepared_in(shop.place) == 0
        with shop.transaction():
            shop.execute("DELETE FROM shop_order WHERE text = 'none'")
        done += drain(pair.a, "OUT")
        assert sorted(done) == shop.orders()
    assert done[-1] == str(number - 1)
