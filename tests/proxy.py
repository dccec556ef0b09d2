"""A network that can be cut: what passes between clients and a server goes through here."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading

_PATIENCE = 90.0
_AT_ONCE = b"\1\0\0\0\0\0\0\0"
"""SO_LINGER with no time: the close of a socket resets its connection."""


class Proxy:
    """Passes bytes on between clients, who come to `port` of the loopback, and a server; one thread does it all."""

    def __init__(self, server: tuple[str, int], port: int = 0) -> None:
        """Take the server's address, and the port of a network that was closed, where this one takes its place."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lost: list[socket.socket] = []
        self._trap: tuple[bytes, str, bytes] | None = None
        self._awaited: socket.socket | None = None
        self.sprung = threading.Event()
        self._orders, self._order = os.pipe()
        self._obeyed = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def reset(self) -> None:
        """Break off all connections that there are; new ones are taken."""
        self._do(b"r")

    def swallow(self) -> None:
        """Pass nothing more on through the connections that there are, which stay open; new ones are taken."""
        self._do(b"s")

    def refuse(self) -> None:
        """Break off all connections, and take no new ones."""
        self._do(b"q")

    def trap(self, word: bytes, moment: str, order: str) -> None:
        """Reset, swallow or refuse by itself when a client sends the word.

        The moment is "before": it does not reach the server; or "answer": the server's answer to it is lost. `sprung`
        tells that this has happened.
        """
        self.sprung.clear()
        self._trap = word, moment, {"reset": b"r", "swallow": b"s", "refuse": b"q"}[order]

    def close(self) -> None:
        """End the network."""
        # A trap may be ending it at this moment, and nobody obeys then.
        with contextlib.suppress(OSError):
            os.write(self._order, b"q")
        self._thread.join(_PATIENCE)
        os.close(self._order)

    def _do(self, order: bytes) -> None:
        os.write(self._order, order)
        assert self._obeyed.acquire(timeout=_PATIENCE)

    def _run(self) -> None:
        order = b""
        while order != b"q":
            ready, _, _ = select.select([self._orders, self._listener, *self._peers], [], [])
            if self._orders in ready:
                order = os.read(self._orders, 1)
                self._obey(order)
                self._obeyed.release()
            elif self._listener in ready:
                self._take_client()
            else:
                for each in ready:
                    if self._springs_at(each):
                        assert self._trap is not None
                        order, self._trap, self._awaited = self._trap[2], None, None
                        self._obey(order)
                        self.sprung.set()
                        break
                    self.pass_on(each)

    def _obey(self, order: bytes) -> None:
        if order == b"s":
            self._lost += self._peers
        else:
            for each in (*self._peers, *self._lost):
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                each.close()
        self._peers.clear()
        if order == b"q":
            self._listener.close()
            os.close(self._orders)

    def _springs_at(self, end: socket.socket) -> bool:
        """Return whether what has come from this end springs the trap."""
        if self._trap is None or end not in self._peers:
            return False
        if end is self._awaited:
            return True
        word, moment, _ = self._trap
        with contextlib.suppress(OSError):
            if self._awaited is None and word in end.recv(65536, socket.MSG_PEEK):
                if moment == "before":
                    return True
                self._awaited = self._peers[end]
        return False

    def _take_client(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._server)
        self._peers |= {client: server, server: client}

    def pass_on(self, end: socket.socket) -> None:
        other = self._peers.get(end)
        if other is None:
            return
        try:
            passed = end.recv(65536)
            other.sendall(passed)
        except OSError:
            passed = b""
        if not passed:
            for each in (end, other):
                del self._peers[each]
                each.close()
