"""Tasks of Spark as the workers of a job."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from qmadmin.spark.errors import explained
from qmadmin.spark.gathering import gathered
from qmadmin.transfer.workers import Crew, Enter, Team, Told, Unit, tell_nobody

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_LOOK_SECONDS = 0.2


class SparkWorkers:
    """The processors that a Spark session has."""

    def __init__(self, session: SparkSession, partitions: int | None = None) -> None:
        self._session = session
        self.count = partitions or session.sparkContext.defaultParallelism

    def together(self, enter: Enter, *arguments: Any) -> contextlib.AbstractContextManager[Team]:
        """Give tasks that stay to the end, on this machine; the job has failed when one of them dies."""
        return gathered(self._session, self.count, enter, *arguments)

    @contextlib.contextmanager
    def apart(self, enter: Enter, *arguments: Any) -> Iterator[Crew]:
        """Give a task for each unit; Spark may run it again, or twice at a time, on any machine of the cluster."""
        yield _Tasks(self._session, enter, arguments)


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
        job = _Job(self._context, _work(self._enter, self._arguments, unit), todo)
        for failed, result in job.results(told):
            if failed:
                raise result
            yield result


class _Job:
    """One stage with a task for each unit, so that Spark can judge which of them lag behind the others."""

    def __init__(self, context: SparkContext, work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> None:
        self._context = context
        self._group = f"qmspark-{secrets.token_hex(4)}"
        self._tasks = context.parallelize(tasks, len(tasks)).mapPartitions(work)
        self._outcome: list[Any] = []

    def results(self, told: Told) -> list[Any]:
        """Return what all tasks return; `told` gets how many have ended."""
        thread = threading.Thread(target=self._collect, name=self._group, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
                told(self._ended())
        except BaseException:
            self._context.cancelJobGroup(self._group)
            raise
        if isinstance(self._outcome[0], Exception):
            raise self._outcome[0]
        found: list[Any] = self._outcome[0]
        return found

    def _collect(self) -> None:
        self._context.setJobGroup(self._group, "qmspark", interruptOnCancel=True)
        try:
            self._outcome.append(self._tasks.collect())
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that waits
            self._outcome.append(explained(error))

    def _ended(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage)


def _work(enter: Enter, arguments: tuple[Any, ...], unit: Unit) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what a task of Spark does with its units, usually one."""

    def work(tasks: Iterator[tuple[Any, ...]]) -> Iterator[tuple[bool, Any]]:
        from qmcore.errors import QueueError

        try:
            with enter(*arguments) as entered:
                for task in tasks:
                    yield False, unit(entered, *task)
        except QueueError as error:
            # A second try would not change it.
            yield True, error

    return work
