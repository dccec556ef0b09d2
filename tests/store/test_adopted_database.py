"""An SQLite database of an application becomes a device beside the application's tables."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmadmin
from qmcore.errors import BadResourceError, QueueError
from qmstorage import schema
from qmstorage.sql import made
from qmstorage.sqlite import translate


@pytest.fixture(params=["delete", "wal"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database of a shop, with either journal, as its administrator has set its rights."""
    path = tmp_path / "shop.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.execute("CREATE TABLE shop_order (text)")
        connection.execute("INSERT INTO shop_order VALUES ('a chair')")
        connection.commit()
    path.chmod(0o644)
    return path


def by_hand(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def answer(path: Path, statement: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


@contextlib.contextmanager
def left_as_it_was(path: Path) -> Iterator[None]:
    """Prove that the file and its rights are not changed, and nothing is left beside it."""
    before = path.read_bytes(), path.stat().st_mode
    yield
    assert (path.read_bytes(), path.stat().st_mode) == before
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_database_becomes_a_device_and_keeps_its_tables_and_rights(database: Path) -> None:
    with qmadmin.create_device(database) as device:
        device.create_space("SHOP")
        with device.open_space("SHOP") as space:
            space.create_queue("orders")
            space.enqueue("orders", "a table")
    assert answer(database, "SELECT * FROM shop_order") == [("a chair",)]
    assert stat.S_IMODE(database.stat().st_mode) == 0o644
    with qmadmin.open_device(database) as device, device.open_space("SHOP") as space:
        assert space.dequeue("orders").text == "a table"
        assert {finding.check for finding in device.check() if finding.severity.value == "error"} == {"rights"}


def test_orders_and_messages_commit_together_in_it(database: Path) -> None:
    with qmadmin.open_device(database, create=True) as device:
        device.create_space("SHOP")
        with device.open_space("SHOP") as space, contextlib.closing(sqlite3.connect(database)) as connection:
            space.create_queue("orders")
            for text in ("kept", "undone"):
                connection.execute("INSERT INTO shop_order VALUES (?)", (text,))
                space.enqueue("orders", text, connection=connection)
                if text == "kept":
                    connection.commit()
                else:
                    connection.rollback()
            assert [message.text for message in space.browse("orders")] == ["kept"]
    assert answer(database, "SELECT * FROM shop_order") == [("a chair",), ("kept",)]


def test_it_becomes_one_while_the_application_has_it_open_with_a_log(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as application:
        application.execute("PRAGMA journal_mode = wal")
        application.execute("CREATE TABLE shop_order (text)")
        with qmadmin.create_device(path):
            application.execute("INSERT INTO shop_order VALUES ('a chair')")
            application.commit()
    assert answer(path, "SELECT * FROM shop_order") == [("a chair",)]


@pytest.mark.parametrize("name", ["message", "QUEUE", "alembic_version", "allocation"])
def test_a_table_of_a_name_of_ours_is_named_and_all_is_left_as_it_was(database: Path, name: str) -> None:
    by_hand(database, f"CREATE TABLE {name} (a)", "CREATE TABLE harmless (a)")
    with (
        left_as_it_was(database),
        pytest.raises(BadResourceError, match=f"has table '{name}', whose names a device needs itself"),
    ):
        qmadmin.create_device(database)


def test_each_name_of_ours_is_refused(tmp_path: Path) -> None:
    names = {table.name for table in made(schema.metadata).sorted_tables}
    names |= {index.name for table in made(schema.metadata).sorted_tables for index in table.indexes}
    path = tmp_path / "shop.sqlite3"
    for name in names:
        by_hand(path, f"CREATE TABLE {name} (a)")
        with pytest.raises(BadResourceError, match=f"has table '{name}'"):
            qmadmin.create_device(path)
        by_hand(path, f"DROP TABLE {name}", "CREATE TABLE IF NOT EXISTS shop_order (a)")


def test_indexes_and_views_count_and_many_names_are_shortened(database: Path) -> None:
    by_hand(
        database,
        "CREATE INDEX queue ON shop_order (text)",
        "CREATE VIEW space AS SELECT 1",
        *(f"CREATE TABLE {name} (a)" for name in ("device", "entry", "held", "message")),
    )
    with pytest.raises(BadResourceError, match=r"has table 'device', .* index 'queue' and 1 more, whose names"):
        qmadmin.create_device(database)


def test_a_file_that_another_program_has_marked_is_left_alone(database: Path) -> None:
    by_hand(database, "PRAGMA application_id = 0x47504b47")
    with (
        left_as_it_was(database),
        pytest.raises(BadResourceError, match="another program \\(application_id 0x47504b47\\)"),
    ):
        qmadmin.create_device(database)


def test_texts_in_another_encoding_are_refused(tmp_path: Path) -> None:
    by_hand(tmp_path / "shop", "PRAGMA encoding = 'UTF-16le'", "CREATE TABLE shop_order (text)")
    with left_as_it_was(tmp_path / "shop"), pytest.raises(BadResourceError, match="are in UTF-16le"):
        qmadmin.create_device(tmp_path / "shop")


def test_one_that_is_in_the_middle_of_a_transaction_of_the_application_is_refused_and_keeps_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "BUSY_SECONDS", 0.01)
    path = tmp_path / "shop.sqlite3"
    by_hand(path, "CREATE TABLE shop_order (text)")
    with contextlib.closing(sqlite3.connect(path)) as application:
        application.execute("INSERT INTO shop_order VALUES ('a chair')")
        with pytest.raises(QueueError, match="locked"):
            qmadmin.create_device(path)
        application.commit()
    assert answer(path, "PRAGMA journal_mode") == [("delete",)]
    assert answer(path, "SELECT * FROM shop_order") == [("a chair",)]


def test_open_with_create_says_what_keeps_it_from_becoming_one(database: Path) -> None:
    by_hand(database, "CREATE TABLE message (a)")
    with pytest.raises(BadResourceError, match="has table 'message'"):
        qmadmin.open_device(database, create=True)


def test_without_create_a_database_is_not_opened(database: Path) -> None:
    with left_as_it_was(database), pytest.raises(BadResourceError, match="is not a qmadmin device") as refusal:
        qmadmin.open_device(database)
    assert "crdl" in refusal.value.hint


def test_it_does_not_become_a_further_volume_of_a_device(database: Path, tmp_path: Path) -> None:
    with qmadmin.create_device(tmp_path / "QUE", 100) as device, pytest.raises(BadResourceError):
        device.create_entry(database, 0, 100)
