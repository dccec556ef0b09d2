"""Connections that no server and no network can keep waiting for ever.

A server that was stopped, or a network that swallows what is sent, says nothing, and neither does a server that works
on a long statement. So where a session says nothing for long, another one is asked what has become of it.
"""

from __future__ import annotations

import contextlib
import logging
import select
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from qmcore.errors import OperatingSystemError
from qmstorage.forks import FORKS
from qmstorage.postgres import liveness_queries, translate
from qmstorage.postgres.clock import Reading

if TYPE_CHECKING:
    from qmstorage.postgres.address import Address

logger = logging.getLogger("qmadmin.storage")

# An application without logging gets nothing on its standard error: what the driver would log is raised.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

T = TypeVar("T")

SILENCE_SECONDS: Final = 10.0
"""How long a session may be silent before another session is asked about it, and how often that is repeated."""

_LONG_SECONDS: Final = 60.0
"""After so long a statement that is still worked on is logged."""

_WHAT_IT_DOES: Final = """
SELECT state, coalesce(wait_event, '') FROM pg_stat_activity
WHERE pid = {pid} AND (extract(epoch FROM backend_start) * 1000000)::bigint = {started}
"""

_AT_WORK: Final = ("active", "fastpath function call", "disabled")
"""The states of a session that may still answer; the last one is that of a server that keeps no states."""


_SETTINGS: Final = (
    # A wait for a lock has a limit of its own. What a server works on long it is asked about, and left to.
    "SET statement_timeout = 0;"
    # All tables are named with their schema. Functions are those of the server, not those that anybody may have created
    # in a schema such as public, which would run with our rights.
    "SET search_path = pg_catalog;"
    # How we read and write does not depend on what a role, a database or the environment is set up for.
    "SET client_encoding = 'UTF8'; SET standard_conforming_strings = on; SET DateStyle = ISO"
)
"""What every session of ours begins with."""

_SETTINGS_TRIES: Final = 20
"""How often a session begins so: the limit of a role may be so short that a busy server ends that, too."""


class WatchedConnection(psycopg.Connection[Any]):
    """A connection that counts as lost where the server is not at work for it and is silent all the same."""

    conninfo = ""
    identity = liveness_queries.Identity(0, 0, on_standby=False)
    """Which session of the server it is."""

    reading = Reading(0, 0, 0)
    """What time it was at the server when the session began."""

    silence_seconds = SILENCE_SECONDS
    last_words_seconds = 1.0
    """How long an answer may be under way that the server has sent."""

    def close(self) -> None:
        """Close the connection."""
        with FORKS.held_off():
            super().close()

    @contextlib.contextmanager
    def transaction(self, *arguments: Any, **options: Any) -> Iterator[psycopg.Transaction]:
        """Begin a transaction, and commit it at the end; InFailedSqlTransaction where that would undo it."""
        with super().transaction(*arguments, **options) as begun:
            yield begun
            self.refuse_aborted()

    def refuse_aborted(self) -> None:
        """Raise InFailedSqlTransaction where a statement has failed in the transaction that is to be committed."""
        if self.pgconn.transaction_status == TransactionStatus.INERROR:
            raise translate.aborted()

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **options: Any) -> T:
        """Run what waits for the server; OperationalError where the session is lost without a sign of it."""
        return super().wait(self._watched(gen), *arguments, **options)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Pass on what the driver waits for; now and then it resumes although nothing has come."""
        begun = asked = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                came = yield wanted
                if came:
                    asked = time.monotonic()
                elif time.monotonic() - asked >= self.silence_seconds:
                    self._ask_about_it(begun)
                    asked = time.monotonic()
                wanted = gen.send(came)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _ask_about_it(self, begun: float) -> None:
        """Return if the session is still at work, or an answer has come; otherwise give the connection up."""
        try:
            with _connected(self.conninfo, _HastyConnection) as other:
                found = other.execute(_WHAT_IT_DOES.format(**self.identity._asdict())).fetchone()
                if found is not None and found[0] in _AT_WORK:
                    self._tell_of_long_work(begun, found[1])
                    return
                if self._has_come():
                    return
                liveness_queries.end_session(other, self.identity)
        except psycopg.Error as error:
            reason = str(error).strip().partition("\n")[0]
            self._give_up(
                f"the server has been silent for {self.silence_seconds:g} seconds, and cannot be asked: {reason}"
            )
        self._give_up(f"the server was silent for {self.silence_seconds:g} seconds, and was not at work for it")

    def _has_come(self) -> bool:
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return bool(poll.poll(self.last_words_seconds * 1000))

    def _tell_of_long_work(self, begun: float, waits_for: str) -> None:
        seconds = time.monotonic() - begun
        if _LONG_SECONDS <= seconds < _LONG_SECONDS + self.silence_seconds:
            why = f", and waits for {waits_for}" if waits_for else ""
            logger.warning(
                "session %d of the server has worked on one statement for %d seconds%s", self.identity.pid, seconds, why
            )

    def _give_up(self, reason: str) -> None:
        self.pgconn.finish()
        raise psycopg.OperationalError(reason)


class _HastyConnection(WatchedConnection):
    """A connection for statements that never take long."""

    def _ask_about_it(self, begun: float) -> None:
        del begun
        self._give_up(f"no answer within {self.silence_seconds:g} seconds")


def connected(address: Address) -> WatchedConnection:
    """Return a connection in autocommit mode; the caller closes it."""
    return _connected(address.conninfo, WatchedConnection)


def connected_hastily(address: Address) -> WatchedConnection:
    """Return a connection for quick statements, which counts as lost once the server has been silent for long."""
    return _connected(address.conninfo, _HastyConnection)


def _connected(conninfo: str, kind: type[WatchedConnection]) -> WatchedConnection:
    try:
        with FORKS.held_off():
            connection = kind.connect(conninfo, autocommit=True, row_factory=tuple_row)
    except OSError as error:
        # There are too few descriptors to wait for the server; the fault is here.
        raise OperatingSystemError(
            f"a connection to the server of PostgreSQL cannot be made: {error.strerror or error}",
            hint="Close some files or connections, or raise the limit of open files (ulimit -n).",
        ) from error
    connection.conninfo = conninfo
    try:
        _set_up(connection)
        connection.identity, connection.reading = liveness_queries.introduced(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: WatchedConnection) -> None:
    for _ in range(_SETTINGS_TRIES - 1):
        with contextlib.suppress(psycopg.errors.QueryCanceled):
            connection.execute(_SETTINGS)
            return
    connection.execute(_SETTINGS)
