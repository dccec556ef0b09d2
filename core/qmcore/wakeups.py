"""What those who wait for messages sleep on, and by which others wake them: a part of the port."""

from __future__ import annotations

from typing import Protocol, TypeVar

W = TypeVar("W")


class WakeupAddress(Protocol):
    """Where any process that shares the volume can wake a waiter of this one."""

    address: str

    def close(self) -> None:
        """Remove the address: nobody can wake its waiter any more."""


class Wakeup(WakeupAddress, Protocol):
    """What one waiter sleeps on, in a thread of its own."""

    def wait(self, seconds: float) -> bool:
        """Sleep until woken or until the seconds are over; return whether it was woken."""


class WakeupSet(Protocol[W]):
    """What an event loop sleeps on for thousands of waiters: one descriptor, which tells that some were woken."""

    def fileno(self) -> int:
        """Return the descriptor, which can be read while there is something for `woken` to tell."""

    def wakeup(self, waiter: W, *, in_turn: bool = False) -> WakeupAddress:
        """Return an address by which a waiter is woken; `in_turn` as for `Volume.wakeup`."""

    def woken(self) -> list[W]:
        """Return each waiter that was woken since the last call; it may be all of them where they were many."""

    def close(self) -> None:
        """Give up the descriptor, and all addresses that are left: nobody can wake their waiters any more."""
