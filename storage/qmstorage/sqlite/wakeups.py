"""Bells: Unix datagram sockets that waiters sleep on, and that whoever brings a message rings."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from qmstorage.notifications import ALL
from qmstorage.sqlite.writer_gate import Surroundings

_PATH_MAX = 100
"""A socket's path has some 104 to 108 bytes at most, by system."""

_IN_TURN = ".turn.bell"

_ANSWER_SECONDS = 0.1
"""How long whoever was rung is left to look before it is rung for another message while others wait."""


def is_in_turn(address: str) -> bool:
    """Tell whether a bell rings in turn with others: its waiter takes any message, so that one of them is enough."""
    return address.endswith(_IN_TURN)


class SocketBell:
    """A bell of this process."""

    def __init__(self, belfry: Belfry, *, in_turn: bool = False) -> None:
        # By their addresses, those who have waited longest come first: the clock is the same for all of the machine.
        since_us = time.monotonic_ns() // 1_000
        self.address = f"{since_us:013x}{secrets.token_hex(3)}{_IN_TURN if in_turn else '.bell'}"
        self._belfry = belfry
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        path = belfry.path_of(self.address)
        try:
            self._socket.bind(path)
            belfry.surroundings.share(path)
        except OSError:
            self._socket.close()
            raise

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
        self._hung: set[SocketBell] = set()
        self._ringer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._fd = os.open(surroundings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._ringer.close()
            raise
        self._ringer.setblocking(False)
        self._choosing = threading.Lock()
        self._rung: dict[str, float] = {}

    def hang(self, *, in_turn: bool = False) -> SocketBell:
        """Return a new bell."""
        bell = SocketBell(self, in_turn=in_turn)
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

    def ring(self, addresses: Sequence[str], at_most: int = ALL) -> None:
        """Ring so many of the bells, of whichever process; one that is gone, or rings already, is passed over.

        Those come first that were not rung a moment ago: they have not had the time to take what they were rung for.
        """
        if at_most >= len(addresses):
            for address in addresses:
                self._rings(address)
            return
        with self._choosing:
            for address in self._in_turn(addresses):
                if self._rings(address):
                    self._rung[address] = time.monotonic()
                    at_most -= 1
                    if not at_most:
                        return

    def ring_own(self) -> None:
        """Ring the bells of this process."""
        self.ring([bell.address for bell in tuple(self._hung)])

    def _rings(self, address: str) -> bool:
        try:
            self._ringer.sendto(b"!", self.path_of(address))
        except OSError:
            return False
        return True

    def _in_turn(self, addresses: Sequence[str]) -> Iterator[str]:
        """Give first those that have not been rung lately, each kind in the order in which they come."""
        since = time.monotonic() - _ANSWER_SECONDS
        self._rung = {address: at for address, at in self._rung.items() if at > since}
        rung = set(self._rung)
        yield from (address for address in addresses if address not in rung)
        yield from (address for address in addresses if address in rung)

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
