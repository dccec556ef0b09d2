"""A pool of sessions of a process on a database: one for each thread at work, kept for the next."""

from __future__ import annotations

import contextlib
import secrets
import select
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.types.numeric import NumericBinaryLoader

from qmcore.errors import SystemFailureError
from qmstorage.postgres import counter_slots, keys, liveness_queries
from qmstorage.postgres.nonblocking_connection import abandon_connection
from qmstorage.postgres.pipeline import Pipeline
from qmstorage.postgres.row_arrays import Packed, PackedDumper

if TYPE_CHECKING:
    from psycopg.adapt import AdaptersMap

    from qmcore.transitions import Guard, Route
    from qmstorage.postgres.connection_timeouts import WatchedConnection
    from qmstorage.postgres.counter_slots import Slot
    from qmstorage.postgres.row_arrays import Buffer
    from qmstorage.statements import Cursor

MOST: Final = 32
"""Sessions that one process has on a volume at most; more threads than that take turns."""

WAIT_SECONDS: Final = 30
"""How long a thread waits for a session, and a session for a lock."""

BY_KEYS: Final = (
    # What is compiled for a statement of a millisecond costs more than the statement.
    "jit",
    # Statistics of a queue's tables are wrong as a rule: they were taken when it was empty, or full, or full of others.
    # Each statement of a unit is about few rows that keys lead to, and must not become one that reads a table because
    # of what the planner believes. An index is walked, not gathered into a bitmap, so that dead entries are marked.
    "enable_seqscan",
    "enable_bitmapscan",
    "enable_indexonlyscan",
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_material",
)
"""Settings that are off in a session, so that statements find their rows through keys."""

_SETTINGS: Final = (
    # A read after a lock was taken must see what is there then, and not what was there when the wait for it began.
    "SET default_transaction_isolation = 'read committed'",
    f"SET lock_timeout = {WAIT_SECONDS * 1000}",
    # A unit takes milliseconds. One whose client has vanished must not keep its rows locked for longer than this.
    "SET idle_in_transaction_session_timeout = 60000",
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 4",
    "SET client_min_messages = warning",
    # Else a statement is planned each time of which the server thinks that its values matter.
    "SET plan_cache_mode = force_generic_plan",
    *(f"SET {name} = off" for name in BY_KEYS),
)


_KNOWS_TRANSACTION_TIMEOUT: Final = 170000


class _WholeNumbers(NumericBinaryLoader):
    """Loads sums of whole numbers as int."""

    def load(self, data: Any) -> Any:
        return int(super().load(data))


def our_types(adapters: AdaptersMap) -> None:
    """Make the driver read sums as int, and send rows of messages as they are."""
    adapters.register_dumper(Packed, PackedDumper)
    adapters.register_loader("numeric", _WholeNumbers)


class Session:
    """A connection in which one thread works at a time.

    `schema` and `lock_key` are those of its volume; `slot` says which rows of the counters are its own, `row_type` is
    the number of the type of rows of messages; `boot` identifies the run of the server. `numbers` has the last one that
    it gave in each queue space, by its incarnation, which the counters tell too, together with the `mark` of the
    session. `awaited` are the queues that had waiters when the session last enqueued. `sent_for` is what was sent last
    of a guard and a route. `turns` has the key of the last turn of housekeeping that it took in each queue space.
    """

    def __init__(self, connection: WatchedConnection, schema: str, slot: Slot, boot: str) -> None:
        self.connection = connection
        self.schema = schema
        self.lock_key = keys.key(schema, keys.Kind.VOLUME, 0)
        self.slot = slot.number
        self.row_type = slot.row_type
        self.boot = boot
        self.mark = secrets.randbits(62)
        self.numbers: dict[str, int] = {}
        self.awaited: set[int] = set()
        self.sent_for: tuple[Guard, Route, list[Buffer | None]] | None = None
        self.turns: dict[int, int] = {}
        self._heard = select.poll()
        self._heard.register(connection.pgconn.socket, select.POLLIN)
        self.cursor: Cursor = connection.cursor(binary=True)
        self.pipeline = Pipeline(connection)
        # An interrupt may come between any two steps, while no code holds the session: then it ends by itself once
        # nothing refers to it any more.
        weakref.finalize(self, connection.close).atexit = False

    @property
    def is_idle(self) -> bool:
        """Whether it can be used for the next unit: nothing is begun in it, and it is not known to be lost."""
        # Not by `info`, which is made again each time.
        driver = self.connection.pgconn
        # An interrupt at the last step of a pipeline leaves its mode on.
        return driver.transaction_status == TransactionStatus.IDLE and driver.pipeline_status == PipelineStatus.OFF

    @property
    def is_lost(self) -> bool:
        """Whether the server has ended it, or cannot be reached any more."""
        return self.connection.broken or self.connection.closed

    def was_ended(self) -> bool:
        """Return whether the server has ended the session while nothing was asked of it."""
        try:
            # It may only have sent a notice, also before it ends the session.
            while self._heard.poll(0):
                self.connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return False

    def run(self, statements: str) -> list[Any]:
        """Run statements without parameters, in one round trip, and return the rows of the last."""
        cursor = self.connection.execute(statements, prepare=False)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []

    def roll_back(self) -> bool:
        """Undo what was begun, and return whether that is done."""
        with contextlib.suppress(psycopg.Error):
            if not self.is_idle and not self.is_lost:
                self.run("ROLLBACK")
        return self.is_idle

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(psycopg.Error):
            self.connection.close()


