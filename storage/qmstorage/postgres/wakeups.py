"""Bells of this process, and the channels on which they hear that a queue has got messages."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterable


class ServerBell:
    """A bell that the process's session rings when the server notifies it."""

    def __init__(self, belfry: Belfry) -> None:
        self.address = f"{secrets.token_hex(8)}.bell"
        self._belfry = belfry
        # A bare lock, free while the bell rings: a signal handler may release it, also while this thread waits for it.
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Let it ring; who waits, or waits next, is woken. A signal handler may call it."""
        with contextlib.suppress(RuntimeError):
            self._silence.release()

    def wait(self, seconds: float) -> bool:
        """Sleep until the bell rings or the seconds are over; tell whether it rang."""
        return self._silence.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def close(self) -> None:
        """Take the bell down."""
        self._belfry.take_down(self)


class Belfry:
    """The bells of this process on one volume."""

    def __init__(self, linger_seconds: float) -> None:
        self._linger = linger_seconds
        self._lock = threading.RLock()
        self._hung: dict[str, ServerBell] = {}
        self._hearing: dict[str, set[ServerBell]] = {}
        self._left: dict[str, float] = {}

    def hang(self) -> ServerBell:
        """Return a new bell."""
        bell = ServerBell(self)
        self._hung[bell.address] = bell
        return bell

    def take_down(self, bell: ServerBell) -> None:
        """Forget a bell."""
        self._hung.pop(bell.address, None)
        with self._lock:
            self._forget(bell, [channel for channel, bells in self._hearing.items() if bell in bells])

    def hear(self, address: str, channels: Iterable[str]) -> None:
        """Let a bell of ours ring at what comes on the channels; one that hangs no longer is passed over."""
        with self._lock:
            bell = self._hung.get(address)
            if bell is not None:
                for channel in channels:
                    self._hearing.setdefault(channel, set()).add(bell)

    def ignore(self, address: str, channels: Iterable[str]) -> None:
        """Let a bell of ours ring no more at what comes on the channels."""
        with self._lock:
            bell = self._hung.get(address)
            if bell is not None:
                self._forget(bell, channels)

    def has(self, address: str) -> bool:
        """Tell whether a bell hangs here."""
        return address in self._hung

    def wanted(self) -> set[str]:
        """Return the channels that bells hear, or heard a moment ago: who waits often need not ask each time."""
        with self._lock:
            now = time.monotonic()
            self._left = {channel: since for channel, since in self._left.items() if now - since < self._linger}
            return self._hearing.keys() | self._left.keys()

    def ring(self, channel: str) -> None:
        """Ring the bells that hear a channel."""
        with self._lock:
            for bell in self._hearing.get(channel, ()):
                bell.ring()

    def ring_addresses(self, addresses: Iterable[str]) -> None:
        """Ring bells by their addresses; those of other processes are passed over."""
        for address in addresses:
            bell = self._hung.get(address)
            if bell is not None:
                bell.ring()

    def ring_all(self) -> None:
        """Ring all bells. A signal handler may call it: it waits for nobody."""
        for bell in tuple(self._hung.values()):
            bell.ring()

    def abandon(self) -> None:
        """Let go, in a forked process, of a lock that a thread of the parent may have had."""
        self._lock = threading.RLock()

    def _forget(self, bell: ServerBell, channels: Iterable[str]) -> None:
        for channel in channels:
            bells = self._hearing.get(channel, set())
            bells.discard(bell)
            if not bells and self._hearing.pop(channel, None) is not None:
                self._left[channel] = time.monotonic()
