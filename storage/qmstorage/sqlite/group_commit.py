"""Group commit: work that is queued for the writer, and committed together with what else is queued."""

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
from qmcore.purpose import Purpose

if TYPE_CHECKING:
    from qmcore.transitions import Command
    from qmstorage.sqlite.handoff import Served
    from qmstorage.sqlite.unit import SqliteUnit
    from qmstorage.sqlite.wal import Log

T = TypeVar("T")

_LOOK_AGAIN_SECONDS: Final = 0.05
"""After which a thread that sleeps looks by itself: an interrupt may have come to the one that was to wake it."""

_YIELDS: Final = 4
"""How often others are let go first, without any of them coming, before a commit is begun."""


class Work(Generic[T]):
    """Work of one caller. `commit` is the number of the commit that it became part of, 0 until then.

    `purpose` says what is promised for it. `looks_first`: nothing is changed before it is known that all will be, so
    that a refusal leaves nothing to be undone. `wakeup` wakes the thread that asked for the work, where that sleeps.
    `request` is the work as another process may do it. `serves`: the thread that asked brings it to the disk at once,
    so that its commit may do works of other processes; those are `served`, and are told then.
    """

    # Read several times for each message: those of the class are looked for in its bases first.
    __slots__ = (
        "_act",
        "_asked",
        "actions",
        "commit",
        "error",
        "looks_first",
        "purpose",
        "request",
        "result",
        "served",
        "serves",
        "settled",
        "wakeup",
    )

    def __init__(
        self,
        act: Callable[..., T],
        *asked: object,
        purpose: Purpose = Purpose.MESSAGES,
        looks_first: bool = False,
        request: Command | None = None,
    ) -> None:
        """Take a function, which gets the unit of the commit and what is `asked`."""
        self._act = act
        self._asked = asked
        self.purpose = purpose
        self.looks_first = looks_first
        self.request = request
        self.serves = self.settled = False
        self.commit = 0
        self.served: Sequence[Served] = ()
        self.wakeup: threading.Lock | None = None
        self.error: Exception | None = None
        self.actions: Sequence[Callable[[], None]] = ()
        self.result: T

    def run(self, unit: SqliteUnit, *, alone: bool) -> None:
        """Do the work; a refusal undoes it and nothing else. Errors of the store are raised: they end them all."""
        self.error = None
        unit.purpose = self.purpose
        undoes = not (alone or self.looks_first)
        if not alone:
            # What is alone has a unit that has done nothing before.
            unit.start_work()
        if undoes:
            unit.begin_part()
        try:
            self.result = self._act(unit, *self._asked)
            self.actions = unit.actions
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
        self.result, self.actions = result, ()

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
        for action in self.actions:
            action()
        return self.result

    def wake(self) -> bool:
        """Wake the thread that asked for the work; return whether it sleeps."""
        wakeup = self.wakeup
        if wakeup is None:
            return False
        # Another may have woken it.
        with contextlib.suppress(RuntimeError):
            wakeup.release()
        return True


class SpoiltError(Exception):
    """A work that was said to look first has failed, and may have changed something before: all is to be undone."""


class Commit(Protocol):
    """Commits a batch in one database transaction; `serves`: it may do works of other processes, too."""

    def __call__(self, batch: list[Work[Any]], *, serves: bool) -> None:
        """Raise SpoiltError where that can only be done with a transaction for each, which then does nothing else."""


class CommitInTurn(Protocol):
    """Has all that is queued committed, when it is this thread's turn."""

    def __call__(self, work: Work[Any]) -> int:
        """Return the size of the batch; do nothing, and return 0, where the work was committed by then."""


