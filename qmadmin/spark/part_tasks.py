"""Tasks of Spark that get the files of parts from Spark itself, wherever it can read them.

A task has no way to the file systems of Hadoop: only the driver can call Java. What it can get is the content of whole
files.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from qmadmin.archive.reading import Archive
from qmadmin.spark.jobs import Job
from qmadmin.transfer.workers import Enter, Told, Unit, tell_nobody
from qmcore.errors import SystemFailureError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qmadmin.archive.manifest import Manifest
    from qmadmin.spark.hadoop import HadoopPlace

_Files = Iterable[tuple[str, bytes]]
_Results = Iterator[tuple[str, bool, Any]]


class Brought:
    """The file of an archive that a task works on, in memory."""

    def __init__(self) -> None:
        self._name, self._data = "", b""

    def bring(self, name: str, data: bytes) -> None:
        """Have another file instead."""
        self._name, self._data = name, data

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """Have it open."""
        if name != self._name:
            raise FileNotFoundError(f"the task has the file {self._name!r}, not {name!r}")
        yield io.BytesIO(self._data)


class PartTasks:
    """Tasks of Spark for units that are about a part each, which is read where only Spark reaches it."""

    def __init__(self, session: SparkSession, place: HadoopPlace, manifest: Manifest, enter: Enter) -> None:
        self._context = session.sparkContext
        self._place = place
        self._manifest = manifest
        self._enter = enter

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: Told = tell_nobody) -> Iterator[Any]:
        """Have Spark do the tasks, of which it gives several with small files to one of its own."""
        todo = {task[0].name: task for task in tasks}
        if not todo:
            return
        paths = ",".join(_exactly(self._place.address_of(name)) for name in todo)
        files = self._context.binaryFiles(paths, len(todo))
        work = _work(self._enter, self._manifest, unit, todo)
        job = Job(self._context, files.mapPartitions(work))
        found = {}
        for name, failed, result in job.results(told, len(todo)):
            if failed:
                raise result
            found[name] = result
        missing = sorted(todo.keys() - found.keys())
        if missing:
            # It can be told to pass over files that are gone.
            raise SystemFailureError(
                f"Spark has not read part {missing[0]!r} of the archive",
                hint="Look whether the file is there, and that spark.files.ignoreMissingFiles is not set.",
            )
        yield from found.values()


def _work(
    enter: Enter, manifest: Manifest, unit: Unit, todo: Mapping[str, tuple[Any, ...]]
) -> Callable[[_Files], _Results]:
    """Return what a task of Spark does with the files that it gets."""

    def work(files: _Files) -> _Results:
        from qmcore.errors import QueueError

        name, brought = "", Brought()
        try:
            with enter(Archive(brought, manifest)) as entered:
                for path, data in files:
                    name = path.rpartition("/")[2]
                    brought.bring(name, data)
                    del data
                    yield name, False, unit(entered, *todo[name])
                    brought.bring("", b"")
        except QueueError as error:
            # A second try would not change it.
            yield name, True, error

    return work


def _exactly(path: str) -> str:
    """Return a path in which Hadoop takes no character for a pattern, nor for the end of the path."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path).replace(",", "{\\,}")
