"""Databases of applications, apart from those of queue spaces, that take part in transactions of qmadmin."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import qmadmin
from tests.cluster import Cluster, Server
from tests.fix_applications import Application, application_at, connected
from tests.fix_distributed import Pair

DATABASES = [
    ("file", "sqlite3"), ("file", "SQLAlchemy"), ("file", "Session"), ("file", "scoped_session"), ("file", "Django"),
    ("server", "psycopg"), ("server", "SQLAlchemy"), ("server", "Session"), ("server", "Django"),
]  # fmt: skip
"""Where the database is, and how the application connects to it."""
BARE = [("file", "sqlite3"), ("server", "psycopg")]
"""Those without a library, for what has nothing to do with one."""


def rows_of(place: str, table: str) -> int:
    """Return how many rows a table of an application has, as everybody sees it."""
    with contextlib.closing(connected(place)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def decisions_in(place: str) -> int:
    """Return how many decisions to commit a database has."""
    return rows_of(place, "qmadmin_decision WHERE kind = 'commit'")


def prepared_in(place: str) -> int:
    """Return how many transactions are prepared in a database."""
    if "://" not in place:
        return 0
    return rows_of(place, "pg_prepared_xacts WHERE database = current_database()")


def is_over(shop: Application, connection: qmadmin.ApplicationConnection, pair: Pair) -> bool:
    """Return whether nothing is in doubt any more."""
    return qmadmin.recover(connection) == 0 and not prepared_in(shop.place) and pair.is_settled()


@pytest.fixture(scope="session")
def database_of_applications(postgres_server: Server, worker_database: str) -> Iterator[str]:
    """The URL of a database in which there is no queue space, on a server that can prepare transactions."""
    name = f"{worker_database}_app"
    postgres_server.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
    yield postgres_server.url(name)
    if not isinstance(postgres_server, Cluster):
        postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def place_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where the database of an application is: a file, or a database of the server."""
    return str(tmp_path / "shop.db") if kind == "file" else str(request.getfixturevalue("database_of_applications"))


@pytest.fixture(params=DATABASES, ids="-".join)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Application]:
    """An application with a database of its own, a table for its orders and one for decisions in it."""
    kind, how = request.param
    made = application_at(place_of(kind, request, tmp_path), how)
    with made.transaction() as connection:
        qmadmin.create_decision_table(connection)
    yield made
    with contextlib.suppress(Exception):
        made.close()
    forget_tables(made.place)


def forget_tables(place: str) -> None:
    """Remove the tables of an application from a database of the server, and what is prepared there."""
    if "://" not in place:
        return
    with contextlib.closing(connected(place)) as connection:
        connection.autocommit = True
        for (gid,) in connection.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        ).fetchall():
            connection.execute(f"ROLLBACK PREPARED '{gid}'")
        connection.execute("DROP TABLE IF EXISTS shop_order, qmadmin_decision")