class CommitQueue:
    """The works of a process that are to be committed; the thread that comes first leads, and does it for all.

    Those that come while one leads sleep until it has brought their works to the disk too, and are woken once, one by
    another. To pass a lock that each gets in turn, and to wake all at once, cost a fifth of the time (measured): the
    interpreter is had by one thread at a time.
    """

    def __init__(self) -> None:
        self._queued: deque[Work[Any]] = deque()
        self.append = self._queued.append
        """Queues a work."""
        self._leader: dict[None, Work[Any]] = {}
        """The work whose thread leads, if one does."""
        self._together = 1
        """How many were committed together last."""
        self._asleep: deque[Work[Any]] = deque()
        self._to_be_woken: deque[Work[Any]] = deque()

    def __len__(self) -> int:
        return len(self._queued)

    def leave(self, work: Work[Any]) -> None:
        """Take a work out of the queue, unless it is out already."""
        self._abdicate(work)
        _take_out(self._queued, work)

    def start_afresh(self) -> None:
        """Let nobody wait, in a forked process, for threads that only the parent has."""
        self._leader.clear()
        self._asleep.clear()
        self._to_be_woken.clear()

    def commit_durably(self, work: Work[Any], commit_in_turn: CommitInTurn, log: Log) -> None:
        """Return once a work is committed and on the disk, together with those that have come meanwhile."""
        # To lead is taken up in one step, as an interrupt may come between any two.
        while self._leader.setdefault(None, work) is not work:
            self._sleep(work, log)
            if _is_done(work, log):
                return
        try:
            if len(self._queued) < self._together:
                self._gather(work)
            self._together = commit_in_turn(work) or self._together
            # That brings the others with it. Where this one was refused they do so themselves: it is not told of a disk
            # that fails, which its own outcome does not depend on.
            log.sync(work.commit)
        finally:
            self._leader.pop(None, None)
            if self._asleep:
                self._wake_all()

    def commit_all(self, commit: Commit) -> int:
        """Commit all that is queued, together where that goes well, and return how many works that was.

        The caller is the only one that does so. Until it is done it stays queued: an interrupt may come between any
        two steps. Ctrl-C in the thread that works for all leaves to the others what they have asked for.
        """
        batch = list(self._queued)
        if len(batch) > 1:
            batch = [each for each in batch if not each.settled]
        try:
            apart = False
            try:
                commit(batch, serves=batch[0].serves)
            except SpoiltError:
                apart = True
            except QueueError as error:
                # Where the store failed with several, whose work was to blame is not known.
                apart = len(batch) > 1
                if not apart:
                    _fail(batch, error)
            if apart:
                # Behind the handlers: what one is refused has nothing to do with what ended them all.
                _commit_each(batch, commit)
        finally:
            for each in list(self._queued):
                if each.settled:
                    # As `_take_out` does.
                    try:
                        self._queued.remove(each)
                    except ValueError:
                        continue
        return len(batch)

    def _sleep(self, work: Work[Any], log: Log) -> None:
        """Sleep as long as another leads; it may have done the work then, or have left it to its own thread."""
        wakeup = threading.Lock()
        wakeup.acquire()
        work.wakeup = wakeup
        self._asleep.append(work)
        try:
            # Who ends to lead after this looks who is asleep.
            if self._leader and not _is_done(work, log):
                wakeup.acquire(timeout=_LOOK_AGAIN_SECONDS)
        finally:
            work.wakeup = None
            # Mostly whoever led has taken it out.
            _take_out(self._asleep, work)
            self._wake_one()

    def _abdicate(self, work: Work[Any]) -> None:
        if self._leader.get(None) is work:
            del self._leader[None]

    def _gather(self, work: Work[Any]) -> None:
        """Let those come who were committed together last: their threads have been woken, and are on their way."""
        most, yields = len(self._queued), 0
        while most < self._together and yields < _YIELDS and not work.settled:
            time.sleep(0)
            there = len(self._queued)
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
        """Wake one of those that are to be woken; it wakes the next."""
        while self._to_be_woken:
            try:
                work = self._to_be_woken.popleft()
            except IndexError:
                return
            if work.wake():
                return


def settle(batch: Iterable[Work[Any]], commit: int) -> None:
    """Note that works are done, by this commit where they were not refused."""
    for work in batch:
        if work.error is None:
            work.commit = commit
        work.settled = True


def _take_out(queue: deque[Work[Any]], work: Work[Any]) -> None:
    """Take a work out, unless it is out already."""
    try:
        queue.remove(work)
    except ValueError:
        return


def _is_done(work: Work[Any], log: Log) -> bool:
    return work.settled and log.has(work.commit)


def _commit_each(batch: list[Work[Any]], commit: Commit) -> None:
    for work in batch:
        if work.settled:
            continue
        try:
            commit([work], serves=False)
        except QueueError as error:
            _fail([work], error)


def _fail(batch: Iterable[Work[Any]], error: QueueError) -> None:
    """Note that those works have failed which are not done yet."""
    for work in batch:
        if not work.settled:
            # One of its own for each: an exception that several threads raise mixes up their tracebacks.
            work.error = copy.copy(error)
            work.error.__cause__ = error.__cause__
            work.settled = True
