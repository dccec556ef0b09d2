"""The session that shows that a process is alive: it holds the locks of its owners, and listens for its waiters.

One thread has one connection for it. What the process wants is kept as a state - locks to hold, channels to listen on -
and the thread makes the server match that state, again after each loss of the connection. Other threads wait until the
state is reached.
"""

from __future__ import annotations

import logging
import math
import os
import random
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import Error as DriverError

from qmcore.errors import NotOpenError, QueueError, SystemFailureError
from qmcore.records import Owner
from qmcore.values import dataclass
from qmstorage.postgres import liveness_queries, translate
from qmstorage.postgres.clock import ServerClock
from qmstorage.postgres.keys import Kind, channel, key
from qmstorage.postgres.nonblocking_connection import NonblockingConnection, drain
from qmstorage.postgres.own_records import OwnRecords
from qmstorage.postgres.wakeups import ServerWakeup, Wakeups, WakeupSet
from qmstorage.process_identity import this_process

if TYPE_CHECKING:
    from psycopg import Connection

logger = logging.getLogger("qmadmin.storage")

_PAUSE_FIRST, _PAUSE_MOST = 0.1, 5.0
"""Seconds between two attempts to reach the server again."""

_CLOSE_SECONDS = 1.0
"""How long a close waits for the thread, which may hang in an attempt to connect."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: how long the server waits for a heartbeat, we for an answer, and between two heartbeats of ours."""

    idle_seconds: float = 60.0
    answer_seconds: float = 10.0
    ping_seconds: float = 10.0
    linger_seconds: float = 5.0
    """How long a channel is listened on after its last wake-up was removed."""


