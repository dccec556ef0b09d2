"""Connections to one HTTP server: pooled, and cut when the time of a call is over."""

from __future__ import annotations

import contextlib
import functools
import http.client
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import SplitResult

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from qmadmin.consumers import Call, Failure, Unavailable, too_late
from qmadmin.consumers.deadlines import Deadline, Deadlines
from qmadmin.forwarder import STOPS
from qmcore.message import BODY_MAX
from qmcore.values import dataclass

CONNECT_SECONDS: Final = 10.0
"""How many seconds it may take to reach a server; after that it counts as unreachable for every message."""

_CHUNK: Final = 256 * 1024
_A_MOMENT: Final = 0.0005
_ERRORS: Final = (OSError, http.client.HTTPException, urllib3.exceptions.HTTPError)


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the server; `is_cut`: its body is longer than a message can hold."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool


class Connections:
    """Sends requests to a server over a pool of connections; at most `kept` of them stay open between calls."""

    def __init__(self, url: SplitResult, tls: ssl.SSLContext | None, kept: int) -> None:
        host, port = url.hostname or "", url.port
        more: dict[str, Any] = {"maxsize": kept, "serves": self._serves, "bounded": self._cut_after}
        self._pool: urllib3.HTTPConnectionPool
        if tls is None:
            self._pool = urllib3.HTTPConnectionPool(host, port, **more)
            self._pool.ConnectionCls = _Plain
        else:
            self._pool = urllib3.HTTPSConnectionPool(host, port, ssl_context=tls, **more)
            self._pool.ConnectionCls = _Secure
        self._running: dict[int, _Exchange] = {}
        """The running exchanges, by their thread."""
        self._is_stopped = False
        self._deadlines = Deadlines("qmadmin-http-deadlines")

    def exchange(self, call: Call, request: Request) -> Answer:
        """Send a request and return the answer.

        Raises Unavailable if the server cannot be reached, and Failure if it was reached and no answer came, or none in
        time. A request that was sent over a pooled connection which the server closed at the same time is sent once
        more: the server recognises it by its key.
        """
        try:
            return self._sent(call, request)
        except _StaleError as error:
            # The pool returns the connection that has just been closed, which connects again.
            return self._sent(call, request, error)

    def stop(self) -> None:
        """Cut all connections on which calls wait, and open no more."""
        self._is_stopped = True
        for exchange in list(self._running.values()):
            exchange.cut()

    def close(self) -> None:
        """Close all connections."""
        self._deadlines.close()
        self._pool.close()

    def _sent(self, call: Call, request: Request, before: _StaleError | None = None) -> Answer:
        """Send a request over a connection of the pool; `before` is how a pooled one broke during the first try."""
        thread, exchange = threading.get_ident(), _Exchange(call)
        self._running[thread] = exchange
        try:
            # A stop from now on finds the exchange.
            self._refuse_stopped()
            with self._cut_after(exchange, call.left()):
                answer = self._answer(exchange, request)
        except _StaleError as error:
            self._refuse_cut(call)
            if before is not None:
                raise Failure(f"the connection ended without an answer: {error}") from error
            raise
        except Failure:
            self._refuse_cut(call)
            raise
        finally:
            self._running.pop(thread).end()
        # A connection that was cut can look like the end of an answer.
        self._refuse_cut(call)
        return answer

    def _answer(self, exchange: _Exchange, request: Request) -> Answer:
        left = exchange.call.left()
        timeout = urllib3.Timeout(
            connect=max(min(left, CONNECT_SECONDS), _A_MOMENT), read=None if left == math.inf else max(left, _A_MOMENT)
        )
        try:
            response = self._pool.urlopen(
                request.method,
                request.target,
                request.body,
                request.headers,
                retries=False,
                redirect=False,
                assert_same_host=False,
                timeout=timeout,
                preload_content=False,
            )
        except _ERRORS as error:
            raise exchange.failure(_cause(error)) from error
        try:
            body, is_cut = _read(response)
        except _ERRORS as error:
            raise Failure(f"the connection ended in the middle of the answer: {_told(_cause(error))}") from error
        finally:
            # If all of it was read, the connection is back in the pool by now.
            response.close()
            response.release_conn()
        return Answer(response.status, response.reason or "", response.headers, body, is_cut)

    def _serves(self, connection: _Plain) -> _Exchange:
        """Return the exchange that uses a connection of the pool now."""
        exchange = self._running[threading.get_ident()]
        exchange.connection = connection
        return exchange

    def _refuse_cut(self, call: Call) -> None:
        self._refuse_stopped()
        if call.left() <= 0:
            raise Failure(too_late(call)) from None

    def _refuse_stopped(self) -> None:
        if self._is_stopped:
            raise Unavailable(STOPS)

    @contextlib.contextmanager
    def _cut_after(self, exchange: _Exchange, seconds: float) -> Iterator[None]:
        """Cut the connection if the block takes longer: sending a byte now and then does not prolong a call."""
        if seconds == math.inf:
            yield
            return
        watch = Deadline(time.monotonic() + seconds, exchange.cut)
        self._deadlines.add(watch)
        try:
            yield
        finally:
            if not watch.end():
                while not watch.acted:
                    time.sleep(_A_MOMENT)
            self._deadlines.remove(watch)


