"""A worker of `qmadmin.transfer.pool`: it reads its calls from the pipe whose number it gets as an argument."""

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
    """Carry out calls from the pipe until it ends."""
    # Ctrl-C goes to the whole process group; the driver handles it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
    sys.stdout.flush()
    # Everything is closed. The shutdown of the interpreter takes longer than many exports.
    os._exit(0)


def serve(connection: Connection[Any, Any]) -> None:
    """Carry out calls from the connection until it ends: the first one enters, the others get its result."""
    # If the pipe has ended, the driver is gone, or has no more calls.
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
        # An exception of a library may not be picklable.
        connection.send((True, SystemFailureError(f"a worker process failed: {type(error).__name__}: {error}")))


if __name__ == "__main__":
    main()