class Liveness:
    """Shows other processes that this one is alive, and wakes its waiters when others have enqueued messages.

    `connect` makes a connection in autocommit mode; it is called when the first owner or channel is wanted, and after
    each loss. It may raise what the driver does or a QueueError. Safe for several threads.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        schema: str,
        patience: Patience | None = None,
        own: OwnRecords | None = None,
        clock: ServerClock | None = None,
    ) -> None:
        """Take also what the process records of itself in the schema, and the clock that the server's answers set."""
        self._clock = clock or ServerClock()
        self._connect = connect
        self._schema = schema
        self._own = own
        self._patience = patience or Patience()
        self._wakeups = Wakeups(self._patience.linger_seconds)
        # Taken by itself: an interrupt between the steps in which the condition takes it would leave it taken for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._keys: set[int] = set()
        self._held: set[int] = set()
        self._dropped: set[int] = set()
        self._heard: set[str] = set()
        self._boot = ""
        self._since = -math.inf
        """When, by the monotonic clock, the session was made again after it was lost."""
        self._closed = ""
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._connection: NonblockingConnection | None = None
        self._paused: NonblockingConnection | None = None
        self._forks = 0
        """Twice the forks so far, and one more while one is under way."""
        self._ghosts: set[tuple[int, int]] = set()
        self._pause = _PAUSE_FIRST
        self._lost = False
        self._nudged, self._nudger = socket.socketpair()
        for each in (self._nudged, self._nudger):
            each.setblocking(False)

    def wakeup(self, *, in_turn: bool = False) -> ServerWakeup:
        """Return a new wake-up of this process. Its address identifies it in `listen` and in the table of waiters."""
        wakeup = ServerWakeup(self._wakeups, in_turn=in_turn)
        self._wakeups.register(wakeup)
        if self._closed:
            wakeup.wake()
        return wakeup

    def wakeup_set(self) -> WakeupSet[Any]:
        """Return a new set of wake-ups, for an event loop of this process."""
        return self._wakeups.register_set()

    def listen(self, address: str, *queue_ids: int) -> None:
        """Return once notifications of the queues wake a wake-up of ours; harmless where they do so already.

        Raises SystemFailureError, or what `connect` raised, where the server cannot be reached.
        """
        channels = {channel(self._schema, queue_id) for queue_id in queue_ids}
        self._wakeups.listen(address, channels)
        try:
            self._reach(lambda: channels <= self._heard or not self._wakeups.has(address))
        except BaseException:
            self._wakeups.unlisten(address, channels)
            raise

    def unlisten(self, address: str, *queue_ids: int) -> None:
        """Wake a wake-up of ours no more at notifications of the queues; a closed one needs no such call."""
        self._wakeups.unlisten(address, {channel(self._schema, queue_id) for queue_id in queue_ids})

    def wake(self, addresses: Iterable[str]) -> None:
        """Wake waiters of this process; those of others get the server's notifications."""
        self._wakeups.wake(addresses)

    def wake_own(self) -> None:
        """Wake all waiters of this process; a signal handler may call it."""
        self._wakeups.wake_own()

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Lock a key on the server that shows others that this process is alive.

        Raises SystemFailureError, or what `connect` raised, where the server cannot be reached.
        """
        owner_id = secrets.randbits(62)
        lock = key(self._schema, Kind.OWNER, owner_id)
        with self._lock:
            self._keys.add(lock)
        try:
            self._reach(lambda: lock in self._held)
        except BaseException:
            self._drop(lock)
            raise
        return Owner(
            id=owner_id,
            space_id=space_id,
            process=this_process(),
            pid=os.getpid(),
            host=os.uname().nodename,
            boot=self._boot,
            lock=str(lock),
            role=role,
            since_us=now_us,
        )

    def release_owner(self, owner: Owner, wakeups: Sequence[str] = ()) -> None:  # noqa: ARG002 - they leave nothing here
        """Unlock the key of an owner of ours; one that died has left nothing."""
        lock = liveness_queries.key_of(owner)
        if lock in self._keys:
            self._drop(lock)

    def alive(self, owners: Sequence[Owner], connection: Connection) -> list[Owner]:
        """Return the owners whose processes are alive, by one query; ours are, also while we reconnect.

        Others count as alive for a while after the server, or the network, has come back: they reconnect as we do.
        """
        others = [owner for owner in owners if liveness_queries.key_of(owner) not in self._keys]
        known = {owner.id for owner in liveness_queries.alive(others, connection)}
        missing = [owner for owner in others if owner.id not in known]
        dead = {owner.id for owner in missing} - self._awaited(missing, connection)
        return [owner for owner in owners if owner.id not in dead]

    def can_judge(self) -> bool:
        """Return whether an owner whose key is not locked is dead, as far as this process knows.

        Where we have lost the server too, it was the network or the server, and others come back as we do.
        """
        return not self._lost and time.monotonic() - self._since >= liveness_queries.GRACE_SECONDS

    def _awaited(self, missing: Sequence[Owner], connection: Connection) -> set[int]:
        """Return which of the missing owners may still come back: they were there before the server restarted."""
        absent = [owner for owner in missing if liveness_queries.key_of(owner) not in (None, *self._dropped)]
        if not absent:
            return set()
        server = liveness_queries.server(connection)
        if not self.can_judge() or self._boot not in ("", server.boot):
            return {owner.id for owner in absent}
        if server.age_seconds >= liveness_queries.GRACE_SECONDS:
            return set()
        return {owner.id for owner in absent if owner.boot != server.boot}

    def is_same_boot(self, owner: Owner, connection: Connection) -> bool:
        """Return whether the server has run without restart since the owner attached."""
        return owner.boot == liveness_queries.server(connection).boot

    def close(self) -> None:
        """Wake all waiters and end the session; it takes a second where the server does not answer."""
        with self._lock:
            self._closed = self._closed or "the device is closed"
            self._changed.notify_all()
            thread = self._thread
        self._wakeups.wake_own()
        self._nudge()
        if thread is None:
            self._close_nudges()
        elif thread is not threading.current_thread():
            thread.join(_CLOSE_SECONDS)

    def pause(self) -> bool:
        """Keep calls into the driver from beginning before a fork of the process; return whether that succeeded."""
        with self._lock:
            self._forks += 1
            connection = self._connection
        if connection is None or connection.pause():
            self._paused = connection
            return True
        self._forks += 1
        return False

    def resume(self) -> None:
        """Allow calls again, after the fork."""
        connection, self._paused = self._paused, None
        if connection is not None:
            connection.resume()
        self._forks += 1

    def abandon(self, *, idle: bool) -> None:
        """Drop, in a forked process, what belongs to the parent; `idle` is what `pause` returned before."""
        self._closed = "the device was opened by the parent process, before a fork"
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread = None
        self._clock.abandon()
        self._wakeups.abandon()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon(idle=idle)
        self._close_nudges()

    def _reach(self, done: Callable[[], bool]) -> None:
        """Wait until the session is in the state that is wanted."""
        end = time.monotonic() + self._patience.answer_seconds
        with self._lock:
            self._check_open()
            if done():
                return
            if self._thread is None:
                here = threading.get_native_id()
                threading.Thread(target=self._run, args=(here,), name="qmadmin-liveness", daemon=True).start()
            self._nudge()
            while not done():
                left = end - time.monotonic()
                if left <= 0:
                    self._refuse_unreached()
                self._changed.wait(left)
                self._check_open()

    def _drop(self, lock: int) -> None:
        """Unlock a key; wait for that as long as the session lasts, and not for long."""
        end = time.monotonic() + _CLOSE_SECONDS
        with self._lock:
            self._keys.discard(lock)
            self._dropped.add(lock)
            self._nudge()
            while lock in self._held and not self._closed and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _refuse_unreached(self) -> None:
        if isinstance(self._failure, QueueError):
            raise self._failure
        raise SystemFailureError(
            f"the PostgreSQL server did not answer within {self._patience.answer_seconds:g} seconds, so that other"
            " processes cannot see this one",
            hint="Check that the server is running and accepts another connection.",
            unreachable=True,
        ) from self._failure

    def _check_open(self) -> None:
        if self._closed:
            raise NotOpenError(self._closed)

    def _nudge(self) -> None:
        # A full socket has enough nudges, and a closed one no reader.
        try:
            self._nudger.send(b"!")
        except OSError:
            return

    def _close_nudges(self) -> None:
        self._nudged.close()
        self._nudger.close()

    def _run(self, starter: int) -> None:
        """Hold the session until closed, unless another thread is: one that an interrupt has started twice."""
        with self._lock:
            if self._thread is not None:
                return
            self._thread = threading.current_thread()
        # They are for the main thread, which may be asleep in a wait and has to wake up. With gevent that is this one.
        if threading.get_native_id() != starter:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._closed:
            try:
                self._stay_connected()
            except Exception as error:  # noqa: BLE001 - whatever fails, others must go on seeing this process
                self._note_loss(error)
                self._back_off()
        self._close_nudges()

    def _stay_connected(self) -> None:
        connection = self._new_connection()
        if connection is None:
            return
        try:
            if self._introduce(connection):
                self._apply(connection)
                if self._own is not None:
                    self._own.outlive(connection, self._boot, tuple(self._keys))
            while not self._closed:
                if self._apply(connection):
                    continue
                self._note_reached()
                ping_due = self._patience.ping_seconds - max(connection.silent_seconds(), self._clock.unasked_seconds())
                if ping_due <= 0:
                    # It shows the server that we are alive, and tells what time it is.
                    self._clock.ask(connection.ask)
                if self._own is not None:
                    self._own.follow_clock(connection, tuple(self._keys))
                for told in connection.sleep(ping_due):
                    self._wakeups.wake_listeners(told)
        finally:
            connection.close()
            self._connection = None

    def _new_connection(self) -> NonblockingConnection | None:
        """Connect; None where a fork came in between, as the child has a copy of the socket then."""
        forks = self._forks
        connection = NonblockingConnection(self._connect(), self._nudged, self._patience.answer_seconds)
        with self._lock:
            if forks == self._forks and forks % 2 == 0:
                self._connection = connection
                return connection
        connection.close()
        return None

    def _introduce(self, connection: NonblockingConnection) -> bool:
        """Set the timeouts of the session, learn which it is, and end former ones of ours.

        Return whether it is another server, or another run of it, than before.
        """
        connection.ask(_settings(self._patience))
        ((pid, started, boot),) = connection.ask(liveness_queries.WHO_AM_I)
        for ghost_pid, ghost_started in self._ghosts:
            connection.ask(liveness_queries.END_SESSION.format(pid=ghost_pid, started=ghost_started))
        self._ghosts = {(int(pid), int(started))}
        with self._lock:
            before, self._boot = self._boot, boot
            if before:
                self._since = time.monotonic()
            return before not in ("", boot)

    def _apply(self, connection: NonblockingConnection) -> bool:
        """Bring the session to the state that is wanted; return whether there was anything to do."""
        with self._lock:
            keys, channels = set(self._keys), self._wakeups.wanted()
            lock, unlock = keys - self._held, self._held - keys
            listen, unlisten = channels - self._heard, self._heard - channels
            # A thread that wants one of them from now on has to wait until it is listened on again.
            self._heard &= channels
        statements = [
            *(f"SELECT pg_advisory_lock({each})" for each in sorted(lock)),
            *(f"SELECT pg_advisory_unlock({each})" for each in unlock),
            *(f"LISTEN {each}" for each in sorted(listen)),
            *(f"UNLISTEN {each}" for each in unlisten),
        ]
        if not statements:
            return False
        connection.ask("; ".join(statements))
        with self._lock:
            self._held, self._heard = keys, channels
            self._changed.notify_all()
        return True

    def _note_reached(self) -> None:
        self._failure = None
        self._pause = _PAUSE_FIRST
        if self._lost:
            self._lost = False
            logger.info("this process is known again to others in schema %r", self._schema)
            # Notifications of what came meanwhile were lost.
            self._wakeups.wake_own()

    def _note_loss(self, error: Exception) -> None:
        with self._lock:
            was_known = bool(self._held or self._heard)
            self._held, self._heard = set(), set()
            self._failure = error
            self._changed.notify_all()
        if was_known and not self._lost and not self._closed:
            self._lost = True
            reason = translate.words(error) if isinstance(error, DriverError) else str(error)
            logger.warning(
                "the session by which others know this process, in schema %r, was lost: %s; it is made again",
                self._schema,
                reason,
            )

    def _back_off(self) -> None:
        """Wait before the next attempt, longer each time, and not in step with other processes."""
        end = time.monotonic() + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - it keeps no secret
        self._pause = min(self._pause * 2, _PAUSE_MOST)
        poll = select.poll()
        poll.register(self._nudged, select.POLLIN)
        while not self._closed and (left := end - time.monotonic()) > 0:
            poll.poll(left * 1000)
            drain(self._nudged)


def _settings(patience: Patience) -> str:
    """Return the settings by which the server notices that we are gone, and that end long waits there."""
    milliseconds = {
        "idle_session_timeout": patience.idle_seconds * 1000,
        "lock_timeout": patience.answer_seconds * 500,
        "statement_timeout": patience.answer_seconds * 1000,
        "tcp_user_timeout": patience.idle_seconds * 500,
    }
    seconds = {
        "tcp_keepalives_idle": max(patience.idle_seconds / 6, 1),
        "tcp_keepalives_interval": max(patience.idle_seconds / 12, 1),
        "tcp_keepalives_count": 4,
    }
    return "; ".join(f"SET {name} = {int(value)}" for name, value in (milliseconds | seconds).items())
