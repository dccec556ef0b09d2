"""A connection that never blocks on the network, and what a fork does to connections."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from psycopg import OperationalError
from psycopg import errors as driver_errors
from psycopg.pq import ExecStatus, TransactionStatus

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

Row = tuple[str, ...]

_GOOD = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY)
_FORK_SECONDS = 1.0
"""How long a fork waits for a call into the driver, none of which blocks."""


class NonblockingConnection:
    """One connection of one thread, which sleeps on it and on a socket through which others wake the thread.

    No answer within `answer_seconds` counts as a lost connection.
    """

    def __init__(self, connection: Connection, nudges: socket.socket, answer_seconds: float) -> None:
        self._connection = connection
        self._driver = connection.pgconn
        self._driver.nonblocking = 1
        self._nudges = nudges
        self._answer_seconds = answer_seconds
        self._calling = threading.Lock()
        self._told: list[str] = []
        self._spoke = time.monotonic()

    def ask(self, statements: str) -> list[Row]:
        """Run statements, all of them or none, and return the rows of the last one.

        Raises OperationalError where the connection is lost, and the driver's error for what the server refuses.
        """
        self._spoke = time.monotonic()
        end = self._spoke + self._answer_seconds
        with self._calling:
            self._driver.send_query(statements.encode())
        rows: list[Row] = []
        refusal: PGresult | None = None
        while True:
            with self._calling:
                unsent = self._driver.flush() != 0
                self._driver.consume_input()
                while not self._driver.is_busy():
                    result = self._driver.get_result()
                    if result is None:
                        self._note_told()
                        if refusal is not None:
                            raise driver_errors.error_from_result(refusal)
                        return rows
                    if result.status in _GOOD:
                        rows = _rows(result)
                    else:
                        refusal = result
            if time.monotonic() >= end:
                raise OperationalError(f"the server did not answer within {self._answer_seconds:g} seconds")
            self._sleep_on_server(end - time.monotonic(), unsent=unsent)

    def sleep(self, seconds: float) -> list[str]:
        """Sleep until a notification or a nudge comes or the seconds are over; return the channels notified.

        Raises OperationalError where the connection is lost.
        """
        if not self._told:
            poll = select.poll()
            poll.register(self._driver.socket, select.POLLIN)
            poll.register(self._nudges, select.POLLIN)
            poll.poll(max(seconds, 0.0) * 1000)
        drain(self._nudges)
        with self._calling:
            self._driver.consume_input()
            self._note_told()
        told, self._told = self._told, []
        return told

    def silent_seconds(self) -> float:
        """Return how long ago something was asked."""
        return time.monotonic() - self._spoke

    def pause(self) -> bool:
        """Keep calls into the driver from beginning before a fork of the process; return whether that succeeded."""
        return self._calling.acquire(timeout=_FORK_SECONDS)

    def resume(self) -> None:
        """Allow calls again."""
        self._calling.release()

    def close(self) -> None:
        """Close the connection."""
        with self._calling:
            self._connection.close()

    def abandon(self, *, idle: bool) -> None:
        """Drop, in a forked process, what belongs to the parent; `idle`: no call was under way."""
        if idle:
            abandon_connection(self._connection)
        else:
            _cut_off(self._connection)

    def _note_told(self) -> None:
        while (told := self._driver.notifies()) is not None:
            self._told.append(told.relname.decode())

    def _sleep_on_server(self, seconds: float, *, unsent: bool) -> None:
        poll = select.poll()
        poll.register(self._driver.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
        poll.poll(max(seconds, 0.0) * 1000 + 1)


def drain(nudges: socket.socket) -> None:
    """Take all nudges that have come."""
    with contextlib.suppress(BlockingIOError):
        while nudges.recv(4096):
            pass


def abandon_connection(connection: Connection) -> None:
    """Close, in a forked process, a connection that belongs to the parent, without telling the server.

    One that another thread of the parent waits on is only cut off: the driver may have been in the middle of changing
    its state.
    """
    at_work = connection.pgconn.transaction_status == TransactionStatus.ACTIVE
    _cut_off(connection)
    if not at_work:
        connection.close()


def _cut_off(connection: Connection) -> None:
    """Replace the socket by nothing: while a copy of it is open, the server takes the parent for alive."""
    try:
        descriptor = connection.pgconn.socket
    except OperationalError:
        # It is closed.
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


def _rows(result: PGresult) -> list[Row]:
    return [
        tuple((result.get_value(row, column) or b"").decode() for column in range(result.nfields))
        for row in range(result.ntuples)
    ]
