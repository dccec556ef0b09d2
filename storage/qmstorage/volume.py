"""A volume on SQLite: one held connection, one writer at a time, commits shared by whoever is waiting.

Threads of one process that write at the same time are committed together: each puts its work into a line, and
whoever gets the lock next runs all that stands there in one database transaction. Processes queue at a gate. A commit
is made durable after the gate is open again: the write-ahead log is a checksummed sequence, so one fdatasync of it
covers everything that was committed before, by whomever.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import sqlite3
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from qmcore.errors import NotOpenError, QueueError, SystemFailureError
from qmcore.port import Owner, Unit
from qmstorage import sqlite, translate
from qmstorage.bells import Belfry, SocketBell
from qmstorage.locks import Gate, OwnerFiles, same_boot
from qmstorage.runner import Texts
from qmstorage.unit import SqlUnit

T = TypeVar("T")

_ALLOCATION_STEP = 1024
"""Pages that are written at a time when disk is allocated."""


class SqliteVolume:
    """One SQLite file, or SQLite in memory, as the engine's port wants it. Open for reading and writing."""

    readonly = False

    def __init__(self, path: str, connection: sqlite3.Connection, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable and path != sqlite.MEMORY
        self._connection = connection
        self._texts = Texts(sqlite.DIALECT)
        self._line: deque[_Job[Any]] = deque()
        self._writing = threading.Lock()
        self._closed = False
        self._lost: OSError | None = None
        try:
            self._files = _RunFiles(path)
        except OSError as error:
            connection.close()
            raise translate.from_os(error, "opening the files beside device", path) from error

    def write(self, work: Callable[[Unit], T], *, durable: bool = True) -> T:
        """Run `work` in one database transaction and commit it; an exception leaves everything as it was."""
        job = _Job(work)
        self._line.append(job)
        try:
            with self._writing:
                if not job.settled:
                    self._commit_line()
        except BaseException:
            with contextlib.suppress(ValueError):
                self._line.remove(job)
            raise
        if durable and job.commit is not None:
            job.commit.sync()
        return job.outcome()

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work` in one database transaction that changes nothing."""
        with self._writing:
            self._check_usable()
            return read_once(self._connection, self._texts, self.path, work)

    def allocate_disk(self, pages: int, progress: Callable[[int], None]) -> None:
        """Make the file have `pages` free pages, so that a full disk is found now; `progress` gets percent."""
        wanted = self.read(lambda unit: _ours(unit).pages_to_allocate(pages))
        self.write(lambda unit: _ours(unit).start_allocation())
        try:
            for done in range(0, wanted, _ALLOCATION_STEP):
                step = min(_ALLOCATION_STEP, wanted - done)
                self.write(lambda unit, step=step: _ours(unit).allocate(step))  # type: ignore[misc]
                progress((done + step) * 100 // wanted)
        finally:
            self.write(lambda unit: _ours(unit).end_allocation())

    def bell(self) -> SocketBell:
        """Return a bell of this process."""
        return self._files.belfry.hang()

    def ring(self, addresses: Sequence[str]) -> None:
        """Ring bells, of whichever process; one that is gone is passed over."""
        if addresses:
            self._files.belfry.ring(addresses)

    def wake(self) -> None:
        """Ring all bells of this process; a signal handler may call it."""
        self._files.belfry.ring_own()

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Lock a private file that tells others, as long as this process lives, that it does."""
        return self._files.owners.new(space_id, role, now_us)

    def release_owner(self, owner: Owner) -> None:
        """Give up the private file of an owner, ours or one that died."""
        self._files.owners.release(owner)

    def is_alive(self, owner: Owner) -> bool:
        """Tell whether the process of an owner lives and is still attached."""
        return self._files.owners.is_alive(owner)

    def same_boot(self, owner: Owner) -> bool:
        """Tell whether the machine has run without restart since the owner attached."""
        return same_boot(owner)

    def close(self) -> None:
        """Close the volume; whoever waits is woken."""
        if self._closed:
            return
        self._closed = True
        self._files.belfry.ring_own()
        with self._writing:
            self._connection.close()
            self._files.close()

    def sync(self) -> None:
        """Bring everything that was committed to the disk."""
        if not self._durable:
            return
        try:
            self._files.sync_log()
        except OSError as error:
            # The kernel may have dropped the pages that it could not write: a second try would report success for
            # what is lost.
            self._lost = error
            raise self._outcome_unknown() from error

    def _commit_line(self) -> None:
        """Commit all that stands in line, together where that goes well."""
        jobs = [self._line.popleft() for _ in range(len(self._line))]
        try:
            self._check_usable()
            try:
                self._commit(jobs)
            except QueueError:
                if len(jobs) == 1:
                    raise
                # The store failed, and whose work was to blame is not known: each gets a transaction of its own.
                self._commit_each(jobs)
        except QueueError as error:
            _fail(jobs, error)
        except BaseException:
            # Ctrl-C in the thread that works for all: the others go on without it.
            self._line.extendleft(job for job in reversed(jobs) if not job.settled)
            raise

    def _commit_each(self, jobs: list[_Job[Any]]) -> None:
        for job in jobs:
            try:
                self._commit([job])
            except QueueError as error:
                _fail([job], error)

    def _commit(self, jobs: list[_Job[Any]]) -> None:
        commit = _Commit(self)
        committing = False
        addresses: list[str] = []
        self._files.enter_gate()
        try:
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            unit = SqlUnit(cursor, self._texts)
            for job in jobs:
                job.run(unit, cursor, alone=len(jobs) == 1)
            if any(job.error is None for job in jobs):
                addresses = unit.waiters(unit.arrivals) if unit.arrivals else addresses
                committing = True
                cursor.execute("COMMIT")
            _settle(jobs, commit)
        except sqlite3.Error as error:
            raise translate.from_sqlite(error, self.path) from error
        except KeyboardInterrupt:
            if committing and not self._connection.in_transaction:
                _settle(jobs, commit)
            raise
        finally:
            roll_back(self._connection)
            self._files.leave_gate()
        self.ring(addresses)

    def _outcome_unknown(self) -> QueueError:
        return SystemFailureError(
            f"device {self.path!r} failed to bring a commit to the disk ({self._lost}); its outcome is unknown",
            hint="Check the disk, then open the device again.",
            path=self.path,
        )

    def _check_usable(self) -> None:
        if self._closed:
            raise NotOpenError(f"device {self.path!r} is closed", path=self.path)
        if self._lost is not None:
            raise self._outcome_unknown()


class ReadOnlyVolume:
    """An SQLite file that this user may read and not write. Each read opens it afresh, which is not a hot path."""

    readonly = True

    def __init__(self, path: str) -> None:
        self.path = path
        self._texts = Texts(sqlite.DIALECT)

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work` in one database transaction that changes nothing."""
        with sqlite.reading(self.path) as connection:
            return read_once(connection, self._texts, self.path, work)

    def write(self, work: Callable[[Unit], T], *, durable: bool = True) -> T:
        """Refuse."""
        del work, durable
        raise self._refusal()

    def allocate_disk(self, pages: int, progress: Callable[[int], None]) -> None:
        """Refuse."""
        del pages, progress
        raise self._refusal()

    def bell(self) -> SocketBell:
        """Refuse."""
        raise self._refusal()

    def ring(self, addresses: Sequence[str]) -> None:
        """Do nothing: a reader brings no messages."""

    def wake(self) -> None:
        """Do nothing: a reader does not wait."""

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Refuse."""
        del space_id, role, now_us
        raise self._refusal()

    def release_owner(self, owner: Owner) -> None:
        """Do nothing: a reader has no file."""

    def is_alive(self, owner: Owner) -> bool:
        """Take everybody for alive: a reader may not probe."""
        del owner
        return True

    def same_boot(self, owner: Owner) -> bool:
        """Tell whether the machine has run without restart since the owner attached."""
        return same_boot(owner)

    def close(self) -> None:
        """Do nothing: nothing is kept open."""

    def _refusal(self) -> QueueError:
        return translate.read_only(self.path)


def read_once(connection: sqlite3.Connection, texts: Texts, path: str, work: Callable[[Unit], T]) -> T:
    """Run `work` in one database transaction that is rolled back."""
    cursor = connection.cursor()
    try:
        cursor.execute("BEGIN")
        return work(SqlUnit(cursor, texts))
    except sqlite3.Error as error:
        raise translate.from_sqlite(error, path) from error
    finally:
        roll_back(connection)


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what the connection has begun, if anything."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


class _RunFiles:
    """What a process that writes keeps open beside the database: gate, log, owners' locks, bells."""

    def __init__(self, path: str) -> None:
        self._gate: Gate | None = None
        self._log: int | None = None
        self._scratch: Path | None = None
        if path == sqlite.MEMORY:
            directory = self._scratch = Path(tempfile.mkdtemp(prefix="qmadmin-"))
            mode = sqlite.PRIVATE_MODE
        else:
            directory, mode = sqlite.make_run_directory(path)
            self._gate = Gate(directory / "gate", mode)
            # The log carries none of SQLite's locks, so it may be open here too; and it stays the same file as long
            # as our connection is open. Its name must be on the disk before the first commit is.
            self._log = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
            sqlite.sync_directory(path)
        self.owners = OwnerFiles(directory, mode)
        self.belfry = Belfry(directory)

    def enter_gate(self) -> None:
        """Wait until no other process writes."""
        if self._gate is not None:
            self._gate.enter()

    def leave_gate(self) -> None:
        """Let the next process write."""
        if self._gate is not None:
            self._gate.leave()

    def sync_log(self) -> None:
        """Bring the write-ahead log to the disk."""
        if self._log is not None:
            _sync(self._log)

    def close(self) -> None:
        """Give all of it up."""
        self.owners.close()
        self.belfry.close()
        if self._gate is not None:
            self._gate.close()
        if self._log is not None:
            os.close(self._log)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


_sync = getattr(os, "fdatasync", os.fsync)


class _Commit:
    """One commit, and the sync that all who took part in it share."""

    def __init__(self, volume: SqliteVolume) -> None:
        self._volume = volume
        self._lock = threading.Lock()
        self._synced = False

    def sync(self) -> None:
        """Return when the commit is on the disk."""
        with self._lock:
            if not self._synced:
                self._volume.sync()
                self._synced = True


class _Job(Generic[T]):
    """Work that stands in line, and what became of it."""

    __slots__ = ("_result", "_work", "commit", "error", "settled")

    def __init__(self, work: Callable[[Unit], T]) -> None:
        self._work = work
        self._result: T
        self.error: Exception | None = None
        self.commit: _Commit | None = None
        self.settled = False

    def run(self, unit: SqlUnit, cursor: sqlite3.Cursor, *, alone: bool) -> None:
        """Do the work; a refusal undoes it and nothing else. Errors of the store are raised: they end them all."""
        self.error = None
        if not alone:
            cursor.execute("SAVEPOINT job")
        try:
            self._result = self._work(unit)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - whoever asked for the work gets it
            self.error = error
            if not alone:
                cursor.execute("ROLLBACK TO job")
        if not alone:
            cursor.execute("RELEASE job")

    def outcome(self) -> T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._result


def _settle(jobs: list[_Job[Any]], commit: _Commit) -> None:
    for job in jobs:
        if job.error is None:
            job.commit = commit
        job.settled = True


def _fail(jobs: list[_Job[Any]], error: QueueError) -> None:
    for job in jobs:
        if not job.settled:
            # One of its own for each: an exception that several threads raise mixes up their tracebacks.
            job.error = copy.copy(error)
            job.error.__cause__ = error.__cause__
            job.settled = True


def _ours(unit: Unit) -> SqlUnit:
    assert isinstance(unit, SqlUnit)  # noqa: S101 - the volume made it
    return unit
