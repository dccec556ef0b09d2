"""The clock that all who share a server have in common: the server's, as this process knows it.

A machine whose own clock is wrong would otherwise expire the messages of all others, or deliver them early.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

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


_STEP: Final = 500_000
"""Microseconds by which a reading moves the clock that somebody has set; less is drift."""

_LATE: Final = 15_000_000
"""Microseconds after which each process has noticed a step, with some to spare: each asks for the time every ten."""

_STEPS_KEPT: Final = 32
_EVER: Final = 2**62


class ServerClock:
    """The server's clock, counted on by a clock of this machine between two answers of the server."""

    def __init__(self) -> None:
        self._ahead: int | None = None
        self._steps: deque[tuple[int, int]] = deque(maxlen=_STEPS_KEPT)
        """When by `elapsed` steps were noticed, and how far ahead the server's clock was until then."""

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
        ahead = min(max(known, least), most)
        if self._ahead is not None and abs(ahead - self._ahead) > _STEP:
            self._steps.append((reading.answered, self._ahead))
        self._ahead = ahead

    def now(self) -> int:
        """Return the server's time of day in microseconds since 1970, UTC."""
        return elapsed() + (self._ahead or 0)

    def monotonic(self) -> float:
        """Return seconds on a clock that is never set back."""
        return time.monotonic()

    def steady(self) -> int:
        """Return the server's time of day: no other clock of its is known to all."""
        return self.now()

    def is_over(self, started_us: int, deadline_us: int) -> bool:
        """Return whether the time from one time of day of the server to another is over, whatever was set meanwhile.

        Of a step before this process asked for the time it knows nothing, and goes by the server's clock.
        """
        now = elapsed()
        return now - self._began(started_us, now) >= deadline_us - started_us

    def _began(self, moment: int, now: int) -> int:
        """Return when by `elapsed` the server's clock said this: where that was twice, the later time."""
        # Whoever has written it may have noticed a step later than we have.
        for slack in (0, _LATE):
            for begins, ends, ahead in self._eras(now):
                if begins - slack <= moment - ahead <= ends + slack:
                    return moment - ahead
        return moment - (self._ahead or 0)

    def _eras(self, now: int) -> Iterator[tuple[int, int, int]]:
        """Yield from when to when by `elapsed` the server's clock was how far ahead, the last time first."""
        ends, ahead = now, self._ahead or 0
        for begins, before in reversed(self._steps):
            yield begins, ends, ahead
            ends, ahead = begins, before
        yield -_EVER, ends, ahead
