"""The messages between the forwarder and its worker processes: objects, each preceded by its length."""

from __future__ import annotations

import io
import math
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

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
