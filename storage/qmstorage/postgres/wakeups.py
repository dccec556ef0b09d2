"""Wake-ups of this process, and the channels on which they hear that a queue has got messages."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterable


class ServerWakeup:
    """A wake-up that the process's session sends when the server notifies it."""

    def __init__(self, wakeups: Wakeups) -> None:
        self.address = f"{secrets.token_hex(8)}.bell"
        self._wakeups = wakeups
        # A bare lock, free once woken: a signal handler may release it, also while this thread waits for it.
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        """Wake the thread that waits, or the next that does. A signal handler may call it."""
        with contextlib.suppress(RuntimeError):
            self._asleep.release()

    def wait(self, seconds: float) -> bool:
        """Sleep until woken or until the seconds are over; return whether it was woken."""
        return self._asleep.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def close(self) -> None:
        """Remove it: nobody can wake it any more."""
        self._wakeups.remove(self)


class Wakeups:
    """The wake-ups of this process on one volume."""

    def __init__(self, linger_seconds: float) -> None:
        self._linger = linger_seconds
        self._lock = threading.RLock()
        self._registered: dict[str, ServerWakeup] = {}
        self._listeners: dict[str, set[ServerWakeup]] = {}
        self._left: dict[str, float] = {}

    def register(self) -> ServerWakeup:
        """Return a new wake-up."""
        wakeup = ServerWakeup(self)
        self._registered[wakeup.address] = wakeup
        return wakeup

    def remove(self, wakeup: ServerWakeup) -> None:
        """Forget a wake-up."""
        self._registered.pop(wakeup.address, None)
        with self._lock:
            self._forget(wakeup, [channel for channel, wakeups in self._listeners.items() if wakeup in wakeups])

    def listen(self, address: str, channels: Iterable[str]) -> None:
        """Wake one of ours at what comes on the channels; one that was removed is passed over."""
        with self._lock:
            wakeup = self._registered.get(address)
            if wakeup is not None:
                for channel in channels:
                    self._listeners.setdefault(channel, set()).add(wakeup)

    def unlisten(self, address: str, channels: Iterable[str]) -> None:
        """Wake one of ours no more at what comes on the channels."""
        with self._lock:
            wakeup = self._registered.get(address)
            if wakeup is not None:
                self._forget(wakeup, channels)

    def has(self, address: str) -> bool:
        """Return whether a wake-up of ours has this address."""
        return address in self._registered

    def wanted(self) -> set[str]:
        """Return the channels that wake-ups listen on, or did a moment ago, which spares frequent waits a LISTEN."""
        with self._lock:
            now = time.monotonic()
            self._left = {channel: since for channel, since in self._left.items() if now - since < self._linger}
            return self._listeners.keys() | self._left.keys()

    def wake_listeners(self, channel: str) -> None:
        """Wake those that listen on a channel."""
        with self._lock:
            for wakeup in self._listeners.get(channel, ()):
                wakeup.wake()

    def wake(self, addresses: Iterable[str]) -> None:
        """Wake by address; those of other processes are passed over."""
        for address in addresses:
            wakeup = self._registered.get(address)
            if wakeup is not None:
                wakeup.wake()

    def wake_own(self) -> None:
        """Wake all. A signal handler may call it: it takes no lock."""
        for wakeup in tuple(self._registered.values()):
            wakeup.wake()

    def abandon(self) -> None:
        """Replace, in a forked process, a lock that a thread of the parent may hold."""
        self._lock = threading.RLock()

    def _forget(self, wakeup: ServerWakeup, channels: Iterable[str]) -> None:
        for channel in channels:
            wakeups = self._listeners.get(channel, set())
            wakeups.discard(wakeup)
            if not wakeups and self._listeners.pop(channel, None) is not None:
                self._left[channel] = time.monotonic()
