"""Working in a transaction of the application's own, on its connection to the same database of PostgreSQL.

What is enqueued or dequeued stands or falls with that transaction. The server notifies waiters when it is committed;
capacity commands run then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import Format, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from qmcore.callers import caller, kind_of_caller
from qmcore.errors import AbortedError, InvalidArgumentError, ProtocolError, QueueError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmstorage import application_connections, application_transactions, joined
from qmstorage.after_commit import Owed
from qmstorage.application_transactions import ApplicationTransaction
from qmstorage.joined import Joined
from qmstorage.notifications import Notifications
from qmstorage.postgres import counter_slots, keys, translate
from qmstorage.postgres.sessions import our_types
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresUnit
    from qmstorage.postgres.volume import PostgresVolume

T = TypeVar("T")

_SAVEPOINT = "qmadmin"
_ENDED = (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)


def write_on(volume: PostgresVolume, connection: object, work: Callable[[Unit], T]) -> T:
    """Run `work` in the transaction of an application's connection to the database of the volume."""
    its = application_connections.found(connection)
    _refuse_other_drivers(its)
    undo, has_done = its.begin(), False
    try:
        unit, result, has_done = its.call(lambda: _done(volume, its, work, begun=undo is not None))
    except psycopg.Error as error:
        raise translate.from_psycopg(error, volume.path, joined=True) from error
    finally:
        if undo is not None and not has_done and not its.driver.closed:
            # It was begun for this call, which has done nothing.
            undo()
    if has_done:
        transaction = volume.joined_transactions.of(its)
        transaction.caller = caller()
        transaction.owe(Notifications(), unit.actions, unit.transaction_number)
        its.await_commit(transaction)
    return result


def _done(
    volume: PostgresVolume, its: Joined, work: Callable[[Unit], T], *, begun: bool
) -> tuple[PostgresUnit, T, bool]:
    """Do the work; return also whether there is a transaction that has to be ended.

    `begun`: the library has, and undoes it; what the driver begins is undone here where nothing was done.
    """
    driver, transaction = its.driver, volume.joined_transactions.of(its)
    _refuse_unfit(driver, volume.path)
    is_ours = begun or driver.info.transaction_status == TransactionStatus.IDLE
    has_done = False
    try:
        if transaction.checked_driver is None or transaction.checked_driver() is not its.original:
            _check_place(driver, volume)
            transaction.checked_driver = weakref.ref(its.original)
        unit, result, has_written = _in_savepoint(driver, volume, work)
        has_done = has_written or not is_ours
        return unit, result, has_done
    finally:
        if is_ours and not has_done and driver.info.transaction_status not in _ENDED:
            with Cursor(driver) as cursor:
                cursor.execute("ROLLBACK", prepare=False)


def after_commit(volume: PostgresVolume, on: object, action: Callable[[], None]) -> None:
    """Run an action once the application has committed the transaction that is joined; at once without one."""
    if on is None:
        action()
    else:
        its = application_connections.found(on)
        transaction = volume.joined_transactions.of(its)
        transaction.owe_action(action)
        its.await_commit(transaction)


def is_in_transaction(connection: object) -> bool:
    """Return whether the driver of a connection has begun a transaction."""
    info = getattr(application_connections.driver_of(connection), "info", None)
    return info is not None and info.transaction_status != TransactionStatus.IDLE


def would_wait_for_itself(path: str) -> QueueError:
    """Return the diagnostic for work beside the application's transaction, by the thread that has to end it."""
    return ProtocolError(
        f"this {kind_of_caller()} has a transaction of its own open on {path!r}, for whose end this would wait",
        hint="Let the call join it with connection=, or commit it first.",
        path=path,
    )


def _refuse_other_drivers(its: Joined) -> None:
    if not isinstance(its.original, psycopg.Connection | psycopg.AsyncConnection):
        raise joined.elsewhere(
            its,
            "a database of PostgreSQL",
            "Use psycopg 3; for an engine of SQLAlchemy with a URL that begins with postgresql+psycopg://.",
        )


def _refuse_unfit(driver: psycopg.Connection[Any], path: str) -> None:
    """Refuse a connection on which no transaction is, or can be, open to be joined."""
    if driver.closed:
        raise joined.closed()
    # psycopg tells of it only by errors.
    if getattr(driver, "_tpc", None) is not None:
        raise joined.in_two_phases()
    status = driver.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise joined.aborted(f"the application's transaction on {path!r}")
    if status == TransactionStatus.ACTIVE or driver.pgconn.pipeline_status != PipelineStatus.OFF:
        raise InvalidArgumentError(
            "the connection is in the middle of a statement, a COPY or a pipeline",
            hint="Read that to its end first.",
        )
    if driver.autocommit and status == TransactionStatus.IDLE:
        raise joined.commits_by_itself()
    if driver.info.encoding != "utf-8":
        raise InvalidArgumentError(
            f"the connection to {path!r} has client_encoding {driver.info.parameter_status('client_encoding')}, in"
            " which names and headers may not be readable",
            hint="Set client_encoding to UTF8.",
        )


def leads_to(driver: psycopg.Connection[Any], volume: Volume) -> bool:
    """Return whether a connection leads to the database of a volume."""
    its = getattr(volume, "address", None)
    if its is None:
        return False
    with Cursor(driver) as cursor:
        table = f"{quoted(its.schema)}.device"
        is_there = cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone()
        found = cursor.execute(f"SELECT id FROM {table}").fetchone() if is_there and is_there[0] else None  # noqa: S608
    return found is not None and bool(found[0] == volume.read(lambda unit: unit.device.info()).id)


