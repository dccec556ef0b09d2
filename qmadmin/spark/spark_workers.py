"""Tasks of Spark as the workers of a job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from qmadmin.spark.gathering import gathered
from qmadmin.spark.hadoop import HadoopPlace
from qmadmin.spark.jobs import Job
from qmadmin.spark.parallelism import parallelism
from qmadmin.spark.part_tasks import PartTasks
from qmadmin.transfer.workers import Crew, Enter, Team, Told, Unit, tell_nobody

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from qmadmin.archive.reading import Archive


class SparkWorkers:
    """The processors that a Spark session has."""

    def __init__(self, session: SparkSession, partitions: int | None = None) -> None:
        self._session = session
        self.count = partitions or parallelism(session)

    def together(self, enter: Enter, *arguments: Any) -> contextlib.AbstractContextManager[Team]:
        """Give tasks that stay to the end, on this machine; the job has failed when one of them dies."""
        return gathered(self._session, self.count, enter, *arguments)

    @contextlib.contextmanager
    def apart(self, enter: Enter, *arguments: Any) -> Iterator[Crew]:
        """Give a task for each unit; Spark may run it again, or twice at a time, on any machine of the cluster."""
        yield _Tasks(self._session, enter, arguments)

    @contextlib.contextmanager
    def on_parts(self, enter: Enter, archive: Archive) -> Iterator[Crew]:
        """Give tasks as `apart` does; where only Spark reads the archive, each gets the file of its part with it."""
        if isinstance(archive.files, HadoopPlace):
            yield PartTasks(self._session, archive.files, archive.manifest, enter)
        else:
            yield _Tasks(self._session, enter, (archive,))


class _Tasks:
    def __init__(self, session: SparkSession, enter: Enter, arguments: tuple[Any, ...]) -> None:
        self._context = session.sparkContext
        self._enter = enter
        self._arguments = arguments

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: Told = tell_nobody) -> Iterator[Any]:
        """Run a task of Spark for each of the tasks; they return together, at the end."""
        todo = list(tasks)
        if not todo:
            return
        # One stage with a task for each unit, so that Spark can judge which of them lag behind the others.
        tasks_of_spark = self._context.parallelize(todo, len(todo)).mapPartitions(
            _work(self._enter, self._arguments, unit)
        )
        for failed, result in Job(self._context, tasks_of_spark).results(told, len(todo)):
            if failed:
                raise result
            yield result


def _work(enter: Enter, arguments: tuple[Any, ...], unit: Unit) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what a task of Spark does with its units, usually one."""

    def work(tasks: Iterable[tuple[Any, ...]]) -> Iterator[tuple[bool, Any]]:
        from qmcore.errors import QueueError

        try:
            with enter(*arguments) as entered:
                for task in tasks:
                    yield False, unit(entered, *task)
        except QueueError as error:
            # A second try would not change it.
            yield True, error

    return work
