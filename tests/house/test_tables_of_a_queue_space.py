"""Each table in which something is of a queue space or of a queue is emptied of it when that is removed."""

from __future__ import annotations

import contextlib
import sqlite3

from qmcore import numbers
from qmcore.purpose import Purpose
from tests.fix_store import attachment_of, make_queue

OF = ("space_id", "queue_id", "import_id")
"""The columns that say of what a row is; a queue that an import hides has its number, another one 0."""
SEVEN = 7
VALUES = {
    "INTEGER": SEVEN,
    "BIGINT": SEVEN,
    "SMALLINT": SEVEN,
    "DOUBLE": SEVEN,
    "BOOLEAN": 0,
    "TEXT": "x",
    "BLOB": b"x",
}


def columns_of(connection):
    """Return the columns of each table, with their types."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({name})")} for name in names}


def left_of(connection, known):
    """Return the tables that have a row of one of the things that are known by their numbers."""
    return {
        table
        for table, columns in columns_of(connection).items()
        for column in OF
        if column in columns
        and (table, column) != ("queue", "import_id")
        and connection.execute(f"SELECT count(*) FROM {table} WHERE {column} = ?", (known[column],)).fetchone()[0]
    }


def test_nothing_is_left_of_a_queue_space_that_is_removed(file_store):
    space = file_store.space()
    queue = make_queue(space, "Q")
    attachment = attachment_of(space)
    space_id = attachment.opened.space.id
    known = {"space_id": space_id, "queue_id": queue.id, "import_id": SEVEN}
    known_besides = {"message_id": numbers.number(space_id, 1), "body_id": numbers.number(space_id, 1)}
    with contextlib.closing(sqlite3.connect(file_store.path, isolation_level=None)) as connection:
        tables = columns_of(connection)
        filled = {name for name, columns in tables.items() if not columns.keys().isdisjoint(OF)}
        for name in filled | {"message", "chunk"}:
            its = {column: VALUES[kind] for column, kind in tables[name].items()} | known | known_besides
            its |= {"id": known_besides["message_id"]} if name == "message" else {}
            values = [its[column] for column in tables[name]]
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT OR IGNORE INTO {name} VALUES ({marks})", values)
        assert left_of(connection, known) == filled
        attachment.volume.write(lambda unit: unit.spaces.remove(space_id), Purpose.ADMINISTRATION)
        assert left_of(connection, known) == set()
