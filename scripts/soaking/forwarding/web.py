"""A service that is reached by HTTP, as service.py beside it; it runs in a process of its own, which may be killed."""

from __future__ import annotations

import http.server
import multiprocessing
import random
import signal
import socket
import time
from http import HTTPStatus
from multiprocessing.context import ForkProcess

_FORK = multiprocessing.get_context("fork")

_START_SECONDS = 30.0
_HANG_SECONDS = 4.0


class WebServer:
    """The server and its port, which stays the same over all its lives."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: ForkProcess | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}/answer"

    def start(self) -> None:
        """Start it; who comes too early is refused."""
        self._process = _FORK.Process(target=_serve, args=(self.port,), daemon=True)
        self._process.start()

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.join()


def _serve(port: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        except OSError:
            # While nobody listens there, a client's own end may have the port for a moment.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            server.serve_forever()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        """Answer what comes over the connection; a client that is killed goes without a word."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_POST(self) -> None:
        """Answer a request, as a rule."""
        name, _, fate = self.rfile.read(int(self.headers["Content-Length"])).decode().partition(" ")
        chance = random.random()  # noqa: S311 - nothing secret
        if fate == "bad":
            self._say(
                HTTPStatus.UNPROCESSABLE_ENTITY if chance < 0.5 else HTTPStatus.INTERNAL_SERVER_ERROR, "it is bad"
            )
        elif chance < 0.03:
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "at random", **{"Retry-After": "1"})
        elif chance < 0.06:
            # It goes without an answer.
            self.close_connection = True
        else:
            if chance < 0.07:
                time.sleep(_HANG_SECONDS)
            self._say(HTTPStatus.OK, f"answer to {name}")

    def _say(self, status: HTTPStatus, text: str, **headers: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "text/plain", "Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as its class names it
        """Say nothing."""
