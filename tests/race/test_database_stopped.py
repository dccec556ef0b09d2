"""Coordinators that stand still before a database of the application decides, are given up, and come back: refused."""

from __future__ import annotations

import contextlib
import signal

import pytest

import qmadmin
from tests.doom import Doom
from tests.fix_applications import connected
from tests.fix_databases import prepared_in
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

STAND_STILL = """
import qmadmin
from pathlib import Path
from tests.doom import Doom, meet
from tests.fix_applications import connected

_, first, shop, decides, mark = sys.argv
with open_device(first) as device, device.open_space("A") as space:
    connection = connected(shop)
    place = "qmstorage.decision_table:DecisionTable.decide" if decides == "database" else "qmcore.acts.deciding:decide"
    decider = connection if decides == "database" else space
    try:
        with qmadmin.transaction(space, connection, decider=decider) as tx:
            space.enqueue("OUT", space.dequeue("Q").text)
            connection.execute("INSERT INTO shop_order VALUES ('x')")
            meet(Doom(place, number=19), Path(mark))
    except qmadmin.AbortedError as error:
        say(f"refused: {tx.complete}")
"""
"""Moves a message and writes a row, and stands still before that is decided."""
assert Doom("", number=19).number == signal.SIGSTOP

pytestmark = [
    pytest.mark.parametrize("pair", PAIRS[:1], indirect=True),
    # The connection to a file would keep all others from writing there, also from its table of decisions.
    pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join),
]


def standing_still(pair, shop, start, tmp_path, decides):
    """Return a coordinator that has prepared, and stands still before it decides."""
    pair.a.enqueue("Q", "x")
    mark = tmp_path / "mark"
    child = start(STAND_STILL, pair.configs[0], shop.place, decides, mark)
    eventually(mark.exists, "it stands still")
    return child


def test_the_outcome_that_somebody_has_asked_for_holds(pair, shop, start, tmp_path):
    child = standing_still(pair, shop, start, tmp_path, "database")
    (xid,) = pair.a.tpc_recover()
    with contextlib.closing(connected(shop.place)) as connection:
        ((era, decisions),) = connection.execute(
            "SELECT id, decisions FROM qmadmin_decision WHERE kind = 'era'"
        ).fetchall()
        connection.rollback()
        gtrid = f"{xid.gtrid.hex()}-{era.removeprefix('era-')}-{decisions:x}"
        # It lives, and is waited for.
        assert qmadmin.recover(connection) == 1
        assert qmadmin.outcome(connection, gtrid) is False
        assert qmadmin.recover(connection) == 0
        message = pair.a.dequeue("Q")
        assert (message.text, message.retries, drain(pair.a, "OUT"), shop.orders()) == ("x", 1, [], [])
        child.signal(signal.SIGCONT)
        child.expect("refused: False")
        child.finish()
        assert (drain(pair.a, "OUT"), shop.orders(), pair.a.tpc_recover()) == ([], [], [])
        assert qmadmin.outcome(connection, gtrid) is False


def test_a_database_that_is_prepared_follows_the_queue_space_that_has_ended_it(pair, shop, start, tmp_path):
    child = standing_still(pair, shop, start, tmp_path, "space")
    assert prepared_in(shop.place) == 1
    with contextlib.closing(connected(shop.place)) as connection:
        # Its coordinator lives, and is waited for.
        assert qmadmin.recover(connection) == 1
        (info,) = pair.a.transactions()
        pair.a.abort_transaction(info.name)
        assert qmadmin.recover(connection) == 0
        assert prepared_in(shop.place) == 0
        message = pair.a.dequeue("Q")
        assert (message.text, drain(pair.a, "OUT"), shop.orders()) == ("x", [], [])
        child.signal(signal.SIGCONT)
        child.expect("refused: False")
        child.finish()
        assert (drain(pair.a, "OUT"), shop.orders()) == ([], [])
