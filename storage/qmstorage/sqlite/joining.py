"""Working in a transaction of the application's own, on its connection to the same SQLite file.

What is enqueued or dequeued stands or falls with that transaction. Waiters are woken, and capacity commands run, once
it is committed, as far as the library of the connection tells that.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from qmcore.callers import caller, kind_of_caller
from qmcore.errors import InvalidArgumentError, ProtocolError, QueueError, TransactionStartError
from qmcore.port import Unit
from qmcore.purpose import Purpose
from qmstorage import application_connections, application_transactions, joined
from qmstorage.after_commit import Owed
from qmstorage.application_transactions import ApplicationTransaction
from qmstorage.joined import Joined
from qmstorage.notifications import Notifications
from qmstorage.sqlite import files, translate
from qmstorage.sqlite.unit import SqliteUnit, ours, roll_back
from qmstorage.statements import Texts
from qmstorage.texts import BODY_HOLDS

if TYPE_CHECKING:
    from qmstorage.sqlite.volume import SqliteVolume

T = TypeVar("T")

FULL = 2
"""PRAGMA synchronous: each commit is synced."""

_NOTHING = "UPDATE device SET main = main WHERE false"
"""Changes nothing, and waits until this transaction has the write lock."""

_PAUSE = 0.002
"""Seconds between two attempts to get a lock that another has."""

_LOOK_SECONDS = 0.02
"""How long a look may take whether the file is free: others in this process may be about to let it go."""

PATIENCE_SECONDS = 1.0
"""Who has the file for longer is taken for this thread's own transaction, where it has worked in one."""

_LEGACY = -1
"""The driver's `autocommit` where it is neither on nor off, which is all that there was before Python 3.12."""

_DECLARED = {"BIGINT", "BLOB", "BOOLEAN", "INTEGER", "SMALLINT", "TEXT"}
_OF_EACH_TYPE = (
    "SELECT device.created_at, message.order_key, device.main, device.page_size, message.priority, device.id"
    " FROM device, message WHERE false UNION ALL SELECT 1, x'31', 1, 1, 1, '1'"
)
_HAS_FUNCTIONS = f"SELECT {BODY_HOLDS}(NULL, NULL) WHERE false"
_READ_AS_IT_IS = (1, b"1", 1, 1, 1, "1")


def write_on(volume: SqliteVolume, texts: Texts, connection: object, work: Callable[[Unit], T]) -> T:
    """Run `work` in the transaction of an application's connection to the file of the volume."""
    its = application_connections.found(connection)
    driver = _driver_of(its)
    transaction = volume.joined_transactions.of(its)
    undo, is_needed = its.begin(), False
    try:
        unit, result, is_needed = its.call(lambda: _done(volume, texts, its, transaction, work, begun=undo is not None))
    finally:
        if undo is not None and not is_needed:
            # It was begun for this call, which has changed nothing.
            undo()
    if driver.in_transaction:
        volume.was_joined = True
        transaction.caller = caller()
        transaction.owe(unit.notifications, unit.actions)
        its.await_commit(transaction)
    return result


def _done(
    volume: SqliteVolume,
    texts: Texts,
    its: Joined,
    transaction: ApplicationTransaction,
    work: Callable[[Unit], T],
    *,
    begun: bool,
) -> tuple[SqliteUnit, T, bool]:
    """Do the work; return also whether it has changed anything. `begun`: the library has, and undoes it."""
    driver = its.driver
    with cursor_of(driver) as cursor:
        try:
            _check_place(cursor, volume.path)
            _give_functions(cursor)
            before = driver.total_changes
            with _begun(its, cursor, transaction, begun=begun):
                unit = SqliteUnit(cursor, texts, elsewhere=volume.memory_levels())
                unit.clock, unit.purpose = volume.clock, Purpose.MESSAGES
                result = _in_savepoint(driver, cursor, lambda: work(unit))
                if unit.notifications.turns and not unit.wakeups_to_send():
                    # Nobody can begin to wait before this transaction ends: that takes a write.
                    unit.notifications.turns.clear()
            return unit, result, driver.total_changes != before
        except sqlite3.Error as error:
            raise _refusal(error, volume.path) from error


def after_commit(volume: SqliteVolume, on: object, action: Callable[[], None]) -> None:
    """Run an action once the application has committed the transaction that is joined; at once without one."""
    if on is None:
        action()
    else:
        its = application_connections.found(on)
        transaction = volume.joined_transactions.of(its)
        transaction.owe_action(action)
        its.await_commit(transaction)


@contextlib.contextmanager
def _begun(its: Joined, cursor: sqlite3.Cursor, transaction: ApplicationTransaction, *, begun: bool) -> Iterator[None]:
    """Have the driver begin the transaction; where no library has `begun` it and nothing is changed, it is undone."""
    driver, is_needed = its.driver, begun
    before = driver.total_changes
    try:
        if driver.in_transaction:
            is_needed = True
            if its.is_in_savepoint and not transaction.driver_begun_by_us and begins_late(driver):
                raise InvalidArgumentError(
                    "the connection is inside a SAVEPOINT, and its driver may not have begun the transaction around it,"
                    " which would be committed at the end of the SAVEPOINT",
                    hint="Have SQLAlchemy begin transactions by events, as its documentation says for SAVEPOINT with"
                    " pysqlite.",
                )
            _in_turn(cursor, _NOTHING)
        elif begins_late(driver):
            _in_turn(cursor, "BEGIN IMMEDIATE")
            transaction.driver_begun_by_us = True
        else:
            is_needed = True
            raise joined.commits_by_itself()
        yield
        is_needed = is_needed or driver.total_changes != before
    finally:
        if not is_needed:
            # It begins once more when it has to.
            roll_back(driver)
            transaction.driver_begun_by_us = False


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


