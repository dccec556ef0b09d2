"""What goes wrong in the middle of a transaction with a database of the application: all of it is done, or nothing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

import qmadmin
from qmadmin import application_databases, coordinating, participating
from qmcore.acts import preparing
from qmcore.errors import AbortedError, InvalidArgumentError, OutcomeUnknownError, ProtocolError, QueueError
from qmstorage import decision_table, participants
from qmstorage.postgres import participating as of_servers
from qmstorage.sqlite import participating as of_files
from tests.fix_applications import application_at, connected
from tests.fix_databases import BARE, prepared_in
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually
from tests.interrupts import at_every_line

ONE = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
DRIVERS = pytest.mark.parametrize("shop", BARE, indirect=True, ids="-".join)
MODULES = [coordinating, participating, application_databases, participants, decision_table, of_files, of_servers]
CELLS = [
    (shop, decides, module)
    for shop, deciders, other in ((BARE[0], ("file",), of_servers), (BARE[1], ("database", "space"), of_files))
    for decides in deciders
    for module in MODULES
    if module is not other
]
"""Modules that have a part in it: each kind of database has one of its own, and one in a file always decides."""
assert [shop[0] for shop in BARE] == ["file", "server"]


def wait_until_over(shop, pair):
    """Wait until recovery has done all that it can with a connection of its own."""

    def is_over():
        with contextlib.closing(connected(shop.place)) as connection:
            return qmadmin.recover(connection) == 0 and not pair.a.tpc_recover() and not prepared_in(shop.place)

    eventually(is_over, "the end of all that was in doubt")


@pytest.mark.matrix(apart=True)
@ONE
@pytest.mark.parametrize(
    ("shop", "decides", "module"),
    CELLS,
    indirect=["shop"],
    ids=[f"{'-'.join(shop)}-{decides}-{module.__name__}" for shop, decides, module in CELLS],
)
def test_an_interrupt_at_any_line_leaves_all_or_nothing(pair, shop, module, decides):
    decider = pair.a if decides == "space" else shop.connection
    number = 0

    def move():
        with qmadmin.transaction(pair.a, shop.connection, decider=decider):
            pair.a.enqueue("OUT", str(number))
            shop.order(str(number))

    done = []
    for number in at_every_line(module, move):  # noqa: B007 - the call has it
        wait_until_over(shop, pair)
        # The connection is as usable as ever.
        with shop.transaction():
            shop.execute("DELETE FROM shop_order WHERE text = 'none'")
        done += drain(pair.a, "OUT")
        assert sorted(done) == shop.orders()
    assert done[-1] == str(number - 1)


@ONE
@DRIVERS
def test_an_error_of_the_queue_space_at_its_prepare_leaves_nothing(pair, shop, monkeypatch):
    def refuse(*_, **_how):
        raise QueueError("refused")

    pair.a.enqueue("Q", "x")
    with (
        pytest.raises(QueueError, match="refused"),
        qmadmin.transaction(pair.a, pair.b, shop.connection),
    ):
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
        pair.a.enqueue("OUT", "y")
        shop.order("x")
        monkeypatch.setattr(preparing, "prepare", refuse)
    monkeypatch.undo()
    assert (drain(pair.a), drain(pair.b, "OUT"), drain(pair.a, "OUT"), shop.orders()) == (["x"], [], [], [])


@ONE
@pytest.mark.parametrize("shop", [("server", "SQLAlchemy"), ("server", "Session")], indirect=True, ids="-".join)
def test_a_connection_that_is_lost_at_the_decision_leaves_an_outcome_that_can_be_asked_for(pair, shop):
    import sqlalchemy

    def lose(its):
        with contextlib.closing(connected(shop.place)) as other:
            other.autocommit = True
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [its.connection.driver_connection.info.backend_pid])

    sqlalchemy.event.listen(shop.engine, "commit", lose)
    with (
        pytest.raises(OutcomeUnknownError, match="it is unknown whether transaction") as unknown,
        qmadmin.transaction(pair.a, shop.connection, decider=shop.connection),
    ):
        pair.a.enqueue("OUT", "x")
        shop.order("x")
    sqlalchemy.event.remove(shop.engine, "commit", lose)
    with contextlib.closing(connected(shop.place)) as other:
        assert qmadmin.outcome(other, unknown.value.facts["gtrid"]) is False
    wait_until_over(shop, pair)
    assert (drain(pair.a, "OUT"), shop.orders()) == ([], [])


@ONE
@DRIVERS
def test_an_outcome_that_the_database_does_not_know_is_refused(pair, shop):
    with pytest.raises(InvalidArgumentError, match="does not decide on transaction"):
        qmadmin.outcome(shop.connection, f"{'0' * 32}-1-1")
    with pytest.raises(InvalidArgumentError, match="is not the identifier"):
        qmadmin.outcome(shop.connection, "x")
    assert drain(pair.a) == []


@ONE
def test_a_server_that_cannot_prepare_decides_and_so_needs_the_table(pair, own_cluster):
    own_cluster.sql("ALTER SYSTEM SET max_prepared_transactions = 0")
    own_cluster.stop()
    own_cluster.start()
    own_cluster.sql("CREATE DATABASE shop")
    made = application_at(own_cluster.url("shop"), "psycopg")
    with (
        pytest.raises(QueueError, match=r"needs the table .*max_prepared_transactions is 0"),
        qmadmin.transaction(pair.a, made.connection),
    ):
        raise AssertionError("it has begun")
    qmadmin.create_decision_table(made.connection)
    with qmadmin.transaction(pair.a, made.connection) as tx:
        pair.a.enqueue("OUT", "x")
        made.order("x")
    assert tx.complete
    assert (drain(pair.a, "OUT"), made.orders()) == (["x"], ["x"])
    made.close()


@ONE
@pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join)
def test_a_server_with_as_many_prepared_as_it_allows_rolls_back_and_says_so(pair, shop):
    for number in range(20):
        with contextlib.closing(connected(shop.place)) as other:
            other.tpc_begin(other.xid(7, f"full-{number}", "x"))
            other.execute("INSERT INTO shop_order VALUES ('held')")
            other.tpc_prepare()
    with contextlib.closing(connected(shop.place)) as other:
        with (
            pytest.raises(qmadmin.AbortedError, match="maximum number of prepared transactions reached"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
        for xid in other.tpc_recover():
            other.tpc_rollback(xid)
    assert (drain(pair.a, "OUT"), shop.orders()) == ([], [])


@ONE
@pytest.mark.parametrize("shop", [("server", "psycopg"), ("server", "SQLAlchemy")], indirect=True, ids="-".join)
def test_a_connection_that_is_lost_inside_the_block_rolls_back_and_says_so(pair, shop):
    with contextlib.closing(connected(shop.place)) as other:
        other.autocommit = True
        with (
            pytest.raises(QueueError, match=r"the connection to database .* is lost"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            pair.a.enqueue("OUT", "x")
            shop.order("x")
            other.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'"
            )
            with contextlib.suppress(Exception):
                shop.order("y")
    assert (drain(pair.a, "OUT"), shop.orders()) == ([], [])


@ONE
@DRIVERS
def test_a_transaction_with_a_database_is_not_suspended(pair, shop):
    with qmadmin.transaction(pair.a, shop.connection) as tx:
        pair.a.enqueue("OUT", "x")
        shop.order("x")
        with pytest.raises(ProtocolError, match="is not suspended: nobody else has its connection"):
            tx.suspend()
    assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x"])


@ONE
@DRIVERS
def test_a_child_of_a_fork_inside_the_block_leaves_the_connection_to_its_parent(pair, shop):
    with qmadmin.transaction(pair.a, shop.connection) as tx:
        pair.a.enqueue("OUT", "x")
        shop.order("x")
        child = os.fork()
        if not child:
            # As the end of the block does.
            with contextlib.suppress(BaseException):
                tx.__exit__(LookupError, LookupError(), None)
            os._exit(0)
        os.waitpid(child, 0)
        shop.order("y")
    assert (drain(pair.a, "OUT"), shop.orders()) == (["x"], ["x", "y"])


@ONE
@DRIVERS
def test_one_that_another_thread_gives_up_is_rolled_back_at_the_end_of_its_block(pair, shop):
    with (
        pytest.raises(qmadmin.AbortedError, match="takes too long"),
        qmadmin.transaction(pair.a, shop.connection) as tx,
    ):
        pair.a.enqueue("OUT", "x")
        shop.order("x")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(tx.give_up, "it takes too long").result()
    assert (drain(pair.a, "OUT"), shop.orders()) == ([], [])
    with shop.transaction():
        shop.order("y")


@ONE
@pytest.mark.parametrize("shop", [BARE[0], ("file", "SQLAlchemy"), ("file", "Session")], indirect=True, ids="-".join)
def test_a_commit_that_a_reader_keeps_from_being_done_is_refused_and_nothing_is_in_doubt(pair, shop, tmp_path):
    with contextlib.closing(sqlite3.connect(shop.place)) as other:
        other.execute("PRAGMA journal_mode = delete")
    with qmadmin.transaction(pair.a, shop.connection):
        shop.order("known")
        pair.a.enqueue("Q", "x")
    with contextlib.closing(sqlite3.connect(shop.place)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM shop_order").fetchone() == (1,)
        with (
            pytest.raises(AbortedError, match=r"has not committed: .*database is locked"),
            qmadmin.transaction(pair.a, shop.connection),
        ):
            shop.execute("PRAGMA busy_timeout = 1")
            assert pair.a.dequeue("Q").text == "x"
            shop.order("x")
        assert (pair.a.tpc_recover(), pair.a.dequeue("Q").text) == ([], "x")
    with qmadmin.transaction(pair.a, shop.connection):
        shop.order("y")
    assert shop.orders() == ["known", "y"]
