"""procrastinate: jobs are deferred and fetched through its job manager, as its worker does.

A connection pool of one connection is given to it, in autocommit and without the check at each checkout, which saves it
three round trips an operation. A fetch and the end of the job are two commits; the job is deleted when it ends. Its
payload is JSON, so the body is text of the same length.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any, ClassVar

from benchmarks.subject import BODY, QUEUE, GoesOn, version_of
from benchmarks.working import Function

# Installed in another environment than the one that types are checked in.
procrastinate: Any = importlib.import_module("procrastinate")
psycopg_pool: Any = importlib.import_module("psycopg_pool")

_TASK = "work"
_ARGUMENTS = {"body": "x" * len(BODY)}
_AT_A_TIME = 1000


class Measured:
    """procrastinate with psycopg."""

    commits: ClassVar = {"produce": 1, "consume": 2, "work": 2}

    def __init__(self) -> None:
        self.version = version_of("procrastinate", "psycopg")

    def set_up(self, url: str) -> None:
        """Apply its schema."""
        with _synchronous(url) as app:
            app.schema_manager.apply_schema()

    def fill(self, url: str, count: int) -> None:
        """Defer a thousand jobs at a time."""
        with _synchronous(url) as app:
            deferrer = app.configure_task(_TASK, queue=QUEUE)
            for done in range(0, count, _AT_A_TIME):
                deferrer.batch_defer(*[_ARGUMENTS] * min(_AT_A_TIME, count - done))

    def hand_out(self, url: str, count: int) -> None:
        """Defer a job for each number."""
        with _synchronous(url) as app:
            deferrer = app.configure_task(_TASK, queue=QUEUE)
            for done in range(0, count, _AT_A_TIME):
                numbers = range(done, min(done + _AT_A_TIME, count))
                deferrer.batch_defer(*({"number": number} for number in numbers))

    def work(self, url: str, workers: int, function: Function) -> None:
        """Run its worker, which has so many jobs at a time, until it has caught up."""
        asyncio.run(_work(url, workers, function))

    def empty(self, url: str) -> None:
        """Remove all jobs and what is told of them."""
        with _synchronous(url) as app:
            app.connector.execute_query("TRUNCATE procrastinate_jobs CASCADE")

    def open(self, url: str) -> Client:
        """Return a client."""
        return Client(url)


class Client:
    """One connection and the event loop over it."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(url))

    def produce(self, queue: str, goes_on: GoesOn) -> None:
        """Defer jobs."""
        self._loop.run_until_complete(self._produce(queue, goes_on))

    def consume(self, queue: str, goes_on: GoesOn) -> None:
        """Fetch jobs and finish them."""
        self._loop.run_until_complete(self._consume(queue, goes_on))

    def close(self) -> None:
        """Unregister the worker and close the connection."""
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _open(self, url: str) -> None:
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector())
        self._pool = psycopg_pool.AsyncConnectionPool(
            url, min_size=1, max_size=1, open=False, kwargs={"autocommit": True}
        )
        await self._pool.open(wait=True)
        await self._app.open_async(self._pool)
        self._worker = await self._app.job_manager.register_worker()

    async def _produce(self, queue: str, goes_on: GoesOn) -> None:
        deferrer = self._app.configure_task(_TASK, queue=queue)
        while goes_on(True):
            await deferrer.defer_async(**_ARGUMENTS)

    async def _consume(self, queue: str, goes_on: GoesOn) -> None:
        manager = self._app.job_manager
        done = procrastinate.jobs.Status.SUCCEEDED
        found = True
        while goes_on(found):
            job = await manager.fetch_job([queue], self._worker)
            found = job is not None
            if found:
                await manager.finish_job(job, done, delete_job=True)

    async def _close(self) -> None:
        await self._app.job_manager.unregister_worker(self._worker)
        await self._app.close_async()
        await self._pool.close()


def _synchronous(url: str) -> Any:
    return procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url, min_size=1, max_size=1)).open()


async def _work(url: str, workers: int, function: Function) -> None:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())

    async def called(number: int) -> None:
        function(number)

    app.task(name=_TASK, queue=QUEUE)(called)
    # One connection for each job, and one for the heartbeat.
    async with psycopg_pool.AsyncConnectionPool(
        url, min_size=1, max_size=workers + 1, open=False, kwargs={"autocommit": True}
    ) as pool:
        await app.open_async(pool)
        # It ends when it finds nothing, and so needs not to listen.
        await app.run_worker_async(
            queues=[QUEUE],
            wait=False,
            concurrency=workers,
            delete_jobs="always",
            listen_notify=False,
            install_signal_handlers=False,
        )
        await app.close_async()
