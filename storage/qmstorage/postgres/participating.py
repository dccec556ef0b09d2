"""A database of PostgreSQL of an application that takes part in a transaction over several resources."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from qmcore.application_database import TABLE
from qmcore.errors import AbortedError, InvalidArgumentError, QueueError, SystemFailureError
from qmcore.two_phase import OUR_FORMAT
from qmcore.xid import Xid
from qmstorage import joined, participants
from qmstorage.participating_connections import has_begun, unreachable
from qmstorage.postgres import interrupted_statements, translate
from qmstorage.postgres.deciding_at_once import DecisionTable
from qmstorage.postgres.joining import Cursor, leads_to
from qmstorage.postgres.one_journey import beginning, send, with_names

if TYPE_CHECKING:
    from qmcore.port import Volume

T = TypeVar("T")

_MARK: Final = (
    "SELECT set_config('qmadmin.transaction', '{}', true), current_setting('synchronous_commit') = 'off',"
    " current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery()"
)
_LOOK: Final = "SELECT current_setting('qmadmin.transaction', true), pg_current_xact_id_if_assigned() IS NOT NULL"
_PROPERTIES: Final = (
    "SELECT concat_ws('.', CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE') THEN"
    " (SELECT system_identifier FROM pg_control_system()) END,"
    " (SELECT oid FROM pg_database WHERE datname = current_database())),"
    " current_setting('max_prepared_transactions')::int"
)
_HAS_TABLE: Final = f"SELECT to_regclass('{TABLE}') IS NOT NULL"
_PREPARED: Final = (
    "SELECT gid, extract(epoch FROM clock_timestamp() - prepared) FROM pg_prepared_xacts"
    " WHERE database = current_database() AND gid LIKE :ours"
)
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '1s'"
_ASIDE: Final = "qmadmin_aside"
_TRUE: Final = b"t"
_MAKE_ANOTHER: Final = "Make another one, and run all of it again when the server is back."
_GONE: Final = "42704"
"""The state of the server where no such transaction is prepared."""


class Participant(participants.Participant):
    """A database of PostgreSQL."""

    to_be_durable = ((_DURABLE, {}),)

    integrity_error = psycopg.IntegrityError

    is_committed = False
    """Whether the server has committed the transaction with the decision, which the library does not know."""

    @property
    def table(self) -> DecisionTable:
        """Its table of decisions, which may not be there."""
        return DecisionTable(self, self._its)

    def refuse_closed(self) -> None:
        """Refuse a connection that is closed, or in a transaction."""
        driver: psycopg.Connection[Any] | None = self._its.driver
        if driver is None:
            return
        if getattr(driver, "broken", False):
            raise SystemFailureError(
                "the connection to the database of the application is lost", hint=_MAKE_ANOTHER, unreachable=True
            )
        if driver.closed:
            raise joined.closed()
        if getattr(driver, "_tpc", None) is not None or driver.info.transaction_status != TransactionStatus.IDLE:
            raise has_begun()
        if driver.pgconn.pipeline_status != PipelineStatus.OFF:
            raise InvalidArgumentError("the connection is in a pipeline", hint="End the pipeline first.")

    def identify(self) -> None:
        """Learn the name of the database."""
        driver = self._driver
        if driver.autocommit:
            raise participants.refuse_automatic()
        info = driver.info
        self.name = f"postgresql://{info.host}:{info.port}/{info.dbname}"

    def properties(self) -> tuple[str, str]:
        """Return what no copy of the database has, and why it cannot prepare."""
        ((instance, most),) = self.run(_PROPERTIES)
        return instance, "" if most else "the server cannot prepare transactions (max_prepared_transactions is 0)"

    def begin_marked(self) -> None:
        """Begin the transaction with a setting that is local to it."""
        self._mark = os.urandom(8).hex()
        _, marked = self.do(lambda: send(self._driver, beginning(self._driver), _MARK.format(self._mark)))
        if marked.get_value(0, 2) == _TRUE:
            self.cannot_decide = "it can only be read there"
        elif marked.get_value(0, 1) == _TRUE:
            self.cannot_decide = "its commits need not be on the disk (synchronous_commit is off)"

    def is_marked(self) -> bool:
        """Return whether the transaction that is open has the mark."""
        status = self._driver.info.transaction_status
        if status == TransactionStatus.UNKNOWN:
            raise SystemFailureError(
                f"the connection to database {self.name!r} is lost, and with it what the transaction has done there",
                hint="Run all of it again when the server is back.",
                unreachable=True,
            )
        if status == TransactionStatus.INERROR:
            raise AbortedError(
                f"the transaction on {self.name!r} can only be rolled back, because a statement in it has failed",
                hint="Run all of it again; what may fail belongs into a savepoint of its own.",
            )
        if status != TransactionStatus.INTRANS:
            return False
        (found,) = self.do(lambda: send(self._driver, _LOOK))
        self._has_written = found.get_value(0, 1) == _TRUE
        return found.get_value(0, 0) == self._mark.encode()

    def has_written(self) -> bool:
        """Return whether the transaction has a number, as it has when it has changed or locked anything."""
        return self._has_written

    def is_of(self, volume: Volume) -> bool:
        """Return whether the schema of a volume is in it."""
        if self._driver.info.transaction_status == TransactionStatus.IDLE:
            return self.alone(lambda: leads_to(self._driver, volume))

        def leads() -> bool:
            # The transaction of the application is left as it was.
            self.run(f"SAVEPOINT {_ASIDE}")
            try:
                self.run(_LOCK_TIMEOUT)
                return leads_to(self._driver, volume)
            finally:
                self.run(f"ROLLBACK TO SAVEPOINT {_ASIDE}")
                self.run(f"RELEASE SAVEPOINT {_ASIDE}")

        return self.do(leads)

    def has_table(self) -> bool:
        """Return whether there is a table of decisions where the search path of the connection leads."""
        return bool(self.run(_HAS_TABLE)[0][0])

    def roll_back(self) -> None:
        """Roll it back, also when it is prepared; nothing is done where it has ended."""
        prepared, self._prepared = self._prepared, None
        try:
            if prepared is not None:
                # Whether it was prepared may be unknown, as after an interrupt.
                self.let_go()
                self.end_prepared(prepared, commits=False)
        finally:
            self.leave()

    def leave(self) -> None:
        """Let go of the connection, which has no transaction open then; what is prepared stays prepared."""
        if self._is_open:
            with interrupted_statements.rolling_back(self._driver):
                super().leave()

    def let_go(self) -> None:
        """Have the driver end what it has open, without a commit: the library does not know of it."""
        with interrupted_statements.rolling_back(self._driver):
            super().let_go()

    # ---- what prepares -----------------------------------------------------------------------------------------------

    _prepared: Xid | None = None
    """By which the transaction is prepared, or may be."""

    def prepare(self, xid: Xid) -> None:
        """Prepare the transaction, on the disk."""
        self._prepared = xid
        try:
            self.do(lambda: send(self._driver, f"PREPARE TRANSACTION '{_gid(xid)}'"))
        except AbortedError:
            # The server has rolled it back.
            self._prepared = None
            raise

    def commit(self) -> None:
        """Commit the transaction, on the disk."""
        prepared = self._prepared
        if prepared is not None:
            self.end_prepared(prepared, commits=True)
            self._prepared = None
        if prepared is not None or self.is_committed:
            self._its.finish()
            self._is_open = False
        else:
            super().commit()

    def end_prepared(self, xid: Xid, *, commits: bool) -> None:
        """Commit or roll back what is prepared, on the disk; nothing is done where there is none."""
        how = "COMMIT" if commits else "ROLLBACK"

        def end() -> None:
            try:
                send(self._driver, f"{how} PREPARED '{_gid(xid)}'")
            except psycopg.Error as error:
                if error.sqlstate != _GONE:
                    raise

        self.do(end)

    def prepared(self) -> list[tuple[Xid, float | None]]:
        """Return the transactions of ours that are prepared in this database, and since how many seconds."""
        found: list[tuple[Xid, float | None]] = []
        for gid, seconds in self.alone(lambda: self.run(_PREPARED, ours=f"{OUR_FORMAT}\\_%")):
            its = psycopg.Xid.from_string(gid)
            if its.format_id == OUR_FORMAT and its.bqual is not None:
                found.append((Xid(OUR_FORMAT, bytes.fromhex(its.gtrid), bytes.fromhex(its.bqual)), float(seconds)))
        return found

    # ---- statements --------------------------------------------------------------------------------------------------

    @property
    def _driver(self) -> psycopg.Connection[Any]:
        return self._its.driver  # type: ignore[no-any-return]

    def run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with self._sent(statement, values) as cursor:
            return cursor.fetchall() if cursor.description is not None else []

    def run_all(self, statements: Sequence[tuple[str, Mapping[str, object]]]) -> list[list[tuple[Any, ...]]]:
        """Send all of them before the first answer is read: one journey to the server in place of one for each."""
        with self._driver.pipeline():
            cursors = [self._sent(statement, values) for statement, values in statements]
        return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]

    def _sent(self, statement: str, values: Mapping[str, object]) -> Cursor:
        cursor = Cursor(self._driver)
        cursor.execute(with_names(statement) if values else statement, values or None)
        return cursor

    def alone(self, work: Callable[[], T]) -> T:
        """Do a work in a transaction of its own, which is committed, on the disk."""

        def do() -> T:
            try:
                self.run(_LOCK_TIMEOUT)
                self.run(_DURABLE)
                result = work()
                self._driver.commit()
            except BaseException:
                with contextlib.suppress(QueueError):
                    self.let_go()
                raise
            return result

        return self.do(do)

    def do(self, work: Callable[[], T]) -> T:
        """Do a work, whose errors of the database are raised as ours."""
        try:
            return work()
        except psycopg.Error as error:
            raise self.refusal(error) from error

    def refusal(self, error: psycopg.Error) -> QueueError:
        """Return an error of the driver as ours."""
        words = translate.words(error)
        if translate.is_connection_lost(error) and not self.name:
            return unreachable(error)
        if translate.is_connection_lost(error):
            return SystemFailureError(
                f"the connection to database {self.name!r} was lost: {words}",
                hint="Repeat all of it when the server is back.",
                unreachable=True,
            )
        hint = "Run all of it again, once what keeps it from that is mended."
        what = f"database {self.name!r}" if self.name else "the database of the application"
        return AbortedError(f"{what} has refused the transaction: {words}", hint=hint)


def _gid(xid: Xid) -> str:
    # In hexadecimal digits, as the driver takes texts.
    return str(psycopg.Xid.from_parts(xid.format_id, xid.gtrid.hex(), xid.bqual.hex()))
