"""Working in a transaction of the application's own, on its connection to the same SQLite file.

What is enqueued or dequeued stands or falls with that transaction. Waiters are woken, and capacity commands run, once
it is committed.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from qmcore.errors import InvalidArgumentError, ProtocolError, QueueError, TransactionStartError
from qmcore.port import Unit
from qmcore.purpose import Purpose
from qmstorage import joined
from qmstorage.notifications import Notifications
from qmstorage.sqlite import translate
from qmstorage.sqlite.unit import SqliteUnit
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from qmstorage.sqlite.volume import SqliteVolume

T = TypeVar("T")

_FULL = 2
"""PRAGMA synchronous: each commit is synced."""

_NOTHING = "UPDATE device SET main = main WHERE false"
"""Changes nothing, and waits until this transaction has the write lock."""

_PAUSE = 0.002
"""Seconds between two attempts to get a lock that another has."""

_LEGACY = -1
"""The driver's `autocommit` where it is neither on nor off, which is all that there was before Python 3.12."""


def write_on(volume: SqliteVolume, texts: Texts, connection: object, work: Callable[[Unit], T]) -> T:
    """Run `work` in the transaction of a SQLAlchemy connection to the file of the volume."""
    connection = joined.checked(connection)
    driver = _driver_of(connection, volume.path)
    transaction = volume.joined_transactions.get(connection)
    if transaction is None:
        transaction = volume.joined_transactions[connection] = ApplicationTransaction(connection, volume)
        volume.was_joined = True
    cursor = driver.cursor()
    try:
        _begin(connection, driver, cursor, transaction)
        unit = SqliteUnit(cursor, texts, elsewhere=volume.memory_levels())
        unit.clock, unit.purpose = volume.clock, Purpose.MESSAGES
        result = _in_savepoint(driver, cursor, lambda: work(unit))
    except sqlite3.Error as error:
        raise _refusal(error, volume.path) from error
    finally:
        cursor.close()
    transaction.note(unit)
    return result


def after_commit(volume: SqliteVolume, on: object, action: Callable[[], None]) -> None:
    """Run an action once the application has committed the transaction that is joined; at once without one."""
    if on is None:
        action()
    else:
        volume.joined_transactions[joined.checked(on)].add(action)


def _begin(
    connection: Connection, driver: sqlite3.Connection, cursor: sqlite3.Cursor, transaction: ApplicationTransaction
) -> None:
    """Make the driver begin a transaction where SQLAlchemy has begun one and the driver would do so late."""
    begun = None if connection.in_transaction() else connection.begin()
    if not (driver.in_transaction or _begins_late(driver)):
        if begun is not None:
            begun.rollback()
        raise joined.commits_by_itself()
    if not driver.in_transaction:
        _in_turn(cursor, "BEGIN IMMEDIATE")
        transaction.has_begun = True
    elif connection.in_nested_transaction() and not transaction.has_begun and _begins_late(driver):
        raise InvalidArgumentError(
            "the connection is inside a SAVEPOINT, and its driver may not have begun the transaction around it,"
            " which would be committed at the end of the SAVEPOINT",
            hint="Have SQLAlchemy begin transactions by events, as its documentation says for SAVEPOINT with pysqlite.",
        )
    else:
        _in_turn(cursor, _NOTHING)
    transaction.thread = threading.get_ident()


def _in_turn(cursor: sqlite3.Cursor, statement: str) -> None:
    """Take the write lock, which SQLite does not wait for in a transaction that has read before."""
    end = time.monotonic() + translate.BUSY_SECONDS
    while True:
        try:
            cursor.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        else:
            return
        time.sleep(_PAUSE)


def _begins_late(driver: sqlite3.Connection) -> bool:
    """Return whether the driver begins transactions by itself, before INSERT and the like and not before SAVEPOINT."""
    return driver.isolation_level is not None and getattr(driver, "autocommit", _LEGACY) == _LEGACY


