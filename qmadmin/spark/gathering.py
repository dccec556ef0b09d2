"""Tasks of Spark that begin together and stay: they come to the driver, which is on the same machine, for work.

What a device on SQLite holds can be read by several processes as it stood at one moment only where all of them begin to
read at that moment. Spark starts its tasks when it likes, and has no way to say when they have begun.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.spark.errors import explained
from qmadmin.transfer.pool import Pool, Worker
from qmcore.errors import SystemFailureError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from qmadmin.transfer.workers import Enter, Team

_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.5


@contextlib.contextmanager
def gathered(session: SparkSession, count: int, enter: Enter, *arguments: Any) -> Iterator[Team]:
    """Give `count` tasks that run at the same time, each with what it has entered."""
    with tempfile.TemporaryDirectory(prefix="qmspark-") as directory, socket.socket(socket.AF_UNIX) as place:
        path = str(Path(directory, "driver"))
        place.bind(path)
        place.listen(count)
        job = _Job(session.sparkContext, count, _serve(path))
        with job.running(), Pool(lambda _number: _came(place, job), count, enter, *arguments) as crew:
            yield crew


def _serve(path: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what such a task does: it comes to the driver, and does what it is told."""

    def serve(numbers: Iterator[Any]) -> Iterator[Any]:
        from qmadmin.transfer import worker_main

        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(path)
            worker_main.serve(Connection(ours.detach()))
        return numbers

    return serve


def _came(place: socket.socket, job: _Job) -> Worker:
    """Return the next task that comes."""
    end = time.monotonic() + _PATIENCE_SECONDS
    place.settimeout(_LOOK_SECONDS)
    while time.monotonic() < end:
        job.check()
        with contextlib.suppress(TimeoutError):
            came, _ = place.accept()
            came.setblocking(True)
            return Worker(Connection(came.detach()))
    raise SystemFailureError(
        f"no task of Spark began within {_PATIENCE_SECONDS:.0f} seconds",
        hint="Look whether other jobs have all processors of the session.",
    )


class _Job:
    """The job whose tasks they are."""

    def __init__(self, context: SparkContext, count: int, work: Callable[..., Any]) -> None:
        self._context = context
        self._group = f"qmspark-{secrets.token_hex(4)}"
        # Such tasks start at the same time or not at all, and none is started a second time beside the first.
        self._tasks = context.parallelize(range(count), count).barrier().mapPartitions(work)
        self._error: Exception | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Have it run for as long as the block lasts."""
        thread = threading.Thread(target=self._run, name=self._group, daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            self._context.cancelJobGroup(self._group)
            raise
        finally:
            thread.join()

    def check(self) -> None:
        """Raise what the job has failed with."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        self._context.setJobGroup(self._group, "qmspark", interruptOnCancel=True)
        try:
            self._tasks.collect()
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._error = explained(error)
