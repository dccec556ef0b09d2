"""Processes that are killed in the middle of a commit over a queue space and a database of the application."""

from __future__ import annotations

import contextlib

import pytest

from tests.fix_applications import connected
from tests.fix_databases import BARE, decisions_in, is_over
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

DIE = """
import qmadmin
from pathlib import Path
from tests.doom import Doom, meet
from tests.fix_applications import connected

_, first, second, shop, decider, place, event, mark = sys.argv
with open_device(first) as one, open_device(second) as other:
    with one.open_space("A") as a, other.open_space("B") as b:
        connection = connected(shop)
        with qmadmin.transaction(a, connection, decider={"database": connection, "space": a}[decider]):
            a.enqueue("OUT", a.dequeue("Q").text)
            connection.execute("INSERT INTO shop_order VALUES ('x')")
            meet(Doom(place, event), Path(mark))
        say("done")
        while True:
            qmadmin.recover(connection)
"""
"""Moves a message, and writes a row, and dies at the call or at the return of a step."""

_DATABASE = "qmstorage.participants:Participant"
_TABLE = "qmstorage.decision_table:DecisionTable"
_SERVER = "qmstorage.postgres.participating:Participant"
BEFORE = [
    ("database", "qmcore.acts.preparing:prepare", "call"),
    ("database", "qmcore.acts.preparing:prepare", "return"),
    ("database", f"{_TABLE}.decide", "call"),
    ("database", f"{_TABLE}.decide", "return"),
]
"""Steps before a database decides."""
AFTER = [
    ("database", f"{_DATABASE}.commit", "return"),
    ("database", "qmcore.acts.recovering:complete", "call"),
    ("database", "qmcore.acts.recovering:complete", "return"),
    ("database", f"{_TABLE}.decisions", "return"),
    ("database", "qmcore.acts.recovering:end", "return"),
    ("database", f"{_TABLE}.forget", "return"),
]
BEFORE_SPACE = [
    ("space", "qmcore.acts.deciding:decider_of", "return"),
    ("space", f"{_SERVER}.prepare", "call"),
    ("space", f"{_SERVER}.prepare", "return"),
    ("space", "qmcore.acts.deciding:decide", "call"),
]
"""Steps before a queue space decides, and the database has prepared."""
AFTER_SPACE = [
    ("space", "qmcore.acts.deciding:decide", "return"),
    ("space", f"{_SERVER}.end_prepared", "call"),
    ("space", f"{_SERVER}.end_prepared", "return"),
    ("space", "qmcore.acts.deciding:forget", "return"),
]


def matrix():
    """Return the steps at which a process dies, by stores and databases."""
    return [
        (pair, database, *step)
        for pair in (PAIRS[0], "postgres-postgres")
        for database in BARE
        for step in [*BEFORE, *AFTER, *([*BEFORE_SPACE, *AFTER_SPACE] if database[0] == "server" else [])]
    ]


@pytest.mark.matrix(apart=True)
@pytest.mark.parametrize(("pair", "shop", "decider", "place", "event"), matrix(), indirect=["pair", "shop"])
def test_a_death_at_any_step_leaves_all_or_nothing_once_the_application_is_back(
    pair, shop, start, tmp_path, decider, place, event
):
    pair.a.enqueue("Q", "x")
    pair.close()
    child = start(DIE, *pair.configs, shop.place, decider, place, event, tmp_path / "mark")
    child.lines_left()
    pair.open()
    with contextlib.closing(connected(shop.place)) as connection:
        eventually(lambda: is_over(shop, connection, pair), "the end of all that was in doubt")
    if (decider, place, event) in [*BEFORE, *BEFORE_SPACE]:
        message = pair.a.dequeue("Q")
        assert (message.text, message.retries, drain(pair.a, "OUT"), shop.orders()) == ("x", 1, [], [])
    else:
        assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == ([], ["x"], ["x"])
        assert decisions_in(shop.place) <= 1
