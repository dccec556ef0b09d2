"""Work that stands in line for the writer, and what becomes of it."""

from __future__ import annotations

import contextlib
import copy
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmstorage.sqlite.handoff import Served
    from qmstorage.sqlite.handoff_requests import Errand
    from qmstorage.sqlite.unit import SqliteUnit
    from qmstorage.sqlite.wal import Log

T = TypeVar("T")

_LOOK_AGAIN_SECONDS: Final = 0.05
"""After which a thread that sleeps looks by itself: an interrupt may have come to the one that was to wake it."""

_YIELDS: Final = 4
"""How often others are let go first, without any of them coming, before a commit is begun."""


class Job(Generic[T]):
    """Work of one caller. `commit` is the number of the commit that it became part of, 0 until then.

    `patient`: others go first who wait for the writer in other processes. `looks_first`: nothing is changed before it
    is known that all will be, so that a refusal leaves nothing to be undone. `bell` wakes the thread that asked for the
    work, where that sleeps. `errand` is the work as another process may do it. `serves`: the thread that asked brings
    it to the disk at once, so that its commit may do works of other processes; those are `served`, and are told then.
    """

    __slots__ = (
        "_act",
        "_actions",
        "_asked",
        "_result",
        "bell",
        "commit",
        "errand",
        "error",
        "looks_first",
        "patient",
        "served",
        "serves",
        "settled",
    )

    def __init__(
        self,
        act: Callable[..., T],
        *asked: object,
        patient: bool = False,
        looks_first: bool = False,
        errand: Errand | None = None,
    ) -> None:
        """Take a function, which gets the unit of the commit and what is `asked`."""
        self._act = act
        self._asked = asked
        self.patient = patient
        self.looks_first = looks_first
        self.errand = errand
        self.serves = False
        self.served: Sequence[Served] = ()
        self._result: T
        self._actions: Sequence[Callable[[], None]] = ()
        self.bell: threading.Lock | None = None
        self.error: Exception | None = None
        self.commit = 0
        self.settled = False

    def run(self, unit: SqliteUnit, *, alone: bool) -> None:
        """Do the work; a refusal undoes it and nothing else. Errors of the store are raised: they end them all."""
        self.error = None
        undoes = not (alone or self.looks_first)
        if not alone:
            # What is alone has a unit that has done nothing before.
            unit.start_work()
        if undoes:
            unit.begin_part()
        try:
            self._result = self._act(unit, *self._asked)
            self._actions = unit.actions
        except sqlite3.Error:
            raise
        except Exception as error:
            if not (alone or undoes):
                raise SpoiltError from error
            # Whoever asked for the work gets it.
            self.error = error
            if undoes:
                unit.undo_part()
        if undoes:
            unit.end_part()

    def answer(self, result: T) -> None:
        """Note what came of the work, which another process has done."""
        self.error = None
        self._result, self._actions = result, ()

    def outcome(self) -> T:
        """Return what the work returned, or raise what it raised; before, do what was to be done afterwards."""
        error = self.error
        if error is not None:
            # Its traceback leads to here: who refers to it in turn would keep all that the caller had, a transaction
            # that it drops among it, until Python looks for such rings.
            self.error = None
            try:
                raise error
            finally:
                del error
        for action in self._actions:
            action()
        return self._result

    def wake(self) -> bool:
        """Ring the bell of the thread that asked for the work; tell whether it has one."""
        bell = self.bell
        if bell is None:
            return False
        # Another may have rung it.
        with contextlib.suppress(RuntimeError):
            bell.release()
        return True


class SpoiltError(Exception):
    """A work that was said to look first has failed, and may have changed something before: all is to be undone."""


class Commit(Protocol):
    """Commits jobs in one database transaction; `serves`: it may do works of other processes, too."""

    def __call__(self, jobs: list[Job[Any]], *, serves: bool) -> None:
        """Raise SpoiltError where that can only be done with a transaction for each, which then does nothing else."""


class CommitInTurn(Protocol):
    """Has all that stands in line committed, when it is this thread's turn."""

    def __call__(self, job: Job[Any]) -> int:
        """Return how many jobs that was; do nothing, and return 0, where the job was committed by then."""


