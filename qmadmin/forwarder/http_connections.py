"""Connections to one HTTP server: pooled while they last, and cut when the time of a call is over."""

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
from typing import Any, Final
from urllib.parse import SplitResult

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from qmadmin.consumers.deadlines import Deadlines, Watch
from qmadmin.consumers.handler import Call, Failure, Unavailable, too_late
from qmadmin.forwarder.errors import STOPS
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
    """Sends requests to a server over a pool of connections, of which at most `kept` stay open between calls."""

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
        """Those that go on, by the thread that makes them."""
        self._is_stopped = False
        self._deadlines = Deadlines("qmadmin-http-deadlines")

    def exchange(self, call: Call, request: Request) -> Answer:
        """Send a request and return the answer.

        Raises Unavailable where the server cannot be reached, and Failure where it was and no answer came, or none in
        time. A request that was sent over a connection that had been kept, and which the server closed at the same
        time, is sent once more: the server knows it again by its key.
        """
        try:
            return self._sent(call, request)
        except _StaleError as error:
            # The pool gives the one that has just been closed, and which is connected again.
            return self._sent(call, request, error)

    def stop(self) -> None:
        """Cut all connections on which calls wait, and make no more."""
        self._is_stopped = True
        for exchange in list(self._running.values()):
            exchange.cut()

    def close(self) -> None:
        """Close all connections."""
        self._deadlines.close()
        self._pool.close()

    def _sent(self, call: Call, request: Request, before: _StaleError | None = None) -> Answer:
        """Send a request over a connection of the pool; `before` is how a kept one broke under it."""
        thread, exchange = threading.get_ident(), _Exchange(call)
        self._running[thread] = exchange
        try:
            # A stop after this finds the exchange.
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
        # What was cut can look like an answer that has come to its end.
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
            # Where all of it was read, it is back in the pool by now.
            response.close()
            response.release_conn()
        return Answer(response.status, response.reason or "", response.headers, body, is_cut)

    def _serves(self, connection: _Plain) -> _Exchange:
        """Return the exchange for which a connection of the pool is used now."""
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
        """Cut the connection if the block takes longer: a server that sends a byte now and then keeps no call up."""
        if seconds == math.inf:
            yield
            return
        watch = Watch(time.monotonic() + seconds, exchange.cut)
        self._deadlines.add(watch)
        try:
            yield
        finally:
            if not watch.end():
                while not watch.acted:
                    time.sleep(_A_MOMENT)
            self._deadlines.remove(watch)


class _StaleError(Exception):
    """A connection that was kept broke before anything came back."""


class _Exchange:
    """A request on its way, and the connection that it goes over."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.connection: _Plain | None = None
        self.is_reached = False
        """Whether the server was reached for it."""

    def end(self) -> None:
        """Release the connection, which may serve another exchange by now."""
        if self.connection is not None:
            self.connection.leave(self)

    def cut(self) -> None:
        """Cut the connection under the thread that reads or writes; any thread may call this."""
        if self.connection is not None:
            self.connection.cut(self)

    def failure(self, error: BaseException) -> Exception:
        """Return what a request has failed with that no answer came to."""
        if not self.is_reached:
            return Unavailable(f"the server cannot be reached: {_told(error)}")
        if _is_refusal(error):
            return Unavailable(f"the server refuses the connection: {_told(error)}")
        if self.connection is not None and self.connection.has_answered:
            return _StaleError(_told(error))
        return Failure(f"the connection ended without an answer: {_told(error)}")


class _Plain(HTTPConnection):
    """A connection of the pool, with a second hold on its socket by which another thread can cut it.

    `serves` returns the exchange that the calling thread makes over it, and `bounded` a block in which it is reached.
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
        self._held: socket.socket | None = None
        self._lock = threading.Lock()
        self._exchange: _Exchange | None = None
        """What it serves. The end of an answer gives it back to the pool, a moment before the exchange ends."""

    def connect(self) -> None:
        """Reach the server."""
        exchange = self._begun()
        exchange.is_reached = False
        with self._bounded(exchange, min(exchange.call.left(), CONNECT_SECONDS)):
            super().connect()
        exchange.is_reached = True

    def request(self, *what: Any, **how: Any) -> None:
        """Send a request."""
        self._begun().is_reached = not self.is_closed
        # A server that refuses a certificate says so before it ends the connection, which the answer shows.
        with contextlib.suppress(ssl.SSLEOFError):
            super().request(*what, **how)

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]  # as urllib3 does
        """Return the answer, of which the body is still to be read."""
        response = super().getresponse()
        self.has_answered = True
        return response

    def cut(self, exchange: _Exchange) -> None:
        """Cut the connection under the thread that reads or writes, if that is still for the exchange."""
        with self._lock, contextlib.suppress(OSError):
            if self._exchange is exchange and self._held is not None:
                self._held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it; it may be connected again. The hold stays for as long as the rest of an answer is read."""
        super().close()
        with self._lock:
            if self._exchange is None:
                self._let_go()

    def leave(self, exchange: _Exchange) -> None:
        """Note that an exchange over it has come to its end."""
        with self._lock:
            if self._exchange is exchange:
                self._exchange = None
                if self.is_closed:
                    self._let_go()

    def _begun(self) -> _Exchange:
        """Return the exchange that it serves from now on."""
        exchange = self._serves(self)
        with self._lock:
            self._exchange = exchange
        return exchange

    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        with self._lock:
            self._let_go()
            # Before TLS begins on it: what that makes of a socket cannot be had twice.
            self._held, self.has_answered = made.dup(), False
        return made

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()


class _Secure(_Plain, HTTPSConnection):
    """The same with TLS."""


def _read(response: urllib3.BaseHTTPResponse) -> tuple[bytes, bool]:
    """Return the body as far as a message can hold it, and whether there is more."""
    chunks = []
    size = 0
    for chunk in iter(functools.partial(response.read, _CHUNK), b""):
        chunks.append(chunk)
        size += len(chunk)
        if size > BODY_MAX:
            return b"".join(chunks)[:BODY_MAX], True
    return b"".join(chunks), False


def _cause(error: BaseException) -> BaseException:
    """Return what has happened, of which the pool tells in an error of its own."""
    for inner in (error.__cause__, *reversed(error.args)):
        if isinstance(error, urllib3.exceptions.HTTPError) and isinstance(inner, (OSError, http.client.HTTPException)):
            return inner
    return error


def _is_refusal(error: BaseException) -> bool:
    """Return whether TLS has failed for good; what ends without a word may come back."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))


def _told(error: BaseException) -> str:
    """Return what has happened, without the objects that it happened to."""
    if isinstance(error, (TimeoutError, urllib3.exceptions.TimeoutError)):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