def _check_place(driver: psycopg.Connection[Any], volume: PostgresVolume) -> None:
    """Refuse a connection to another database."""
    if not leads_to(driver, volume):
        raise InvalidArgumentError(
            f"the connection leads to database {driver.info.dbname!r}, which is not that of {volume.path!r}",
            hint="Keep the tables of the application in the same database, or use a transaction of the queue space.",
            path=volume.path,
        )


def _refuse_undurable(level: str, path: str) -> None:
    """Refuse a transaction whose commit may be lost: each is asked, as each can be set otherwise."""
    if level == "off":
        raise InvalidArgumentError(
            f"the connection to {path!r} does not bring each commit to the disk (synchronous_commit is {level})",
            hint="Set synchronous_commit to on where the connection is made.",
            path=path,
        )


def _in_savepoint(
    driver: psycopg.Connection[Any], volume: PostgresVolume, work: Callable[[Unit], T]
) -> tuple[PostgresUnit, T, bool]:
    """Do the work; return also whether the transaction has written. If it raises, it is undone, and nothing else."""
    is_locked = False
    with Cursor(driver) as plain, Cursor(driver) as cursor:
        cursor.format = Format.BINARY
        plain.execute(f"SAVEPOINT {_SAVEPOINT}", prepare=False)
        try:
            plain.execute(volume.lock.together_joined, prepare=False)
            is_locked = True
            slot = counter_slots.free_slot(plain, volume.address.schema, counter_slots.FOR_TRANSACTION)
            if volume.is_durable:
                _refuse_undurable(slot.synchronous_commit, volume.path)
            if slot.isolation != "read committed":
                _refuse_old_definitions(plain, volume.address.schema)
            unit = volume.unit_on(cursor, slot.number, row_type=slot.row_type, lock_key=volume.lock.key_of_joined)
            unit.purpose = Purpose.MESSAGES
            result = work(unit)
            _tell(plain, volume.address.schema, unit.notifications.queues)
        except BaseException:
            if driver.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                release = volume.lock.release if is_locked else ""
                plain.execute(f"ROLLBACK TO {_SAVEPOINT}; RELEASE {_SAVEPOINT}; {release}", prepare=False)
            raise
        plain.execute(
            f"RELEASE {_SAVEPOINT}; {volume.lock.release}; SELECT pg_current_xact_id_if_assigned() IS NOT NULL",
            prepare=False,
        )
        plain.nextset()
        plain.nextset()
        (has_written,) = plain.fetchone() or (True,)
        return unit, result, has_written


class Cursor(psycopg.Cursor[Any]):
    """A cursor of ours, whatever cursors, rows and types the application has chosen for its connection."""

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self._types = AdaptersMap(psycopg.adapters)
        our_types(self._types)
        super().__init__(driver, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        """Which types it reads and writes how."""
        return self._types


def _refuse_old_definitions(plain: psycopg.Cursor[Any], schema: str) -> None:
    """Raise what the server does where a definition has changed since the transaction began to see.

    It may see things as they were before it took the lock of the volume: also a queue that was destroyed meanwhile. The
    rows are not kept: whoever changes definitions later does not wait for that, and the next call looks again.
    """
    plain.execute("SAVEPOINT qmadmin_definitions")
    plain.execute(
        f"SELECT FROM {quoted(schema)}.space JOIN {quoted(schema)}.counter AS main"
        " ON main.space_id = space.id AND main.queue_id = 0 AND main.slot = 0 FOR SHARE OF main"
    )
    plain.execute("ROLLBACK TO qmadmin_definitions; RELEASE qmadmin_definitions", prepare=False)


def _tell(plain: psycopg.Cursor[Any], schema: str, arrivals: set[int]) -> None:
    # A waiter that comes before the application commits must be notified too, so that none is looked for here.
    for queue_id in sorted(arrivals):
        plain.execute(f"NOTIFY {keys.channel(schema, queue_id)}")


class ApplicationTransactions(application_transactions.ApplicationTransactions):
    """The transactions of applications in the database of a volume."""

    def __init__(self, volume: PostgresVolume) -> None:
        super().__init__()
        self._volume = volume

    def refuse_commit(self, driver: object, roll_back: Callable[[], None]) -> None:
        """Raise AbortedError where a statement has failed: the server answers COMMIT with ROLLBACK, not an error."""
        info = getattr(driver, "info", None)
        if info is not None and info.transaction_status == TransactionStatus.INERROR:
            # SQLAlchemy does not, once a commit has failed.
            roll_back()
            raise AbortedError(
                f"the application's transaction on {self._volume.path!r} was rolled back and not committed, because a"
                " statement in it had failed",
                hint="Run it again; what may fail belongs into a savepoint of its own.",
                path=self._volume.path,
            )

    def is_open(self, transaction: ApplicationTransaction) -> bool:
        """Return whether the connection has a transaction open, be it a later one: the server has told its driver."""
        driver = None if transaction.driver is None else transaction.driver()
        return driver is not None and driver.info.transaction_status not in _ENDED

    def is_in_progress(self, owed: Owed) -> bool:
        """Return whether the transaction that brought or took messages has not ended yet."""
        return bool(owed.number) and self._volume.is_in_progress(owed.number)
