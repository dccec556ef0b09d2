"""Connections of applications that take part in a transaction over several resources, as their libraries use them.

Beside what the driver does the library has to know that a transaction has begun, and that it has ended. What takes part
is told here, by its type.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from qmcore.callers import TaskConnection
from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmstorage import application_connections, joined, xid_forms

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.orm import Session


logger = logging.getLogger("qmadmin.transacting")


class ParticipatingConnection:
    """A connection of an application. This one is of a driver, without a library."""

    driver: Any = None
    """The connection of the driver; under a library there is one from `open` on, or `take`."""
    dialect: Any = None
    """How SQLAlchemy speaks to a database of which no more is known, whether the application uses that or not."""
    url: Any = None
    """Where SQLAlchemy has found the database, without user and password; None without SQLAlchemy."""
    connection: Any = None
    """That of SQLAlchemy, on which a session works, too; from `open` on, or `take`."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    @property
    def module(self) -> str:
        """The name of the driver."""
        return type(self.driver).__module__.partition(".")[0]

    @property
    def commits_plainly(self) -> bool:
        """Whether the library does nothing in the transaction before it commits, and can be told of that afterwards."""
        return True

    def joinable(self, given: object) -> object:
        """Return the connection by which calls join the transaction, of the one that the application has given."""
        return given

    def has_transaction(self) -> bool:
        """Return whether a transaction is open."""
        info = getattr(self.driver, "info", None)
        return bool(self.driver.in_transaction if info is None else info.transaction_status)

    def take(self) -> None:
        """Work in the transaction that is open."""

    def open(self) -> None:
        """Have the library begin a transaction; the driver may not have begun one then. Its errors are the driver's."""

    def flush(self) -> None:
        """Have the library write what it has kept."""

    def has_ended(self) -> bool:
        """Return whether the library knows that the transaction has ended."""
        return False

    def commit(self) -> None:
        """Commit, or have the library know that it is committed."""
        self.driver.commit()

    def finish(self) -> None:
        """Have the library know that it is committed; what its hooks raise changes nothing any more."""
        try:
            self.commit()
        except Exception as error:  # noqa: BLE001 - of whatever library
            logger.error("a hook of the application failed after the commit: %s", error)  # noqa: TRY400

    def roll_back(self) -> None:
        """Roll back, or have the library know that it is rolled back."""
        self.driver.rollback()


class _OfDriver(ParticipatingConnection):
    """A connection of a driver of which no more is known than PEP 249 says."""

    def __init__(self, driver: Any, dbapi: ModuleType) -> None:
        from sqlalchemy.engine.default import DefaultDialect

        super().__init__(driver)
        self.dialect = DefaultDialect(dbapi=dbapi)

    def has_transaction(self) -> bool:
        """Return whether a transaction is open, which PEP 249 does not tell, and each driver in its own way, if any."""
        if getattr(getattr(self.driver, "info", None), "transaction_status", 0):
            return True
        return any(getattr(self.driver, name, None) is True for name in _OPEN)


_OPEN: Final = ("in_transaction", "_in_transaction", "transaction_in_progress")
"""By what drivers tell that a transaction is open."""


