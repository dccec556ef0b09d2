"""Working in a transaction of the application's own, on its connection to the same database.

What is enqueued or dequeued stands or falls with that transaction. The server notifies waiters when it is committed;
capacity commands run then.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row

from qmcore.errors import InvalidArgumentError, ProtocolError, QueueError
from qmcore.port import Unit
from qmcore.purpose import Purpose
from qmstorage import joined
from qmstorage.postgres import counter_slots, keys, translate
from qmstorage.postgres.sessions import our_types
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from qmstorage.postgres.unit import PostgresUnit
    from qmstorage.postgres.volume import PostgresVolume

T = TypeVar("T")

_SAVEPOINT = "qmadmin"
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 1.0
"""Seconds between two checks whether a transaction of the application has ended, at first and at last."""


def write_on(volume: PostgresVolume, connection: object, work: Callable[[Unit], T]) -> T:
    """Run `work` in the transaction of a SQLAlchemy connection to the database of the volume."""
    connection = joined.checked(connection)
    driver = _driver_of(connection)
    if not connection.in_transaction():
        connection.begin()
    transaction = volume.joined_transactions.of(connection, volume)
    try:
        if not transaction.is_checked:
            _check_place(driver, volume)
            transaction.is_checked = True
        unit, result = _in_savepoint(driver, volume, work)
    except psycopg.Error as error:
        raise translate.from_psycopg(error, volume.path, joined=True) from error
    transaction.note(unit)
    return result


def after_commit(volume: PostgresVolume, on: object, action: Callable[[], None]) -> None:
    """Run an action once the application has committed the transaction that is joined; at once without one."""
    if on is None:
        action()
    else:
        volume.joined_transactions.of(joined.checked(on), volume).add(action)


def is_in_transaction(connection: object) -> bool:
    """Return whether the driver of a connection has begun a transaction."""
    ours = joined.opened(connection)
    if ours is None:
        return False
    driver: Any = ours.connection.driver_connection
    info = getattr(driver, "info", None)
    return info is not None and info.transaction_status != TransactionStatus.IDLE


def would_wait_for_itself(path: str) -> QueueError:
    """Return the diagnostic for work beside the application's transaction, by the thread that has to end it."""
    return ProtocolError(
        f"this thread has a transaction of its own open on {path!r}, for whose end this would wait",
        hint="Let the call join it with connection=, or commit it first.",
        path=path,
    )


def _driver_of(connection: Connection) -> psycopg.Connection[Any]:
    driver: Any = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise InvalidArgumentError(
            f"the connection leads to {connection.dialect.name} through {connection.dialect.driver}, the device is a"
            " database of PostgreSQL",
            hint="Make the engine with a URL that begins with postgresql+psycopg://.",
        )
    if driver.autocommit:
        raise joined.commits_by_itself()
    return driver


def _check_place(driver: psycopg.Connection[Any], volume: PostgresVolume) -> None:
    """Refuse a connection to another database, and one whose commits may be lost."""
    ours = volume.read(lambda unit: unit.device.info()).id
    with _cursor(driver) as cursor:
        table = f"{quoted(volume.address.schema)}.device"
        is_there = cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone()
        found = cursor.execute(f"SELECT id FROM {table}").fetchone() if is_there and is_there[0] else None  # noqa: S608
        (level,) = cursor.execute("SHOW synchronous_commit").fetchone() or ("",)
    if found is None or found[0] != ours:
        raise InvalidArgumentError(
            f"the connection leads to database {driver.info.dbname!r}, which is not that of {volume.path!r}",
            hint="Keep the tables of the application in the same database, or use a transaction of the queue space.",
            path=volume.path,
        )
    if volume.is_durable and level == "off":
        raise InvalidArgumentError(
            f"the connection to {volume.path!r} does not bring each commit to the disk (synchronous_commit is {level})",
            hint="Set synchronous_commit to on where the connection is made.",
            path=volume.path,
        )


