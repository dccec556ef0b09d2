"""Connections for asyncio that take part in a transaction over several resources, as their libraries use them.

A thread does the work, and has the task await what a library or a driver does (`joined_by_tasks.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from qmcore.callers import TaskConnection
from qmcore.errors import InvalidArgumentError
from qmstorage import joined, joined_by_tasks
from qmstorage.participating_connections import OfSqlAlchemy, ParticipatingConnection, engine_of, other_driver

if TYPE_CHECKING:
    from qmcore.callers import Ask

T = TypeVar("T")


def found(given: TaskConnection) -> tuple[ParticipatingConnection, str]:
    """Return a connection that a task has given, and which driver it has.

    Raises InvalidArgumentError for anything else.
    """

    def ask(awaited: Callable[[], Awaitable[Any]]) -> Any:
        # Each work has its own.
        return given.ask(awaited)

    connection: Any = given.connection
    if joined.is_a(connection, "psycopg", "AsyncConnection"):
        return ParticipatingConnection(_OfPsycopg(connection, ask)), "psycopg"
    if joined.is_a(connection, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        connection = ask(partial(_of_this_task, connection))
    if joined.is_a(connection, "sqlalchemy.ext.asyncio", "AsyncSession"):
        return _of_sqlalchemy(connection, connection.sync_session, ask, is_session=True)
    if joined.is_a(connection, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        if connection.sync_connection is None:
            raise joined.closed()
        return _of_sqlalchemy(connection, connection.sync_connection, ask, is_session=False)
    raise InvalidArgumentError(
        "a resource of a transaction of tasks is a queue space or a device of qmadmin.aio, or a connection for asyncio,"
        f" of SQLAlchemy or psycopg 3, got {joined.shown(type(connection))}",
        hint="Give an AsyncConnection or AsyncSession of SQLAlchemy, or what psycopg.AsyncConnection.connect returned;"
        " qmadmin.transaction takes other connections.",
    )


async def _of_this_task(scoped: Any) -> Any:
    return scoped()


def _of_sqlalchemy(given: Any, its: Any, ask: Ask[Any], *, is_session: bool) -> tuple[ParticipatingConnection, str]:
    dialect = (engine_of(its) if is_session else its).dialect
    if (dialect.name, dialect.driver) != ("postgresql", "psycopg"):
        raise other_driver(f"{dialect.name} through {dialect.driver}")
    return _OfSqlAlchemy(given, its, ask, is_session=is_session), "psycopg"


class _OfPsycopg(joined_by_tasks.OfPsycopg):
    """A connection of psycopg for asyncio, as a participant uses one that is not."""

    def wait(self, journey: Any) -> Any:
        """Have the event loop send what is to be sent, and await the answer, while nobody else uses the connection."""

        async def wait() -> Any:
            async with self._original.lock:
                return await self._original.wait(journey)

        return self._ask(wait)

    def commit(self) -> None:
        """Commit."""
        self._ask(self._original.commit)

    def rollback(self) -> None:
        """Roll back."""
        self._ask(self._original.rollback)

    def pipeline(self) -> contextlib.AbstractContextManager[None]:
        """Send each statement by itself: a pipeline of a task is none of a thread."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Close it."""
        self._ask(self._original.close)


class _OfSqlAlchemy(OfSqlAlchemy):
    """A connection of SQLAlchemy for asyncio, or a session of it: what its synchronous part does is awaited."""

    def __init__(self, given: Any, its: Any, ask: Ask[Any], *, is_session: bool) -> None:
        super().__init__(its, is_session=is_session)
        self._awaited = given
        self._ask = ask

    def _run(self, work: Callable[[], T]) -> T:
        result: T = self._ask(lambda: self._awaited.run_sync(lambda _: work()))
        return result

    def _use(self, work: Callable[[], None]) -> None:
        self._run(work)
        self.driver = _OfPsycopg(self.driver, self._ask)

    def take(self) -> None:
        """Work in the transaction that is open."""
        self._use(super().take)

    def open(self) -> None:
        """Begin a transaction of SQLAlchemy."""
        self._use(super().open)

    def flush(self) -> None:
        """Have the session write what it has kept."""
        self._run(super().flush)

    def commit(self) -> None:
        """Commit by SQLAlchemy, so that its events come."""
        self._run(super().commit)

    def roll_back(self) -> None:
        """Roll back by SQLAlchemy, so that its events come."""
        self._run(super().roll_back)
