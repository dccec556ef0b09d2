"""What became of a commit that was under way when the connection was lost.

A unit that moves messages gets the number of its transaction together with the counters. Another session can ask by it
whether the transaction was committed, as long as the server has not been restarted meanwhile: after a crash, and on a
standby that was promoted, the same number may belong to another transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.pq import TransactionStatus

from qmcore.probe import Point
from qmcore.records import Nothing
from qmcore.transitions import Empty
from qmstorage.postgres import liveness_queries, translate
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from qmstorage.postgres.connection_timeouts import WatchedConnection
    from qmstorage.postgres.sessions import Session
    from qmstorage.postgres.volume import PostgresVolume

_PATIENCE_SECONDS: Final = 5.0
"""How long a transaction may still be in progress whose session was ended."""

_BROUGHT_TO_DISK: Final = "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'qmadmin', '')"
"""Writes a record after all that was committed, and returns once it, and so all before it, is on the disk."""


def was_done(connect: Callable[[], WatchedConnection], session: Session, number: str) -> bool | None:
    """Return whether the commit of a transaction was done whose session was lost under way; None: that cannot be told.

    The session is ended if it is still there. `number` is the transaction's, "" where it is not known.
    """
    if not number:
        return None
    try:
        with connect() as connection:
            if liveness_queries.server(connection).boot != session.boot:
                return None
            liveness_queries.end_session(connection, session.connection.identity)
            return _outcome(connection, number)
    except psycopg.Error:
        return None


def last_number(connect: Callable[[], WatchedConnection], session: Session, schema: str, space_id: int) -> int | None:
    """Return the last number that was given to what a lost session committed; None: that cannot be told.

    The session is ended if it is still there. Its row of the counters tells, unless another session has its share of
    them by now, and has written there.
    """
    asked = (
        f"SELECT generation, sequence FROM {quoted(schema)}.counter"  # noqa: S608 - words of ours
        f" WHERE space_id = {space_id} AND queue_id = 0 AND slot = {session.slot}"
    )
    try:
        with connect() as connection:
            liveness_queries.end_session(connection, session.connection.identity)
            if not _is_gone(connection, session):
                return None
            # First: a standby, whose row may be an old one, refuses it.
            connection.execute(_BROUGHT_TO_DISK)
            found = connection.execute(asked).fetchone()
    except psycopg.Error:
        return None
    return int(found[1]) if found is not None and found[0] == session.mark else None


def _is_gone(connection: WatchedConnection, session: Session) -> bool:
    end = time.monotonic() + _PATIENCE_SECONDS
    while liveness_queries.is_there(connection, session.connection.identity):
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def _outcome(connection: WatchedConnection, number: str) -> bool | None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        ((status,),) = connection.execute("SELECT pg_xact_status(%s::text::xid8)", [number])
        if status == "committed":
            connection.execute(_BROUGHT_TO_DISK)
            return True
        if status == "aborted":
            return False
        time.sleep(0.01)
    return None


def is_nothing(result: object) -> bool:
    """Return whether a work has done nothing by its result, so that it may be done again."""
    if isinstance(result, list):
        return all(isinstance(each, Empty) for each in result)
    return isinstance(result, Nothing)


class Again(Exception):  # noqa: N818 - it is not a failure yet
    """Nothing has been done, and the work can be done again."""

    def __init__(self, error: psycopg.Error, *, is_lost: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_lost = is_lost


def commit(
    volume: PostgresVolume, session: Session, act: Callable[[], object], number: str, *, is_repeatable: bool
) -> None:
    """Commit what a session has done, in the transaction of that number, or raise why it is not committed.

    Again where it has to be done again, OutcomeUnknownError where that cannot be told.
    """
    probe = volume.probe
    try:
        if probe.actions:
            probe.reach(Point.BEFORE_COMMIT, 1)
        # Here and not in a function: each commit of a message comes by.
        if session.connection.pgconn.transaction_status == TransactionStatus.INERROR:
            raise translate.aborted()
        act()
        if probe.actions:
            probe.reach(Point.AFTER_COMMIT, 1)
    except psycopg.Error as error:
        if not translate.is_connection_lost(error) and not session.is_lost:
            raise volume.before_commit(error, session) from error
        is_undone = is_repeatable or translate.was_idle(error)
        done = False if is_undone else was_done(volume.connected_hastily, session, number)
        if done is None:
            raise translate.outcome_unknown(error, volume.path) from error
        if not done:
            raise Again(error, is_lost=True) from error
