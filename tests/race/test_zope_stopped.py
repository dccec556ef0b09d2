"""Coordinators of Zope that stand still before their session decides, are given up, and come back: they are refused."""

from __future__ import annotations

import contextlib
import signal

import pytest

import qmadmin
from tests.doom import Doom
from tests.fix_applications import connected
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

STAND_STILL = """
import qmadmin
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

_, first, second, place, mark = sys.argv
session = Shop(place).connection
zope.sqlalchemy.register(session)
with open_device(first) as one, open_device(second) as other:
    with one.open_space("A") as a, other.open_space("B") as b:
        try:
            with transaction.manager:
                join(a, session=session)
                join(b, session=session)
                b.enqueue("OUT", a.dequeue("Q").text)
                session.execute(sa.text("INSERT INTO shop_order VALUES ('x')"))
                meet(Doom("qmstorage.decision_table:DecisionTable.decide", number=19), Path(mark))
        except qmadmin.QueueError as error:
            say(f"refused: {type(error).__name__}")
        else:
            say("committed")
"""
"""Moves a message and records an order, and stands still before the session decides."""
assert Doom("", number=19).number == signal.SIGSTOP


@pytest.mark.parametrize("pair", [PAIRS[0], "postgres-postgres"], indirect=True)
@pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join)
def test_one_that_was_given_up_and_comes_back_is_refused_and_nothing_is_done(pair, shop, start, tmp_path):
    pair.a.enqueue("Q", "x")
    mark = tmp_path / "mark"
    child = start(STAND_STILL, *pair.configs, shop.place, mark)
    eventually(mark.exists, "it stands still")
    (xid,) = pair.b.tpc_recover()
    assert [each.gtrid for each in pair.a.tpc_recover()] == [xid.gtrid]
    with contextlib.closing(connected(shop.place)) as connection:
        ((era, decisions),) = connection.execute(
            "SELECT id, decisions FROM qmadmin_decision WHERE kind = 'era'"
        ).fetchall()
        connection.rollback()
        # It lives, and is waited for until somebody asks for the outcome.
        assert qmadmin.recover(connection) > 0
        assert qmadmin.outcome(connection, f"{xid.gtrid.hex()}-{era.removeprefix('era-')}-{decisions:x}") is False
        eventually(lambda: qmadmin.recover(connection) == 0, "the end of all that was in doubt")
        message = pair.a.dequeue("Q")
        assert (message.text, message.retries, drain(pair.b, "OUT"), shop.orders()) == ("x", 1, [], [])
        child.signal(signal.SIGCONT)
        child.expect("refused: AbortedError")
        child.finish()
        assert (drain(pair.a), drain(pair.b, "OUT"), shop.orders()) == ([], [], [])
        assert (pair.a.tpc_recover(), pair.b.tpc_recover(), qmadmin.recover(connection)) == ([], [], 0)
