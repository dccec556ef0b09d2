"""pgqueuer: jobs are enqueued, dequeued and logged through its queries over asyncpg, as its queue manager does.

Its tables are the durable ones of its default. A dequeue of one job and the note of its end, which deletes it, are two
commits. Its own queue manager takes and notes several at once, ten unless it is told otherwise; in the rows of workers
it is told how many.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import uuid
from collections.abc import Coroutine
from typing import Any, ClassVar

from benchmarks.subject import BODY, QUEUE, GoesOn, version_of
from benchmarks.working import Function

# Installed in another environment than the one that types are checked in.
asyncpg: Any = importlib.import_module("asyncpg")
Queries: Any = importlib.import_module("pgqueuer.queries").Queries
QueueManager: Any = importlib.import_module("pgqueuer.qm").QueueManager
ExecutionMode: Any = importlib.import_module("pgqueuer.types").QueueExecutionMode
Parameter: Any = importlib.import_module("pgqueuer.ports.repository").EntrypointExecutionParameter

_AT_A_TIME = 1000
_LONG = dt.timedelta(minutes=10)


class Measured:
    """pgqueuer with asyncpg."""

    commits: ClassVar = {"produce": 1, "consume": 2, "work": 2, "work_together": 2}

    def __init__(self) -> None:
        self.version = version_of("pgqueuer", "asyncpg")

    def set_up(self, url: str) -> None:
        """Install its tables, with the autovacuum settings that it recommends."""
        _run(self._set_up(url))

    def fill(self, url: str, count: int) -> None:
        """Enqueue a thousand jobs at a time."""
        _run(self._fill(url, count))

    def hand_out(self, url: str, count: int) -> None:
        """Enqueue a job for each number."""
        _run(self._hand_out(url, count))

    def work(self, url: str, workers: int, function: Function) -> None:
        """Run its queue manager, which takes one job at a time, until the queue is drained."""
        _run(self._work(url, 1, workers, function))

    def work_together(self, url: str, size: int, function: Function) -> None:
        """Run its queue manager, which takes so many jobs at a time."""
        _run(self._work(url, size, 0, function))

    def empty(self, url: str) -> None:
        """Remove all jobs and what is told of them."""
        _run(self._empty(url))

    def open(self, url: str) -> Client:
        """Return a client."""
        return Client(url)

    async def _set_up(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        queries = Queries.from_asyncpg_connection(connection)
        await queries.install()
        await queries.optimize_autovacuum()
        await connection.close()

    async def _fill(self, url: str, count: int) -> None:
        connection = await asyncpg.connect(url)
        queries = Queries.from_asyncpg_connection(connection)
        for done in range(0, count, _AT_A_TIME):
            some = min(_AT_A_TIME, count - done)
            await queries.enqueue([QUEUE] * some, [BODY] * some, [0] * some)
        await connection.close()

    async def _hand_out(self, url: str, count: int) -> None:
        connection = await asyncpg.connect(url)
        queries = Queries.from_asyncpg_connection(connection)
        await queries.enqueue([QUEUE] * count, [b"%d" % number for number in range(count)], [0] * count)
        await connection.close()

    async def _work(self, url: str, size: int, most: int, function: Function) -> None:
        connection = await asyncpg.connect(url)
        manager = QueueManager(Queries.from_asyncpg_connection(connection))

        async def called(job: Any) -> None:
            function(int(job.payload))

        manager.entrypoint(QUEUE)(called)
        # It refuses a limit of less than two batches.
        limit = max(2 * size, most) if most else None
        await manager.run(batch_size=size, max_concurrent_tasks=limit, mode=ExecutionMode.drain)
        await connection.close()

    async def _empty(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics")
        await connection.close()


class Client:
    """One connection and the event loop over it."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(asyncpg.connect(url))
        self._queries = Queries.from_asyncpg_connection(self._connection)
        self._manager = uuid.uuid4()

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Enqueue jobs."""
        self._loop.run_until_complete(self._produce(queue, goes_on))

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Dequeue jobs and note their end."""
        self._loop.run_until_complete(self._consume(queue, goes_on))

    def close(self) -> None:
        """Close the connection."""
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    async def _produce(self, queue: str, goes_on: GoesOn) -> None:
        while goes_on(True):
            await self._queries.enqueue(queue, BODY)

    async def _consume(self, queue: str, goes_on: GoesOn) -> None:
        entrypoints = {queue: Parameter(concurrency_limit=0)}
        found = True
        while goes_on(found):
            jobs = await self._queries.dequeue(1, entrypoints, self._manager, None, _LONG)
            found = bool(jobs)
            if found:
                await self._queries.log_jobs([(jobs[0], "successful", None)])


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)
