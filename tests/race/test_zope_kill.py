"""Processes that are killed in the middle of a transaction of Zope on which a session decides."""

from __future__ import annotations

import contextlib

import pytest
import sqlalchemy as sa
import transaction
import zope.sqlalchemy

import qmadmin
from qmadmin.zope import join
from tests.fix_applications import connected
from tests.fix_databases import decisions_in
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

DIE = """
import sqlalchemy as sa
import transaction
import zope.sqlalchemy
from pathlib import Path
from qmadmin.zope import join
from tests.doom import Doom, meet
from tests.fix_applications import OrmSession

class Shop(OrmSession):
    def __init__(self, place):
        self.place = place
        self.open()

_, first, second, place, doomed, event, mark = sys.argv
session = Shop(place).connection
zope.sqlalchemy.register(session)
with open_device(first) as one, open_device(second) as other:
    with one.open_space("A") as a, other.open_space("B") as b:
        with transaction.manager:
            join(a, session=session)
            join(b, session=session)
            b.enqueue("OUT", a.dequeue("Q").text)
            session.execute(sa.text("INSERT INTO shop_order VALUES ('x')"))
            meet(Doom(doomed, event), Path(mark))
        say("done")
        connection = session.connection().connection.driver_connection
        while True:
            qmadmin.recover(connection)
"""
"""Moves a message, records an order, and dies at the call or at the return of a step."""

_TABLE = "qmstorage.decision_table:DecisionTable"
BEFORE = [
    ("qmcore.acts.preparing:prepare", "call"),
    ("qmcore.acts.preparing:prepare", "return"),
    (f"{_TABLE}.decide", "call"),
    (f"{_TABLE}.decide", "return"),
    ("zope.sqlalchemy.datamanager:SessionDataManager.tpc_vote", "call"),
]
"""Steps before the session commits."""
AFTER = [
    ("zope.sqlalchemy.datamanager:SessionDataManager.tpc_vote", "return"),
    ("qmadmin.two_phase:TwoPhaseTransaction.decide", "call"),
    ("qmadmin.two_phase:TwoPhaseTransaction.decide", "return"),
    ("qmadmin.participating:DecidingDatabase.note", "return"),
    (f"{_TABLE}.forget", "return"),
]
SHOPS = [("file", "Session"), ("server", "Session")]


def matrix():
    """Return the steps at which a process dies, by stores and databases."""
    return [
        (pair, shop, *step) for pair in (PAIRS[0], "postgres-postgres") for shop in SHOPS for step in [*BEFORE, *AFTER]
    ]


def started(pair, shop, start, tmp_path, place, event):
    """Have a process die at a step, and open the queue spaces after that."""
    pair.a.enqueue("Q", "x")
    pair.close()
    shop.close()
    start(DIE, *pair.configs, shop.place, place, event, tmp_path / "mark").lines_left()
    pair.open()


def check(pair, shop, step):
    """Check that all of it was done, or nothing."""
    if step in BEFORE:
        message = pair.a.dequeue("Q")
        assert (message.text, message.retries, drain(pair.b, "OUT"), shop.orders()) == ("x", 1, [], [])
    else:
        assert (drain(pair.a), drain(pair.b, "OUT"), shop.orders()) == ([], ["x"], ["x"])


@pytest.mark.matrix(apart=True)
@pytest.mark.parametrize(("pair", "shop", "place", "event"), matrix(), indirect=["pair", "shop"])
def test_a_death_at_any_step_leaves_all_or_nothing_once_the_application_is_back(
    pair, shop, start, tmp_path, place, event
):
    started(pair, shop, start, tmp_path, place, event)
    with contextlib.closing(connected(shop.place)) as connection:
        eventually(lambda: qmadmin.recover(connection) == 0 and pair.is_settled(), "the end of all that was in doubt")
    check(pair, shop, (place, event))
    assert decisions_in(shop.place) <= 1


@pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)
@pytest.mark.parametrize("shop", SHOPS, indirect=True, ids="-".join)
@pytest.mark.parametrize("step", [BEFORE[-1], AFTER[0]], ids=["before", "after"])
def test_the_next_transaction_with_a_session_of_the_database_ends_it_too(pair, shop, start, tmp_path, step):
    started(pair, shop, start, tmp_path, *step)
    shop.open()
    zope.sqlalchemy.register(shop.connection)

    def joins():
        with transaction.manager:
            join(pair.a, session=shop.connection)
            shop.connection.execute(sa.text("SELECT 1"))
        return pair.is_settled()

    eventually(joins, "the end of all that was in doubt")
    check(pair, shop, step)
