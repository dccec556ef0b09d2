"""How works get into the database: through the gate, in one transaction, with those of other processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from qmcore.errors import OutcomeUnknownError
from qmcore.probe import Point
from qmstorage.sqlite import translate
from qmstorage.sqlite.group_commit import Job, SpoiltError, settle
from qmstorage.sqlite.unit import SqliteUnit

if TYPE_CHECKING:
    from qmcore.times import Clock
    from qmstorage.sqlite.handoff import Answer, Desk, Served
    from qmstorage.sqlite.memory_files import Residences
    from qmstorage.sqlite.wal import Beside
    from qmstorage.sqlite.writer_gate import Gate
    from qmstorage.statements import Texts


class Committer:
    """What commits the works of a volume; one thread at a time is in it."""

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        texts: Texts,
        residences: Residences,
        beside: Beside,
        check: Callable[[], None],
        clock: Clock,
    ) -> None:
        """Commit through the connection; `check` raises NotOpenError where it must not be used any more."""
        self._path = path
        self._connection = connection
        self._texts = texts
        self._residences = residences
        self._beside = beside
        self._probe = beside.probe
        self._check = check
        self._clock = clock
        self._unit: SqliteUnit | None = None
        """Held from one commit to the next, unless one fails."""
        self.closed = ""
        """Why the volume must not be used any more."""

    def commit(self, jobs: list[Job[Any]], *, serves: bool) -> None:
        """Commit works in one transaction, or let another process do the only one; `serves`: those of others, too.

        Raises SpoiltError, and nothing is done, where each of the works is to have a transaction of its own.
        """
        gate, desk, log = self._beside.gate, self._beside.desk, self._beside.log
        if self.closed or (log is not None and log.lost is not None):
            self._check()
        if desk is not None and desk.asked:
            # A work that was interrupted, and once more while it was taken back. Its answer is nobody's.
            desk.take_off()
        try:
            if gate is None:
                wanted = self._commit_inside(jobs, serves=serves)
            elif jobs[0].patient and all(job.patient for job in jobs):
                with gate.behind_others(bool if desk is None else desk.has_posts):
                    wanted = self._commit_inside(jobs, serves=serves)
            elif not gate.enters_at_once() and self._is_done_by_others(gate, jobs):
                wanted = ()
            else:
                try:
                    wanted = self._commit_inside(jobs, serves=serves)
                finally:
                    gate.leave()
                    # It may be another by now: a signal handler may have forked.
                    desk_now = self._beside.desk
                    if desk_now is not None and desk_now.has_posts():
                        desk_now.call()
        except BaseException as error:
            # An interrupt may have come at any step; what came of the work is nobody's any more.
            if desk is not None and desk.withdraw() and isinstance(error, Exception):
                raise OutcomeUnknownError(str(error), path=self._path) from error
            raise
        if wanted:
            self._ring(wanted)

    def tell(self, served: Sequence[Served]) -> None:
        """Tell other processes that what was done for them is on the disk."""
        desk = self._beside.desk
        if desk is not None:
            desk.tell(served)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _ring(self, wanted: Sequence[tuple[list[str], int]]) -> None:
        if self._probe.actions:
            self._probe.reach(Point.BEFORE_WAKE_UP, wanted)
        for addresses, at_most in wanted:
            self._beside.belfry.ring(addresses, at_most)
        if self._probe.actions:
            self._probe.reach(Point.AFTER_WAKE_UP, wanted)

    def _is_done_by_others(self, gate: Gate, jobs: list[Job[Any]]) -> bool:
        """Wait before the gate, and tell whether another process has done the work meanwhile; if not, we are inside."""
        desk, errand = self._beside.desk, jobs[0].errand
        if desk is None or errand is None or len(jobs) > 1 or not desk.post(errand):
            gate.enter()
            return False
        answer = desk.wait(gate)
        if answer is not None:
            self._settle_by(desk, jobs[0], answer)
        return answer is not None

    def _commit_inside(self, jobs: list[Job[Any]], *, serves: bool) -> Sequence[tuple[list[str], int]]:
        """Do the works and commit them; return the bells that are to be rung then."""
        connection = self._connection
        served: list[Served] = []
        log = self._beside.log
        if self.closed or (log is not None and log.lost is not None):
            # A signal handler may have forked while the gate was closed, or the disk have failed.
            self._check()
        unit, self._unit = self._unit or self._new_unit(), None
        try:
            wanted = self._do(jobs, unit, served, serves=serves)
            self._unit = unit
        except (sqlite3.Error, SpoiltError) as error:
            if served:
                self._leave_to_owners(served)
                raise SpoiltError from error
            if isinstance(error, SpoiltError):
                raise
            raise translate.from_sqlite(error, self._path, self._residences.full()) from error
        finally:
            if connection.in_transaction:
                unit.roll_back()
            if self._unit is None:
                # A statement that an interrupt has left in its middle would keep the log from being written anew.
                unit.close()
        return wanted

    def _do(
        self, jobs: list[Job[Any]], unit: SqliteUnit, served: list[Served], *, serves: bool
    ) -> Sequence[tuple[list[str], int]]:
        if self._probe.actions:
            self._probe.reach(Point.BEFORE_WRITE, len(jobs))
        unit.begin()
        desk, probe, alone = self._beside.desk, self._probe, len(jobs) == 1
        before = self._connection.total_changes
        answer = desk.take_back(unit) if desk is not None and desk.asked else None
        if desk is not None and answer is not None:
            self._settle_by(desk, jobs[0], answer)
            return ()
        for job in jobs:
            job.run(unit, alone=alone)
        if jobs[0].error is not None and all(job.error is not None for job in jobs):
            settle(jobs, 0)
            return ()
        if probe.actions:
            probe.reach(Point.AFTER_WRITE, len(jobs))
        if serves and desk is not None and desk.has_posts():
            self._serve(desk, unit, served, before)
        wanted = unit.bells_to_ring() if unit.news.turns else ()
        self._end(jobs, unit, served, before)
        return wanted

    def _end(self, jobs: list[Job[Any]], unit: SqliteUnit, served: list[Served], before: int) -> None:
        """Commit, and note what is committed by that."""
        connection, probe, log = self._connection, self._probe, self._beside.log
        if self.closed:
            # A signal handler may have forked meanwhile. In the child this connection has none of SQLite's locks: what
            # others have written since would be written over.
            self._check()
        try:
            if probe.actions:
                probe.reach(Point.BEFORE_COMMIT, len(jobs))
            unit.commit()
            if probe.actions:
                probe.reach(Point.AFTER_COMMIT, len(jobs))
            if served and self._beside.desk is not None:
                self._beside.desk.note_committed(served)
                _let_tell(jobs, tuple(served))
                # From here on they are not to be declined.
                served.clear()
            # What changed nothing, as a dequeue that found nothing, need not be brought to the disk.
            settle(jobs, self.note_commit() if connection.total_changes > before else 0)
        except sqlite3.Error:
            raise
        except BaseException:
            # Ctrl-C, or what a signal handler raises: what is committed must not be done again.
            if not connection.in_transaction:
                settle(jobs, self.note_commit())
            raise
        if unit.brought_many and log is not None:
            log.keep_short(connection)

    def _new_unit(self) -> SqliteUnit:
        unit = SqliteUnit(self._connection.cursor(), self._texts, self._residences.texts)
        unit.clock = self._clock
        return unit

    def _serve(self, desk: Desk, unit: SqliteUnit, served: list[Served], before: int) -> None:
        """Do what other processes have posted."""
        # It is nobody's work here.
        unit.start_work()
        try:
            desk.serve(unit, served, lambda: self._connection.total_changes > before)
        except sqlite3.Error:
            raise
        except Exception as error:
            raise SpoiltError from error

    def _leave_to_owners(self, served: list[Served]) -> None:
        # SQLite may have undone the transaction by itself: then another may be doing the works by now.
        if self._beside.desk is not None and self._connection.in_transaction:
            self._beside.desk.decline(served)

    def _settle_by(self, desk: Desk, job: Job[Any], answer: Answer) -> None:
        assert job.errand is not None  # noqa: S101 - only such a work is left to others
        job.answer(desk.outcome(job.errand, answer))
        settle([job], 0 if answer.synced else self.note_commit())

    def note_commit(self) -> int:
        """Count a commit that was written."""
        return 1 if self._beside.log is None else self._beside.log.note_commit()


def _let_tell(jobs: list[Job[Any]], served: Sequence[Served]) -> None:
    """Let a thread tell others that their works are on the disk: one that waits for that with a work of its own.

    Best the one that leads, who has no bell: he does it at once. Where there is none, as the works of those were
    refused, the others see to it themselves.
    """
    telling = [job for job in jobs if job.serves and job.error is None]
    if telling:
        min(telling, key=lambda job: job.bell is not None).served = served
