"""How the delay of a message grows from one failed try to the next.

Growth `none` is that of Oracle Advanced Queuing, where each delay is the same, `linear` that of Enduro/X.
"""

from __future__ import annotations

import enum
import random
from typing import Final, NamedTuple

from qmcore.times import MICROS

FACTOR_MAX: Final = 100
FACTOR_DEFAULT: Final = 2.0

_LONGEST: Final = (2**31 - 1) * MICROS
"""No delay is longer, whatever it has grown to: that is 68 years."""


class Growth(enum.Enum):
    """How the delay of the try numbered k, from 1, follows from the first one.

    NONE: it is always the same. LINEAR: k times the first. EXPONENTIAL: the first, times a factor for each further try.
    """

    NONE = "none"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"


class Backoff(NamedTuple):
    """The delays after failed tries, in microseconds; `maximum` of 0 is none.

    `jitter`, from 0 to 1, is the fraction by which a delay is shortened at most, at random, so that messages that
    failed together do not come back together.
    """

    first: int
    growth: Growth = Growth.NONE
    factor: float = FACTOR_DEFAULT
    maximum: int = 0
    jitter: float = 0.0

    def after(self, tries: int) -> int:
        """Return for how many microseconds a message is kept back after so many failed tries, 1 or more."""
        delay: float = self.first
        if self.growth is Growth.LINEAR:
            delay *= tries
        elif self.growth is Growth.EXPONENTIAL:
            delay = self._multiplied(tries - 1)
        delay = min(delay, self.maximum or _LONGEST, _LONGEST)
        if self.jitter:
            delay *= 1 - self.jitter * random.random()  # noqa: S311 - it keeps no secret
        return round(delay)

    def _multiplied(self, times: int) -> float:
        try:
            return self.first * self.factor**times
        except OverflowError:
            return _LONGEST if self.first else 0