class Line:
    """Where the works of a process stand that are to be committed; who comes first leads, and does it for all.

    Those who come while somebody leads sleep until he has brought their works to the disk too, and are woken once, one
    by another. To pass a lock that each gets in turn, and to wake all at once, cost a fifth of the time (measured): the
    interpreter is had by one thread at a time.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job[Any]] = deque()
        self._leader: dict[None, Job[Any]] = {}
        """The job whose thread leads, if one does."""
        self._together = 1
        """How many were committed together last."""
        self._asleep: deque[Job[Any]] = deque()
        self._to_be_woken: deque[Job[Any]] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def append(self, job: Job[Any]) -> None:
        """Let a job stand in line."""
        self._jobs.append(job)

    def leave(self, job: Job[Any]) -> None:
        """Take a job out of the line, unless it is out already."""
        self._abdicate(job)
        _take_out(self._jobs, job)

    def start_afresh(self) -> None:
        """Let nobody wait, in a forked process, for threads that only the parent has."""
        self._leader.clear()
        self._asleep.clear()
        self._to_be_woken.clear()

    def commit_durably(self, job: Job[Any], commit_in_turn: CommitInTurn, log: Log) -> None:
        """Return when a job is committed and on the disk, together with those that have come meanwhile."""
        # To lead is taken up in one step, as an interrupt may come between any two.
        while self._leader.setdefault(None, job) is not job:
            self._sleep(job, log)
            if _is_done(job, log):
                return
        try:
            if len(self._jobs) < self._together:
                self._gather(job)
            self._together = commit_in_turn(job) or self._together
            # That brings the others with it. Where this one was refused they do so themselves: it is not told of a disk
            # that fails, which its own outcome does not depend on.
            log.sync(job.commit)
        finally:
            self._leader.pop(None, None)
            if self._asleep:
                self._wake_all()

    def commit_all(self, commit: Commit) -> int:
        """Commit all that stands in line, together where that goes well, and return how many jobs that was.

        The caller is the only one who does so. Until it is done it stands in line: an interrupt may come between any
        two steps. Ctrl-C in the thread that works for all leaves to the others what they have asked for.
        """
        jobs = list(self._jobs)
        if len(jobs) > 1:
            jobs = [each for each in jobs if not each.settled]
        apart = False
        try:
            try:
                commit(jobs, serves=jobs[0].serves)
            except SpoiltError:
                apart = True
            except QueueError as error:
                # Where the store failed with several, whose work was to blame is not known.
                apart = len(jobs) > 1
                if not apart:
                    _fail(jobs, error)
            if apart:
                # Behind the handlers: what one is refused has nothing to do with what ended them all.
                _commit_each(jobs, commit)
        finally:
            for each in list(self._jobs):
                if each.settled:
                    _take_out(self._jobs, each)
        return len(jobs)

    def _sleep(self, job: Job[Any], log: Log) -> None:
        """Sleep as long as another leads; he may have done the work then, or has left it to its own thread."""
        bell = threading.Lock()
        bell.acquire()
        job.bell = bell
        self._asleep.append(job)
        try:
            # Who ends to lead after this looks who is asleep.
            if self._leader and not _is_done(job, log):
                bell.acquire(timeout=_LOOK_AGAIN_SECONDS)
        finally:
            job.bell = None
            # Mostly whoever led has taken it out.
            _take_out(self._asleep, job)
            self._wake_one()

    def _abdicate(self, job: Job[Any]) -> None:
        if self._leader.get(None) is job:
            del self._leader[None]

    def _gather(self, job: Job[Any]) -> None:
        """Let those come who were committed together last: their threads have been woken, and are on their way."""
        most, yields = len(self._jobs), 0
        while most < self._together and yields < _YIELDS and not job.settled:
            time.sleep(0)
            there = len(self._jobs)
            # Those who need nothing of the disk come and go meanwhile.
            most, yields = (there, 0) if there > most else (most, yields + 1)

    def _wake_all(self) -> None:
        """Have all woken who sleep as long as somebody leads."""
        # Another who has led may be doing the same.
        with contextlib.suppress(IndexError):
            while self._asleep:
                self._to_be_woken.append(self._asleep.popleft())
        self._wake_one()

    def _wake_one(self) -> None:
        """Wake one of those who are to be woken; he wakes the next."""
        while self._to_be_woken:
            try:
                job = self._to_be_woken.popleft()
            except IndexError:
                return
            if job.wake():
                return


def settle(jobs: Iterable[Job[Any]], commit: int) -> None:
    """Note that the jobs are done, by this commit where they were not refused."""
    for job in jobs:
        if job.error is None:
            job.commit = commit
        job.settled = True


def _take_out(jobs: deque[Job[Any]], job: Job[Any]) -> None:
    """Take a job out, unless it is out already."""
    try:
        jobs.remove(job)
    except ValueError:
        return


def _is_done(job: Job[Any], log: Log) -> bool:
    return job.settled and log.has(job.commit)


def _commit_each(jobs: list[Job[Any]], commit: Commit) -> None:
    for job in jobs:
        if job.settled:
            continue
        try:
            commit([job], serves=False)
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
