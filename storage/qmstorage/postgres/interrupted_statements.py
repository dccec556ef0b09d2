"""Statements in whose middle an exception has come from outside, as Ctrl-C or the end of a call's time."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

_SECONDS: Final = 5
"""How long the server has to end a statement that is cancelled."""
_COPIES: Final = (ExecStatus.COPY_IN, ExecStatus.COPY_OUT, ExecStatus.COPY_BOTH)


@contextlib.contextmanager
def rolling_back(driver: psycopg.Connection[Any]) -> Iterator[None]:
    """Roll back in the block, whatever the connection was in the middle of; close it where that cannot be done.

    By itself the driver ends a statement at Ctrl-C alone, and only while it waits.
    """
    try:
        _end_statement(driver)
        yield
    except psycopg.Error:
        driver.close()
        raise


def _end_statement(driver: psycopg.Connection[Any]) -> None:
    """Have the server end the statement that a connection is in the middle of, as nothing else is sent before that."""
    pgconn = driver.pgconn
    if driver.closed:
        return
    if pgconn.pipeline_status == PipelineStatus.OFF and pgconn.transaction_status == TransactionStatus.ACTIVE:
        driver.cancel()
        _read_to_the_end(pgconn)
    if pgconn.pipeline_status != PipelineStatus.OFF or pgconn.transaction_status == TransactionStatus.ACTIVE:
        driver.close()


def _read_to_the_end(pgconn: PGconn) -> None:
    """Read what the server still answers, unless it waits for data, or takes too long."""
    while True:
        while pgconn.is_busy():
            if not select.select([pgconn.socket], [], [], _SECONDS)[0]:
                return
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None or result.status in _COPIES:
            return
