"""Transactions over queue spaces and databases of the application: all is committed, or nothing."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

import qmadmin
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError
from tests.fix_applications import connected
from tests.fix_databases import BARE, decisions_in, prepared_in, rows_of
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

ONE = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
STORES = pytest.mark.parametrize("pair", ["file-file", "postgres-postgres"], indirect=True)
DRIVERS = pytest.mark.parametrize("shop", BARE, indirect=True, ids="-".join)


def settle(shop, pair):
    """Do what recovery has to do with the database of the application, until nothing is left."""
    with contextlib.closing(connected(shop.place)) as connection:
        eventually(lambda: not qmadmin.recover(connection) and not decisions_in(shop.place), "the end of all decisions")
    pair.wait_until_settled()
    assert prepared_in(shop.place) == 0


class TestTogether:
    @ONE
    def test_messages_and_rows_are_committed_together(self, pair, shop):
        pair.a.enqueue("Q", "x")
        with qmadmin.transaction(pair.a, shop.connection) as tx:
            pair.a.enqueue("OUT", pair.a.dequeue("Q").text)
            shop.order("x")
            assert drain(pair.a, "OUT", transactional=False) == []
        assert tx.complete
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])

    @ONE
    def test_neither_is_there_after_an_exception(self, pair, shop):
        pair.a.enqueue("Q", "x")
        with pytest.raises(LookupError), qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", pair.a.dequeue("Q").text)
            shop.order("x")
            raise LookupError
        assert (drain(pair.a, "OUT"), drain(pair.a), shop.orders()) == ([], ["x"], [])

    @ONE
    def test_the_next_transaction_is_like_the_first(self, pair, shop):
        for text in "abc":
            with qmadmin.transaction(pair.a, shop.connection):
                pair.a.enqueue("OUT", text)
                shop.order(text)
        with pytest.raises(LookupError), qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "d")
            shop.order("d")
            raise LookupError
        with shop.transaction():
            shop.order("e")
        assert (drain(pair.a, "OUT"), shop.orders()) == (["a", "b", "c"], ["a", "b", "c", "e"])

    @STORES
    @DRIVERS
    def test_two_volumes_and_a_database_are_committed_together(self, pair, shop):
        pair.a.enqueue("Q", "x")
        with qmadmin.transaction(pair.a, pair.b, shop.connection) as tx:
            pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
            shop.order("x")
        assert tx.complete
        assert (drain(pair.a), drain(pair.b, "OUT"), shop.orders()) == ([], ["x"], ["x"])
        settle(shop, pair)

    @ONE
    @DRIVERS
    def test_a_database_decides_where_the_application_wants_that(self, pair, shop):
        with qmadmin.transaction(pair.a, pair.b, shop.connection, decider=shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
        assert decisions_in(shop.place) == 1
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])

    @ONE
    @DRIVERS
    def test_a_message_that_is_committed_with_rows_can_be_waited_for(self, pair, shop):
        with qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
        assert pair.a.dequeue("OUT", wait=10).text == "x"


class TestCosts:
    """What has no part in a transaction costs nothing, and nothing is left behind."""

    @ONE
    def test_rows_alone_are_committed_as_ever(self, pair, shop):
        with qmadmin.transaction(pair.a, shop.connection):
            shop.order("x")
        assert shop.orders() == ["x"]
        assert decisions_in(shop.place) == 0
        assert pair.rows("trans") == pair.rows("decision") == 0

    @ONE
    def test_messages_alone_are_committed_as_ever(self, pair, shop):
        with qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.execute("SELECT 1")
        assert drain(pair.a, "OUT") == ["x"]
        assert decisions_in(shop.place) == 0
        assert pair.rows("trans") == pair.rows("decision") == 0

    @ONE
    def test_nothing_at_all_is_committed_as_well(self, pair, shop):
        with qmadmin.transaction(pair.a, shop.connection) as tx:
            pass
        assert tx.complete
        with shop.transaction():
            shop.order("x")
        assert shop.orders() == ["x"]

    @ONE
    @DRIVERS
    def test_a_table_that_is_made_is_a_change(self, pair, shop):
        with qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.execute("CREATE TABLE made (x INTEGER)")
        assert rows_of(shop.place, "made") == 0
        with shop.transaction():
            shop.execute("DROP TABLE made")

    @STORES
    @DRIVERS
    def test_nothing_is_left_once_all_have_been_told(self, pair, shop):
        for decider in (None, shop.connection, *([] if shop.place.endswith(".db") else [pair.b])):
            with qmadmin.transaction(pair.a, pair.b, shop.connection, decider=decider):
                pair.a.enqueue("OUT", "x")
                pair.b.enqueue("OUT", "x")
                shop.order("x")
        settle(shop, pair)


class TestTheApplication:
    """What the application does inside the block that it had better not do."""

    @ONE
    def test_its_own_commit_is_noticed(self, pair, shop):
        with (
            pytest.raises(ProtocolError, match="has ended the transaction"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            shop.connection.commit()
            shop.order("y")
        assert (drain(pair.a, "OUT"), shop.orders()) == ([], ["x"])

    @ONE
    def test_so_is_its_own_rollback(self, pair, shop):
        with (
            pytest.raises(ProtocolError, match="has ended the transaction"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            shop.connection.rollback()
        assert (drain(pair.a, "OUT"), shop.orders()) == ([], [])

    @ONE
    @DRIVERS
    def test_a_savepoint_in_it_may_be_undone(self, pair, shop):
        with qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            with contextlib.suppress(LookupError), shop.savepoint():
                shop.order("y")
                raise LookupError
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])

    @ONE
    @pytest.mark.parametrize("shop", [("server", "psycopg"), ("server", "SQLAlchemy")], indirect=True, ids="-".join)
    def test_a_statement_that_has_failed_rolls_all_back(self, pair, shop):
        with (
            pytest.raises(AbortedError, match="can only be rolled back"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            with contextlib.suppress(Exception):
                shop.execute("SELECT nothing FROM nowhere")
        assert drain(pair.a, "OUT") == []
        with shop.transaction():
            shop.order("y")

    @ONE
    @pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join)
    @pytest.mark.parametrize("decides", [True, False])
    def test_a_constraint_that_is_checked_at_the_commit_rolls_all_back(self, pair, shop, decides):
        with shop.transaction():
            shop.execute("CREATE TABLE one (x INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        with (
            pytest.raises(AbortedError, match="duplicate key"),
            qmadmin.transaction(pair.a, shop.connection, decider=shop.connection if decides else None),
        ):
            pair.a.enqueue("OUT", "x")
            shop.execute("INSERT INTO one VALUES (1), (1)")
        assert drain(pair.a, "OUT") == []
        with shop.transaction():
            shop.execute("DROP TABLE one")

    @ONE
    @pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join)
    def test_what_a_server_does_not_prepare_rolls_all_back_in_its_words(self, pair, shop):
        with (
            pytest.raises(AbortedError, match="cannot PREPARE a transaction that has executed LISTEN, UNLISTEN"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            shop.execute("NOTIFY somebody")
        assert (drain(pair.a, "OUT"), shop.orders()) == ([], [])


class TestRefused:
    """What cannot take part is refused when the transaction begins, and nothing is done."""

    @ONE
    def test_a_connection_that_has_a_transaction_open(self, pair, shop):
        with (
            shop.transaction() as connection,
            pytest.raises(InvalidArgumentError, match="has a transaction open already"),
        ):
            shop.order("x")
            with qmadmin.transaction(pair.a, connection):
                raise AssertionError("it has begun")
        assert shop.orders() == ["x"]

    @ONE
    @pytest.mark.parametrize(
        "shop", [("file", "sqlite3"), ("server", "psycopg"), ("server", "SQLAlchemy")], indirect=True, ids="-".join
    )
    def test_a_closed_connection(self, pair, shop):
        shop.connection.close()
        with (
            pytest.raises(InvalidArgumentError, match="the connection is closed"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            raise AssertionError("it has begun")

    @ONE
    @DRIVERS
    def test_one_in_autocommit(self, pair, shop):
        if shop.place.endswith(".db"):
            connection = sqlite3.connect(shop.place, isolation_level=None)
        else:
            connection = connected(shop.place)
            connection.autocommit = True
        with (
            contextlib.closing(connection),
            pytest.raises(InvalidArgumentError, match="commits each statement by itself"),
            qmadmin.transaction(pair.a, connection),
        ):
            raise AssertionError("it has begun")

    @ONE
    @DRIVERS
    def test_one_connection_twice_and_two_to_one_database(self, pair, shop):
        with pytest.raises(InvalidArgumentError, match="takes part in the transaction twice"):
            qmadmin.transaction(pair.a, shop.connection, shop.connection)
        with (
            contextlib.closing(connected(shop.place)) as other,
            pytest.raises(InvalidArgumentError, match="takes part in the transaction twice"),
            qmadmin.transaction(pair.a, shop.connection, other),
        ):
            raise AssertionError("it has begun")
        with shop.transaction():
            shop.order("x")

    @ONE
    def test_a_database_that_has_to_decide_without_its_table(self, pair, tmp_path):
        with contextlib.closing(sqlite3.connect(tmp_path / "bare.db")) as connection:
            with (
                pytest.raises(ProtocolError, match="needs the table qmadmin_decision to take part") as refused,
                qmadmin.transaction(pair.a, connection),
            ):
                raise AssertionError("it has begun")
            assert "qmadmin.create_decision_table(connection)" in refused.value.hint
            assert not connection.in_transaction
            qmadmin.create_decision_table(connection)
            with qmadmin.transaction(pair.a, connection):
                pair.a.enqueue("OUT", "x")
                connection.execute("CREATE TABLE t (x)")
            assert rows_of(str(tmp_path / "bare.db"), "t") == 0

    @ONE
    def test_two_databases_that_cannot_prepare_each_with_its_reason(self, pair, tmp_path):
        with (
            contextlib.closing(sqlite3.connect(tmp_path / "one.db")) as one,
            contextlib.closing(sqlite3.connect(tmp_path / "two.db")) as two,
        ):
            for connection in (one, two):
                qmadmin.create_decision_table(connection)
            with (
                pytest.raises(ProtocolError, match=r"one\.db.*SQLite file cannot prepare.*two\.db.*SQLite file"),
                qmadmin.transaction(pair.a, one, two),
            ):
                raise AssertionError("it has begun")
            assert not one.in_transaction
            assert not two.in_transaction

    @ONE
    def test_a_file_whose_commits_need_not_be_on_the_disk(self, pair, tmp_path):
        with contextlib.closing(sqlite3.connect(tmp_path / "fast.db")) as connection:
            qmadmin.create_decision_table(connection)
            connection.execute("PRAGMA synchronous = OFF")
            with (
                pytest.raises(ProtocolError, match=r"cannot decide: .*synchronous is 0, not FULL"),
                qmadmin.transaction(pair.a, connection),
            ):
                raise AssertionError("it has begun")
            assert not connection.in_transaction

    @ONE
    @pytest.mark.parametrize("journal", ["memory", "off"])
    def test_a_file_whose_journal_is_gone_with_its_process(self, pair, tmp_path, journal):
        with contextlib.closing(sqlite3.connect(tmp_path / "fast.db")) as connection:
            qmadmin.create_decision_table(connection)
            connection.execute(f"PRAGMA journal_mode = {journal}")
            with (
                pytest.raises(ProtocolError, match=rf"cannot decide: .*journal_mode is {journal}"),
                qmadmin.transaction(pair.a, connection),
            ):
                raise AssertionError("it has begun")

    @ONE
    def test_what_is_no_resource(self, pair):
        with pytest.raises(InvalidArgumentError, match="a resource of a transaction is a queue space, a device, or"):
            qmadmin.transaction(pair.a, object())
        with pytest.raises(InvalidArgumentError, match="needs at least one queue space or device"):
            qmadmin.transaction()

    @ONE
    @DRIVERS
    def test_a_connection_alone(self, shop, pair):
        with pytest.raises(InvalidArgumentError, match="needs at least one queue space or device"):
            qmadmin.transaction(shop.connection)

    @ONE
    @DRIVERS
    def test_a_decider_that_takes_no_part(self, pair, shop):
        with (
            contextlib.closing(connected(shop.place)) as other,
            pytest.raises(InvalidArgumentError, match="is none of the resources"),
        ):
            qmadmin.transaction(pair.a, shop.connection, decider=other)


class TestTheSameDatabase:
    """A connection to the database of a queue space and that queue space are one database transaction."""

    @pytest.mark.parametrize("pair", ["file-file", "postgres-postgres"], indirect=True)
    def test_both_are_committed_by_the_connection(self, pair):
        with contextlib.closing(connected(pair.configs[0])) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS own_table (x INTEGER)")
            connection.commit()
            pair.a.enqueue("Q", "x")
            with qmadmin.transaction(pair.a, connection):
                pair.a.enqueue("OUT", pair.a.dequeue("Q").text)
                connection.execute("INSERT INTO own_table VALUES (1)")
            assert (drain(pair.a), drain(pair.a, "OUT")) == ([], ["x"])
            with pytest.raises(LookupError), qmadmin.transaction(pair.a, connection):
                pair.a.enqueue("OUT", "y")
                connection.execute("INSERT INTO own_table VALUES (2)")
                raise LookupError
            assert drain(pair.a, "OUT") == []
            assert connection.execute("SELECT count(*) FROM own_table").fetchone()[0] == 1
            connection.execute("DROP TABLE own_table")
            connection.commit()

    @pytest.mark.parametrize("pair", ["file-file"], indirect=True)
    def test_nothing_else_can_belong_to_it(self, pair):
        with (
            contextlib.closing(connected(pair.configs[0])) as connection,
            pytest.raises(ProtocolError, match="both are one database transaction"),
            qmadmin.transaction(pair.a, pair.b, connection),
        ):
            pair.a.enqueue("OUT", "x")
            pair.b.enqueue("OUT", "x")
        assert (drain(pair.a, "OUT"), drain(pair.b, "OUT")) == ([], [])


class TestOrdinaryUse:
    """What is done beside it goes on as without it."""

    @pytest.mark.parametrize("pair", ["postgres-postgres"], indirect=True)
    @pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join)
    def test_settings_of_the_applications_connection_are_its_own(self, pair, shop):
        with qmadmin.transaction(pair.a.device, shop.connection):
            shop.execute("SET LOCAL lock_timeout = '7s'")
            pair.a.enqueue("OUT", "x")
            assert shop.connection.execute("SHOW lock_timeout").fetchone() == ("7s",)
            shop.order("x")
        assert shop.connection.execute("SHOW lock_timeout").fetchone() == ("0",)

    @ONE
    @pytest.mark.parametrize("shop", [("file", "sqlite3"), ("file", "SQLAlchemy")], indirect=True, ids="-".join)
    @pytest.mark.parametrize("mode", ["WAL", "DELETE"])
    def test_others_may_write_between_the_beginning_and_the_first_statement(self, pair, shop, mode):
        with contextlib.closing(connected(shop.place)) as other:
            other.execute(f"PRAGMA journal_mode = {mode}")
            with qmadmin.transaction(pair.a, shop.connection):
                other.execute("INSERT INTO shop_order VALUES ('other')")
                other.commit()
                pair.a.enqueue("OUT", "x")
                shop.order("x")
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["other", "x"])

    @ONE
    @pytest.mark.parametrize("shop", [("file", "sqlite3")], indirect=True, ids="-".join)
    def test_one_that_cannot_commit_for_a_lock_is_rolled_back_and_says_so(self, pair, shop):
        with (
            contextlib.closing(sqlite3.connect(shop.place)) as other,
            contextlib.closing(sqlite3.connect(shop.place, timeout=0)) as connection,
        ):
            # Whoever reads keeps a writer from its commit.
            other.execute("SELECT * FROM shop_order").fetchall()
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM shop_order").fetchone()
            with (
                pytest.raises(qmadmin.QueueError, match=r"database .*shop\.db' failed: database is locked"),
                qmadmin.transaction(pair.a, connection),
            ):
                pair.a.enqueue("OUT", "x")
                connection.execute("INSERT INTO shop_order VALUES ('x')")
            other.rollback()
        assert (drain(pair.a, "OUT"), shop.orders(), pair.a.tpc_recover()) == ([], [], [])

    @ONE
    @pytest.mark.parametrize("shop", [("file", "sqlite3")], indirect=True, ids="-".join)
    def test_attached_files_are_refused(self, pair, shop, tmp_path):
        shop.execute(f"ATTACH '{tmp_path / 'other.db'}' AS other")
        with (
            pytest.raises(ProtocolError, match=r"has others attached \(other\)"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
        assert drain(pair.a, "OUT") == []

    @ONE
    @DRIVERS
    def test_one_that_is_no_block_is_refused(self, pair, shop):
        tx = qmadmin.transaction(pair.a, shop.connection)
        with pytest.raises(ProtocolError, match="has not begun on its connections"):
            tx.commit()

    @ONE
    @pytest.mark.parametrize("shop", [("server", "SQLAlchemy")], indirect=True, ids="-".join)
    def test_a_commit_that_decides_is_on_the_disk_whatever_is_set_in_the_transaction(self, pair, shop):
        import sqlalchemy

        seen = []

        def look(its):
            seen.append(its.connection.driver_connection.execute("SHOW synchronous_commit").fetchone()[0])

        sqlalchemy.event.listen(shop.engine, "commit", look)
        with qmadmin.transaction(pair.a, shop.connection, decider=shop.connection):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            shop.execute("SET LOCAL synchronous_commit = off")
        sqlalchemy.event.remove(shop.engine, "commit", look)
        assert seen == ["on"]

    @ONE
    @pytest.mark.parametrize("shop", [("file", "sqlite3")], indirect=True, ids="-".join)
    def test_another_decider_than_the_one_that_has_to_is_refused(self, pair, shop):
        with (
            pytest.raises(ProtocolError, match="another decider is wanted, but database"),
            qmadmin.transaction(pair.a, shop.connection, decider=pair.a),
        ):
            raise AssertionError("it has begun")
        with shop.transaction():
            shop.order("x")

    @ONE
    @pytest.mark.parametrize("shop", [("file", "Session")], indirect=True, ids="-".join)
    def test_a_session_in_two_phases_of_its_own_is_refused(self, pair, shop):
        from sqlalchemy.orm import Session

        with pytest.raises(InvalidArgumentError, match="twophase=True"):
            qmadmin.transaction(pair.a, Session(shop.engine, twophase=True))
        with pytest.raises(InvalidArgumentError, match="no engine of its own"):
            qmadmin.transaction(pair.a, Session())

    @ONE
    @DRIVERS
    def test_a_closed_device_is_named(self, pair, shop):
        pair.close()
        with pytest.raises(qmadmin.NotOpenError, match="is closed"):
            qmadmin.transaction(pair.a, shop.connection)

    @ONE
    @pytest.mark.parametrize("shop", [("server", "Session")], indirect=True, ids="-".join)
    def test_a_hook_that_fails_after_the_commit_is_logged_and_changes_nothing(self, pair, shop, caplog):
        import sqlalchemy

        def fail(_session):
            raise LookupError("a hook")

        sqlalchemy.event.listen(shop.connection, "before_commit", fail)
        with qmadmin.transaction(pair.a, shop.connection) as tx:
            pair.a.enqueue("OUT", "x")
            shop.order("x")
        sqlalchemy.event.remove(shop.connection, "before_commit", fail)
        assert tx.complete
        assert "a hook of the application failed after the commit: a hook" in caplog.text
        assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])