class Sessions:
    """The sessions of one volume; idle ones are reused, the last one first."""

    def __init__(self, connect: Callable[[], WatchedConnection], schema: str, *, durable: bool) -> None:
        self._connect = connect
        self._schema = schema
        self._settings = "; ".join((*_SETTINGS, f"SET synchronous_commit = {'on' if durable else 'off'}"))
        self._idle: deque[Session] = deque()
        self._all: weakref.WeakSet[Session] = weakref.WeakSet()
        # A semaphore of the standard library stays locked for all where an interrupt comes in the middle of it. Here
        # one permit may be lost between two steps; objects that return themselves would swallow the interrupt instead.
        self._permits: SimpleQueue[None] = SimpleQueue()
        for _ in range(MOST):
            self._permits.put(None)
        self._closed = False

    @contextlib.contextmanager
    def one(self, *, fresh: bool = False) -> Iterator[Session]:
        """Lend a session; a `fresh` one is new, and all idle ones are closed, as they may be lost too."""
        try:
            self._permits.get(timeout=WAIT_SECONDS)
        except Empty:
            raise SystemFailureError(
                f"all {MOST} database sessions of this process have been at work for {WAIT_SECONDS} seconds",
                hint="Look for what locks the tables of the device, such as a tool of the database.",
                blocked=True,
            ) from None
        try:
            if fresh:
                self._close_idle()
            session = self._taken()
            try:
                yield session
            finally:
                self._give_back(session)
        finally:
            self._permits.put(None)

    def close(self) -> None:
        """End all sessions; one that is at work ends when its work does."""
        self._closed = True
        self._close_idle()

    def abandon(self) -> None:
        """Drop, in a forked process, what belongs to the parent."""
        self._closed = True
        for session in self._all:
            abandon_connection(session.connection)
        self._all.clear()
        self._idle.clear()

    def _taken(self) -> Session:
        while True:
            try:
                session = self._idle.pop()
            except IndexError:
                return self._made()
            if not session.was_ended():
                return session
            self._end(session)

    def _made(self) -> Session:
        connection = self._connect()
        try:
            connection.execute(self._settings, prepare=False)
            if connection.info.server_version >= _KNOWS_TRANSACTION_TIMEOUT:
                # Our transactions are short, or are ended by the limits above.
                connection.execute("SET transaction_timeout = 0", prepare=False)
            slot = counter_slots.free_slot(connection, self._schema, counter_slots.FOR_SESSION)
            our_types(connection.adapters)
            session = Session(connection, self._schema, slot, liveness_queries.server(connection).boot)
            self._all.add(session)
        except BaseException:
            connection.close()
            raise
        return session

    def _give_back(self, session: Session) -> None:
        if session.is_idle or session.roll_back():
            self._idle.append(session)
        else:
            self._end(session)
        # Asked last: all may have been closed meanwhile.
        if self._closed:
            self._close_idle()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._end(self._idle.pop())

    def _end(self, session: Session) -> None:
        self._all.discard(session)
        session.close()
