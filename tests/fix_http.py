"""HTTP servers on the loopback, each in a thread, that do what a test says."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading

import pytest


class Seen:
    """A request as a server saw it."""

    def __init__(self, handler, body):
        self.method = handler.command
        self.target = handler.path
        self.headers = handler.headers
        self.body = body
        self.connection = handler.client_address


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            return super().handle_one_request()
        self.close_connection = True
        return None

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self):
        seen = Seen(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.server.seen.append(seen)
        status, headers, body = self.server.answer(seen)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    """A server whose `answer` gives status, headers and body for what it has seen, which it keeps in `seen`."""

    daemon_threads = True
    # A client that waits for its answer may be left alone by a test.
    block_on_close = False

    def __init__(self, answer, tls=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.seen = []
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"{self.scheme}://localhost:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass

    def close(self):
        self.shutdown()
        self.server_close()
        self._thread.join()


class RawServer:
    """A server that does `act(connection, number)` with each connection, in a thread of its own."""

    def __init__(self, act):
        self._act = act
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections = []
        self.count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.count += 1
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection, self.count), daemon=True).start()

    def _serve(self, connection, number):
        with contextlib.suppress(OSError):
            self._act(connection, number)

    def close(self):
        for each in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def read_request(connection):
    """Read a request off a connection: everything up to the end of its body. Empty at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    (length,) = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def server():
    """Start a server with an answer: a function, or what it would return."""
    servers = []

    def start(answer=(200, {}, b""), tls=None):
        servers.append(Server(answer if callable(answer) else lambda seen: answer, tls))
        return servers[-1]

    yield start
    for each in servers:
        each.close()


@pytest.fixture
def raw_server():
    """Start a server that is told what to do with each connection."""
    servers = []

    def start(act):
        servers.append(RawServer(act))
        return servers[-1]

    yield start
    for each in servers:
        each.close()
