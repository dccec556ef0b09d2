"""A volume on PostgreSQL: a schema, in which sessions of many processes work beside each other.

Work on messages holds the lock of the volume together with others, and locks what it takes row by row. All other work
has the volume for itself, so that it can look at something and then act on what it saw.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.errors import LockNotAvailable, ReadOnlySqlTransaction

from qmcore.errors import NotOpenError, QueueError
from qmcore.port import Unit
from qmcore.probe import Point, Probe
from qmcore.purpose import Purpose, WrongPurposeError
from qmcore.records import HousekeepingTurn
from qmstorage.forks import FORKS
from qmstorage.postgres import (
    committing,
    connection_timeouts,
    database_identity,
    health,
    housekeeping_turns,
    joining,
    liveness_queries,
    translate,
    wakeup_notify,
)
from qmstorage.postgres.attaching import ServerLiveness, ServerWakeups
from qmstorage.postgres.committing import Again
from qmstorage.postgres.journeys import Journeys
from qmstorage.postgres.liveness import Liveness
from qmstorage.postgres.liveness_queries import Identity
from qmstorage.postgres.memory_tables import MemoryTables
from qmstorage.postgres.own_records import OwnRecords
from qmstorage.postgres.sessions import Session, Sessions
from qmstorage.postgres.snapshot import PostgresSnapshot
from qmstorage.postgres.tables import DIALECT, quoted
from qmstorage.postgres.unit import PostgresUnit, ours
from qmstorage.postgres.volume_lock import VolumeLock
from qmstorage.refused import RefusedError
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmcore.device import DeviceInfo
    from qmcore.findings import Finding
    from qmcore.refusals import Refused
    from qmcore.times import Clock
    from qmcore.transitions import Command, Result
    from qmcore.volume_record import Accept
    from qmstorage.postgres.address import Address
    from qmstorage.postgres.clock import ServerClock
    from qmstorage.postgres.connection_timeouts import WatchedConnection

T = TypeVar("T")

_ATTEMPTS = 5
"""How often a unit is tried that failed because of others, or whose session was lost before its commit."""

_CAN_SEND_TOGETHER = psycopg.Pipeline.is_supported()
"""Whether libpq, which need not be that of the driver, is of version 14 or newer."""


class PostgresVolume:
    """One schema of a database, as the engine's port wants it."""

    syncs_apart = False
    sweeps = True

    def __init__(
        self,
        address: Address,
        server: ServerClock,
        probe: Probe,
        *,
        durable: bool,
        readonly: bool = False,
        home: str = "",
        clock: Clock | None = None,
        accept: Accept | None = None,
    ) -> None:
        """Take also `home`, the database that the volume was found in; a standby may take over while it is open.

        The clock of the server is kept right; another `clock` may be the one to go by. `accept` may refuse what is
        found in the place of the volume later.
        """
        self._home = database_identity.Home(self, home, accept)
        self.has_vanished = False
        self.path = address.shown
        self.probe = probe
        self.readonly = readonly
        self.address = address
        self._server_clock = server
        self.clock: Clock = clock or server
        self._schema = address.schema
        self.is_durable = durable
        self._texts = Texts(DIALECT, quoted(address.schema))
        self.memories = MemoryTables(self, address.schema)
        self.lock = VolumeLock(address)
        self._sessions = Sessions(self._connect, address.schema, durable=durable)
        self.session = self._sessions.one
        self.connected_hastily = partial(connection_timeouts.connected_hastily, address)
        """Returns a connection for quick statements; the caller closes it."""
        own = OwnRecords(address.schema, server)
        self._liveness = Liveness(partial(self.translated, self._connect), address.schema, own=own, clock=server)
        self.liveness = ServerLiveness(self, self._liveness)
        self.wakeups = ServerWakeups(self, self._liveness)
        self._closed = ""
        self.journeys = Journeys(self, address.schema, self._texts, self.lock.key)
        self.joined_transactions = joining.ApplicationTransactions(self)
        FORKS.add(self)

    # ---- work --------------------------------------------------------------------------------------------------------

    def run(
        self, commands: Sequence[Command], *, on: object = None, purpose: Purpose | None = Purpose.MESSAGES
    ) -> Sequence[Result] | Refused:
        """Execute commands, all or none, and return what came of each."""
        try:
            if on is not None:
                return self.write_on(on, lambda unit: ours(unit).execute(commands))
            if purpose is None:
                return self.journeys.look(commands)
            if _CAN_SEND_TOGETHER and not self.readonly:
                return self.journeys.run(commands, purpose)
            return self.write(lambda unit: ours(unit).execute(commands), purpose)
        except RefusedError as error:
            return error.refused

    def after_commit(self, action: Callable[[], None], *, on: object = None) -> None:
        """Run an action once the application has committed; without a connection at once."""
        joining.after_commit(self, on, action)

    def write(self, work: Callable[[Unit], T], purpose: Purpose) -> T:
        """Run `work` in one transaction and commit it; an exception leaves everything as it was.

        What fails before its commit because of others, or because the server has ended the session, is done again.
        Raises OutcomeUnknownError where the connection was lost while the commit was under way.
        """
        self.check_place()
        if purpose.alone and not purpose.unhindered and self.is_joined():
            raise joining.would_wait_for_itself(self.path)
        result, actions = self.tried(partial(self._written, work, purpose))
        for action in actions:
            action()
        return result

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work` in one transaction that changes nothing and sees everything as it was at one moment."""
        self.check_place()
        return self.tried(partial(self._read, work))

    def comes_free(self, seconds: float) -> bool:
        """Return whether a write could begin within the seconds, or another holds the volume alone for longer."""
        self.check_place()
        try:
            with self.session() as session:
                session.run(f"BEGIN; SET LOCAL lock_timeout = {max(int(seconds * 1000), 1)}; {self.lock.together}")
        except LockNotAvailable:
            return False
        except psycopg.Error as error:
            raise translate.from_psycopg(error, self.path) from error
        return True

    def write_on(self, connection: object, work: Callable[[Unit], T]) -> T:
        """Run `work` on the caller's own connection to the database, in its transaction, and stand or fall with it."""
        self.check_place()
        return joining.write_on(self, connection, work)

    def is_joined(self, connection: object = None) -> bool:
        """Return whether this thread has joined a transaction of the application, or is about to join this one."""
        if connection is not None and joining.is_in_transaction(connection):
            return True
        return self.joined_transactions.is_joined_here()

    @contextlib.contextmanager
    def quiesced(self, seconds: float) -> Iterator[None]:
        """Keep out everybody that writes through qmadmin; readers go on.

        Raises SystemFailureError, which is `blocked`, where others do not come to an end within the seconds.
        """
        if self.is_joined():
            raise joining.would_wait_for_itself(self.path)
        self.check_place()
        try:
            with self.session() as session:
                self.lock.begin_alone(session, seconds)
                yield
        except psycopg.Error as error:
            raise translate.from_psycopg(error, self.path) from error

    @contextlib.contextmanager
    def snapshot(self, of: str = "", memory: Collection[str] = ()) -> Iterator[PostgresSnapshot]:
        """Open a snapshot of the volume as it is now, or join the one of that token, while others go on writing."""
        self.check_place()
        with (
            contextlib.closing(self.translated(self._connect)) as connection,
            contextlib.closing(PostgresSnapshot(self.path, connection, self.unit_on, of)) as made,
        ):
            if memory and not self.readonly:
                made.memories = made.read(lambda unit: self.memories.of_spaces(unit, memory))
            yield made

    def allocate_disk(self, pages: int, progress: Callable[[int], None]) -> None:
        """Do nothing: PostgreSQL allocates disk as it needs it, and cannot reserve any for a schema."""
        del pages
        progress(100)

    # ---- others ------------------------------------------------------------------------------------------------------

    def health(self, info: DeviceInfo) -> list[Finding]:
        """Return what is wrong with the server, its settings, what holds vacuum back, and with the tables."""
        return self.asked(lambda session: health.examined(session.connection, self.address, info))

    def sync(self, *, others: bool = False) -> None:
        """Do nothing: a commit that has to be on the disk waits for it, and whatever comes later is lost before."""
        del others

    def check_place(self) -> None:
        """Refuse to go on where the volume is closed; a schema that was dropped is found by the next statement."""
        if self._closed:
            raise NotOpenError(self._closed, path=self.path)

    def changes(self) -> None:
        """Return nothing: asking the server for that costs as much as looking for messages."""

    def take_housekeeping_turn(
        self, space_id: int, owner_id: int | None, now_us: int, *, unchanged: bool
    ) -> HousekeepingTurn:
        """Return who does the housekeeping of a queue space: this process, where nobody did in the last second.

        One that cannot tell who is dead, because its own session was lost, does not keep those from it who can.
        """
        del unchanged
        if not self._liveness.can_judge():
            return HousekeepingTurn.OURS
        turn, table = self.asked(lambda session: housekeeping_turns.take(session, space_id, owner_id, now_us))
        if not self.readonly and not self._home.has(table):
            self.asked(lambda session: self._home.settle(session.connection))
        return turn

    @functools.cached_property
    def instance(self) -> str:
        """What no copy of the schema has; a standby that was promoted has it."""
        return self.asked(lambda session: database_identity.instance(session.connection, self.address))

    def compare_clocks(self) -> None:
        """Ask the server for the time."""
        self._server_clock.learn(self.asked(lambda session: liveness_queries.reading(session.connection)))

    def close(self) -> None:
        """Close the volume, and wake its waiters."""
        if self._closed:
            return
        self._closed = f"device {self.path!r} is closed"
        FORKS.discard(self)
        self._liveness.close()
        self._sessions.close()

    def pause(self) -> bool:
        """Prepare for a fork, which leaves the sessions to the parent."""
        return self._liveness.pause()

    def resume(self) -> None:
        """Go on after the fork."""
        self._liveness.resume()

    def give_to_parent(self, *, idle: bool) -> None:
        """Drop, in a forked process, what belongs to the parent, without telling the server."""
        self._closed = f"device {self.path!r} was opened by the parent process, before a fork"
        self._liveness.abandon(idle=idle)
        self._sessions.abandon()

    def is_in_progress(self, number: str) -> bool:
        """Return whether the transaction of that number, of any session, has not ended yet."""
        self.check_place()
        question = "SELECT pg_xact_status(%s::text::xid8) = 'in progress'"
        ((found,),) = self.asked(lambda session: session.connection.execute(question, [number]).fetchall())
        return bool(found)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def tried(self, attempt: Callable[[Session], T]) -> T:
        """Lend a session to an attempt, until one succeeds; a new one, where others may be lost."""
        is_lost = False
        for left in reversed(range(_ATTEMPTS)):
            try:
                with self.session(fresh=is_lost) as session:
                    return attempt(session)
            except Again as again:
                if not left:
                    raise translate.from_psycopg(again.error, self.path) from again.error
                is_lost = is_lost or again.is_lost
            except psycopg.Error as error:
                raise translate.from_psycopg(error, self.path) from error
        raise AssertionError("the last attempt returns or raises")

    def _written(
        self, work: Callable[[Unit], T], purpose: Purpose, session: Session
    ) -> tuple[T, Sequence[Callable[[], None]]]:
        """Run `work` and commit it; also return what is to be done afterwards."""
        try:
            if self.probe.actions:
                self.probe.reach(Point.BEFORE_WRITE, 1)
            unit = self.unit_of(session, purpose)
            self.lock.begin(session, unit, is_durable=self.is_durable)
            result = work(unit)
            if self.probe.actions:
                self.probe.reach(Point.AFTER_WRITE, 1)
        except psycopg.Error as error:
            raise self.before_commit(error, session) from error
        is_repeatable = purpose.again or committing.is_nothing(result)
        committing.commit(
            self, session, lambda: session.run("COMMIT"), unit.transaction_number, is_repeatable=is_repeatable
        )
        wakeup_notify.tell(session, self._schema, unit.notifications.queues, self.probe)
        return result, unit.actions

    def _read(self, work: Callable[[Unit], T], session: Session) -> T:
        try:
            session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            result = work(self.unit_on(session.cursor, session.slot))
            session.connection.refuse_aborted()
            # After a rollback the driver forgets all statements that it has prepared.
            session.run("COMMIT")
            return result
        except ReadOnlySqlTransaction:
            raise WrongPurposeError(None) from None
        except psycopg.Error as error:
            raise self.before_commit(error, session) from error

    def unit_of(self, session: Session, purpose: Purpose) -> PostgresUnit:
        """Return a unit for a purpose, in the transaction of a session."""
        unit = self.unit_on(session.cursor, session.slot, row_type=session.row_type)
        unit.purpose = purpose
        return unit

    def unit_on(
        self,
        cursor: Any,
        slot: int,
        memories: Mapping[int, Texts] | None = None,
        *,
        row_type: int = 0,
        lock_key: int | None = None,
    ) -> PostgresUnit:
        """Return a unit in the transaction of a cursor, with these memories or those that are attached.

        `row_type` is what lets messages come in it; `lock_key` that of the lock of the volume, if it is another one.
        """
        return PostgresUnit(
            cursor,
            self._texts,
            schema=self._schema,
            slot=slot,
            lock_key=lock_key,
            row_type=row_type,
            memories=self.memories.attached if memories is None else memories,
            liveness=self._liveness,
            clock=self.clock,
        )

    def before_commit(self, error: psycopg.Error, session: Session) -> Exception:
        """Return what to raise for an error by which nothing has been done."""
        is_lost = session.is_lost or translate.is_connection_lost(error)
        if is_lost or translate.is_retriable(error) or translate.is_taken_meanwhile(error):
            return Again(error, is_lost=is_lost)
        return translate.from_psycopg(error, self.path)

    def asked(self, question: Callable[[Session], T]) -> T:
        """Return the answer to a question that is asked in a session outside of any work."""

        def asked(session: Session) -> T:
            try:
                return question(session)
            except psycopg.Error as error:
                raise self.before_commit(error, session) from error

        return self.tried(asked)

    def translated(self, act: Callable[[], T]) -> T:
        """Return what an act gives whose failures in the driver become diagnostics."""
        try:
            return act()
        except psycopg.Error as error:
            raise translate.from_psycopg(error, self.path) from error

    def _connect(self) -> WatchedConnection:
        connection = connection_timeouts.connected(self.address)
        self._server_clock.learn(connection.reading)
        refusal = _unfit(self, connection.identity)
        if refusal is not None:
            connection.close()
            raise refusal
        if not self.readonly:
            # Nothing must be written that belongs to another run of the database.
            try:
                self._home.settle(connection)
            except BaseException:
                connection.close()
                raise
        return connection


def _unfit(volume: PostgresVolume, session: Identity) -> QueueError | None:
    """Return why a session cannot be used; None where it can."""
    if session.on_standby and not volume.readonly:
        # It may be taking over, and have the address of the server a moment too early.
        return translate.on_standby(volume.path)
    return translate.hidden(volume.path) if session.started is None else None
