"""Jobs of Spark that can be watched, and end when nobody wants them any more."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

from qmadmin.spark.errors import explained

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from qmadmin.transfer.workers import Told

_LOOK_SECONDS = 0.2


class Job:
    """One job of Spark, that collects what its tasks return."""

    def __init__(self, context: SparkContext, tasks: RDD[Any]) -> None:
        self._context = context
        self._group = f"qmspark-{secrets.token_hex(4)}"
        self._tasks = tasks
        self._outcome: list[Any] = []

    def results(self, told: Told, units: int) -> list[Any]:
        """Return what all tasks return; `told` gets how many of so many units have ended, as tasks do."""
        thread = threading.Thread(target=self._collect, name=self._group, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)
                told(int(units * self._share()))
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

    def _share(self) -> float:
        """Return how much of it is done: 1 is all."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        tasks = sum(stage.numTasks for stage in stages if stage)
        return sum(stage.numCompletedTasks for stage in stages if stage) / max(tasks, 1)
