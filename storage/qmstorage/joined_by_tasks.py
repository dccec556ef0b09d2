"""Connections for asyncio, which only the event loop of the task that gives one may use, or a thread of their driver.

A thread does the work, as for any connection. What a library or a driver has to do it asks the task for, which awaits
it, so that the loop goes on meanwhile. Statements and cursors are those of connections that are not for asyncio.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from qmcore.callers import Ask, TaskConnection
from qmcore.errors import InvalidArgumentError, ProtocolError
from qmstorage import joined
from qmstorage.joined import Joined

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy import Connection

T = TypeVar("T")


def found(given: TaskConnection) -> Joined:
    """Return a connection that a task has given as what it is.

    Raises InvalidArgumentError for anything else, and for one that no transaction can be joined on, whatever the store.
    """
    if not isinstance(given.found, Joined):
        # It is kept there, and a cycle would keep the connection of the application.
        its = weakref.ref(given)

        def ask(awaited: Callable[[], Awaitable[Any]]) -> Any:
            task_connection = its()
            assert task_connection is not None  # noqa: S101 - whoever works with the connection has it
            # Each work has its own.
            return task_connection.ask(awaited)

        given.found = _found(given.connection, ask)
    return given.found


def _found(connection: Any, ask: Ask[Any]) -> Joined:
    if joined.is_a(connection, "psycopg", "AsyncConnection"):
        return _driven_by(connection, ask, Joined(connection, connection, "psycopg"))
    if joined.is_a(connection, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"):
        its: _OfSqlAlchemy = ask(lambda: _of_sqlalchemy(connection, ask))
        return _driven_by(its.original, ask, its)
    raise InvalidArgumentError(
        "the connection of a task must be one for asyncio, of SQLAlchemy or psycopg 3, got"
        f" {joined.shown(type(connection))}",
        hint="Give an AsyncConnection or AsyncSession of SQLAlchemy, or what psycopg.AsyncConnection.connect returned;"
        " other connections are for the calls of qmadmin that are not awaited.",
    )


# ---- libraries -------------------------------------------------------------------------------------------------------


async def _of_sqlalchemy(given: Any, ask: Ask[Any]) -> _OfSqlAlchemy:
    from sqlalchemy.ext.asyncio.exc import AsyncContextNotStarted

    if joined.is_a(given, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        # It stands for the session of this task.
        given = given()
    is_session = joined.is_a(given, "sqlalchemy.ext.asyncio", "AsyncSession")

    def made(its: Any) -> _OfSqlAlchemy:
        return _OfSqlAlchemy(joined.of_session(its) if is_session else its, given, ask)

    try:
        its: _OfSqlAlchemy = await given.run_sync(made)
    except AsyncContextNotStarted as error:
        raise joined.closed() from error
    if joined.is_a(its.original, "psycopg", "AsyncConnection"):
        # In another loop a transaction that begins could not be undone either.
        await _acquire(its.original)
        its.original.lock.release()
    return its


class _OfSqlAlchemy(joined.OfSqlAlchemy):
    """One of SQLAlchemy for asyncio: what its synchronous part does is awaited."""

    def __init__(self, connection: Connection, given: Any, ask: Ask[Any]) -> None:
        super().__init__(connection)
        self._given = given
        self._ask = ask

    def begin(self) -> Callable[[], None] | None:
        """Begin a transaction where none is open."""
        begin = super().begin
        undo: Callable[[], None] | None = self._ask(lambda: self._given.run_sync(lambda _: begin()))
        if undo is None:
            return None
        return lambda: self._ask(lambda: self._given.run_sync(lambda _: undo()))


# ---- drivers ---------------------------------------------------------------------------------------------------------


def _driven_by(original: Any, ask: Ask[Any], its: Joined) -> Joined:
    """Have a connection used as its driver has it."""
    if joined.is_a(original, "psycopg", "AsyncConnection"):
        its.use(OfPsycopg(original, ask), _while_locked(original, ask))
    elif joined.is_a(original, "aiosqlite", "Connection"):
        its.use(_behind(original), _in_its_thread(original, ask))
    return its


class OfPsycopg:
    """A connection of psycopg for asyncio, as a cursor that is not uses one."""

    lock = contextlib.nullcontext()
    """Whoever does a work has that of the connection."""

    def __init__(self, original: Any, ask: Ask[Any]) -> None:
        self._original = original
        self._ask = ask

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def wait(self, journey: Generator[Any, Any, T]) -> T:
        """Have the event loop send what is to be sent, and await the answer."""
        answer: T = self._ask(lambda: self._original.wait(journey))
        return answer


def _while_locked(original: Any, ask: Ask[Any]) -> Callable[[Callable[[], Any]], Any]:
    async def release() -> None:
        original.lock.release()

    def call(work: Callable[[], Any]) -> Any:
        # Tasks may share the connection: what another does must not come between the statements of ours.
        ask(lambda: _acquire(original))
        try:
            return work()
        finally:
            ask(release)

    return call


async def _acquire(original: Any) -> None:
    try:
        await original.lock.acquire()
    except RuntimeError as error:
        # Neither a connection nor its lock has an event loop before tasks of one have waited for it.
        raise ProtocolError(
            "the connection is in use in another event loop",
            hint="Give a connection that tasks of this event loop alone use.",
        ) from error


def _behind(original: Any) -> sqlite3.Connection:
    try:
        driver: sqlite3.Connection = original._conn  # noqa: SLF001 - aiosqlite has no other name for it
    except ValueError as error:
        raise joined.closed() from error
    return driver


def _in_its_thread(original: Any, ask: Ask[Any]) -> Callable[[Callable[[], Any]], Any]:
    def call(work: Callable[[], Any]) -> Any:
        outcome: Future[Any] = Future()

        def do() -> None:
            if outcome.set_running_or_notify_cancel():
                try:
                    outcome.set_result(work())
                except BaseException as error:  # noqa: BLE001 - it is for who waits
                    outcome.set_exception(error)

        def done() -> Awaitable[None]:
            # As SQLAlchemy does: there is no public way for what is no call of sqlite3.
            awaited: Awaitable[None] = original._execute(do)  # noqa: SLF001
            return awaited

        try:
            ask(done)
        except ValueError as error:
            raise joined.closed() from error
        except BaseException:
            # The task was cancelled. What its thread has begun is awaited all the same.
            if outcome.cancel():
                raise
        return outcome.result()

    return call
