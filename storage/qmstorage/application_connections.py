"""Which connection an application has given for a call to join: told by its type."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from qmcore.callers import TaskConnection
from qmcore.errors import AbortedError, InvalidArgumentError
from qmstorage import joined, joined_by_tasks
from qmstorage.joined import Joined

if TYPE_CHECKING:
    from sqlalchemy import Connection


def found(connection: object) -> Joined:
    """Return a connection of the application as what it is.

    Raises InvalidArgumentError for anything else, and for one that no transaction can be joined on, whatever the store.
    """
    if isinstance(connection, TaskConnection):
        return joined_by_tasks.found(connection)
    if joined.is_a(connection, "sqlite3", "Connection"):
        return Joined(connection, None, "sqlite3")
    if joined.is_a(connection, "psycopg", "Connection"):
        return Joined(connection, connection, "psycopg")
    if joined.is_a(connection, "sqlalchemy", "Connection"):
        return _of_sqlalchemy(connection)  # type: ignore[arg-type]
    if joined.is_a(connection, "sqlalchemy.orm", "Session", "scoped_session"):
        return _of_sqlalchemy(joined.of_session(connection))  # type: ignore[arg-type]
    if joined.is_a(connection, "django.utils.connection", "ConnectionProxy"):
        # It stands for the connection of this thread.
        connection = behind(connection)
    if joined.is_a(connection, "django.db.backends.base.base", "BaseDatabaseWrapper"):
        return joined.OfDjango(connection)
    if is_for_asyncio(connection):
        raise joined.for_asyncio(connection)
    raise InvalidArgumentError(
        f"the connection must be one of SQLAlchemy, Django, psycopg 3 or sqlite3, got {joined.shown(type(connection))}",
        hint="Give a Connection or Session of SQLAlchemy, django.db.connection, or what psycopg.connect or"
        " sqlite3.connect returned.",
    )


def is_for_asyncio(connection: object) -> bool:
    """Return whether it is a connection that tasks of asyncio use."""
    return joined.is_a(connection, "psycopg", "AsyncConnection") or joined.is_a(
        connection, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"
    )


def _of_sqlalchemy(connection: Connection) -> Joined:
    if connection.dialect.is_async:
        raise joined.for_asyncio(connection)
    return joined.OfSqlAlchemy(connection)


def driver_of(connection: object) -> Any:
    """Return the driver's connection under one of the application; None where nothing can be joined on it."""
    with contextlib.suppress(InvalidArgumentError, AbortedError):
        return found(connection).driver
    return None


def behind(proxy: object) -> object:
    """Return the connection of this thread, for which a proxy of Django stands."""
    with contextlib.suppress(AttributeError):
        return sys.modules["django.db"].connections[proxy.alias]  # type: ignore[attr-defined]
    return proxy
