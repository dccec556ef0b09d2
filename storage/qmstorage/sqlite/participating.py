"""An SQLite file of an application that takes part in a transaction over several resources: it always decides."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from qmcore.application_database import TABLE
from qmcore.errors import AbortedError, OperatingSystemError, OutcomeUnknownError, ProtocolError, QueueError
from qmstorage import participants
from qmstorage.participating_connections import has_begun
from qmstorage.sqlite import files, translate
from qmstorage.sqlite.joining import FULL, begins_late, cursor_of

if TYPE_CHECKING:
    from qmcore.port import Volume
    from qmcore.xid import Xid

T = TypeVar("T")

_LOCK_MILLISECONDS: Final = 1000
"""How long others are waited for, beside the application's own transaction."""
_MARK: Final = "qmadmin_transaction"
_CANNOT_PREPARE: Final = "an SQLite file cannot prepare a transaction"
_HAS_TABLE: Final = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{TABLE}'"  # noqa: S608


class Participant(participants.Participant):
    """An SQLite file."""

    _journal = ""
    _has_written = False

    integrity_error = sqlite3.IntegrityError

    def refuse_closed(self) -> None:
        """Refuse a connection that is closed, of another thread, or in a transaction."""
        driver = self._driver
        if isinstance(driver, sqlite3.Connection):
            with cursor_of(driver):
                # Since Python 3.12 there may be one from the beginning on.
                if driver.in_transaction and begins_late(driver):
                    raise has_begun()

    def identify(self) -> None:
        """Learn which file it is, and whether a commit is on the disk."""
        driver = self._driver
        with cursor_of(driver) as cursor:
            by_itself = driver.isolation_level is None and not driver.in_transaction
            if by_itself or getattr(driver, "autocommit", None) is True:
                raise participants.refuse_automatic()
            file = next((row[2] for row in cursor.execute("PRAGMA database_list") if row[1] == "main"), "")
            (level,) = cursor.execute("PRAGMA synchronous").fetchone()
            (self._journal,) = cursor.execute("PRAGMA journal_mode").fetchone()
        self.name = file or files.MEMORY
        if not file:
            self.cannot_decide = "a database in memory is gone with its process"
        elif level < FULL:
            self.cannot_decide = f"its commits need not be on the disk (PRAGMA synchronous is {level}, not FULL)"
        elif self._journal in ("memory", "off"):
            self.cannot_decide = f"what it has half written cannot be undone (PRAGMA journal_mode is {self._journal})"

    def begin_marked(self) -> None:
        """Begin the transaction with a savepoint in it, which no other one has."""
        driver = self._driver
        with cursor_of(driver) as cursor:
            if driver.in_transaction and getattr(driver, "autocommit", None) is not False:
                # A library has begun one. What reads in it would have it see no later than now, and unable to write
                # once others have: so that is for the application to begin.
                cursor.execute("ROLLBACK")
            self._known = _state(cursor)
            if not driver.in_transaction:
                cursor.execute(f"BEGIN {driver.isolation_level or ''}")
            cursor.execute(f"SAVEPOINT {_MARK}")
            self._changes = driver.total_changes

    def is_marked(self) -> bool:
        """Return whether the savepoint is there; it is not any more after that."""
        try:
            self.run(f"RELEASE {_MARK}")
        except sqlite3.OperationalError:
            return False
        return self._driver.in_transaction

    def has_written(self) -> bool:
        """Return whether a row or a table was changed. Bodies that are written by `blobopen` are not seen."""
        with cursor_of(self._driver) as cursor:
            _refuse_attached(self.name, cursor)
            self._has_written = self._driver.total_changes != self._changes or _state(cursor) != self._known
        return self._has_written

    def is_of(self, volume: Volume) -> bool:
        """Return whether it is the file of a volume."""
        with contextlib.suppress(OSError):
            return Path(self.name).samefile(volume.path)
        return False

    def has_table(self) -> bool:
        """Return whether there is a table of decisions."""
        return bool(self.run(_HAS_TABLE))

    def properties(self) -> tuple[str, str]:
        """Return what no copy of the file has, and why it cannot prepare."""
        return files.instance(self.name, ""), _CANNOT_PREPARE

    def prepare(self, xid: Xid) -> None:
        """Refuse."""
        raise AssertionError(f"{xid}: {_CANNOT_PREPARE}")

    def end_prepared(self, xid: Xid, *, commits: bool) -> None:
        """There is none."""

    def prepared(self) -> list[tuple[Xid, float | None]]:
        """Return nothing."""
        return []

    @property
    def _driver(self) -> sqlite3.Connection:
        return self._its.driver  # type: ignore[no-any-return]

    def run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with cursor_of(self._driver) as cursor:
            return cursor.execute(statement, values).fetchall()

    def commit(self) -> None:
        """Commit the transaction, on the disk."""
        try:
            super().commit()
        except QueueError as error:
            cause = error.__cause__
            if self._driver.in_transaction or (isinstance(cause, sqlite3.Error) and translate.is_blocked(cause)):
                # Others kept it from beginning to write: it is still open, also where the library takes it for over.
                self.let_go()
                raise AbortedError(f"database {self.name!r} has not committed: {cause}", hint=error.hint) from error
            raise
        if self._has_written:
            self.sync_committed()

    def sync_committed(self) -> None:
        """Bring what was committed to the disk, where that does not do it by itself."""
        if self._journal != "delete":
            return
        # SQLite does not sync the directory from which a commit removes the journal: one that a failure of the machine
        # brings back undoes it.
        try:
            self._sync(files.sync_directory)
        except OperatingSystemError as error:
            raise OutcomeUnknownError(
                f"database {self.name!r} has committed, and whether that is on the disk is unknown: {error.message}",
                hint="Look whether it is there after the next failure of the machine, before all of it is run again.",
            ) from error

    def alone(self, work: Callable[[], T]) -> T:
        """Do a work in a transaction of its own, which is committed, on the disk, with all that it has seen."""
        driver = self._driver

        def do() -> T:
            if driver.in_transaction and begins_late(driver):
                # A library has begun one, in which nothing is done yet.
                driver.rollback()
            ((patience,),) = self.run("PRAGMA busy_timeout")
            try:
                # Nobody's call waits long for others, and what is only read waits for nobody.
                self.run(f"PRAGMA busy_timeout = {min(patience, _LOCK_MILLISECONDS)}")
                if not driver.in_transaction:
                    self.run("BEGIN")
                result = work()
                driver.commit()
            except BaseException:
                driver.rollback()
                raise
            finally:
                self.run(f"PRAGMA busy_timeout = {patience}")
            return result

        result = self.do(do)
        self._sync(_bring_to_disk)
        return result

    def _sync(self, sync: Callable[[str], None]) -> None:
        if self.name == files.MEMORY:
            return
        try:
            sync(self.name)
        except OSError as error:
            raise translate.from_os(error, "syncing database", self.name) from error

    def do(self, work: Callable[[], T]) -> T:
        """Do a work, whose errors of the database are raised as ours."""
        try:
            return work()
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    def _refusal(self, error: sqlite3.Error) -> QueueError:
        if isinstance(error, sqlite3.IntegrityError):
            return AbortedError(f"the database {self.name!r} has refused the transaction: {error}")
        kind = type(translate.from_sqlite(error, self.name))
        blocked = translate.is_blocked(error)
        hint = "Look for a program that has the file open in a transaction." if blocked else ""
        return kind(f"database {self.name!r} failed: {error}", hint=hint, path=self.name, blocked=blocked)


def _state(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    """Return what changes beside rows."""
    return [cursor.execute(f"PRAGMA {name}").fetchone() for name in ("schema_version", "user_version")]


def _bring_to_disk(path: str) -> None:
    """Have on the disk what is committed, by whomever: who has committed it may have been killed before it was synced.

    Others rely on what is read here, on other disks.
    """
    for end in ("-wal", "-journal"):
        files.sync_beside(f"{path}{end}")
    files.sync_directory(path)


def _refuse_attached(name: str, cursor: sqlite3.Cursor) -> None:
    """Refuse further files on the connection: a commit is whole in each of them, and not over all."""
    others = [row[1] for row in cursor.execute("PRAGMA database_list") if row[1] not in ("main", "temp")]
    if others:
        raise ProtocolError(
            f"database {name!r} has others attached ({', '.join(others)}), and a failure of the machine could leave the"
            " commit in one file and not in the other one",
            hint="Detach them, or give a connection to each file.",
        )
