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


def commit_line(line: deque[Job[Any]], own: Job[Any], commit: Callable[[list[Job[Any]]], None]) -> None:
    """Commit all that stands in line, together where that goes well; `own` is the caller's."""
    jobs = [line.popleft()]
    while line:
        jobs.append(line.popleft())
    try:
        try:
            commit(jobs)
        except QueueError:
            if len(jobs) == 1:
                raise
            # The store failed, and whose work was to blame is not known: each gets a transaction of its own.
            _commit_each(jobs, commit)
    except QueueError as error:
        _fail(jobs, error)
    except BaseException:
        # Ctrl-C in the thread that works for all: the others go on without it, and do not do its work either.
        line.extendleft(job for job in reversed(jobs) if not job.settled and job is not own)
        raise


def settle(jobs: Iterable[Job[Any]], commit: int) -> None:
    """Note that the jobs are done, by this commit where they were not refused."""
    for job in jobs:
        if job.error is None:
            job.commit = commit
        job.settled = True


def _commit_each(jobs: list[Job[Any]], commit: Callable[[list[Job[Any]]], None]) -> None:
    for job in jobs:
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
