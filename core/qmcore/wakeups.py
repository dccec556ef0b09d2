"""What those who wait for messages sleep on, and by which others wake them: a part of the port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

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
        """Return an address by which a waiter is woken; `in_turn` as for `Wakeups.new`."""

    def woken(self) -> list[W]:
        """Return each waiter that was woken since the last call; it may be all of them where they were many."""

    def close(self) -> None:
        """Give up the descriptor, and all addresses that are left: nobody can wake their waiters any more."""


class Wakeups(Protocol):
    """The wake-ups of a volume."""

    @property
    def deaf_seconds(self) -> float:
        """For how long a wait that was just recorded is mostly not woken: what is under way by then may wake nobody.

        A commit may take longer, and its process may be gone before it wakes anybody. So where this is not 0, a waiter
        looks again each second, too, or now and then where many wait. 0: nothing is ever missed.
        """

    def new(self, *, in_turn: bool = False) -> Wakeup:
        """Return a new wake-up of this process.

        Of those that wait `in_turn` a message may wake one alone. They are for waiters that take any message of one
        queue, and pass on what they leave (`WaitRecords.pass_on`).
        """

    def new_set(self) -> WakeupSet[Any]:
        """Return a new set of wake-ups, for an event loop of this process."""

    def wake(self, addresses: Sequence[str]) -> None:
        """Wake the waiters at these addresses, of whichever process; one that is gone is passed over."""

    def wake_own(self) -> None:
        """Wake all waiters of this process; a signal handler may call it."""
