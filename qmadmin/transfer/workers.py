"""Who does the work of a job: this process, worker processes of this machine, or tasks of Spark."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from qmadmin.archive.reading import Archive

Enter = Callable[..., AbstractContextManager[Any]]
"""Opens what the units of a job work on; whoever does the work calls it for itself."""


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Unit = Callable[..., Any]
"""What a worker calls with what it has entered, and with the values of a task."""

Told = Callable[[int], None]
"""Is told how many units have ended."""


def tell_nobody(_ended: int) -> None:
    """Be told, and do nothing about it."""


class Crew(Protocol):
    """Workers that are at it, each with what it has entered."""

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: Told = tell_nobody) -> Iterator[Any]:
        """Have the workers call `unit` with each of the tasks, and yield what it returns, in whatever order."""


class Team(Crew, Protocol):
    """A crew whose workers are all there at the same time."""

    def each(self, unit: Unit, *arguments: Any, seconds: float | None = None) -> list[Any]:
        """Have every worker call the same at the same time, and return what they return within the seconds."""


class Workers(Protocol):
    """Gives crews."""

    count: int
    """How many units they work on at a time."""

    def together(self, enter: Enter, *arguments: Any) -> AbstractContextManager[Team]:
        """Give `count` workers that begin together and stay to the end; the job has failed when one of them dies."""

    def apart(self, enter: Enter, *arguments: Any) -> AbstractContextManager[Crew]:
        """Give workers for units that anybody may do, at any time, and twice."""

    def on_parts(self, enter: Enter, archive: Archive) -> AbstractContextManager[Crew]:
        """Give workers as `apart` does, who enter with an archive, for units of which each is about one of its parts.

        The first value of a task is the entry of the part, which no other task of the same run is about.
        """


class Alone:
    """This process does it all: what is small is done before another process would have started."""

    count = 1

    @contextlib.contextmanager
    def together(self, enter: Enter, *arguments: Any) -> Iterator[Team]:
        """Give this process."""
        with enter(*arguments) as entered:
            yield myself(entered)

    apart = on_parts = together


def myself(entered: Any) -> Team:
    """Return this process as a crew, with what it has entered already."""
    return _Self(entered)


class _Self:
    def __init__(self, entered: Any) -> None:
        self._entered = entered

    def each(self, unit: Unit, *arguments: Any, seconds: float | None = None) -> list[Any]:  # noqa: ARG002 - it is done here
        """Call it once."""
        return [unit(self._entered, *arguments)]

    def run(self, unit: Unit, tasks: Iterable[tuple[Any, ...]], told: Told = tell_nobody) -> Iterator[Any]:
        """Call it with one task after the other."""
        for ended, task in enumerate(tasks, 1):
            yield unit(self._entered, *task)
            told(ended)


class Processes:
    """`count` worker processes of this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def together(self, enter: Enter, *arguments: Any) -> AbstractContextManager[Team]:
        """Give worker processes."""
        from qmadmin.transfer.pool import Pool, Process

        return Pool(lambda _number: Process(), self.count, enter, *arguments)

    apart = on_parts = together