def _in_savepoint(
    driver: psycopg.Connection[Any], volume: PostgresVolume, work: Callable[[Unit], T]
) -> tuple[PostgresUnit, T]:
    """Do the work; if it raises, it is undone, and nothing else of the transaction."""
    with _cursor(driver) as plain, _cursor(driver) as cursor:
        cursor.format = Format.BINARY
        our_types(cursor.adapters)
        plain.execute(f"SAVEPOINT {_SAVEPOINT}; {volume.lock.together}", prepare=False)
        try:
            slot = counter_slots.free_slot(plain, volume.address.schema, counter_slots.FOR_TRANSACTION)
            if slot.isolation != "read committed":
                _refuse_old_definitions(plain, volume.address.schema)
            unit = volume.unit_on(cursor, slot.number, row_type=slot.row_type)
            unit.purpose = Purpose.MESSAGES
            result = work(unit)
            _tell(plain, volume.address.schema, unit.notifications.queues)
        except BaseException:
            if driver.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                plain.execute(f"ROLLBACK TO {_SAVEPOINT}; RELEASE {_SAVEPOINT}", prepare=False)
            raise
        plain.execute(f"RELEASE {_SAVEPOINT}")
        return unit, result


def _cursor(driver: psycopg.Connection[Any]) -> psycopg.Cursor[Any]:
    """Return a cursor of ours, whatever kind of cursors and rows the application has chosen for its connection."""
    return psycopg.Cursor(driver, row_factory=tuple_row)


def _refuse_old_definitions(plain: psycopg.Cursor[Any], schema: str) -> None:
    """Raise what the server does where a definition has changed since the transaction began to see.

    It may see things as they were before it took the lock of the volume: also a queue that was destroyed meanwhile.
    """
    plain.execute(
        f"SELECT FROM {quoted(schema)}.space JOIN {quoted(schema)}.counter AS main"
        " ON main.space_id = space.id AND main.queue_id = 0 AND main.slot = 0 FOR SHARE OF main"
    )


def _tell(plain: psycopg.Cursor[Any], schema: str, arrivals: set[int]) -> None:
    # A waiter that comes before the application commits must be notified too, so that none is looked for here.
    for queue_id in sorted(arrivals):
        plain.execute(f"NOTIFY {keys.channel(schema, queue_id)}")


class ApplicationTransactions:
    """The transactions of applications that work with us, by their connections."""

    def __init__(self) -> None:
        self._transactions: weakref.WeakKeyDictionary[Connection, ApplicationTransaction] = weakref.WeakKeyDictionary()
        self._changing = threading.Lock()

    def of(self, connection: Connection, volume: PostgresVolume) -> ApplicationTransaction:
        """Return the transaction of a connection."""
        with self._changing:
            found = self._transactions.get(connection)
            if found is None:
                found = self._transactions[connection] = ApplicationTransaction(connection, volume)
        found.thread = threading.get_ident()
        return found

    def has_thread(self, thread: int) -> bool:
        """Return whether a thread has worked in a transaction that is still open."""
        with self._changing:
            return any(transaction.thread == thread for transaction in self._transactions.values())


class ApplicationTransaction:
    """A transaction of one application: what is to be done when it commits, forgotten when it rolls back."""

    def __init__(self, connection: Connection, volume: PostgresVolume) -> None:
        self._volume = volume
        self._actions: list[Callable[[], None]] = []
        self._number = ""
        self.thread: int | None = None
        """The thread that has worked in a transaction which is still open."""
        self.is_checked = False
        from sqlalchemy import event

        event.listen(connection, "commit", self._committing)
        event.listen(connection, "rollback", self._rolled_back)

    def note(self, unit: PostgresUnit) -> None:
        """Remember what a unit has to have done once it is committed."""
        self._actions += unit.actions
        self._number = unit.transaction_number or self._number

    def add(self, action: Callable[[], None]) -> None:
        """Remember what else is to be done then."""
        self._actions.append(action)

    def _committing(self, _: Connection) -> None:
        actions, number = self._actions, self._number
        self._forget()
        if actions:
            # The event comes before the commit.
            threading.Thread(target=self._after, args=(actions, number), name="qmadmin-follow", daemon=True).start()

    def _rolled_back(self, _: Connection) -> None:
        self._forget()

    def _forget(self) -> None:
        self._actions, self._number = [], ""
        self.thread = None

    def _after(self, actions: list[Callable[[], None]], number: str) -> None:
        pause = _PAUSE_SECONDS
        try:
            while number and self._volume.is_in_progress(number):
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            for action in actions:
                action()
        except QueueError:
            # Housekeeping starts what was claimed, once this process has left the queue space.
            return