class OfSqlAlchemy(ParticipatingConnection):
    """A connection of SQLAlchemy, or a session of it."""

    def __init__(self, given: Connection | Session, *, is_session: bool) -> None:
        self._given: Any = given
        self._is_session = is_session
        bind: Any = engine_of(given) if is_session else given
        self.dialect, its = bind.dialect, bind.engine.url
        self.url = its.create(its.drivername, host=its.host, port=its.port, database=its.database)

    @property
    def commits_plainly(self) -> bool:
        """Whether nobody listens to the commit who may do something before, and a session has nothing left to send."""
        given = self._given
        if self._is_session and (
            given.dispatch.before_commit
            or given.in_nested_transaction()
            or any((given.new, given.dirty, given.deleted))
        ):
            return False
        return not self.connection.dispatch.commit

    def has_transaction(self) -> bool:
        """Return whether SQLAlchemy has begun one."""
        return bool(self._given.in_transaction())

    def take(self) -> None:
        """Work in the transaction that is open."""
        self._connect()

    def _connect(self) -> None:
        self.connection = joined.of_session(self._given) if self._is_session else self._given
        self.driver = self.connection.connection.driver_connection

    def open(self) -> None:
        """Begin a transaction of SQLAlchemy."""
        from sqlalchemy.exc import InvalidRequestError

        given = self._given
        if not self._is_session and given.closed:
            raise joined.closed()
        if given.in_transaction():
            raise has_begun()
        with _errors_of_sqlalchemy():
            self._transaction = given.begin()
        try:
            with _errors_of_sqlalchemy():
                self._connect()
        except BaseException as error:
            self._transaction.rollback()
            if isinstance(error, InvalidRequestError):
                raise joined.broken("SQLAlchemy's", error) from error
            raise

    def flush(self) -> None:
        """Have the session write what it has kept."""
        if self._is_session:
            self._given.flush()

    def has_ended(self) -> bool:
        """Return whether it is another transaction by now, or none."""
        return self._given.get_transaction() is not self._transaction

    def commit(self) -> None:
        """Commit by SQLAlchemy, so that its events come."""
        with _errors_of_sqlalchemy():
            self._transaction.commit()

    def roll_back(self) -> None:
        """Roll back by SQLAlchemy, so that its events come."""
        if self._transaction.is_active or not self.has_ended():
            with _errors_of_sqlalchemy():
                self._transaction.rollback()


class _OfDjango(ParticipatingConnection):
    """A connection of Django, which begins transactions by itself from now on, and not any more when this has ended."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    @property
    def commits_plainly(self) -> bool:
        """Whether no block of Django's is open, in which it refuses the commit."""
        return not self._wrapper.in_atomic_block

    def joinable(self, given: object) -> object:
        """Return that of the driver: Django's is for calls inside of atomic() alone."""
        del given
        return self.driver

    def has_transaction(self) -> bool:
        """Return whether Django has begun one."""
        return bool(self._wrapper.in_atomic_block or not self._wrapper.get_autocommit())

    def take(self) -> None:
        """Work in the transaction that is open."""
        self.driver = self._wrapper.connection

    def open(self) -> None:
        """Have Django leave the beginning and the end to others."""
        wrapper = self._wrapper
        if self.has_transaction():
            raise has_begun()
        with _errors_of_django():
            wrapper.set_autocommit(autocommit=False)
        self.take()

    def has_ended(self) -> bool:
        """Return whether Django commits each statement by itself again."""
        return bool(self._wrapper.get_autocommit())

    def commit(self) -> None:
        """Commit by Django, which then calls what waits for it."""
        with _errors_of_django():
            self._wrapper.commit()
        self._wrapper.set_autocommit(autocommit=True)

    def roll_back(self) -> None:
        """Roll back by Django."""
        with _errors_of_django():
            self._wrapper.rollback()
            self._wrapper.set_autocommit(autocommit=True)


@contextlib.contextmanager
def _errors_of_sqlalchemy() -> Iterator[None]:
    """Raise the errors of the driver in place of SQLAlchemy's."""
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, Exception):
            raise error.orig from error
        raise


@contextlib.contextmanager
def _errors_of_django() -> Iterator[None]:
    """Raise the errors of the driver in place of Django's."""
    try:
        yield
    except sys.modules["django.db"].Error as error:
        if isinstance(error.__cause__, Exception):
            raise error.__cause__ from error
        raise


