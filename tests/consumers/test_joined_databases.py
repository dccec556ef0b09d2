"""Handlers that have a database of the application take part in the transaction of their message."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from sqlalchemy.orm import declarative_base

import qmadmin
from qmadmin import application_databases, joining_databases
from qmadmin.consumers import Call, current
from qmadmin.forwarder import enqueue, join
from qmstorage import participants
from qmstorage.postgres import participating as of_servers
from qmstorage.sqlite import participating as of_files
from tests.fix_applications import application_at, connected
from tests.fix_databases import BARE, decisions_in, prepared_in
from tests.fix_joined_databases import DRIVERS, ONE, SERVERS, STORES, Shop
from tests.fix_store import drain, eventually
from tests.interrupts import at_every_line


class TestTogether:
    @ONE
    def test_the_request_the_reply_and_the_rows_are_one_transaction(self, at, shop):
        sold = []

        def ship(message):
            at.sell(message.text)
            assert shop.orders() == sold
            sold.append(message.text)
            return f"sold {message.text}"

        at.run(ship, "a", "b", "c")
        assert (at.failures, at.left, shop.orders()) == (
            [],
            [[], ["sold a", "sold b", "sold c"], []],
            ["a", "b", "c"],
        )

    @ONE
    def test_rows_of_a_call_that_fails_are_rolled_back_and_its_message_is_tried_again(self, at, shop):
        def ship(message):
            at.sell(message.text)
            enqueue("IDLE", f"from {message.text}")
            if message.text == "b":
                raise LookupError(message.text)

        at.run(ship, "a", "b", "c")
        assert [str(error) for error in at.failures] == ["b"] * 4
        assert (at.left, shop.orders()) == ([[], ["", ""], ["b"]], ["a", "c"])
        assert drain(at.space, "IDLE") == ["from a", "from c"]

    @ONE
    @DRIVERS
    def test_a_hook_around_the_calls_may_have_it_take_part_for_all_handlers(self, at, shop):
        @at.app.around_calls
        @contextlib.contextmanager
        def joined(_message):
            at.app.join(at.here.connection)
            yield

        def ship(message):
            at.here.order(message.text)
            if message.text == "b":
                raise LookupError(message.text)

        at.run(ship, "a", "b", retries=0)
        assert (at.left, shop.orders()) == ([[], [""], ["b"]], ["a"])

    @ONE
    @DRIVERS
    def test_to_join_twice_is_to_join_once(self, at, shop):
        def ship(message):
            for _ in range(2):
                at.app.join(at.here.connection)
                join(at.here.connection)
                at.here.order(message.text)

        at.run(ship, "a")
        assert (at.failures, at.left, shop.orders()) == ([], [[], [""], []], ["a", "a"])

    @ONE
    @DRIVERS
    def test_a_failure_with_an_answer_leaves_no_rows(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            raise qmadmin.Failure("no", body="none left")

        pair.a.enqueue("Q", "a", failure_queue="OUT")
        at.run(ship, gives_up=True, retries=3)
        assert (len(at.failures), at.left, shop.orders()) == (1, [[], ["none left"], []], [])

    @STORES
    @DRIVERS
    def test_what_the_handler_enqueues_before_and_after_belongs_to_it(self, at, pair, shop):
        def ship(message):
            at.app.enqueue("IDLE", "before")
            at.sell(message.text)
            at.app.enqueue("IDLE", "after")
            assert at.app.space.dequeue("OUT").text == "x"

        pair.a.enqueue("OUT", "x")
        at.run(ship, "a")
        assert (drain(pair.a, "IDLE"), at.left, shop.orders()) == (["before", "after"], [[], [""], []], ["a"])
        with contextlib.closing(connected(shop.place)) as connection:
            eventually(lambda: not qmadmin.recover(connection) and not decisions_in(shop.place), "the end of all")
        pair.wait_until_settled()
        assert prepared_in(shop.place) == 0


class TestRefusals:
    """What a database refuses at the end is a failure of the call."""

    @ONE
    @SERVERS
    def test_a_transaction_that_is_not_prepared_is_tried_again_and_its_reason_recorded(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            at.here.execute("NOTIFY somebody")

        at.run(ship, "a")
        assert len(at.failures) == 4
        reason = "cannot PREPARE a transaction that has executed LISTEN, UNLISTEN"
        assert reason in next(pair.a.messages("ERRORS")).origin.error
        assert (at.left, shop.orders()) == ([[], [], ["a"]], [])

    @ONE
    @pytest.mark.parametrize("shop", BARE[:1], indirect=True, ids="-".join)
    def test_a_decision_that_is_refused_is_tried_as_the_handler_says(self, at, pair, shop):
        with shop.transaction():
            shop.execute("CREATE TABLE one (x INTEGER PRIMARY KEY)")
            shop.execute("CREATE TABLE other (x INTEGER REFERENCES one DEFERRABLE INITIALLY DEFERRED)")

        def ship(message):
            at.here.execute("PRAGMA foreign_keys = ON")
            at.sell(message.text)
            at.here.execute("INSERT INTO other VALUES (7)")

        at.run(ship, "a", retries=1)
        assert len(at.failures) == 2
        assert "FOREIGN KEY constraint failed" in next(pair.a.messages("ERRORS")).origin.error
        assert (at.left, shop.orders()) == ([[], [], ["a"]], [])

    @ONE
    @pytest.mark.parametrize(
        "shop", [("file", "Session"), ("server", "Session"), ("file", "scoped_session")], indirect=True, ids="-".join
    )
    def test_what_a_session_raises_as_it_is_flushed_is_one(self, at, pair, shop):
        class Order(declarative_base()):
            __tablename__ = "shop_order"
            text = sqlalchemy.Column(sqlalchemy.String, primary_key=True)

        def ship(message):
            at.sell(message.text)
            at.here.connection.add(Order(text=None))

        at.run(ship, "a", retries=0)
        assert len(at.failures) == 1
        assert next(pair.a.messages("ERRORS")).origin.error
        assert (at.left, shop.orders()) == ([[], [], ["a"]], [])

    @ONE
    def test_the_applications_own_commit_is_one(self, at, shop):
        def ship(message):
            at.sell(message.text)
            at.here.connection.commit()

        at.run(ship, "a", retries=0)
        assert "has ended the transaction" in str(at.failures[0])
        assert at.left == [[], [], ["a"]]

    @ONE
    @SERVERS
    def test_a_connection_that_is_lost_is_one_and_the_next_message_has_another(self, at, pair, shop):
        def ship(message):
            if getattr(at.here.connection, "broken", False):
                at.here.open()
            at.sell(message.text)
            if message.text == "a":
                with contextlib.closing(connected(shop.place)) as other:
                    other.autocommit = True
                    other.execute(
                        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                        " WHERE datname = current_database() AND state = 'idle in transaction'"
                    )

        at.run(ship, "a", "b", retries=0)
        assert (len(at.failures), at.left, shop.orders()) == (1, [[], [""], ["a"]], ["b"])

    @ONE
    @pytest.mark.parametrize("shop", [("file", "SQLAlchemy")], indirect=True, ids="-".join)
    def test_a_branch_that_an_administrator_has_ended_otherwise_is_told_of_once(self, at, pair, shop):
        def end(_connection):
            with qmadmin.open_device(pair.configs[0]) as device, device.open_space("A") as space:
                (info,) = space.transactions()
                assert space.abort_transaction(info.name)

        def ship(message):
            at.sell(message.text)
            sqlalchemy.event.listen(at.here.engine, "commit", end, once=True)

        at.run(ship, "a", retries=0)
        assert isinstance(at.failures[0], qmadmin.HeuristicError)
        assert len(at.failures) == 1
        # The administrator has given the message back whose rows are committed.
        assert (at.left, shop.orders()) == ([[], [""], []], ["a", "a"])

    @ONE
    def test_an_outcome_that_is_unknown_is_waited_for(self, pair, own_cluster):
        own_cluster.sql("ALTER SYSTEM SET max_prepared_transactions = 0")
        own_cluster.stop()
        own_cluster.start()
        own_cluster.sql("CREATE DATABASE shop")
        shop = application_at(own_cluster.url("shop"), "SQLAlchemy")
        with shop.transaction() as connection:
            qmadmin.create_decision_table(connection)
        at = Shop(pair, shop)

        def lose(connection):
            with contextlib.closing(connected(shop.place)) as other:
                other.autocommit = True
                pid = connection.connection.driver_connection.info.backend_pid
                other.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])

        def ship(message):
            at.sell(message.text)
            sqlalchemy.event.listen(at.here.engine, "commit", lose, once=True)

        at.run(ship, "a", retries=0)
        (error,) = at.failures
        assert isinstance(error, qmadmin.OutcomeUnknownError)
        assert (at.left, shop.orders()) == ([[], [], []], [])
        with contextlib.closing(connected(shop.place)) as other:
            assert qmadmin.outcome(other, error.facts["gtrid"]) is False
            eventually(lambda: qmadmin.recover(other) == 0, "the end of all that was in doubt")
        assert at.left == [["a"], [], []]
        at.close()
        shop.close()


class TestTime:
    """What ends a call from outside rolls the database back too, as soon as its thread comes back."""

    @ONE
    @DRIVERS
    def test_a_transaction_that_another_thread_gives_up_leaves_no_rows(self, at, shop):
        def ship(message):
            at.sell(message.text)
            if message.text == "a":
                transaction, _ = current.transaction()
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(transaction.give_up, "it takes too long").result()

        at.run(ship, "a", "b", retries=0)
        assert "it takes too long" in str(at.failures[0])
        assert shop.orders() == ["b"]

    @ONE
    @pytest.mark.parametrize(
        "shop",
        [("file", "sqlite3"), ("server", "psycopg"), ("server", "Session"), ("server", "Django")],
        indirect=True,
        ids="-".join,
    )
    def test_a_call_whose_time_is_over_in_the_middle_of_a_statement_leaves_a_usable_connection(self, at, shop):
        def ship(message):
            at.sell(message.text)
            while message.text == "a":
                at.here.execute("SELECT pg_sleep(0.01)" if "://" in shop.place else "SELECT randomblob(100000)")

        at.run(ship, "a", "b", retries=0, timeout=0.3)
        assert str(at.failures[0]) == "no reply within 0.3 seconds"
        assert (at.left, shop.orders()) == ([[], [""], ["a"]], ["b"])


MODULES = [joining_databases, application_databases, participants, of_files, of_servers]
CELLS = [
    (shop, module)
    for shop, other in zip(BARE, (of_servers, of_files), strict=True)
    for module in MODULES
    if module is not other
]


@pytest.mark.matrix(apart=True)
@ONE
@pytest.mark.parametrize(
    ("shop", "module"),
    CELLS,
    indirect=["shop"],
    ids=[f"{'-'.join(shop)}-{module.__name__}" for shop, module in CELLS],
)
def test_an_interrupt_at_any_line_leaves_all_or_nothing(pair, shop, module):
    number = 0

    def move():
        with pair.a.transaction() as transaction:
            message = pair.a.dequeue("Q")
            with current.CurrentCall(pair.a, Call(message), transaction=transaction):
                join(shop.connection)
                enqueue("OUT", str(number))
                shop.order(str(number))

    def is_over():
        with contextlib.closing(connected(shop.place)) as connection:
            return qmadmin.recover(connection) == 0 and not pair.a.tpc_recover() and not prepared_in(shop.place)

    done = []
    pair.a.enqueue("Q", "x")
    for number in at_every_line(module, move):  # noqa: B007 - the call has it
        eventually(is_over, "the end of all that was in doubt")
        # The connection is as usable as ever.
        with shop.transaction():
            shop.execute("DELETE FROM shop_order WHERE text = 'none'")
        done += drain(pair.a, "OUT")
        assert sorted(done) == shop.orders()
        drain(pair.a)
        drain(pair.a, "ERRORS")
        pair.a.enqueue("Q", "x")
    assert done[-1] == str(number - 1)
