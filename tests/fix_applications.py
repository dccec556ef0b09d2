"""Applications with a table of their own beside the queues, on each kind of connection that calls can join."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qmadmin.device import Device
from qmadmin.space import QueueSpace
from tests import drivers
from tests.fix_postgres import database_of
from tests.fix_store import MovableClock, Store, device_path, maker_of_devices


class Application:
    """An application with a table `shop_order`; `connection` is what it gives to calls."""

    connection: Any

    def __init__(self, place: str) -> None:
        self.place = place
        self.open()
        with self.transaction():
            self.execute("CREATE TABLE IF NOT EXISTS shop_order (text varchar(80) NOT NULL)")
            self.execute("DELETE FROM shop_order")

    def open(self) -> None:
        """Connect."""

    def space_of(self, space: QueueSpace, device: Device) -> Any:
        """Return a queue space of a device as the application calls it."""
        del device
        return space

    def execute(self, statement: str) -> None:
        """Run a statement in the transaction."""

    def order(self, text: str) -> None:
        """Record an order in the transaction."""
        self.execute(f"INSERT INTO shop_order VALUES ('{text}')")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction that is committed, or rolled back where an exception comes out."""
        yield self.connection

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """The same for a savepoint in it."""
        self.execute("SAVEPOINT inner_one")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK TO SAVEPOINT inner_one")
            raise
        finally:
            self.execute("RELEASE SAVEPOINT inner_one")

    def orders(self) -> list[str]:
        """Return what everybody sees of the table."""
        with contextlib.closing(connected(self.place)) as connection:
            return [row[0] for row in connection.execute("SELECT text FROM shop_order ORDER BY text")]

    def disconnect(self) -> None:
        """Close the connection."""
        self.connection.close()

    def close(self) -> None:
        """Close all that was opened."""
        self.disconnect()


def connected(place: str) -> Any:
    """Return a connection of the driver."""
    if "://" not in place:
        return sqlite3.connect(place)
    import psycopg

    return psycopg.connect(database_of(place)[0])


class Plain(Application):
    """The driver's connection, with commit and rollback."""

    def open(self) -> None:
        self.connection = connected(self.place)
        self.begins = ""

    def execute(self, statement: str) -> None:
        self.connection.execute(statement)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        if self.begins:
            self.execute(self.begins)
        try:
            yield self.connection
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()


class Explicit(Plain):
    """sqlite3 that begins nothing by itself."""

    def open(self) -> None:
        self.connection = sqlite3.connect(self.place, isolation_level=None)
        self.begins = "BEGIN"


class AlwaysBegun(Plain):
    """sqlite3 as the newer documentation recommends it: a transaction is always open."""

    def open(self) -> None:
        super().open()
        self.connection.autocommit = False


class Autocommit(Explicit):
    """The opposite: transactions are begun by hand."""

    def open(self) -> None:
        self.connection = sqlite3.connect(self.place, autocommit=True)
        self.begins = "BEGIN IMMEDIATE"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        self.execute(self.begins)
        try:
            yield self.connection
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")


class Blocks(Plain):
    """psycopg with autocommit, and blocks for transactions and savepoints."""

    def open(self) -> None:
        super().open()
        self.connection.autocommit = True

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.connection.transaction():
            yield self.connection

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        with self.connection.transaction():
            yield


class ByCursor(Plain):
    """The same of a driver of which no more is known than PEP 249 says."""

    def execute(self, statement: str) -> None:
        with contextlib.closing(self.connection.cursor()) as cursor:
            cursor.execute(statement)


class Psycopg2(ByCursor):
    """psycopg 2."""

    def open(self) -> None:
        self.connection = connected_by("psycopg2", self.place)
        self.begins = ""


class Pg8000(ByCursor):
    """pg8000, which keeps one part of an identifier only."""

    def open(self) -> None:
        self.connection = connected_by("pg8000", self.place)
        self.begins = ""


def connected_by(driver: str, place: str) -> Any:
    """Return a connection of a driver to the database of a device, or of an application."""
    return drivers.connected(driver, database_of(place)[0])


class SqlAlchemy(Application):
    """A Connection of SQLAlchemy."""

    driver = "psycopg"

    def open(self) -> None:
        import sqlalchemy

        if "://" in self.place:
            url = sqlalchemy.engine.make_url(database_of(self.place)[0]).set(drivername=f"postgresql+{self.driver}")
            made = {} if self.driver == "psycopg" else {"creator": lambda: connected_by(self.driver, self.place)}
            self.engine = sqlalchemy.create_engine(url, **made)
        else:
            self.engine = sqlalchemy.create_engine(f"sqlite:///{self.place}")

            @sqlalchemy.event.listens_for(self.engine, "connect")
            def connected(connection: Any, _record: Any) -> None:
                connection.isolation_level = None

            # As its documentation has it for savepoints.
            sqlalchemy.event.listen(self.engine, "begin", lambda its: its.exec_driver_sql("BEGIN"))
        self.connection = self.connect()

    def connect(self) -> Any:
        return self.engine.connect()

    def execute(self, statement: str) -> None:
        from sqlalchemy import text

        self.connection.execute(text(statement))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.connection.begin():
            yield self.connection

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        with self.connection.begin_nested():
            yield

    def close(self) -> None:
        super().close()
        self.engine.dispose()


