"""Tasks of Spark as the workers of a job."""

from __future__ import annotations

import contextlib
import io
import re
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

from qmadmin.archive.reading import Archive
from qmadmin.spark.hadoop import HadoopPlace
from qmadmin.spark.session import explained, parallelism
from qmadmin.transfer import Enter, GatheredWorkers, Unit, UnitProgress, Workers, no_progress
from qmadmin.transfer.pool import Pool, Worker
from qmcore.errors import QueueError, SystemFailureError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

    from qmadmin.archive.manifest import Manifest

T = TypeVar("T")

_PROGRESS_SECONDS: Final = 0.2
_BEGIN_SECONDS: Final = 120.0
"""How many seconds tasks that have to begin together may take, while other jobs use the processors."""

_LOOK_SECONDS: Final = 0.5


class SparkExecutor:
    """The processors that a Spark session has."""

    def __init__(self, session: SparkSession, partitions: int | None = None) -> None:
        self._context = session.sparkContext
        self.count = partitions or parallelism(session)

    def gathered(self, enter: Enter, *arguments: Any) -> contextlib.AbstractContextManager[GatheredWorkers]:
        """Start tasks that stay until the end, on this machine; the job fails if one of them dies."""
        return _gathered(self._context, self.count, enter, *arguments)

    @contextlib.contextmanager
    def workers(self, enter: Enter, *arguments: Any) -> Iterator[Workers]:
        """Start a task for each unit; Spark may run it again, or twice at a time, on any machine of the cluster."""
        yield _Tasks(self._context, enter, arguments)

    @contextlib.contextmanager
    def part_workers(self, enter: Enter, archive: Archive) -> Iterator[Workers]:
        """Start tasks as `workers` does; if only Spark can read the archive, each task gets the file of its part."""
        if isinstance(archive.files, HadoopPlace):
            yield _PartTasks(self._context, enter, archive, archive.files)
        else:
            yield _Tasks(self._context, enter, (archive,))


class _Job:
    """A job of Spark in a thread of its own, which collects the results of its tasks."""

    def __init__(self, context: SparkContext, tasks: RDD[Any]) -> None:
        self._context = context
        self._group = f"qmspark-{secrets.token_hex(4)}"
        self._tasks = tasks
        self._thread = threading.Thread(target=self._collect, name=self._group, daemon=True)
        self._found: list[Any] = []
        self._error: Exception | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run it during the block; it is cancelled if the block fails."""
        self._thread.start()
        try:
            yield
        except BaseException:
            self._context.cancelJobGroup(self._group)
            raise

    def results(self, told: UnitProgress, units: int) -> list[Any]:
        """Return the results of all tasks; `told` is called with the number of ended units, at last with all.

        A QueueError among them is raised.
        """
        with self.running():
            while self._thread.is_alive():
                self._thread.join(_PROGRESS_SECONDS)
                told(int(units * self._share()))
        self.check()
        for error in self._found:
            if isinstance(error, QueueError):
                raise error
        # Spark reports the ends of tasks some time after they have ended, even after the job has.
        told(units)
        return self._found

    def check(self) -> None:
        """Raise the error of the job, if it has failed."""
        if self._error is not None:
            raise self._error

    def wait(self) -> None:
        """Return when it has ended."""
        self._thread.join()

    def _collect(self) -> None:
        self._context.setJobGroup(self._group, "qmspark", interruptOnCancel=True)
        try:
            self._found = self._tasks.collect()
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._error = explained(error)

    def _share(self) -> float:
        """Return the fraction that is done, as far as Spark has reported it."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        tasks = sum(stage.numTasks for stage in stages if stage)
        # A task that was begun twice can count twice.
        return min(sum(stage.numCompletedTasks for stage in stages if stage) / max(tasks, 1), 1.0)


def _refusable(work: Callable[[Iterable[T]], Iterator[Any]]) -> Callable[[Iterable[T]], Iterator[Any]]:
    """Return a function for a task that yields its QueueError; if it were raised, Spark would retry in vain."""

    def refusable(given: Iterable[T]) -> Iterator[Any]:
        try:
            yield from work(given)
        except QueueError as error:
            yield error

    return refusable


# ---- tasks that Spark begins when it likes ---------------------------------------------------------------------------


class _Tasks:
    """Tasks for units that can run anywhere."""

    def __init__(self, context: SparkContext, enter: Enter, arguments: tuple[Any, ...]) -> None:
        self._context = context
        self._enter = enter
        self._arguments = arguments

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: UnitProgress = no_progress) -> Iterator[Any]:
        """Run a task of Spark for each of the tasks; all results arrive together, at the end."""
        todo = list(tasks)
        if todo:
            # One stage with a task for each unit, so that Spark can detect stragglers.
            work = _refusable(_work(self._enter, self._arguments, unit))
            yield from _Job(self._context, self._context.parallelize(todo, len(todo)).mapPartitions(work)).results(
                told, len(todo)
            )


