"""Handlers that have a database of the application take part in the transaction of their message."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from django.db import connections
from sqlalchemy.orm import declarative_base

import qmadmin
from qmadmin import application_databases, joining_databases
from qmadmin.consumers import Call, current
from qmadmin.forwarder import enqueue, join
from qmcore.errors import InvalidArgumentError, ProtocolError
from qmstorage import participants
from qmstorage.postgres import participating as of_servers
from qmstorage.sqlite import participating as of_files
from tests.fix_applications import Django, application_at, connected
from tests.fix_databases import BARE, decisions_in, prepared_in, rows_of
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually
from tests.interrupts import at_every_line

ONE = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
STORES = pytest.mark.parametrize("pair", ["file-file", "postgres-postgres"], indirect=True)
DRIVERS = pytest.mark.parametrize("shop", BARE, indirect=True, ids="-".join)
SERVERS = pytest.mark.parametrize("shop", [("server", "psycopg"), ("server", "Session")], indirect=True, ids="-".join)


class Shop:
    """An application with one handler, of the queue Q of a queue space, whose threads have a connection each."""

    def __init__(self, pair, shop):
        self.pair = pair
        self.space = pair.a
        self.app = qmadmin.App("unused", space="A")
        self.failures = []
        self._shop = shop
        self._of_thread = threading.local()
        self._closing = []
        self.app.on_failure(lambda _message, error: self.failures.append(error))

    @property
    def here(self):
        """The application as this thread uses it."""
        if not hasattr(self._of_thread, "shop"):
            made = self._of_thread.shop = copy.copy(self._shop)
            made.open()
            if isinstance(made, Django):
                connections["default"].inc_thread_sharing()
            self._closing.append(connections["default"].close if isinstance(made, Django) else made.close)
        return self._of_thread.shop

    def sell(self, text):
        """Take part, and record an order."""
        self.app.join(self.here.connection)
        self.here.order(text)

    def run(self, function, *texts, **options):
        """Put messages on the queue, and have a function handle them until there are none."""
        self.app.handler("Q", **options)(function)
        self.space.enqueue_many("Q", [text.encode() for text in texts], qmadmin.EnqueueControl(reply_queue="OUT"))
        with self.app.using(self.space):
            self.app.run(until_empty=True)

    @property
    def left(self):
        """What is in the queue, among the replies and among those that have failed."""
        return [drain(self.space, queue) for queue in ("Q", "OUT", "ERRORS")]

    def close(self):
        """Close the connections of threads that are gone."""
        for close in self._closing:
            # Those of sqlite3 are closed with their threads.
            with contextlib.suppress(sqlite3.ProgrammingError):
                close()


@pytest.fixture
def at(pair, shop):
    """An application whose handler uses a database of its own."""
    made = Shop(pair, shop)
    yield made
    made.close()


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


class TestTheSameDatabase:
    """The rows, and all that the handler does in the queue space, are one database transaction there."""

    @pytest.fixture(params=["driver", "SQLAlchemy", "Session", "scoped_session", "Django"])
    def shop(self, request, pair):
        is_file = "://" not in pair.configs[0]
        how = {"driver": "sqlite3" if is_file else "psycopg"}.get(request.param, request.param)
        made = application_at(pair.configs[0], how)
        yield made
        made.close()
        with contextlib.closing(connected(made.place)) as connection:
            connection.execute("DROP TABLE shop_order")
            connection.commit()

    @STORES
    def test_both_are_committed_by_the_connection(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", "one")
            at.app.enqueue("IDLE", "two")
            return f"sold {message.text}"

        at.run(ship, "a", "b")
        assert (at.failures, at.left, shop.orders()) == ([], [[], ["sold a", "sold b"], []], ["a", "b"])
        assert drain(pair.a, "IDLE") == ["one", "two"] * 2
        assert pair.rows("trans") == pair.rows("decision") == 0

    @STORES
    def test_neither_is_where_the_call_fails(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", message.text)
            if message.text == "a":
                raise LookupError

        at.run(ship, "a", "b")
        assert (len(at.failures), at.left, shop.orders()) == (4, [[], [""], ["a"]], ["b"])
        assert drain(pair.a, "IDLE") == ["b"]

    @STORES
    def test_a_failure_with_an_answer_leaves_the_answer_alone(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", message.text)
            raise qmadmin.Failure("no", body="none left")

        pair.a.enqueue("Q", "a", failure_queue="OUT")
        at.run(ship, gives_up=True, retries=3)
        assert (len(at.failures), at.left, shop.orders()) == (1, [[], ["none left"], []], [])
        assert drain(pair.a, "IDLE") == []

    @STORES
    def test_a_message_that_is_put_off_is_there_without_the_rows(self, at, pair, shop):
        def ship(message):
            at.sell(message.text)
            raise qmadmin.Park("not now")

        at.run(ship, "a")
        pair.a.unpark("Q")
        assert (at.failures, at.left, shop.orders()) == ([], [["a"], [], []], [])

    @STORES
    def test_several_workers_do_so_beside_each_other(self, at, pair, shop):
        texts = [f"{number:02}" for number in range(40)]

        def ship(message):
            at.sell(message.text)
            at.app.enqueue("IDLE", message.text)

        at.run(ship, *texts, workers=4)
        assert (at.failures, shop.orders(), sorted(drain(pair.a, "IDLE"))) == ([], texts, texts)

    @pytest.mark.parametrize("pair", ["file-file"], indirect=True)
    def test_what_is_enqueued_before_would_stand_behind(self, at, pair, shop):
        def ship(message):
            at.app.enqueue("IDLE", "before")
            at.sell(message.text)

        at.run(ship, "a", retries=0)
        assert "would come to stand behind" in str(at.failures[0])
        assert (at.left, shop.orders(), drain(pair.a, "IDLE")) == ([[], [], ["a"]], [], [])

    @pytest.mark.parametrize("pair", ["file-file"], indirect=True)
    def test_another_database_takes_no_part_in_it(self, at, pair, shop, tmp_path):
        def ship(message):
            with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other:
                qmadmin.create_decision_table(other)
                at.sell(message.text)
                with pytest.raises(ProtocolError, match="to which nothing on other volumes or in other databases"):
                    join(other)
                assert not other.in_transaction

        at.run(ship, "a")
        assert (at.failures, at.left, shop.orders()) == ([], [[], [""], []], ["a"])


def refusal_in(at, act, **options):
    """Return what an act is refused with in a handler, whose message is handled nevertheless."""
    raised = []

    def refused(_message):
        try:
            act()
        except qmadmin.QueueError as error:
            raised.append(error)

    at.run(refused, "a", **options)
    assert (at.failures, at.left) == ([], [[], [""], []])
    return raised[0]


@contextlib.contextmanager
def transaction_of(space):
    """Yield the call of a handler with a message of a queue space, in its transaction."""
    space.create_queue("Q", exist_ok=True)
    space.enqueue("Q", "a")
    with space.transaction() as transaction:
        yield current.CurrentCall(space, Call(space.dequeue("Q")), transaction=transaction)


class TestRefused:
    """What cannot take part is refused at the call, and the handler may go on without."""

    @ONE
    @DRIVERS
    def test_a_connection_that_has_a_transaction_open(self, at, shop):
        def act():
            at.here.execute("INSERT INTO shop_order VALUES ('x')")
            try:
                at.app.join(at.here.connection)
            finally:
                at.here.connection.rollback()

        error = refusal_in(at, act)
        assert isinstance(error, InvalidArgumentError)
        assert "has a transaction open already" in str(error)

    @ONE
    @DRIVERS
    def test_a_closed_connection(self, at):
        def act():
            at.here.connection.close()
            at.app.join(at.here.connection)

        assert "the connection is closed" in str(refusal_in(at, act))

    @ONE
    @DRIVERS
    def test_one_in_autocommit(self, at, shop):
        def act():
            with contextlib.closing(connected(shop.place)) as connection:
                if shop.place.endswith(".db"):
                    connection.isolation_level = None
                else:
                    connection.autocommit = True
                at.app.join(connection)

        assert "commits each statement by itself" in str(refusal_in(at, act))

    @ONE
    @DRIVERS
    def test_another_connection_to_the_same_database(self, at, shop):
        def ship(message):
            at.sell(message.text)
            with (
                contextlib.closing(connected(shop.place)) as other,
                pytest.raises(InvalidArgumentError, match="takes part in the transaction twice"),
            ):
                at.app.join(other)

        at.run(ship, "a")
        assert (at.failures, at.left, shop.orders()) == ([], [[], [""], []], ["a"])

    @ONE
    @DRIVERS
    def test_a_second_database_that_cannot_prepare_or_lacks_the_table(self, at, shop, tmp_path):
        other, seen = tmp_path / "other.db", []

        def ship(message):
            at.sell(message.text)
            with contextlib.closing(sqlite3.connect(other)) as connection:
                for _ in range(2 if shop.place.endswith(".db") else 1):
                    with pytest.raises(ProtocolError) as refused:
                        at.app.join(connection)
                    seen.append(str(refused.value))
                    qmadmin.create_decision_table(connection)

        at.run(ship, "a")
        assert "needs the table qmadmin_decision to take part" in seen[0]
        if shop.place.endswith(".db"):
            assert "at most one database of a transaction may be unable to prepare" in seen[1]
        assert (at.failures, at.left, shop.orders()) == ([], [[], [""], []], ["a"])

    @ONE
    @pytest.mark.parametrize("shop", BARE[1:], indirect=True, ids="-".join)
    def test_two_databases_are_not_if_one_of_them_prepares(self, at, pair, shop, tmp_path):
        with contextlib.closing(sqlite3.connect(tmp_path / "other.db", check_same_thread=False)) as other:
            qmadmin.create_decision_table(other)

            def ship(message):
                at.sell(message.text)
                at.app.join(other)
                other.execute("CREATE TABLE made (x)")

            at.run(ship, "a")
            assert (at.failures, at.left, shop.orders()) == ([], [[], [""], []], ["a"])
            assert rows_of(str(tmp_path / "other.db"), "made") == 0
            assert decisions_in(str(tmp_path / "other.db")) == 1

    @pytest.mark.parametrize("shop", BARE[1:], indirect=True, ids="-".join)
    def test_a_device_that_is_relaxed_which_cannot_decide(self, shop, tmp_path):
        with qmadmin.create_device(tmp_path / "QUE", durability="relaxed") as device:
            device.create_space("A")
            with device.open_space("A") as space, transaction_of(space) as call, call:
                with pytest.raises(ProtocolError, match=r"no queue space of 'A' can decide .* are relaxed"):
                    join(shop.connection)
                assert shop.connection.info.transaction_status == 0

    @pytest.mark.parametrize("shop", BARE[:1], indirect=True, ids="-".join)
    def test_a_device_in_memory(self, shop):
        with qmadmin.create_device(":memory:") as device:
            device.create_space("A")
            with device.open_space("A") as space, transaction_of(space) as call, call:
                with pytest.raises(InvalidArgumentError, match="a device in memory takes no part"):
                    join(shop.connection)
                assert not shop.connection.in_transaction

    @ONE
    @DRIVERS
    def test_a_batch_a_coroutine_another_thread_and_what_is_not_transactional(self, at, shop):
        def act():
            join(at.here.connection)

        def beside():
            with ThreadPoolExecutor(1) as pool:
                pool.submit(contextvars.copy_context().run, act).result()

        for options, what, does in (
            ({"batch": 10}, "a handler that takes messages in batches", act),
            ({"transactional": False}, "a handler that is not transactional", act),
            ({}, "a coroutine, or another thread of a handler,", beside),
        ):
            other = Shop(at.pair, shop)
            error = refusal_in(other, does, **options)
            assert isinstance(error, ProtocolError)
            assert str(error).startswith(f"{what} cannot have a database take part: ")

    @ONE
    @pytest.mark.parametrize("shop", BARE[:1], indirect=True, ids="-".join)
    def test_a_coroutine(self, at):
        async def ship(_message):
            at.app.join(at.here.connection)

        at.run(ship, "a", retries=0)
        assert "a coroutine, or another thread of a handler, cannot have a database take part" in str(at.failures[0])

    @ONE
    @pytest.mark.parametrize("shop", BARE[:1], indirect=True, ids="-".join)
    def test_outside_of_a_handler(self, at):
        for act in (at.app.join, join):
            with pytest.raises(ProtocolError, match="no handler of a message is being called here"):
                act(at.here.connection)

    @ONE
    @pytest.mark.parametrize("shop", BARE[:1], indirect=True, ids="-".join)
    def test_what_is_no_connection(self, at):
        assert "a resource of a transaction is" in str(refusal_in(at, lambda: at.app.join(object())))


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
