"""Processes that are killed while a handler has a database take part in the transaction of its message."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

import qmadmin
from tests.fix_applications import application_at, connected
from tests.fix_databases import BARE, is_over, prepared_in
from tests.fix_distributed import PAIRS
from tests.fix_store import drain, eventually

DIE = """
import qmadmin
from pathlib import Path
from tests.doom import Doom, meet
from tests.fix_applications import connected

_, device, shop, place, event, mark = sys.argv
app = qmadmin.App(device, space="A")

@app.handler("Q")
def move(text: str) -> None:
    connection = connected(shop)
    app.join(connection)
    app.enqueue("OUT", text)
    connection.execute("INSERT INTO shop_order VALUES ('x')")

meet(Doom(place, event), Path(mark))
app.run(until_empty=True)
say("done")
connection = connected(shop)
while shop != device:
    qmadmin.recover(connection)
"""
"""Handles a message, and dies at the call or at the return of a step."""

_DATABASE = "qmstorage.participants:Participant"
_TABLE = "qmstorage.decision_table:DecisionTable"
_SERVER = "qmstorage.postgres.participating:Participant"
IN_HANDLER = [
    ("qmadmin.joining_databases:join", "call"),
    (f"{_DATABASE}.begin", "return"),
    ("qmadmin.joining_databases:join", "return"),
    ("qmadmin.consumers.joined_databases:commit_with", "call"),
    (f"{_DATABASE}.has_changed", "return"),
]
BEFORE = {
    "file": [
        *IN_HANDLER,
        ("qmcore.acts.preparing:prepare", "call"),
        ("qmcore.acts.preparing:prepare", "return"),
        (f"{_TABLE}.decide", "call"),
        (f"{_DATABASE}.commit", "call"),
    ],
    "server": [
        *IN_HANDLER,
        (f"{_SERVER}.prepare", "call"),
        (f"{_SERVER}.prepare", "return"),
        ("qmcore.acts.deciding:decide", "call"),
    ],
    "same": [*IN_HANDLER, ("qmcore.acts.commit:commit", "call"), ("qmcore.acts.commit:commit", "return")],
}
"""Steps before anything is decided, by where the database is."""
AFTER = {
    "file": [
        (f"{_DATABASE}.commit", "return"),
        (f"{_TABLE}.decide", "return"),
        ("qmcore.acts.recovering:complete", "call"),
        ("qmcore.acts.recovering:complete", "return"),
        ("qmadmin.consumers.joined_databases:commit_with", "return"),
    ],
    "server": [
        ("qmcore.acts.deciding:decide", "return"),
        (f"{_SERVER}.end_prepared", "call"),
        (f"{_SERVER}.end_prepared", "return"),
        ("qmadmin.consumers.joined_databases:commit_with", "return"),
    ],
    "same": [(f"{_DATABASE}.commit", "return"), ("qmadmin.consumers.joined_databases:commit_with", "return")],
}
STORES = (PAIRS[0], "postgres-postgres")


@pytest.mark.matrix(apart=True)
@pytest.mark.parametrize(
    ("pair", "shop", "place", "event"),
    [
        (pair, database, *step)
        for pair in STORES
        for database in BARE
        for step in [*BEFORE[database[0]], *AFTER[database[0]]]
    ],
    indirect=["pair", "shop"],
)
def test_a_death_at_any_step_leaves_all_or_nothing_once_the_application_is_back(
    request, pair, shop, start, tmp_path, place, event
):
    kind, _ = request.node.callspec.params["shop"]
    pair.a.enqueue("Q", "x")
    pair.close()
    start(DIE, pair.configs[0], shop.place, place, event, tmp_path / "mark").lines_left()
    assert (tmp_path / "mark").exists()
    pair.open()
    with contextlib.closing(connected(shop.place)) as connection:
        eventually(lambda: is_over(shop, connection, pair), "the end of all that was in doubt")
    if (place, event) in BEFORE[kind]:
        message = pair.a.dequeue("Q")
        assert (message.text, message.retries, drain(pair.a, "OUT"), shop.orders()) == ("x", 1, [], [])
    else:
        assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == ([], ["x"], ["x"])


@pytest.mark.matrix
@pytest.mark.parametrize("pair", STORES, indirect=True)
@pytest.mark.parametrize(("place", "event"), [*BEFORE["same"], *AFTER["same"]])
def test_so_it_does_in_the_database_of_the_queue_space(pair, start, tmp_path, place, event):
    config = pair.configs[0]
    shop = application_at(config, "psycopg" if "://" in config else "sqlite3")
    pair.a.enqueue("Q", "x")
    pair.close()
    start(DIE, config, config, place, event, tmp_path / "mark").lines_left()
    assert (tmp_path / "mark").exists()
    pair.open()
    pair.wait_until_settled()
    if (place, event) in BEFORE["same"]:
        message = pair.a.dequeue("Q")
        assert (message.text, message.retries, drain(pair.a, "OUT"), shop.orders()) == ("x", 1, [], [])
    else:
        assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == ([], ["x"], ["x"])
    with shop.transaction():
        shop.execute("DROP TABLE shop_order")
    shop.close()


@pytest.mark.parametrize("pair", STORES, indirect=True)
@pytest.mark.parametrize(
    ("shop", "place", "event"),
    [(BARE[0], f"{_DATABASE}.commit", "return"), (BARE[1], f"{_SERVER}.end_prepared", "call")],
    indirect=["shop"],
)
def test_the_next_handler_that_joins_ends_what_was_left_in_doubt(pair, shop, start, tmp_path, place, event):
    pair.a.enqueue("Q", "x")
    pair.close()
    start(DIE, pair.configs[0], shop.place, place, event, tmp_path / "mark").lines_left()
    pair.open()
    app, connections = qmadmin.App("unused", space="A"), []

    @app.handler("Q")
    def move(_text: str) -> None:
        connections.append(connected(shop.place))
        app.join(connections[-1])

    with app.using(pair.a):

        def is_ended() -> bool:
            pair.a.enqueue("Q", "y")
            app.run(until_empty=True)
            return prepared_in(shop.place) == 0 and pair.a.tpc_recover() == []

        eventually(is_ended, "the end of what was in doubt")
    for connection in connections:
        # Those of sqlite3 are closed with their threads.
        with contextlib.suppress(sqlite3.ProgrammingError):
            connection.close()
    assert (drain(pair.a), drain(pair.a, "OUT"), shop.orders()) == ([], ["x"], ["x"])