def _in_savepoint(driver: sqlite3.Connection, cursor: sqlite3.Cursor, work: Callable[[], T]) -> T:
    """Do the work; if it raises, it is undone, and nothing else of the transaction."""
    cursor.execute("SAVEPOINT qmadmin")
    try:
        return work()
    except BaseException:
        # Some errors end the whole transaction, the application's part included.
        if driver.in_transaction:
            cursor.execute("ROLLBACK TO qmadmin")
        raise
    finally:
        if driver.in_transaction:
            cursor.execute("RELEASE qmadmin")


def _refusal(error: sqlite3.Error, path: str) -> QueueError:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return TransactionStartError(
            f"the transaction of the application has read from {path!r}, others have written since, and it can no"
            f" longer write",
            hint="Roll it back and begin again, with BEGIN IMMEDIATE or with the call that writes.",
            path=path,
        )
    return translate.from_sqlite(error, path)


def is_in_transaction(connection: object) -> bool:
    """Return whether the driver of a connection has begun a transaction, and may have the file for itself."""
    ours = joined.opened(connection)
    if ours is None:
        return False
    return bool(getattr(ours.connection.driver_connection, "in_transaction", False))


def would_wait_for_itself(path: str) -> QueueError:
    """Return the diagnostic for a write beside the application's transaction, by the thread that has to end it."""
    return ProtocolError(
        f"this thread has a transaction of its own open on {path!r}, for whose end another write would wait",
        hint="Let the call join it with connection=, or commit it first.",
        path=path,
    )


def _driver_of(connection: Connection, path: str) -> sqlite3.Connection:
    driver: Any = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        raise InvalidArgumentError(f"the connection leads to {connection.dialect.name}, the device is an SQLite file")
    file = next((row[2] for row in driver.execute("PRAGMA database_list") if row[1] == "main"), "")
    if not file or not Path(file).samefile(path):
        raise InvalidArgumentError(
            f"the connection leads to {file or 'a database in memory'!r}, the queue space is on {path!r}",
            hint="Keep the tables of the application in the same file, or use a transaction of the queue space.",
            path=path,
        )
    (level,) = driver.execute("PRAGMA synchronous").fetchone()
    if level < _FULL:
        raise InvalidArgumentError(
            f"the connection to {path!r} does not bring each commit to the disk (PRAGMA synchronous is {level})",
            hint="Execute PRAGMA synchronous=FULL when the connection is made.",
            path=path,
        )
    return driver


class ApplicationTransaction:
    """A transaction of the application: what is to be done when it commits, forgotten when it rolls back."""

    def __init__(self, connection: Connection, volume: SqliteVolume) -> None:
        self._volume = volume
        self._notifications = Notifications()
        self._actions: list[Callable[[], None]] = []
        self.thread: int | None = None
        """The thread that has worked in a transaction which is still open."""
        self.has_begun = False
        """Whether we made the driver begin the transaction."""
        from sqlalchemy import event

        event.listen(connection, "commit", self._committing)
        event.listen(connection, "rollback", self._rolled_back)

    def note(self, unit: SqliteUnit) -> None:
        """Remember what a unit has to have done once it is committed."""
        self._notifications.add(unit.notifications)
        self._actions += unit.actions

    def add(self, action: Callable[[], None]) -> None:
        """Remember what else is to be done then."""
        self._actions.append(action)

    def _committing(self, _: Connection) -> None:
        its = notifications, actions = self._notifications, self._actions
        self._forget()
        if notifications.turns or actions:
            # The event comes before the commit. A write of ours waits until the application has released the file.
            threading.Thread(target=self._after, args=its, name="qmadmin-follow", daemon=True).start()

    def _rolled_back(self, _: Connection) -> None:
        self._forget()

    def _forget(self) -> None:
        self._notifications, self._actions = Notifications(), []
        self.thread, self.has_begun = None, False

    def _after(self, notifications: Notifications, actions: list[Callable[[], None]]) -> None:
        def tell(unit: Unit) -> None:
            assert isinstance(unit, SqliteUnit)  # noqa: S101 - the volume made it
            unit.notifications.add(notifications)

        try:
            self._volume.write(tell, Purpose.TIDY)
            for action in actions:
                action()
        except QueueError:
            # Waiters check by themselves within a second, and housekeeping starts what was claimed.
            return


ApplicationTransactions: TypeAlias = weakref.WeakKeyDictionary["Connection", ApplicationTransaction]
