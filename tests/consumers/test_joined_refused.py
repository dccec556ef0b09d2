"""What cannot take part in the transaction of a message is refused to a handler."""

from __future__ import annotations

import contextlib
import contextvars
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

import qmadmin
from qmadmin.consumers import Call, current
from qmadmin.forwarder import join
from qmcore.errors import InvalidArgumentError, ProtocolError
from tests.fix_applications import connected
from tests.fix_databases import BARE, decisions_in, rows_of
from tests.fix_joined_databases import DRIVERS, ONE, Shop


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