def _work(enter: Enter, arguments: tuple[Any, ...], unit: Unit) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function of a task of Spark for its units, usually one."""

    def work(tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        with enter(*arguments) as entered:
            for task in tasks:
                yield unit(entered, *task)

    return work


# ---- tasks that get the files of parts from Spark --------------------------------------------------------------------


class _PartInMemory:
    """The file of an archive that a task uses."""

    def __init__(self) -> None:
        self._name, self._data = "", b""

    def replace(self, name: str, data: bytes) -> None:
        """Replace the file."""
        self._name, self._data = name, data

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """Open the file for the block."""
        if name != self._name:
            raise FileNotFoundError(f"the task has the file {self._name!r}, not {name!r}")
        yield io.BytesIO(self._data)


class _PartTasks:
    """Tasks for units of one part each, in an archive that only Spark can read.

    A task cannot use the file systems of Hadoop: only the driver can call Java. It can only get the content of whole
    files.
    """

    def __init__(self, context: SparkContext, enter: Enter, archive: Archive, place: HadoopPlace) -> None:
        self._context = context
        self._enter = enter
        self._manifest = archive.manifest
        self._place = place

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: UnitProgress = no_progress) -> Iterator[Any]:
        """Make Spark run the tasks; it combines several with small files into one task of its own."""
        todo = {task[0].name: task for task in tasks}
        if not todo:
            return
        paths = ",".join(_exactly(self._place.address_of(name)) for name in todo)
        work = _refusable(_work_on_files(self._enter, self._manifest, unit, todo))
        files = self._context.binaryFiles(paths, len(todo))
        found = dict(_Job(self._context, files.mapPartitions(work)).results(told, len(todo)))
        missing = sorted(todo.keys() - found.keys())
        if missing:
            # A setting can make it skip missing files.
            raise SystemFailureError(
                f"Spark has not read part {missing[0]!r} of the archive",
                hint="Look whether the file is there, and that spark.files.ignoreMissingFiles is not set.",
            )
        yield from found.values()


def _work_on_files(
    enter: Enter, manifest: Manifest, unit: Unit, todo: Mapping[str, tuple[Any, ...]]
) -> Callable[[Iterable[tuple[str, bytes]]], Iterator[tuple[str, Any]]]:
    """Return the function of a task of Spark for the files that it gets."""

    def work(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Any]]:
        part = _PartInMemory()
        with enter(Archive(part, manifest)) as entered:
            for path, data in files:
                name = path.rpartition("/")[2]
                part.replace(name, data)
                del data
                yield name, unit(entered, *todo[name])
                part.replace("", b"")

    return work


def _exactly(path: str) -> str:
    """Return a path whose characters Hadoop takes neither for a pattern nor for the end of the path."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path).replace(",", "{\\,}")


# ---- tasks that begin together and stay ------------------------------------------------------------------------------


@contextlib.contextmanager
def _gathered(context: SparkContext, count: int, enter: Enter, *arguments: Any) -> Iterator[GatheredWorkers]:
    """Start `count` tasks that run at the same time, each with its entered object; they ask the driver for work.

    Several processes can read a device on SQLite at one moment only if all of them begin to read at that moment. Spark
    starts its tasks at any time, and does not report when they have begun.
    """
    with tempfile.TemporaryDirectory(prefix="qmspark-") as directory, socket.socket(socket.AF_UNIX) as driver:
        path = str(Path(directory, "driver"))
        driver.bind(path)
        driver.listen(count)
        # Barrier tasks start at the same time or not at all, and none is started speculatively a second time.
        job = _Job(context, context.parallelize(range(count), count).barrier().mapPartitions(_serve(path)))
        try:
            with job.running(), Pool(lambda _number: _came(driver, job), count, enter, *arguments) as pool:
                yield pool
        finally:
            job.wait()


def _serve(path: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function of such a task: it connects to the driver, and carries out its calls."""

    def serve(numbers: Iterable[Any]) -> Iterator[Any]:
        from qmadmin.transfer import pool

        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(path)
            pool.serve(Connection(ours.detach()))
        return iter(numbers)

    return serve


def _came(driver: socket.socket, job: _Job) -> Worker:
    """Return the next task that connects."""
    end = time.monotonic() + _BEGIN_SECONDS
    driver.settimeout(_LOOK_SECONDS)
    while time.monotonic() < end:
        job.check()
        with contextlib.suppress(TimeoutError):
            came, _ = driver.accept()
            came.setblocking(True)
            return Worker(Connection(came.detach()))
    raise SystemFailureError(
        f"no task of Spark began within {_BEGIN_SECONDS:.0f} seconds",
        hint="Look whether other jobs have all processors of the session.",
    )
