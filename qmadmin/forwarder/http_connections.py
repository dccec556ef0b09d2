"""Connections to one HTTP server: kept while they last, and cut when the time of a call is over."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import http.client
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import SplitResult

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from qmadmin.forwarder.deadlines import Deadlines, Watch
from qmadmin.forwarder.service import STOPS, Call, Failure, Unavailable, too_late
from qmcore.message import BODY_MAX

CONNECT_SECONDS: Final = 10.0
"""How long it may take to reach a server, which then is not there for any message."""

_CHUNK: Final = 256 * 1024
_A_MOMENT: Final = 0.0005
_ERRORS: Final = (OSError, http.client.HTTPException, urllib3.exceptions.HTTPError)


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `is_cut` tells that the body goes on beyond what a message can hold."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool


class Connections:
    """Sends requests to a server over connections of which at most `kept` are kept open between calls."""

    def __init__(self, url: SplitResult, tls: ssl.SSLContext | None, kept: int) -> None:
        self._url = url
        self._tls = tls
        self._kept = kept
        self._idle: list[_Line] = []
        self._busy: set[_Line] = set()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._deadlines = Deadlines("qmadmin-http-deadlines")

    def exchange(self, call: Call, request: Request) -> Answer:
        """Send a request and return the answer.

        Raises Unavailable where the server cannot be reached, and Failure where it was and no answer came, or none in
        time. A request that was sent over a connection that had been kept, and which the server closed at the same
        time, is sent once more: the server knows it again by its key.
        """
        line = self._taken()
        if line is not None:
            try:
                return self._over(line, call, request)
            except _StaleError:
                pass
        return self._over(_Line(self._made()), call, request)

    def stop(self) -> None:
        """Cut all connections on which calls wait, and make no more."""
        with self._lock:
            self._is_stopped = True
            for line in self._busy:
                line.cut()

    def close(self) -> None:
        """Close all connections."""
        self._deadlines.close()
        with self._lock:
            for line in self._idle:
                line.close()
            self._idle.clear()

    def _over(self, line: _Line, call: Call, request: Request) -> Answer:
        is_good = False
        with self._lock:
            self._busy.add(line)
        try:
            answer = self._sent(line, call, request)
            is_good = not answer.is_cut
            return answer
        finally:
            self._put_back(line, is_good=is_good)

    def _sent(self, line: _Line, call: Call, request: Request) -> Answer:
        self._refuse_stopped()
        try:
            if not line.is_open:
                with self._cut_after(line, min(call.left(), CONNECT_SECONDS)):
                    line.connect(min(call.left(), CONNECT_SECONDS))
            with self._cut_after(line, call.left()):
                answer = line.exchange(request, call)
        except (Failure, _StaleError):
            self._refuse_cut(call)
            raise
        # What was cut can look like an answer that has come to its end.
        self._refuse_cut(call)
        return answer

    def _refuse_cut(self, call: Call) -> None:
        self._refuse_stopped()
        if call.left() <= 0:
            raise Failure(too_late(call)) from None

    @contextlib.contextmanager
    def _cut_after(self, line: _Line, seconds: float) -> Iterator[None]:
        """Cut the connection if the block takes longer: a server that sends a byte now and then keeps no call up."""
        if seconds == math.inf:
            yield
            return
        watch = Watch(time.monotonic() + seconds, line.cut)
        self._deadlines.add(watch)
        try:
            yield
        finally:
            if not watch.end():
                while not watch.acted:
                    time.sleep(_A_MOMENT)
            self._deadlines.remove(watch)

    def _refuse_stopped(self) -> None:
        if self._is_stopped:
            raise Unavailable(STOPS)

    def _taken(self) -> _Line | None:
        """Take a connection that was kept and that the server has not closed."""
        with self._lock:
            while self._idle:
                line = self._idle.pop()
                if line.is_alive:
                    return line
                line.close()
        return None

    def _put_back(self, line: _Line, *, is_good: bool) -> None:
        with self._lock:
            self._busy.discard(line)
            if is_good and line.is_alive and len(self._idle) < self._kept and not self._is_stopped:
                self._idle.append(line)
                return
        line.close()

    def _made(self) -> _Plain | _Secure:
        host, port = self._url.hostname or "", self._url.port
        if self._tls is not None:
            return _Secure(host, port, ssl_context=self._tls)
        return _Plain(host, port)


class _StaleError(Exception):
    """A connection that was kept broke before anything came back."""


class _Line:
    """A connection, and a second hold on its socket by which another thread can cut it."""

    def __init__(self, connection: _Plain | _Secure) -> None:
        self._connection = connection
        self._has_answered = False
        connection.connected = self._hold
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """Whether it was connected, and not closed."""
        return self._connection.sock is not None

    @property
    def is_alive(self) -> bool:
        """Whether a request may be sent over it."""
        return self._connection.is_connected

    def connect(self, seconds: float) -> None:
        """Connect, or raise Unavailable."""
        self._connection.timeout = max(seconds, _A_MOMENT)
        try:
            self._connection.connect()
        except _ERRORS as error:
            raise Unavailable(f"the server cannot be reached: {_told(error)}") from error

    def exchange(self, request: Request, call: Call) -> Answer:
        """Send a request and return the answer; whoever calls cuts the connection when the time is over."""
        left = call.left()
        self._connection.timeout = None if left == math.inf else max(left, _A_MOMENT)
        try:
            response = self._response(request)
        except _ERRORS as error:
            if _is_refusal(error):
                raise Unavailable(f"the server refuses the connection: {_told(error)}") from error
            if self._has_answered:
                raise _StaleError from error
            raise Failure(f"the connection ended without an answer: {_told(error)}") from error
        self._has_answered = True
        try:
            body, is_cut = _read(response)
        except _ERRORS as error:
            raise Failure(f"the connection ended in the middle of the answer: {_told(error)}") from error
        return Answer(response.status, response.reason or "", response.headers, body, is_cut)

    def cut(self) -> None:
        """Let whoever reads or writes see the end of the connection; any thread may call this."""
        held = self._socket
        if held is not None:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._connection.close()
        if self._socket is not None:
            self._socket.close()

    def _hold(self, connected: socket.socket) -> None:
        self._socket = connected.dup()

    def _response(self, request: Request) -> urllib3.HTTPResponse:
        try:
            self._connection.request(
                request.method,
                request.target,
                body=request.body,
                headers=request.headers,
                preload_content=False,
            )
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError) as error:
            return self._early_response(error)
        return self._connection.getresponse()

    def _early_response(self, error: OSError) -> urllib3.HTTPResponse:
        """Return the answer of a server that answered before it had read everything; else raise the error."""
        try:
            return self._connection.getresponse()
        except _ERRORS as worse:
            # A certificate is refused after the server was reached.
            raise (worse if _is_refusal(worse) else error) from None


class _Plain(HTTPConnection):
    """A connection that tells of its socket before TLS begins on it."""

    connected: Callable[[socket.socket], None]

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        self.connected(made)
        return made


class _Secure(HTTPSConnection):
    """The same with TLS."""

    connected: Callable[[socket.socket], None]

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        self.connected(made)
        return made


def _read(response: urllib3.HTTPResponse) -> tuple[bytes, bool]:
    """Return the body as far as a message can hold it, and whether there is more."""
    chunks = []
    size = 0
    for chunk in iter(functools.partial(response.read, _CHUNK), b""):
        chunks.append(chunk)
        size += len(chunk)
        if size > BODY_MAX:
            return b"".join(chunks)[:BODY_MAX], True
    return b"".join(chunks), False


def _is_refusal(error: BaseException) -> bool:
    """Tell whether TLS has failed for good; what ends without a word may come back."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def _told(error: BaseException) -> str:
    """Return what has happened, without the objects that it happened to."""
    cause = error.__cause__ if isinstance(error, urllib3.exceptions.HTTPError) else None
    found = cause if isinstance(cause, OSError) else error
    if isinstance(found, TimeoutError):
        return "no answer in time"
    if isinstance(found, OSError) and found.strerror:
        return found.strerror
    return str(found) or type(found).__name__
