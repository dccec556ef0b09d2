"""Work that stands in line for the writer, and what becomes of it."""

from __future__ import annotations

import copy
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from qmcore.errors import QueueError
from qmcore.port import Unit
from qmstorage.sqlite.unit import SqliteUnit

T = TypeVar("T")


class Job(Generic[T]):
    """Work of one caller. `commit` is the number of the commit that it became part of, 0 until then.

    `patient`: others go first who wait for the writer in other processes.
    """

    __slots__ = ("_actions", "_result", "_work", "commit", "error", "patient", "settled")

    def __init__(self, work: Callable[[Unit], T], *, patient: bool = False) -> None:
        self._work = work
        self.patient = patient
        self._result: T
        self._actions: list[Callable[[], None]] = []
        self.error: Exception | None = None
        self.commit = 0
        self.settled = False

    def run(self, unit: SqliteUnit, cursor: sqlite3.Cursor, *, alone: bool) -> None:
        """Do the work; a refusal undoes it and nothing else. Errors of the store are raised: they end them all."""
        self.error = None
        if not alone:
            # What is alone has a unit that is new.
            unit.start_work()
            cursor.execute("SAVEPOINT job")
        try:
            self._result = self._work(unit)
            self._actions = unit.actions
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - whoever asked for the work gets it
            self.error = error
            if not alone:
                cursor.execute("ROLLBACK TO job")
        if not alone:
            cursor.execute("RELEASE job")

    def outcome(self) -> T:
        """Return what the work returned, or raise what it raised; before, do what was to be done afterwards."""
        if self.error is not None:
            raise self.error
        for action in self._actions:
            action()
        return self._result


def commit_line(line: deque[Job[Any]], commit: Callable[[list[Job[Any]]], None]) -> None:
    """Commit all that stands in line, together where that goes well. The caller is the only one who does so.

    Until it is done it stands in line: an interrupt may come between any two steps. Ctrl-C in the thread that works
    for all leaves to the others what they have asked for.
    """
    jobs = [job for job in list(line) if not job.settled]
    try:
        commit(jobs)
    except QueueError as error:
        if len(jobs) == 1:
            _fail(jobs, error)
        else:
            # The store failed, and whose work was to blame is not known: each gets a transaction of its own.
            _commit_each(jobs, commit)
    finally:
        for job in list(line):
            if job.settled:
                leave_line(line, job)


def leave_line(line: deque[Job[Any]], job: Job[Any]) -> None:
    """Take a job out of the line, unless it is out already."""
    try:
        line.remove(job)
    except ValueError:
        return


def settle(jobs: Iterable[Job[Any]], commit: int) -> None:
    """Note that the jobs are done, by this commit where they were not refused."""
    for job in jobs:
        if job.error is None:
            job.commit = commit
        job.settled = True


def _commit_each(jobs: list[Job[Any]], commit: Callable[[list[Job[Any]]], None]) -> None:
    for job in jobs:
        if job.settled:
            continue
        try:
            commit([job])
        except QueueError as error:
            _fail([job], error)


def _fail(jobs: Iterable[Job[Any]], error: QueueError) -> None:
    """Note that the jobs which are not done yet have failed."""
    for job in jobs:
        if not job.settled:
            # One of its own for each: an exception that several threads raise mixes up their tracebacks.
            job.error = copy.copy(error)
            job.error.__cause__ = error.__cause__
            job.settled = True
