"""What a process that writes to a volume keeps open beside the database: gate, handoff, log, locks, wake-ups."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path

from qmcore.errors import NotOpenError, OutcomeUnknownError, SystemFailureError
from qmcore.probe import Point, Probe
from qmstorage.sqlite import files
from qmstorage.sqlite.handoff import Handoff, open_handoff
from qmstorage.sqlite.owner_files import OwnerFiles
from qmstorage.sqlite.wakeups import Wakeups
from qmstorage.sqlite.writer_gate import HousekeepingTurns, Surroundings, WriterGate

_sync = getattr(os, "fdatasync", os.fsync)

LONG = 64 * 1024 * 1024
"""Bytes from which on a log is to be written from its beginning again."""

_PATIENCE_SECONDS, _PATIENCE_MOST = 0.03, 0.5
"""Seconds to wait for readers then, while nobody can write: for each `LONG`, and at most."""

_PAUSE = 30
"""How many times that long to pause after an attempt that readers prevented."""

_CLOSED = -1
"""The descriptor of a log that was closed."""


class Log:
    """SQLite's write-ahead log, which we sync ourselves, after the writer gate is open again.

    The log is a checksummed sequence: one sync covers every commit that was written before it. It carries none of
    SQLite's locks, so that it may be opened and closed here, and it stays the same file while a connection is open.
    """

    def __init__(self, path: str, probe: Probe, *, durable: bool) -> None:
        self._path = path
        self._probe = probe
        self._durable = durable
        self._fd = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self.written = 0
        """The number of the last commit that was written."""
        self._synced = 0
        self.lost: OSError | None = None
        """Why a commit could not be synced, after which the volume is refused."""
        self._leave_until = 0.0
        try:
            # Its name must be on the disk before the first commit is.
            files.sync_directory(path)
        except OSError:
            os.close(self._fd)
            raise

    def note_commit(self) -> int:
        """Count a commit that was written; the caller is the only writer."""
        self.written += 1
        return self.written

    def has(self, commit: int) -> bool:
        """Return whether a commit is on the disk, or need not be."""
        return self._synced >= commit or not self._durable

    def sync(self, commit: int, *, always: bool = False) -> None:
        """Return once a commit is on the disk. Threads that come while one syncs are often served by the next sync.

        Where commits need not be there, only one that is to be there `always` is synced.
        """
        if self._synced >= commit or not (self._durable or always):
            return
        with self._lock:
            if self.lost is not None:
                self._refuse_lost(unknown=True)
            if self._fd == _CLOSED:
                raise NotOpenError(f"device {self._path!r} is closed", path=self._path)
            if self._synced >= commit:
                return
            reached = self.written
            try:
                if self._probe.actions:
                    self._probe.reach(Point.BEFORE_SYNC, reached)
                _sync(self._fd)
            except OSError as error:
                # The kernel may have dropped the pages that it could not write: a second try would report success
                # for what is lost.
                self.lost = error
                self._refuse_lost(unknown=True)
            self._synced = reached
            if self._probe.actions:
                self._probe.reach(Point.AFTER_SYNC, reached)

    def keep_short(self, connection: sqlite3.Connection) -> None:
        """Restart a long log from its beginning, if readers allow it soon; the caller is the only writer.

        SQLite checkpoints it with each commit that finds much there, but writes it from the beginning again only where
        no reader uses it in the moment of a commit: with readers that overlap it grows and grows.
        """
        if os.fstat(self._fd).st_size <= LONG or time.monotonic() < self._leave_until:
            return
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        _, frames, _ = connection.execute("PRAGMA main.wal_checkpoint(PASSIVE)").fetchone()
        if frames * page_size > LONG:
            patience = min(frames * page_size / LONG * _PATIENCE_SECONDS, _PATIENCE_MOST)
            with files.patience(connection, patience):
                connection.execute("PRAGMA main.wal_checkpoint(RESTART)").fetchone()
            self._leave_until = time.monotonic() + _PAUSE * patience

    def check(self) -> None:
        """Refuse to go on after a commit could not be synced."""
        self._refuse_lost(unknown=False)

    def _refuse_lost(self, *, unknown: bool) -> None:
        """Refuse; `unknown`: the outcome of the caller's own commit is unknown."""
        if self.lost is not None:
            kind = OutcomeUnknownError if unknown else SystemFailureError
            raise kind(
                f"device {self._path!r} failed to bring a commit to the disk ({self.lost}); its outcome is unknown",
                hint="Check the disk, then open the device again.",
                path=self._path,
            ) from self.lost

    def checkpoint_orphaned(self, connection: sqlite3.Connection) -> None:
        """Checkpoint a log whose file has lost its name, which SQLite does not do by itself then.

        Nothing is done where others still have the file open: the last of them does it.
        """
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA journal_mode = DELETE")

    def discard(self, connection: sqlite3.Connection) -> None:
        """Truncate the log where another has replaced it: SQLite would checkpoint it, and remove the other one.

        It does neither where it cannot read the log.
        """
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("UPDATE device SET main = main")
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Sync what was written, and close the log."""
        try:
            self.sync(self.written)
        finally:
            with self._lock:
                self._let_go()

    def abandon(self) -> None:
        """Close the descriptor that a fork has inherited."""
        self._let_go()

    def _let_go(self) -> None:
        # The number soon is that of another file, which a later sync would take for this one.
        fd, self._fd = self._fd, _CLOSED
        os.close(fd)


class WriterResources:
    """Writer gate, handoff, log, turns, owners' locks, wake-ups; a volume in memory has a directory for the latter."""

    def __init__(self, path: str, probe: Probe, *, durable: bool) -> None:
        self.probe = probe
        self.gate: WriterGate | None = None
        self.handoff: Handoff | None = None
        self.log: Log | None = None
        self._scratch: Path | None = None
        if path == files.MEMORY:
            import tempfile

            self._scratch = Path(tempfile.mkdtemp(prefix="qmadmin-"))
            around = Surroundings(self._scratch, files.PRIVATE_MODE, os.geteuid(), os.getegid())
        else:
            around = files.surroundings(path)
        self.owners = OwnerFiles(around)
        self.turns = HousekeepingTurns(around)
        with contextlib.ExitStack() as undo:
            # There may be too few descriptors for all of them.
            self.wakeups = undo.enter_context(contextlib.closing(Wakeups(around, path)))
            if path != files.MEMORY:
                undo.callback(self._close_gate_and_handoff)
                self.gate = WriterGate(around, path)
                self.handoff = open_handoff(around, path)
                self.log = Log(path, probe, durable=durable)
            undo.pop_all()

    def close(self) -> None:
        """Close all of it."""
        self.owners.close()
        self.turns.close()
        self.wakeups.close()
        self._close_gate_and_handoff()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _close_gate_and_handoff(self) -> None:
        if self.handoff is not None:
            self.handoff.close()
            # Its memory is freed by the thread that is just telling others that their works are done.
            self.handoff = None
        if self.gate is not None:
            self.gate.close()

    def abandon(self) -> None:
        """Close what a fork has inherited, without touching what belongs to the parent."""
        self.owners.abandon()
        self.turns.close()
        self.wakeups.abandon()
        if self.handoff is not None:
            self.handoff.abandon()
        if self.gate is not None:
            self.gate.close()
        if self.log is not None:
            self.log.abandon()