class _StaleError(Exception):
    """A pooled connection broke before anything was received."""


class _Exchange:
    """A request in progress, and its connection."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.connection: _Plain | None = None
        self.is_reached = False
        """Whether the server was reached."""

    def end(self) -> None:
        """Release the connection, which another exchange may use by now."""
        if self.connection is not None:
            self.connection.leave(self)

    def cut(self) -> None:
        """Cut the connection under the thread that reads or writes; any thread may call this."""
        if self.connection is not None:
            self.connection.cut(self)

    def failure(self, error: BaseException) -> Exception:
        """Return the failure of a request without an answer."""
        if not self.is_reached:
            return Unavailable(f"the server cannot be reached: {_told(error)}")
        if _is_refusal(error):
            return Unavailable(f"the server refuses the connection: {_told(error)}")
        if self.connection is not None and self.connection.has_answered:
            return _StaleError(_told(error))
        return Failure(f"the connection ended without an answer: {_told(error)}")


class _Plain(HTTPConnection):
    """A connection of the pool, with a duplicate of its socket by which another thread can cut it.

    `serves` returns the exchange of the calling thread, and `bounded` a block within which it connects.
    """

    def __init__(
        self,
        *where: Any,
        serves: Callable[[_Plain], _Exchange],
        bounded: Callable[[_Exchange, float], contextlib.AbstractContextManager[None]],
        **how: Any,
    ) -> None:
        super().__init__(*where, **how)
        self.has_answered = False
        self._serves = serves
        self._bounded = bounded
        self._duplicate: socket.socket | None = None
        self._lock = threading.Lock()
        self._exchange: _Exchange | None = None
        """Its exchange. The end of an answer returns the connection to the pool, a moment before the exchange ends."""

    def connect(self) -> None:
        """Connect to the server."""
        exchange = self._begun()
        exchange.is_reached = False
        with self._bounded(exchange, min(exchange.call.left(), CONNECT_SECONDS)):
            super().connect()
        exchange.is_reached = True

    def request(self, *what: Any, **how: Any) -> None:
        """Send a request."""
        self._begun().is_reached = not self.is_closed
        # A server that refuses a certificate says so before it ends the connection; reading the answer shows it.
        with contextlib.suppress(ssl.SSLEOFError):
            super().request(*what, **how)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3 does
        """Return the answer, whose body has not been read yet."""
        response = super().getresponse()
        self.has_answered = True
        return response

    def cut(self, exchange: _Exchange) -> None:
        """Cut the connection under the thread that reads or writes, if it is still used for the exchange."""
        with self._lock, contextlib.suppress(OSError):
            if self._exchange is exchange and self._duplicate is not None:
                self._duplicate.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it; it may be connected again. The duplicate is kept while the rest of an answer is read."""
        super().close()
        with self._lock:
            if self._exchange is None:
                self._close_duplicate()

    def leave(self, exchange: _Exchange) -> None:
        """Note that an exchange over it has ended."""
        with self._lock:
            if self._exchange is exchange:
                self._exchange = None
                if self.is_closed:
                    self._close_duplicate()

    def _begun(self) -> _Exchange:
        """Return the exchange that uses it from now on."""
        exchange = self._serves(self)
        with self._lock:
            self._exchange = exchange
        return exchange

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        with self._lock:
            self._close_duplicate()
            # Before TLS begins: a TLS socket cannot be duplicated.
            self._duplicate, self.has_answered = made.dup(), False
        return made

    def _close_duplicate(self) -> None:
        if self._duplicate is not None:
            self._duplicate.close()


class _Secure(_Plain, HTTPSConnection):
    """The same with TLS."""


def _read(response: urllib3.BaseHTTPResponse) -> tuple[bytes, bool]:
    """Return as much of the body as a message can hold, and whether there is more."""
    chunks = []
    size = 0
    for chunk in iter(functools.partial(response.read, _CHUNK), b""):
        chunks.append(chunk)
        size += len(chunk)
        if size > BODY_MAX:
            return b"".join(chunks)[:BODY_MAX], True
    return b"".join(chunks), False


def _cause(error: BaseException) -> BaseException:
    """Return the cause of an error of the pool."""
    for inner in (error.__cause__, *reversed(error.args)):
        if isinstance(error, urllib3.exceptions.HTTPError) and isinstance(inner, (OSError, http.client.HTTPException)):
            return inner
    return error


def _is_refusal(error: BaseException) -> bool:
    """Return whether TLS has failed for good; a connection that just ends may be temporary."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def _told(error: BaseException) -> str:
    """Return what has happened, without the representations of objects."""
    if isinstance(error, (TimeoutError, urllib3.exceptions.TimeoutError)):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
