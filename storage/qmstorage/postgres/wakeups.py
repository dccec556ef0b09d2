"""Wake-ups of this process, and the channels on which they hear that a queue has got messages."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from qmstorage.postgres.nonblocking_connection import drain

W = TypeVar("W")


class Woken:
    """What the process's session wakes when the server notifies it."""

    is_woken = False
    """Whether it was woken and has not noticed yet."""

    was_woken = False
    """Whether it has ever been woken, and what for may be left when it goes."""

    of_set: WakeupSet[Any] | None = None
    """The set that it belongs to, if any."""

    def __init__(self, wakeups: Wakeups, *, in_turn: bool) -> None:
        self.address = f"{secrets.token_hex(8)}.bell"
        self.in_turn = in_turn
        self._wakeups = wakeups

    def wake(self) -> None:
        """Wake who waits, or waits next. A signal handler may call it."""
        self.is_woken = self.was_woken = True

    def close(self) -> None:
        """Remove it: nobody can wake it any more."""
        self._wakeups.remove(self)


class ServerWakeup(Woken):
    """A wake-up of a thread that waits."""

    def __init__(self, wakeups: Wakeups, *, in_turn: bool) -> None:
        super().__init__(wakeups, in_turn=in_turn)
        # A bare lock, free once woken: a signal handler may release it, also while this thread waits for it.
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        """Wake the thread that waits, or the next that does. A signal handler may call it."""
        super().wake()
        with contextlib.suppress(RuntimeError):
            self._asleep.release()

    def wait(self, seconds: float) -> bool:
        """Sleep until woken or until the seconds are over; return whether it was woken."""
        is_woken = self._asleep.acquire(timeout=min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        self.is_woken = False
        return is_woken


class SetAddress(Woken, Generic[W]):
    """Where a waiter of a set is woken."""

    def __init__(self, wakeups: Wakeups, of_set: WakeupSet[W], waiter: W, *, in_turn: bool) -> None:
        super().__init__(wakeups, in_turn=in_turn)
        self.waiter = waiter
        self.of_set: WakeupSet[W] = of_set

    def wake(self) -> None:
        """Have the event loop let the waiter look. A signal handler may call it."""
        super().wake()
        self.of_set.tell(self)


class WakeupSet(Generic[W]):
    """The wake-ups of an event loop, which sleeps on a socket that is written to where it has not been yet."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._woken: deque[SetAddress[W]] = deque()
        self._reader, self._writer = socket.socketpair()
        for each in (self._reader, self._writer):
            each.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, which can be read while there is something for `woken` to tell."""
        return self._reader.fileno()

    def wakeup(self, waiter: W, *, in_turn: bool = False) -> SetAddress[W]:
        """Return an address by which a waiter is woken."""
        address = SetAddress(self._wakeups, self, waiter, in_turn=in_turn)
        self._wakeups.register(address)
        return address

    def woken(self) -> list[W]:
        """Return each waiter that was woken since the last call."""
        drain(self._reader)
        found: dict[W, None] = {}
        with contextlib.suppress(IndexError):
            while True:
                address = self._woken.popleft()
                address.is_woken = False
                if self._wakeups.has(address.address):
                    found[address.waiter] = None
        return list(found)

    def tell(self, address: SetAddress[W]) -> None:
        """Let the event loop know of a waiter that was woken. A signal handler may call it."""
        self._woken.append(address)
        # One that is full has told it, and one that is closed has nobody to tell.
        with contextlib.suppress(OSError):
            self._writer.send(b"!")

    def close(self) -> None:
        """Give up the descriptors, and all addresses that are left."""
        self._wakeups.forget_set(self)
        self._reader.close()
        self._writer.close()


class Wakeups:
    """The wake-ups of this process on one volume."""

    def __init__(self, linger_seconds: float) -> None:
        self._linger = linger_seconds
        self._lock = threading.RLock()
        self._registered: dict[str, Woken] = {}
        self._listeners: dict[str, dict[Woken, None]] = {}
        self._left: dict[str, float] = {}
        self._sets: set[WakeupSet[Any]] = set()

    def register(self, wakeup: Woken) -> None:
        """Let a wake-up of ours be known by its address."""
        self._registered[wakeup.address] = wakeup

    def register_set(self) -> WakeupSet[Any]:
        """Return a new set of wake-ups."""
        its: WakeupSet[Any] = WakeupSet(self)
        self._sets.add(its)
        return its

    def forget_set(self, its: WakeupSet[Any]) -> None:
        """Forget a set, and what is left in it."""
        self._sets.discard(its)
        for wakeup in tuple(self._registered.values()):
            if wakeup.of_set is its:
                self.remove(wakeup)

    def remove(self, wakeup: Woken) -> None:
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
                    self._listeners.setdefault(channel, {})[wakeup] = None

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
        """Wake those that listen on a channel; of those that wait in turn the first that may not be looking already.

        Which messages have come nobody knows. So whoever leaves has the next look.
        """
        with self._lock:
            for wakeup in self._listeners.get(channel, ()):
                if not wakeup.in_turn:
                    wakeup.wake()
            self._wake_next(channel)

    def _wake_next(self, channel: str) -> None:
        following = (each for each in self._listeners.get(channel, ()) if each.in_turn and not each.is_woken)
        for wakeup in itertools.islice(following, 1):
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
        """Close, in a forked process, what is the parent's, and replace a lock that a thread of it may hold."""
        self._lock = threading.RLock()
        for its in tuple(self._sets):
            its.close()

    def _forget(self, wakeup: Woken, channels: Iterable[str]) -> None:
        for channel in channels:
            wakeups = self._listeners.get(channel, {})
            if wakeup not in wakeups:
                continue
            del wakeups[wakeup]
            if not wakeups:
                del self._listeners[channel]
                self._left[channel] = time.monotonic()
            elif wakeup.in_turn and wakeup.was_woken:
                self._wake_next(channel)
