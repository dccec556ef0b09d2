"""The clock that all processes on a server share: the server's, as this process knows it.

A machine whose own clock is wrong would otherwise expire messages of others, or deliver them early.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
"""What the server's clock says, in microseconds since 1970."""

# A clock that goes on while the machine is suspended, where there is one.
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> int:
    """Return microseconds on a clock of this machine that is not affected by setting its time of day."""
    return time.clock_gettime_ns(_COUNTER) // 1000


class Reading(NamedTuple):
    """What the server's clock said, and when by `elapsed` it was asked and had answered."""

    asked: int
    said: int
    answered: int


_STEP: Final = 500_000
"""Microseconds of difference to what a clock should show from which on it has been set."""

_DRIFT: Final = 1_000
"""A clock that is not set gains or loses one part in so many at most, also while it is being slewed."""

_LATE: Final = 60_000_000
"""Microseconds for which other processes may still use the clock as it was before it was set.

They ask for the time every ten seconds, and the server ends a session that it has not heard of for so long.
"""

_STEPS_KEPT: Final = 32


class Step(NamedTuple):
    """A setting of the server's clock: between which times by `elapsed`, how far ahead it was before, and by how much.

    Steps are numbered from 1.
    """

    number: int
    earliest: int
    noticed: int
    ahead: int
    by: int


class ServerClock:
    """The server's clock, extrapolated by a clock of this machine between two answers of the server."""

    def __init__(self) -> None:
        self._ahead: int | None = None
        self._least = self._most = 0
        """The bounds of how far it is ahead, as far as the answers tell."""
        self._first = self._last = 0
        """When by `elapsed` the server gave its first and its last answer."""
        self._steps: deque[Step] = deque(maxlen=_STEPS_KEPT)
        self._noted = 0
        """How many steps there were, those that are not kept included."""
        self._learning = threading.RLock()

    @property
    def is_set(self) -> bool:
        """Whether the server has said what time it is."""
        return self._ahead is not None

    def unasked_seconds(self) -> float:
        """Return how long ago the server said what time it is."""
        return (elapsed() - self._last) / 1_000_000

    def ask(self, ask: Callable[[str], Sequence[Sequence[Any]]]) -> None:
        """Set the clock by the answer to a statement, which `ask` sends to the server; it returns the rows."""
        asked = elapsed()
        ((said,),) = ask(f"SELECT {NOW}")
        self.learn(Reading(asked, int(said), elapsed()))

    def learn(self, reading: Reading) -> None:
        """Set the clock by what the server said.

        How long the answer was under way is unknown, so that the clock is moved only where it was outside of what the
        reading allows: a slow answer moves nothing.
        """
        with self._learning:
            if self._ahead is None:
                self._begin(reading)
            elif reading.answered >= self._last:
                self._follow(reading, self._ahead)

    def _begin(self, reading: Reading) -> None:
        self._least, self._most = _bounds(reading)
        self._first = self._last = reading.answered
        self._ahead = (self._least + self._most) // 2

    def _follow(self, reading: Reading, ahead: int) -> None:
        least, most = _bounds(reading)
        drift = (reading.answered - self._last) // _DRIFT
        low, high = self._least - drift, self._most + drift
        new = min(max(ahead, least), most)
        if max(least - high, low - most) > _STEP:
            self._noted += 1
            self._steps.append(Step(self._noted, self._last, reading.answered, ahead, new - ahead))
        agree = max(least, low) <= min(most, high)
        self._least, self._most = (max(least, low), min(most, high)) if agree else (least, most)
        self._last = reading.answered
        self._ahead = new

    def abandon(self) -> None:
        """Replace, in a forked process, a lock that a thread of the parent may hold."""
        self._learning = threading.RLock()

    def steps_after(self, number: int) -> list[Step]:
        """Return the steps that were noticed after the one of that number, the oldest first."""
        return [step for step in tuple(self._steps) if step.number > number]

    def now(self) -> int:
        """Return the server's time of day in microseconds since 1970, UTC."""
        return elapsed() + (self._ahead or 0)

    monotonic = staticmethod(time.monotonic)
    """Returns seconds on a clock that is never set back."""

    def steady(self) -> int:
        """Return the server's time of day: it has no other clock that all processes know."""
        return self.now()

    def now_and_steady(self) -> tuple[int, int]:
        """Return the server's time of day twice."""
        now = self.now()
        return now, now

    def is_over(self, started_us: int, deadline_us: int) -> bool:
        """Return whether the time between two times of day of the server is over, however its clock was set meanwhile.

        The process that wrote them knew of the same settings of the clock as this one does, unless that was before the
        first answer here.
        """
        now = elapsed()
        return now - self._said_at(started_us, now) >= deadline_us - started_us

    def _said_at(self, moment: int, now: int) -> int:
        """Return when by `elapsed` the server's clock said this.

        Where that may have been more than once, which is so when the clock was set back, or the moment was moved along
        with it, it is the last time: nobody gets less time than granted.
        """
        eras = [(now + _STEP, self._ahead or 0), *((step.noticed + _LATE, step.ahead) for step in tuple(self._steps))]
        times = [moment - ahead for until, ahead in eras if moment - ahead <= min(until, now + _STEP)]
        # It was before the first answer, and the clock was set back since.
        return max(times, default=min(self._first + _LATE, now))


def _bounds(reading: Reading) -> tuple[int, int]:
    """Return the bounds of how far the server's clock is ahead of `elapsed`."""
    return reading.said - reading.answered, reading.said - reading.asked
