"""How works get into the database: through the gate, in one transaction, with those of other processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from qmcore.errors import OutcomeUnknownError
from qmcore.probe import Point
from qmcore.purpose import Purpose
from qmstorage.sqlite import translate
from qmstorage.sqlite.group_commit import SpoiltError, Work, settle
from qmstorage.sqlite.unit import SqliteUnit

if TYPE_CHECKING:
    from qmcore.times import Clock
    from qmstorage.sqlite.handoff import Answer, Handoff, Served
    from qmstorage.sqlite.memory_files import MemoryFiles
    from qmstorage.sqlite.wal import WriterResources
    from qmstorage.sqlite.writer_gate import WriterGate
    from qmstorage.statements import Texts


class Committer:
    """What commits the works of a volume; one thread at a time is in it."""

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        texts: Texts,
        memory_files: MemoryFiles,
        resources: WriterResources,
        check: Callable[[], None],
        clock: Clock,
    ) -> None:
        """Commit through the connection; `check` raises NotOpenError where it must not be used any more."""
        self._path = path
        self._connection = connection
        self._texts = texts
        self._memory_files = memory_files
        self._resources = resources
        self._probe = resources.probe
        self._check = check
        self._clock = clock
        self.note_commit: Callable[[], int] = _one if resources.log is None else resources.log.note_commit
        """Counts a commit that was written, and returns its number."""
        self._unit: SqliteUnit | None = None
        """Held from one commit to the next, unless one fails."""
        self.closed = ""
        """Why the volume must not be used any more."""

    def commit(self, batch: list[Work[Any]], *, serves: bool) -> None:
        """Commit works in one transaction, or let another process do the only one; `serves`: those of others, too.

        Raises SpoiltError, and nothing is done, where each of the works is to have a transaction of its own.
        """
        gate, handoff, log = self._resources.gate, self._resources.handoff, self._resources.log
        if self.closed or (log is not None and log.lost is not None):
            self._check()
        if handoff is not None and handoff.asked:
            # A work that was interrupted, and once more while it was taken back. Its answer is nobody's.
            handoff.take_off()
        try:
            if gate is None:
                wanted = self._commit_inside(batch, serves=serves)
            elif batch[0].purpose.patient and all(work.purpose.patient for work in batch):
                with gate.behind_others(bool if handoff is None else handoff.places.any_posted):
                    wanted = self._commit_inside(batch, serves=serves)
            elif not gate.try_enter() and self._is_done_by_others(gate, batch):
                wanted = ()
            else:
                try:
                    wanted = self._commit_inside(batch, serves=serves)
                finally:
                    gate.leave()
                    # It may be another by now: a signal handler may have forked.
                    current = self._resources.handoff
                    if current is not None and current.places.any_posted():
                        current.call()
        except BaseException as error:
            # An interrupt may have come at any step; what came of the work is nobody's any more.
            if handoff is not None and handoff.withdraw() and isinstance(error, Exception):
                raise OutcomeUnknownError(str(error), path=self._path) from error
            raise
        if wanted:
            self._wake(wanted)

    def tell(self, served: Sequence[Served]) -> None:
        """Tell other processes that what was done for them is on the disk."""
        handoff = self._resources.handoff
        if handoff is not None:
            handoff.tell(served)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _wake(self, wanted: Sequence[tuple[list[str], int]]) -> None:
        if self._probe.actions:
            self._probe.reach(Point.BEFORE_WAKE_UP, wanted)
        for addresses, at_most in wanted:
            self._resources.wakeups.wake(addresses, at_most)
        if self._probe.actions:
            self._probe.reach(Point.AFTER_WAKE_UP, wanted)

    def _is_done_by_others(self, gate: WriterGate, batch: list[Work[Any]]) -> bool:
        """Wait before the gate; return whether another process has done the work meanwhile; if not, we are inside."""
        handoff, request = self._resources.handoff, batch[0].request
        if handoff is None or request is None or len(batch) > 1 or not handoff.post(request):
            gate.enter()
            return False
        answer = handoff.wait(gate)
        if answer is not None:
            self._settle_by(handoff, batch[0], answer)
        return answer is not None

    def _commit_inside(self, batch: list[Work[Any]], *, serves: bool) -> Sequence[tuple[list[str], int]]:
        """Do the works and commit them; return whom to wake then."""
        connection = self._connection
        served: list[Served] = []
        log = self._resources.log
        if self.closed or (log is not None and log.lost is not None):
            # A signal handler may have forked while the gate was closed, or the disk have failed.
            self._check()
        unit, self._unit = self._unit or self._new_unit(), None
        try:
            wanted = self._do(batch, unit, served, serves=serves)
            if unit.brought_many and log is not None:
                log.keep_short(connection)
            self._unit = unit
        except (sqlite3.Error, SpoiltError) as error:
            if served:
                self._leave_to_owners(served)
                raise SpoiltError from error
            if isinstance(error, SpoiltError):
                raise
            raise translate.from_sqlite(error, self._path, self._memory_files.full()) from error
        finally:
            if connection.in_transaction:
                unit.roll_back()
            if self._unit is None:
                # A statement that an interrupt has left in its middle would keep the log from being written again.
                unit.close()
        return wanted

    def _do(
        self, batch: list[Work[Any]], unit: SqliteUnit, served: list[Served], *, serves: bool
    ) -> Sequence[tuple[list[str], int]]:
        """Do them, and commit what came of them."""
        if self._probe.actions:
            self._probe.reach(Point.BEFORE_WRITE, len(batch))
        unit.begin()
        connection, handoff, probe = self._connection, self._resources.handoff, self._probe
        before, alone = connection.total_changes, len(batch) == 1
        answer = handoff.take_back(unit) if handoff is not None and handoff.asked else None
        if handoff is not None and answer is not None:
            self._settle_by(handoff, batch[0], answer)
            return ()
        for work in batch:
            work.run(unit, alone=alone)
        if batch[0].error is not None and all(work.error is not None for work in batch):
            settle(batch, 0)
            return ()
        if probe.actions:
            probe.reach(Point.AFTER_WRITE, len(batch))
        if serves and handoff is not None and handoff.places.any_posted():
            self._serve(handoff, unit, served, before)
        wanted = unit.wakeups_to_send() if unit.notifications.turns else ()
        if self.closed:
            # A signal handler may have forked meanwhile. In the child this connection has none of SQLite's locks: what
            # others have written since would be written over.
            self._check()
        try:
            if probe.actions:
                probe.reach(Point.BEFORE_COMMIT, len(batch))
            unit.commit()
            if probe.actions:
                probe.reach(Point.AFTER_COMMIT, len(batch))
            if served and self._resources.handoff is not None:
                self._resources.handoff.note_committed(served)
                _let_tell(batch, tuple(served))
                # From here on they are not to be declined.
                served.clear()
            # What changed nothing, as a dequeue that found nothing, need not be brought to the disk.
            settle(batch, self.note_commit() if connection.total_changes > before else 0)
        except BaseException as error:
            # Ctrl-C, or what a signal handler raises: what is committed must not be done again.
            if not (isinstance(error, sqlite3.Error) or connection.in_transaction):
                settle(batch, self.note_commit())
            raise
        return wanted

    def _new_unit(self) -> SqliteUnit:
        unit = SqliteUnit(self._connection.cursor(), self._texts, self._memory_files.texts)
        unit.clock = self._clock
        return unit

    def _serve(self, handoff: Handoff, unit: SqliteUnit, served: list[Served], before: int) -> None:
        """Do what other processes have posted."""
        # It is nobody's work here.
        unit.start_work()
        unit.purpose = Purpose.MESSAGES
        try:
            handoff.serve(unit, served, lambda: self._connection.total_changes > before)
        except sqlite3.Error:
            raise
        except Exception as error:
            raise SpoiltError from error

    def _leave_to_owners(self, served: list[Served]) -> None:
        # SQLite may have undone the transaction by itself: then another may be doing the works by now.
        if self._resources.handoff is not None and self._connection.in_transaction:
            self._resources.handoff.decline(served)

    def _settle_by(self, handoff: Handoff, work: Work[Any], answer: Answer) -> None:
        work.answer(handoff.outcome(answer))
        settle([work], 0 if answer.synced else self.note_commit())


def _let_tell(batch: list[Work[Any]], served: Sequence[Served]) -> None:
    """Let a thread tell others that their works are on the disk: one that waits for that with a work of its own.

    Best the one that leads, which has no wake-up: it does so at once. Where there is none, as the works of those were
    refused, the others see to it themselves.
    """
    telling = [work for work in batch if work.serves and work.error is None]
    if telling:
        min(telling, key=lambda work: work.wakeup is not None).served = served


def _one() -> int:
    """Return the number of a commit of a volume that has no log."""
    return 1
