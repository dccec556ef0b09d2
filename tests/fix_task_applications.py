"""Applications whose connections are for asyncio: one task does what a test asks, one thing after another."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

from qmadmin import aio
from qmadmin.space import QueueSpace
from tests.fix_aio import DEADLINE
from tests.fix_applications import ON_FILES, ON_SERVERS, Application
from tests.fix_postgres import database_of


class OneTask:
    """A task of an event loop in a thread of its own."""

    def __init__(self) -> None:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        assert started.wait(DEADLINE)

    async def _serve(self, started: threading.Event) -> None:
        self.loop = asyncio.get_running_loop()
        self._asked: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], Future[Any]] | None] = asyncio.Queue()
        started.set()
        while (asked := await self._asked.get()) is not None:
            begin, outcome = asked
            try:
                outcome.set_result(await begin())
            except Exception as error:  # noqa: BLE001 - it is for who asked
                outcome.set_exception(error)

    def do(self, begin: Callable[[], Awaitable[Any]]) -> Any:
        """Have the task await something, and return what came of it."""
        outcome: Future[Any] = Future()
        self.loop.call_soon_threadsafe(self._asked.put_nowait, (begin, outcome))
        return outcome.result(DEADLINE)

    def end(self) -> None:
        """Let the task end, and its loop."""
        self.loop.call_soon_threadsafe(self._asked.put_nowait, None)
        self._thread.join(DEADLINE)

    @contextlib.contextmanager
    def within(self, begin: Callable[[], contextlib.AbstractAsyncContextManager[Any]]) -> Iterator[Any]:
        """A block of the task."""
        stack = contextlib.AsyncExitStack()

        async def enter() -> Any:
            return await stack.enter_async_context(begin())

        async def leave(error: BaseException | None) -> bool | None:
            return await stack.__aexit__(error and type(error), error, error and error.__traceback__)

        entered = self.do(enter)
        try:
            yield entered
        except BaseException as error:
            caught = error
            if not self.do(lambda: leave(caught)):
                raise
        else:
            self.do(lambda: leave(None))


class SpaceOfTask:
    """A queue space: what the thread of the application calls is awaited by its task, what others call is not."""

    def __init__(self, task: OneTask, synchronous: QueueSpace, device: Any) -> None:
        self._synchronous = synchronous
        self._task = task
        self._thread = threading.get_ident()

        async def made() -> aio.QueueSpace:
            return aio.QueueSpace(aio.Device(device), synchronous)

        self._awaited = task.do(made)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._awaited, name, None)
        if self._thread == threading.get_ident() and asyncio.iscoroutinefunction(call):
            return lambda *given, **named: self._task.do(lambda: call(*given, **named))
        return getattr(self._synchronous, name)

    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        """A transaction of the queue space that the task begins."""
        return self._task.within(self._awaited.transaction)


class OfTask(Application):
    """An application whose connection a task uses."""

    def __init__(self, place: str) -> None:
        self.task = OneTask()
        super().__init__(place)

    def space_of(self, space: QueueSpace, device: Any) -> Any:
        return SpaceOfTask(self.task, space, device)

    def disconnect(self) -> None:
        self.task.do(self.connection.close)

    def close(self) -> None:
        self.disconnect()
        self.task.end()


class AsyncPsycopg(OfTask):
    """psycopg for asyncio."""

    def open(self) -> None:
        import psycopg

        self.connection = self.task.do(lambda: psycopg.AsyncConnection.connect(database_of(self.place)[0]))

    def execute(self, statement: str) -> None:
        self.task.do(lambda: self.connection.execute(statement))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        try:
            yield self.connection
        except BaseException:
            self.task.do(self.connection.rollback)
            raise
        self.task.do(self.connection.commit)


class AsyncBlocks(AsyncPsycopg):
    """The same with autocommit, and blocks for transactions and savepoints."""

    def open(self) -> None:
        super().open()
        self.task.do(lambda: self.connection.set_autocommit(True))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.task.within(self.connection.transaction):
            yield self.connection

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        with self.task.within(self.connection.transaction):
            yield


class AsyncSqlAlchemy(OfTask):
    """An AsyncConnection of SQLAlchemy, with aiosqlite or psycopg."""

    def open(self) -> None:
        self.engine = engine_of(self.place)
        self.connection = self.task.do(self.connect)

    async def connect(self) -> Any:
        return await self.engine.connect()

    def execute(self, statement: str) -> None:
        from sqlalchemy import text

        self.task.do(lambda: self.connection.execute(text(statement)))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with self.task.within(self.connection.begin):
            yield self.connection

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        with self.task.within(self.connection.begin_nested):
            yield

    def close(self) -> None:
        self.disconnect()
        self.task.do(self.engine.dispose)
        self.task.end()


class OrmAsyncSession(AsyncSqlAlchemy):
    """An AsyncSession of SQLAlchemy's ORM."""

    async def connect(self) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession

        return AsyncSession(self.engine)


class AsyncScopedSession(AsyncSqlAlchemy):
    """The session of this task."""

    async def connect(self) -> Any:
        from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker

        return async_scoped_session(async_sessionmaker(self.engine), asyncio.current_task)


def engine_of(place: str) -> Any:
    """Return an engine for asyncio on the database of a device."""
    import sqlalchemy
    from sqlalchemy.ext.asyncio import create_async_engine

    if "://" in place:
        url = sqlalchemy.engine.make_url(database_of(place)[0]).set(drivername="postgresql+psycopg")
        return create_async_engine(url)
    engine = create_async_engine(f"sqlite+aiosqlite:///{place}")

    @sqlalchemy.event.listens_for(engine.sync_engine, "connect")
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    # As its documentation has it for savepoints.
    sqlalchemy.event.listen(engine.sync_engine, "begin", lambda its: its.exec_driver_sql("BEGIN"))
    return engine


_OF_SQLALCHEMY: dict[str, type[Application]] = {
    "AsyncConnection": AsyncSqlAlchemy,
    "AsyncSession": OrmAsyncSession,
    "async_scoped_session": AsyncScopedSession,
}
ON_FILES.update(_OF_SQLALCHEMY)
ON_SERVERS.update(
    {"psycopg for asyncio": AsyncPsycopg, "psycopg for asyncio with blocks": AsyncBlocks, **_OF_SQLALCHEMY}
)
TASK_KINDS = [
    *(("file", name) for name in _OF_SQLALCHEMY),
    *(("postgres", name) for name in ON_SERVERS if issubclass(ON_SERVERS[name], OfTask)),
]
