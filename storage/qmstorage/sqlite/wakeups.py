"""Wake-ups: Unix datagram sockets that waiters sleep on; an enqueue sends them a byte."""

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
"""How long a waiter that was woken is left to look before another message wakes it while others wait."""


def is_in_turn(address: str) -> bool:
    """Return whether a wake-up waits in turn: its waiter takes any message, so that to wake one of them is enough."""
    return address.endswith(_IN_TURN)


class SocketWakeup:
    """A wake-up of this process."""

    def __init__(self, wakeups: Wakeups, *, in_turn: bool = False) -> None:
        # Sorted by address, those that have waited longest come first: all processes of the machine share the clock.
        since_us = time.monotonic_ns() // 1_000
        self.address = f"{since_us:013x}{secrets.token_hex(3)}{_IN_TURN if in_turn else '.bell'}"
        self._wakeups = wakeups
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        path = wakeups.path_of(self.address)
        try:
            self._socket.bind(path)
            wakeups.surroundings.share(path)
        except OSError:
            self._socket.close()
            raise

    def wait(self, seconds: float) -> bool:
        """Sleep until woken or until the seconds are over; return whether it was woken."""
        # Not select(), which knows no descriptor above 1023.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        woken = bool(poll.poll(math.ceil(max(seconds, 0.0) * 1000)))
        if woken:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._socket.recv(1)
        return woken

    def close(self) -> None:
        """Remove the socket and its file."""
        self._wakeups.remove(self)
        self._socket.close()

    def abandon(self) -> None:
        """Close the descriptor that a fork has inherited."""
        self._socket.close()


class Wakeups:
    """The directory of the sockets on which the waiters of a volume sleep."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings
        self._directory = surroundings.directory
        self._registered: set[SocketWakeup] = set()
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._fd = os.open(surroundings.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            self._sender.close()
            raise
        self._sender.setblocking(False)
        self._choosing = threading.Lock()
        self._woken: dict[str, float] = {}

    def register(self, *, in_turn: bool = False) -> SocketWakeup:
        """Return a new wake-up."""
        wakeup = SocketWakeup(self, in_turn=in_turn)
        self._registered.add(wakeup)
        return wakeup

    def remove(self, wakeup: SocketWakeup) -> None:
        """Remove the file of a wake-up."""
        self._registered.discard(wakeup)
        (self._directory / wakeup.address).unlink(missing_ok=True)

    def clear(self, addresses: Iterable[str]) -> None:
        """Remove the files of wake-ups that a process which died has left."""
        for address in addresses:
            (self._directory / address).unlink(missing_ok=True)

    def wake(self, addresses: Sequence[str], at_most: int = ALL) -> None:
        """Wake so many of the waiters, of whichever process; one that is gone, or woken already, is passed over.

        Those come last that were woken a moment ago: they have not had the time to take what they were woken for.
        """
        if at_most >= len(addresses):
            for address in addresses:
                self._sends(address)
            return
        with self._choosing:
            for address in self._in_turn(addresses):
                if self._sends(address):
                    self._woken[address] = time.monotonic()
                    at_most -= 1
                    if not at_most:
                        return

    def wake_own(self) -> None:
        """Wake the waiters of this process."""
        self.wake([wakeup.address for wakeup in tuple(self._registered)])

    def _sends(self, address: str) -> bool:
        try:
            self._sender.sendto(b"!", self.path_of(address))
        except OSError:
            return False
        return True

    def _in_turn(self, addresses: Sequence[str]) -> Iterator[str]:
        """Yield first those that have not been woken lately, each kind in the order in which they come."""
        since = time.monotonic() - _ANSWER_SECONDS
        self._woken = {address: at for address, at in self._woken.items() if at > since}
        woken = set(self._woken)
        yield from (address for address in addresses if address not in woken)
        yield from (address for address in addresses if address in woken)

    def path_of(self, address: str) -> str:
        """Return a path for the socket that is short enough for a socket."""
        path = str(self._directory / address)
        if len(os.fsencode(path)) > _PATH_MAX and sys.platform == "linux":
            return f"/proc/self/fd/{self._fd}/{address}"
        return path

    def close(self) -> None:
        """Close the directory."""
        self._sender.close()
        os.close(self._fd)

    def abandon(self) -> None:
        """Close what a fork has inherited of the parent's wake-ups, which go on working there."""
        for wakeup in self._registered:
            wakeup.abandon()
        self.close()
