"""A worker process: it calls a function in Python for the forwarder that started it, one request at a time.

    python -m qmadmin.forwarder.worker_main CONNECTION LIFELINE

Both are descriptors: a socket for requests and outcomes, and a pipe whose other end the forwarder keeps open as long as
it lives. The process and all that it has started end with the forwarder, however that ends and whatever they do.

What the two send each other are frames: objects, each preceded by its length.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import math
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from qmadmin.consumers import Call, Park, Reply, Snooze, Unavailable, current, rollback_terms
from qmadmin.consumers.current import call_span
from qmadmin.consumers.decoding import is_coroutine_function
from qmadmin.consumers.function_handler import Outcome, described, end_forked, failure_of, reply_of
from qmadmin.forwarder import StartError, program_log
from qmadmin.forwarder.descriptions import find_function
from qmadmin.volume_makers import path_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from qmcore.message import Message


def main(connection: int, lifeline: int) -> None:
    """Work until the forwarder closes the connection."""
    _end_with(lifeline)
    # What a service prints must not mix with the standard output of the forwarder.
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    # A signal to a whole process group is meant for the forwarder, which lets this process finish its call.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _pass)
    for descriptor in (connection, lifeline):
        os.set_inheritable(descriptor, False)
    with socket.socket(fileno=connection) as link:
        _work(link)


def _work(link: socket.socket) -> None:
    path, target, name, log = receive(link, _for_ever)
    sys.path[:] = path
    if log is not None:
        program_log.go_on(program_log.LogTerms(*log))
    try:
        function = _callable(find_function(target, name))
    except StartError as error:
        send(link, packed(str(error)), _for_ever)
        return
    send(link, packed(""), _for_ever)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            request, seconds = receive(link, _for_ever)
            # From here on the function may have been called.
            send(link, packed(None), _for_ever)
            send(link, _outcome(function, Call(request, seconds)), _for_ever)


def _callable(function: Callable[[Message], Any]) -> Callable[[Message], object]:
    """Return a function that calls the handler and waits for its end."""
    if not is_coroutine_function(function):
        return function
    import asyncio
    from contextvars import copy_context

    runner = asyncio.Runner()

    def run(request: Message) -> object:
        return runner.run(function(request), context=copy_context())

    return run


def _outcome(function: Callable[[Message], object], call: Call) -> bytes:
    """Call the function; return its outcome, as it is sent."""
    pid = os.getpid()
    with current.CurrentCall(None, call, place=_place()) as this:
        try:
            with call_span(call.request, os.environ.get("QM_SPACE", ""), program_log.WORDING.logger):
                answer = function(call.request)
                if os.getpid() != pid:
                    end_forked(None)
                reply = reply_of(answer)
            return packed(("reply", _plain(reply), this.collected))
        except BaseException as error:  # noqa: BLE001 - as in the forwarder, where it would be a failure too
            if os.getpid() != pid:
                end_forked(error)
            failure = failure_of(error)
            return _failed(failure, "" if failure is error else traceback.format_exc())


def _place() -> tuple[str, str]:
    """Return the path of the forwarder's device, and its queue space."""
    device = os.environ.get("QMCONFIG", "")
    return path_of(device) if device else "", os.environ.get("QM_SPACE", "")


def _failed(failure: Outcome, trace: str) -> bytes:
    if isinstance(failure, Unavailable):
        return packed(("unavailable", str(failure), failure.retry_after))
    if isinstance(failure, Snooze):
        return packed(("snooze", str(failure), failure.retry_after))
    if isinstance(failure, Park):
        return packed(("park", str(failure)))
    told = rollback_terms(failure), trace
    try:
        return packed(("failure", str(failure), _plain(failure.reply), *told))
    except Exception as error:  # noqa: BLE001 - what cannot be sent is left out
        return packed(("failure", f"{failure}; {described(error)}", (None, 0, None, None), *told))


def _plain(reply: Reply) -> tuple[bytes | str | None, int, str | None, dict[str, str] | None]:
    """Return a reply without objects of classes that only the module of the service has."""
    body = reply.body
    if isinstance(body, str):
        body = str.__str__(body)
    elif body is not None:
        body = bytes(cast("Buffer", body))
    return body, int(reply.urcode), reply.type, None if reply.headers is None else dict(reply.headers)


def _end_with(lifeline: int) -> None:
    """End this process and its group when the other end of the pipe is closed.

    If the system can send a signal for that, it ends even code that does not let other threads run.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # It may have been closed already.
    threading.Thread(target=_await_end, args=(lifeline,), name="qmadmin-lifeline", daemon=True).start()


def _await_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _for_ever() -> float:
    return math.inf


def _pass(_number: int, _frame: object) -> None:
    pass


_LENGTH: Final = struct.Struct("!Q")
_CHUNK: Final = 1 << 20

_PLAIN: Final = {("datetime", "datetime"), ("datetime", "timedelta"), ("datetime", "timezone")}


def packed(item: object) -> bytes:
    """Return an object as it is sent; raises what pickle does."""
    data = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


def send(connection: socket.socket, data: bytes, left: Callable[[], float]) -> None:
    """Send packed bytes within the remaining seconds, or raise TimeoutError; OSError if the other side is gone."""
    _limit(connection, left)
    connection.sendall(data)


def receive(connection: socket.socket, left: Callable[[], float]) -> Any:
    """Return what the forwarder has sent. Raises EOFError if it has closed the connection."""
    return pickle.loads(_received(connection, left))  # noqa: S301 - it comes from the forwarder


def receive_plain(connection: socket.socket, left: Callable[[], float]) -> Any:
    """Return what a worker has sent: plain values. Raises TimeoutError, EOFError, and UnpicklingError for others."""
    return _PlainUnpickler(io.BytesIO(_received(connection, left))).load()


class _PlainUnpickler(pickle.Unpickler):
    """Refuses objects of classes of a service, whose module it would have to load."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")


def _received(connection: socket.socket, left: Callable[[], float]) -> bytearray:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, left))
    return _exactly(connection, length, left)


def _exactly(connection: socket.socket, length: int, left: Callable[[], float]) -> bytearray:
    data = bytearray()
    while len(data) < length:
        _limit(connection, left)
        chunk = connection.recv(min(length - len(data), _CHUNK))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def _limit(connection: socket.socket, left: Callable[[], float]) -> None:
    seconds = left()
    if seconds <= 0:
        raise TimeoutError
    connection.settimeout(None if seconds == math.inf else seconds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