def begins_late(driver: sqlite3.Connection) -> bool:
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
    return _has_begun(application_connections.driver_of(connection))


def _has_begun(driver: object) -> bool:
    try:
        return bool(getattr(driver, "in_transaction", False))
    except (sqlite3.ProgrammingError, ValueError):
        # It is closed, which aiosqlite says with the latter.
        return False


def would_wait_for_itself(path: str) -> QueueError:
    """Return the diagnostic for a write beside the application's transaction, by the thread that has to end it."""
    return ProtocolError(
        f"this {kind_of_caller()} has a transaction of its own open on {path!r}, for whose end another write"
        " would wait",
        hint="Let the call join it with connection=, or commit it first.",
        path=path,
    )


def _driver_of(its: Joined) -> sqlite3.Connection:
    """Return the driver's connection; refuse one that is not of SQLite, is closed, or is of another thread."""
    if not isinstance(its.driver, sqlite3.Connection):
        raise joined.elsewhere(its, "an SQLite file", "Keep the tables of the application in that file.")
    driver: sqlite3.Connection = its.driver
    if driver is its.original:
        _cursor(driver).close()
    return driver


def _cursor(driver: sqlite3.Connection) -> sqlite3.Cursor:
    try:
        # It can be asked for from any thread.
        _ = driver.total_changes
    except sqlite3.ProgrammingError as error:
        raise joined.closed() from error
    try:
        return sqlite3.Cursor(driver)
    except sqlite3.ProgrammingError as error:
        raise joined.of_another_thread("the connection") from error


@contextlib.contextmanager
def cursor_of(driver: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Give a cursor of ours, whatever kind of rows and texts the application has chosen for its connection."""
    cursor = _cursor(driver)
    texts, driver.text_factory = driver.text_factory, str
    try:
        yield cursor
    finally:
        driver.text_factory = texts
        cursor.close()


def _check_place(cursor: sqlite3.Cursor, path: str) -> None:
    """Refuse a connection to another file, one whose commits may be lost, and one that reads values otherwise."""
    file = next((row[2] for row in cursor.execute("PRAGMA database_list") if row[1] == "main"), "")
    if not file or not Path(file).samefile(path):
        raise InvalidArgumentError(
            f"the connection leads to {file or 'a database in memory'!r}, the queue space is on {path!r}",
            hint="Keep the tables of the application in the same file, or use a transaction of the queue space.",
            path=path,
        )
    (level,) = cursor.execute("PRAGMA synchronous").fetchone()
    if level < FULL:
        raise InvalidArgumentError(
            f"the connection to {path!r} does not bring each commit to the disk (PRAGMA synchronous is {level})",
            hint="Execute PRAGMA synchronous=FULL when the connection is made.",
            path=path,
        )
    if changed := _DECLARED & sqlite3.converters.keys():
        found = cursor.execute(_OF_EACH_TYPE).fetchone()
        if [*map(repr, found)] != [*map(repr, _READ_AS_IT_IS)]:
            raise InvalidArgumentError(
                f"the connection to {path!r} converts what it reads from columns of type {', '.join(sorted(changed))}",
                hint="Make the connection without detect_types, or register the converters under names of their own.",
                path=path,
            )


def _give_functions(cursor: sqlite3.Cursor) -> None:
    """Give the connection our functions, once: to do it again is refused while a statement of the application runs."""
    try:
        cursor.execute(_HAS_FUNCTIONS)
    except sqlite3.OperationalError:
        files.give_functions(cursor.connection)


class ApplicationTransactions(application_transactions.ApplicationTransactions):
    """The transactions of applications on the file of a volume."""

    def __init__(self, volume: SqliteVolume) -> None:
        super().__init__()
        self._volume = volume

    def is_open(self, transaction: ApplicationTransaction) -> bool:
        """Return whether it has not ended, or nobody can write for a while: one that was joined has the lock."""
        if transaction.driver is not None:
            if not _has_begun(transaction.driver()):
                return False
            if transaction.is_open_to_its_library:
                return True
        # It is not known, or the connection may be in another one by now.
        end = time.monotonic() + PATIENCE_SECONDS
        while not self._volume.comes_free(_LOOK_SECONDS):
            if time.monotonic() > end:
                return True
        return False

    def is_in_progress(self, owed: Owed) -> bool:
        """Return whether nobody can write just now; the write that wakes waiters waits for a commit itself."""
        wakes_behind_it = owed.is_committing and owed.notifications.turns
        return not wakes_behind_it and not self._volume.comes_free(_LOOK_SECONDS)

    def wake(self, notifications: Notifications) -> None:
        """Wake the waiters, once the commit is through: until then nobody else can write."""
        self._volume.write(lambda unit: ours(unit).notifications.add(notifications), Purpose.TIDY)
