"""The clock that all who share a server have in common: the server's, as this process knows it.

A machine whose own clock is wrong would otherwise expire the messages of all others, or deliver them early.
"""

from __future__ import annotations

import time
from typing import NamedTuple

NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""What the server's clock says, in microseconds since 1970."""

# One that goes on while the machine is suspended, where there is such a clock.
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> int:
    """Return microseconds on a clock of this machine that no setting of its time of day moves."""
    return time.clock_gettime_ns(_COUNTER) // 1000


class Reading(NamedTuple):
    """What the server's clock said, and when by `elapsed` it was asked and had answered."""

    asked: int
    said: int
    answered: int


class ServerClock:
    """The server's clock, counted on by a clock of this machine between two answers of the server."""

    def __init__(self) -> None:
        self._ahead: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether the server has said what time it is."""
        return self._ahead is not None

    def learn(self, reading: Reading) -> None:
        """Set the clock by what the server said.

        The answer was under way for a time that nobody knows, so that the clock is moved only where it was outside of
        what the reading allows: a slow answer moves nothing.
        """
        least, most = reading.said - reading.answered, reading.said - reading.asked
        known = (least + most) // 2 if self._ahead is None else self._ahead
        self._ahead = min(max(known, least), most)

    def now(self) -> int:
        """Return the server's time of day in microseconds since 1970, UTC."""
        return elapsed() + (self._ahead or 0)

    def monotonic(self) -> float:
        """Return seconds on a clock that is never set back."""
        return time.monotonic()

    def steady(self) -> int:
        """Return the server's time of day: no other clock of its is known to all."""
        return self.now()
