"""The commit of a session, and what became of one that was under way when the connection was lost.

The transaction's number is asked for in the same packet as the commit, and comes before that is done. A later session
can ask by it whether the transaction was committed, as long as the server has not been restarted meanwhile: behind a
crash, and on a standby that was promoted, the same number may be another transaction's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.waiting import Ready, Wait

from qmstorage.postgres import living, watching

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from qmstorage.postgres.watching import WatchedConnection

_NUMBER: Final = b"qm_number"
_COMMIT: Final = b"qm_commit"
_STATEMENTS: Final = {_NUMBER: b"SELECT pg_current_xact_id_if_assigned()::text", _COMMIT: b"COMMIT"}

_PATIENCE_SECONDS: Final = 5.0
"""How long a transaction may still be in progress whose session was ended."""

_BROUGHT_TO_DISK: Final = "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'qmadmin', '')"
"""Writes something behind all that was committed, and returns when it, and so all before, is where it has to be."""


def prepare(connection: WatchedConnection) -> None:
    """Make a connection ready for commits that are `prepared`, and forget all else that is prepared."""
    connection.execute("DEALLOCATE ALL", prepare=False)
    for name, statement in _STATEMENTS.items():
        result = connection.pgconn.prepare(name, statement)
        if result.status != ExecStatus.COMMAND_OK:
            raise errors.error_from_result(result)


def commit(connection: WatchedConnection, heard: list[str], *, prepared: bool) -> None:
    """Commit the transaction of a connection, in one round trip.

    `heard` gets the transaction's number as soon as it is known, "" for one that has changed nothing: also where the
    connection is lost after that. A transaction that drops something cannot be committed as `prepared`.
    """
    with connection.lock:
        connection.wait(_committing(connection.pgconn, heard, prepared=prepared))


def was_done(connect: Callable[[], WatchedConnection], pid: int, boot: str, heard: list[str]) -> bool | None:
    """Tell whether a commit was done whose session was lost under way; None where nobody can tell.

    `pid` is the server's process of the session, which is ended if it is still there, and `boot` the server's start.
    """
    if not heard:
        return None
    if not heard[0]:
        return True
    try:
        with connect() as connection:
            if living.server(connection).boot != boot:
                return None
            connection.execute(watching.END_SESSION, [pid])
            return _outcome(connection, heard[0])
    except psycopg.Error:
        return None


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


def _committing(driver: PGconn, heard: list[str], *, prepared: bool) -> Generator[Any, Any, None]:
    """Send both statements at once, and have the server tell the number before it begins to commit."""
    driver.enter_pipeline_mode()
    for name, statement in _STATEMENTS.items():
        if prepared:
            driver.send_query_prepared(name, None)
        else:
            driver.send_query_params(statement, None)
        driver.send_flush_request()
    driver.pipeline_sync()
    while driver.flush():
        if (yield Wait.RW) & Ready.R:
            driver.consume_input()
    refusal: PGresult | None = None
    while True:
        while driver.is_busy():
            if (yield Wait.R):
                driver.consume_input()
        result = driver.get_result()
        if result is None:
            if driver.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection is lost")
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            break
        if result.status == ExecStatus.TUPLES_OK:
            heard.append((result.get_value(0, 0) or b"").decode())
        elif result.status == ExecStatus.FATAL_ERROR:
            refusal = refusal or result
    driver.exit_pipeline_mode()
    if refusal is not None:
        raise errors.error_from_result(refusal)
