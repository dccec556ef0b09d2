"""Databases that SQLAlchemy reaches and that cannot prepare, in transactions over several resources: they decide.

They are DuckDB here, a third dialect that needs no server.
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import qmadmin
from qmadmin.opening import database_of
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

pytestmark = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
GTRID, OTHER = b"g" * 16, b"h" * 16


@pytest.fixture
def engine(tmp_path):
    made = sa.create_engine(f"duckdb:///{tmp_path / 'shop.duck'}")
    with made.begin() as connection:
        connection.execute(sa.text("CREATE TABLE shop_order (text VARCHAR)"))
        qmadmin.create_decision_table(connection)
    yield made
    made.dispose()


@pytest.fixture(params=[sa.Connection, Session])
def shop(request, engine):
    with request.param(engine) as connection:
        yield connection


def order(connection, text):
    connection.execute(sa.text("INSERT INTO shop_order VALUES (:text)"), {"text": text})


def rows(engine, columns="text", table="shop_order"):
    with engine.connect() as connection:
        return [row[0] for row in connection.execute(sa.text(f"SELECT {columns} FROM {table}"))]


def test_messages_and_rows_are_committed_together_by_its_decision(pair, engine, shop):
    pair.a.enqueue("Q", "x")
    with qmadmin.transaction(pair.a, pair.b, shop) as tx:
        pair.b.enqueue("OUT", pair.a.dequeue("Q").text)
        order(shop, "x")
    assert tx.complete
    assert (drain(pair.a), drain(pair.b, "OUT"), rows(engine)) == ([], ["x"], ["x"])
    assert "commit" in rows(engine, "kind", "qmadmin_decision")
    eventually(lambda: not qmadmin.recover(shop), "the end of all in doubt")
    eventually(
        lambda: not qmadmin.recover(shop) and "commit" not in rows(engine, "kind", "qmadmin_decision"),
        "the end of the decision",
    )
    pair.wait_until_settled()


def test_neither_is_there_after_an_exception(pair, engine, shop):
    with pytest.raises(LookupError), qmadmin.transaction(pair.a, shop):
        pair.a.enqueue("OUT", "x")
        order(shop, "x")
        raise LookupError
    with qmadmin.transaction(pair.a, shop):
        order(shop, "y")
    assert (drain(pair.a, "OUT"), rows(engine)) == ([], ["y"])


def test_a_statement_that_has_failed_rolls_all_back(pair, engine, shop):
    with pytest.raises(AbortedError, match="can only be rolled back"), qmadmin.transaction(pair.a, shop):
        pair.a.enqueue("OUT", "x")
        order(shop, "x")
        with pytest.raises(sa.exc.ProgrammingError):
            shop.execute(sa.text("SELECT nothing FROM nowhere"))
    assert (drain(pair.a, "OUT"), rows(engine)) == ([], [])


def test_the_applications_own_commit_is_noticed(pair, engine, shop):
    with pytest.raises(ProtocolError, match="has ended the transaction"), qmadmin.transaction(pair.a, shop):
        pair.a.enqueue("OUT", "x")
        order(shop, "x")
        shop.commit()
    assert (drain(pair.a, "OUT"), rows(engine)) == ([], ["x"])


def test_what_takes_no_part_is_refused_with_the_reason(pair, engine, shop, tmp_path):
    with pytest.raises(InvalidArgumentError, match="has a transaction open already"), shop.begin():
        order(shop, "x")
        qmadmin.transaction(pair.a, shop).__enter__()
    other = sa.create_engine(f"duckdb:///{tmp_path / 'other.duck'}")
    with other.connect() as connection:
        with pytest.raises(ProtocolError, match="needs the table qmadmin_decision"):
            qmadmin.transaction(pair.a, connection).__enter__()
        qmadmin.create_decision_table(connection)
        with pytest.raises(ProtocolError, match=r"at most one database .* has no calls.*; .* has no calls"):
            qmadmin.transaction(pair.a, shop, connection).__enter__()
    other.dispose()
    memory = sa.create_engine("duckdb:///:memory:")
    with memory.connect() as connection:
        qmadmin.create_decision_table(connection)
        with pytest.raises(ProtocolError, match="a database in memory is gone with its process"):
            qmadmin.transaction(pair.a, connection).__enter__()
    memory.dispose()


def test_a_coordinator_that_was_taken_for_dead_is_refused(pair, engine):
    with engine.connect() as connection:
        database = database_of(connection)
        database.open()
        database.facts()
        table = database.table
        assert table.oppose([GTRID], 1) == {GTRID}
        assert table.oppose([GTRID, OTHER], 1) == {GTRID, OTHER}
        assert table.decided([GTRID]) == {GTRID: False}
        table.begin_era(7, 1)
        database.begin()
        with pytest.raises(AbortedError, match="others have ended the transaction on 'duckdb:"):
            table.decide(GTRID, 7, 0, [], 1)
        database.roll_back()