def found(given: Any) -> tuple[ParticipatingConnection, str]:
    """Return a connection of an application, and which driver it has: "sqlite3", "psycopg", or "" for any other one.

    Raises InvalidArgumentError for what takes no part, and SystemFailureError where Django cannot connect.
    """
    for driver in ("sqlite3", "psycopg"):
        if joined.is_a(given, driver, "Connection"):
            return ParticipatingConnection(given), driver
    if isinstance(given, TaskConnection):
        from qmstorage import participating_by_tasks

        return participating_by_tasks.found(given)
    if application_connections.is_for_asyncio(given):
        raise joined.for_asyncio(given)
    if joined.is_a(given, "sqlalchemy", "Connection"):
        return OfSqlAlchemy(given, is_session=False), _driver_of(given.dialect)
    if joined.is_a(given, "sqlalchemy.orm", "scoped_session"):
        given = given()
    if joined.is_a(given, "sqlalchemy.orm", "Session"):
        return OfSqlAlchemy(given, is_session=True), _driver_of(engine_of(given).dialect)
    if joined.is_a(given, "django.utils.connection", "ConnectionProxy"):
        given = application_connections.behind(given)
    if joined.is_a(given, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        try:
            given.ensure_connection()
        except sys.modules["django.db"].OperationalError as error:
            raise unreachable(error) from error
        return _OfDjango(given), "sqlite3" if given.vendor == "sqlite" else _psycopg(given)
    return _of_driver(given), ""


def _of_driver(given: object) -> ParticipatingConnection:
    """Return a connection with the calls of PEP 249 for two phases, of whatever driver."""
    dbapi = _dbapi_of(given)
    if dbapi is not None and xid_forms.prepares(given):
        if not xid_forms.has_calls(given):
            raise _unrecoverable(given)
        return _OfDriver(given, dbapi)
    raise InvalidArgumentError(
        "a resource of a transaction is a queue space, a device, or a connection of SQLAlchemy, Django, psycopg 3,"
        f" sqlite3 or a driver with calls for two phases (tpc_begin of PEP 249), got {joined.shown(type(given))}",
        hint="Give what qmadmin.open_device or its open_space returned, or a Connection or Session of SQLAlchemy,"
        " django.db.connection, or what connect() of a driver returned.",
    )


def _dbapi_of(given: object) -> ModuleType | None:
    """Return the module of the driver that a connection is of, as PEP 249 describes it; None where there is none."""
    for kind in type(given).__mro__:
        name = kind.__module__
        while name:
            module = sys.modules.get(name)
            if module is not None and hasattr(module, "paramstyle") and hasattr(module, "IntegrityError"):
                return module
            name = name.rpartition(".")[0]
    return None


def _unrecoverable(driver: object) -> InvalidArgumentError:
    """Return the diagnostic for a driver that prepares transactions and does not list them."""
    return InvalidArgumentError(
        f"a connection of {joined.shown(type(driver))} has no tpc_recover(), so that nobody could end what a"
        " coordinator that has died has left prepared",
        hint="Use a driver that has it.",
    )


def engine_of(session: Any) -> Any:
    """Return the engine of a session, or its connection; refuse one that would commit otherwise."""
    from sqlalchemy.exc import UnboundExecutionError

    if session.twophase:
        raise InvalidArgumentError(
            "the session has twophase=True, and would prepare under an identifier that recovery cannot know",
            hint="Make it without twophase.",
        )
    try:
        return session.get_bind()
    except UnboundExecutionError as error:
        raise InvalidArgumentError(
            "the session has no engine of its own that its connection could be of",
            hint="Give a session of one engine, or a Connection.",
        ) from error


def _driver_of(dialect: Any) -> str:
    if dialect.is_async:
        raise InvalidArgumentError(
            "an engine for asyncio takes no part in a transaction that is not awaited",
            hint="Use an engine that is not for asyncio.",
        )
    if (dialect.name, dialect.driver) == ("sqlite", "pysqlite"):
        return "sqlite3"
    return "psycopg" if (dialect.name, dialect.driver) == ("postgresql", "psycopg") else ""


def _psycopg(wrapper: Any) -> str:
    loaded = sys.modules.get("psycopg")
    if loaded is None or not isinstance(wrapper.connection, loaded.Connection):
        raise other_driver(f"{wrapper.vendor} through {type(wrapper.connection).__module__.partition('.')[0]}")
    return "psycopg"


def other_driver(which: str) -> InvalidArgumentError:
    """Return the diagnostic for a connection of a driver that is not known."""
    return InvalidArgumentError(
        f"a connection to {which} takes no part in a transaction over several resources",
        hint="Use SQLite, or PostgreSQL with psycopg 3.",
    )


def unreachable(error: Exception) -> SystemFailureError:
    """Return the diagnostic for a database to which no connection can be made."""
    reason = str(error).partition("\n")[0]
    return SystemFailureError(
        f"the database of the application cannot be reached: {reason}",
        hint="Run all of it again when the server is back.",
        unreachable=True,
    )


def has_begun() -> InvalidArgumentError:
    """Return the diagnostic for a connection that has a transaction open already."""
    return InvalidArgumentError(
        "the connection has a transaction open already, which could not be committed together with the others",
        hint="Commit it before; what is done on it from then on belongs to the common transaction.",
    )
