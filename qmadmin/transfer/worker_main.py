"""A worker of `qmadmin.transfer.pool`: what it is told comes through the pipe whose number it is started with."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from qmcore.errors import SystemFailureError


def main() -> None:
    """Do what comes through the pipe until it ends."""
    # Ctrl-C goes to the whole group of processes; the driver hears it, and ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
    sys.stdout.flush()
    # All that was opened is closed. To take the modules apart one by one takes longer than many an export.
    os._exit(0)


def serve(connection: Connection[Any, Any]) -> None:
    """Do what comes through the connection until it ends: the first call enters, the others get what it gave."""
    # The driver is gone where the pipe has ended, or has nothing more for us.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError), contextlib.ExitStack() as stack:
        enter, arguments = connection.recv()
        entered: list[Any] = []
        _answer(connection, lambda: entered.append(stack.enter_context(enter(*arguments))))
        while True:
            unit, arguments = connection.recv()
            _answer(connection, lambda unit=unit, arguments=arguments: unit(entered[0], *arguments))  # type: ignore[misc]


def _answer(connection: Connection[Any, Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 - it is raised in the driver
        error.add_note(f"In worker process {os.getpid()}:\n{traceback.format_exc()}")
        _send_error(connection, error)
    else:
        connection.send((False, result))


def _send_error(connection: Connection[Any, Any], error: Exception) -> None:
    try:
        connection.send((True, error))
    except (TypeError, AttributeError, ValueError):
        # What a library raises need not be fit to travel.
        connection.send((True, SystemFailureError(f"a worker process failed: {type(error).__name__}: {error}")))


if __name__ == "__main__":
    main()
