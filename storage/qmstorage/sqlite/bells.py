"""Bells: Unix datagram sockets that waiters sleep on, and that whoever brings a message rings."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import select
import socket
import sys
from collections.abc import Iterable

from qmstorage.sqlite.locks import Surroundings

_PATH_MAX = 100
"""A socket's path has some 104 to 108 bytes at most, by system."""


class SocketBell:
    """A bell of this process."""

    def __init__(self, belfry: Belfry) -> None:
        self.address = f"{secrets.token_hex(8)}.bell"
        self._belfry = belfry
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        path = belfry.path_of(self.address)
        self._socket.bind(path)
        belfry.surroundings.share(path)

    def wait(self, seconds: float) -> bool:
        """Sleep until the bell rings or the seconds are over; tell whether it rang."""
        # Not select(), which knows no descriptor above 1023.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        rang = bool(poll.poll(math.ceil(max(seconds, 0.0) * 1000)))
        if rang:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._socket.recv(1)
        return rang

    def close(self) -> None:
        """Take the bell down."""
        self._belfry.take_down(self)
        self._socket.close()

    def abandon(self) -> None:
        """Close the descriptor that a fork has left us."""
        self._socket.close()


class Belfry:
    """The directory in which the bells of a volume hang."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self._directory = surroundings.directory
        self._fd = os.open(surroundings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._hung: set[SocketBell] = set()
        self._ringer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._ringer.setblocking(False)

    def hang(self) -> SocketBell:
        """Return a new bell."""
        bell = SocketBell(self)
        self._hung.add(bell)
        return bell

    def take_down(self, bell: SocketBell) -> None:
        """Remove the bell's file."""
        self._hung.discard(bell)
        (self._directory / bell.address).unlink(missing_ok=True)

    def clear(self, addresses: Iterable[str]) -> None:
        """Remove the files of bells that a process which died has left."""
        for address in addresses:
            (self._directory / address).unlink(missing_ok=True)

    def ring(self, addresses: Iterable[str]) -> None:
        """Ring bells, of whichever process; one that is gone, or rings already, is passed over."""
        for address in addresses:
            with contextlib.suppress(OSError):
                self._ringer.sendto(b"!", self.path_of(address))

    def ring_own(self) -> None:
        """Ring the bells of this process."""
        self.ring([bell.address for bell in tuple(self._hung)])

    def path_of(self, address: str) -> str:
        """Return a path for the bell that is short enough for a socket."""
        path = str(self._directory / address)
        if len(os.fsencode(path)) > _PATH_MAX and sys.platform == "linux":
            return f"/proc/self/fd/{self._fd}/{address}"
        return path

    def close(self) -> None:
        """Give the directory up."""
        self._ringer.close()
        os.close(self._fd)

    def abandon(self) -> None:
        """Close what a fork has left us of the parent's bells, which go on ringing there."""
        for bell in self._hung:
            bell.abandon()
        self.close()