class OrmSession(SqlAlchemy):
    """A Session of SQLAlchemy's ORM."""

    def connect(self) -> Any:
        from sqlalchemy.orm import Session

        return Session(self.engine)


class ScopedSession(SqlAlchemy):
    """The session of this thread, as web applications have it."""

    def connect(self) -> Any:
        from sqlalchemy.orm import scoped_session, sessionmaker

        return scoped_session(sessionmaker(self.engine))


class SqlAlchemyWithPsycopg2(SqlAlchemy):
    """Another driver under it."""

    driver = "psycopg2"


class SqlAlchemyWithPg8000(SqlAlchemy):
    """And one that does not read the URLs of libpq."""

    driver = "pg8000"


class SessionWithPsycopg2(OrmSession):
    """A session on another driver."""

    driver = "psycopg2"


class Django(Application):
    """Django's `connection`, which stands for that of the thread."""

    def open(self) -> None:
        import django.db

        configured(self.place)
        self.connection = django.db.connection

    def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        from django.db import transaction

        with transaction.atomic():
            yield self.connection

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        from django.db import transaction

        with transaction.atomic():
            yield


class DjangoWrapper(Django):
    """One of Django's `connections`."""

    def open(self) -> None:
        import django.db

        super().open()
        self.connection = django.db.connections["default"]


def configured(place: str) -> None:
    """Let Django's default database be that of a device."""
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(LOGGING_CONFIG=None, TIME_ZONE="UTC")
        django.setup()
    wanted = connections.configure_settings({"default": database_of_django(place)})["default"]
    with contextlib.suppress(AttributeError):
        del connections["default"]
    connections.databases["default"] = wanted


def database_of_django(place: str) -> dict[str, Any]:
    """Return what Django is to know of the database of a device."""
    if "://" not in place:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": place}
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(database_of(place)[0])
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    return {"ENGINE": "django.db.backends.postgresql"} | {
        key: parts[name] for name, key in names.items() if name in parts
    }


_NEWER: dict[str, type[Application]] = {"always begun": AlwaysBegun, "autocommit": Autocommit}

ON_FILES: dict[str, type[Application]] = {
    "sqlite3": Plain,
    "sqlite3 with BEGIN": Explicit,
    **(_NEWER if sys.version_info >= (3, 12) else {}),
    "SQLAlchemy": SqlAlchemy,
    "Session": OrmSession,
    "scoped_session": ScopedSession,
    "Django": Django,
    "wrapper of Django": DjangoWrapper,
}
BY_DRIVERS: dict[str, type[Application]] = {
    "psycopg2": Psycopg2,
    "pg8000": Pg8000,
    "SQLAlchemy with psycopg2": SqlAlchemyWithPsycopg2,
    "SQLAlchemy with pg8000": SqlAlchemyWithPg8000,
    "Session with psycopg2": SessionWithPsycopg2,
}
"""Those whose connections no call joins, and that take part in transactions all the same."""
ON_SERVERS: dict[str, type[Application]] = {
    "psycopg": Plain,
    "psycopg with blocks": Blocks,
    "SQLAlchemy": SqlAlchemy,
    "Session": OrmSession,
    "scoped_session": ScopedSession,
    "Django": Django,
    "wrapper of Django": DjangoWrapper,
}
KINDS = [*(("file", name) for name in ON_FILES), *(("postgres", name) for name in ON_SERVERS)]


def application_at(place: str, kind: str) -> Application:
    """Return an application of a kind on the database of a device."""
    return (ON_SERVERS | BY_DRIVERS if "://" in place else ON_FILES)[kind](place)


@pytest.fixture
def joined_store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: MovableClock, memory_dir: object
) -> Iterator[Store]:
    """A device on the store of the application's kind, with a queue space `SPACE` and a queue `Q` in it."""
    store, _ = request.param
    made = Store(store, device_path(store, request, tmp_path), clock, maker_of_devices(store, request))
    yield made
    made.close()


@pytest.fixture
def application(request: pytest.FixtureRequest, joined_store: Store) -> Iterator[Application]:
    """An application on the same database."""
    _, kind = request.node.callspec.params["joined_store"]
    made = application_at(joined_store.path, kind)
    yield made
    with contextlib.suppress(Exception):
        made.execute("ROLLBACK")
    made.close()
    if "://" in joined_store.path:
        with contextlib.closing(connected(joined_store.path)) as connection:
            connection.execute("DROP TABLE shop_order")
            connection.commit()
