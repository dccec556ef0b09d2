"""Databases of applications that were set back to an earlier state, or copied: nothing is presumed."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

import qmadmin
from tests.crashing import Participant
from tests.doom import Doom
from tests.fix_applications import connected
from tests.fix_crashes import die_at
from tests.fix_databases import prepared_in
from tests.fix_distributed import PAIRS
from tests.fix_postgres import database_of
from tests.fix_store import drain, eventually
from tests.race.test_coordinator_copies import copy, put_back

ON_FILE = pytest.mark.parametrize("shop", [("file", "sqlite3")], indirect=True, ids="-".join)
pytestmark = pytest.mark.parametrize("pair", PAIRS[:1], indirect=True)


def die(pair, shop, start, tmp_path, decider, place, event):
    pair.a.enqueue("Q", "x")
    pair.close()
    place_of_shop = database_of(shop.place)[0] if "://" in shop.place else shop.place
    both = [Participant("A", pair.configs[0]), Participant("", place_of_shop)]
    die_at(start, both, {"space": 0, "database": 1}[decider], Doom(place, event), tmp_path)


@ON_FILE
@pytest.mark.parametrize("was_used", [True, False])
@pytest.mark.parametrize("is_same_file", [True, False])
def test_a_database_that_was_set_back_leaves_the_branch_to_an_administrator(
    pair, shop, start, tmp_path, caplog, is_same_file, was_used
):
    earlier = str(tmp_path / "earlier.db")
    if was_used:
        with qmadmin.transaction(pair.a, shop.connection):
            pair.a.enqueue("IDLE", "y")
            shop.order("y")
        pair.a.dequeue("IDLE")
    shop.disconnect()
    copy(shop.place, earlier)
    die(pair, shop, start, tmp_path, "database", "qmstorage.participants:Participant.commit", "return")
    put_back(earlier, shop.place, is_same_file=is_same_file)
    pair.open()
    with contextlib.closing(connected(shop.place)) as connection:
        assert qmadmin.recover(connection) == 1
        assert "waits for qcommittrans or qaborttrans: an earlier state of database" in caplog.text
        with qmadmin.transaction(pair.a, connection):
            pair.a.enqueue("IDLE", "y")
            connection.execute("INSERT INTO shop_order VALUES ('y')")
        (xid,) = pair.a.tpc_recover()
        assert pair.a.commit_transaction(str(xid)) is True
        assert (drain(pair.a), drain(pair.a, "OUT")) == ([], ["x"])


@ON_FILE
def test_a_queue_space_that_was_copied_ends_nothing_by_itself(pair, shop, start, tmp_path):
    die(pair, shop, start, tmp_path, "database", "qmstorage.participants:Participant.commit", "return")
    copied = str(tmp_path / "COPY")
    copy(pair.configs[0], copied)
    with (
        contextlib.closing(connected(shop.place)) as connection,
        qmadmin.open_device(copied) as device,
        device.open_space("A") as space,
    ):
        assert qmadmin.recover(connection) == 1
        (xid,) = space.tpc_recover()
        assert space.commit_transaction(str(xid)) is True
        assert drain(space, "OUT") == ["x"]
    pair.open()
    with contextlib.closing(connected(shop.place)) as connection:
        eventually(lambda: qmadmin.recover(connection) == 0, "the end of the branch that is no copy")
    assert (drain(pair.a), drain(pair.a, "OUT")) == ([], ["x"])


@pytest.mark.parametrize("shop", [("server", "psycopg")], indirect=True, ids="-".join)
def test_what_is_prepared_waits_where_the_queue_space_that_decides_was_set_back(pair, shop, start, tmp_path):
    earlier = str(tmp_path / "EARLIER")
    copy(pair.configs[0], earlier)
    die(pair, shop, start, tmp_path, "space", "qmcore.acts.deciding:decide", "return")
    with contextlib.closing(sqlite3.connect(pair.configs[0])) as connection:
        assert connection.execute("SELECT count(*) FROM decision").fetchone()[0] > 0
    put_back(earlier, pair.configs[0], is_same_file=False)
    pair.open()
    with contextlib.closing(connected(shop.place)) as connection:
        assert qmadmin.recover(connection) == 1
    assert prepared_in(shop.place) == 1
