"""Exports, imports and moves of queue spaces, in this process or by several.

The jobs are `exporting`, `importing`, `comparing` and `moving`. The work of a single worker is a function of values
that can be pickled (`qmadmin.transfer.units`), so that processes of this machine or tasks of Spark can run it.

Here stand the executors, which do the work: this process, worker processes of this machine, or tasks of Spark.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from qmadmin.archive.reading import Archive

Enter = Callable[..., AbstractContextManager[Any]]
"""Opens the objects that the units of a job use; each worker calls it for itself."""


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Unit = Callable[..., Any]
"""The function that a worker calls with its entered object and the values of a task."""

UnitProgress = Callable[[int], None]
"""Called with the number of units that have ended."""


Progress = Callable[[str, int, int], None]
"""Called with the current step, such as `Importing`, and how many of its messages are done."""


def no_progress(*_: object) -> None:
    """Ignore the progress."""


def step_progress(progress: Progress, step: str, messages: int, tasks: int) -> UnitProgress:
    """Begin a step with this number of messages and tasks; return the function to call with the ended tasks."""
    progress(step, 0, messages)
    return lambda ended: progress(step, messages * ended // max(tasks, 1), messages)


class Workers(Protocol):
    """Workers that have begun, each with its entered object."""

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: UnitProgress = no_progress) -> Iterator[Any]:
        """Make the workers call `unit` with each of the tasks, and yield the results in any order.

        `told` is called with the number of tasks that have ended, at last with that of all.
        """


class GatheredWorkers(Workers, Protocol):
    """Workers that all run at the same time."""

    def each(self, unit: Unit, *arguments: Any, seconds: float | None = None) -> list[Any]:
        """Make every worker call `unit` at the same time, and return the results that arrive within the seconds."""


class Executor(Protocol):
    """Starts workers."""

    count: int
    """How many units run at the same time."""

    def gathered(self, enter: Enter, *arguments: Any) -> AbstractContextManager[GatheredWorkers]:
        """Start `count` workers that begin together and stay until the end; the job fails if one of them dies."""

    def workers(self, enter: Enter, *arguments: Any) -> AbstractContextManager[Workers]:
        """Start workers for units that any of them may do, at any time, and more than once."""

    def part_workers(self, enter: Enter, archive: Archive) -> AbstractContextManager[Workers]:
        """Start workers as `workers` does, which enter an archive, for units that each concern one of its parts.

        The first value of a task is the entry of the part, which no other task of the same run has.
        """


class Local:
    """This process: it finishes small jobs before another process would have started."""

    count = 1

    @contextlib.contextmanager
    def gathered(self, enter: Enter, *arguments: Any) -> Iterator[GatheredWorkers]:
        """Use this process."""
        with enter(*arguments) as entered:
            yield local_workers(entered)

    workers = part_workers = gathered


def local_workers(entered: Any) -> GatheredWorkers:
    """Return this process as workers that have entered already."""
    return _LocalWorkers(entered)


class _LocalWorkers:
    def __init__(self, entered: Any) -> None:
        self._entered = entered

    def each(self, unit: Unit, *arguments: Any, seconds: float | None = None) -> list[Any]:  # noqa: ARG002 - it is called in this process
        """Call it once."""
        return [unit(self._entered, *arguments)]

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: UnitProgress = no_progress) -> Iterator[Any]:
        """Call it with one task after the other."""
        for ended, task in enumerate(tasks, 1):
            yield unit(self._entered, *task)
            told(ended)


class Processes:
    """`count` worker processes of this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def gathered(self, enter: Enter, *arguments: Any) -> AbstractContextManager[GatheredWorkers]:
        """Start worker processes."""
        from qmadmin.transfer.pool import Pool, Process

        return Pool(lambda _number: Process(), self.count, enter, *arguments)

    workers = part_workers = gathered
