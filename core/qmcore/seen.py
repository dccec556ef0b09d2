"""What a transaction saw of its queue space when it took its message: for a moment it need not be looked at again.

The commit looks for the queue and the room in any case, and refuses what no longer goes. So an enqueue in that moment
may be refused at the commit instead of at once; what this process has changed itself is seen at once.
"""

from __future__ import annotations

import itertools
from typing import Final, NamedTuple

from qmcore.records import Use
from qmcore.space import SpaceDefinition

_MICROS: Final = 100_000
"""How old it may be: what other processes have changed since is not seen."""

_AMPLE: Final = 1000
"""Messages, and pages, that have to be free besides, so that it does not matter if others have taken some meanwhile."""


class Changes:
    """How often this process has changed the definitions of any queue space."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.last = 0
        """A number that is another one after each change, and is never that of an earlier moment."""

    def note(self) -> None:
        """Note that definitions were changed, once that is committed."""
        self.last = next(self._numbers)


CHANGES: Final = Changes()


class Seen(NamedTuple):
    """How much a queue space held, at which time in microseconds, and after which change of ours."""

    level: Use
    at_us: int
    behind: int

    def has_room(self, more: Use, limits: SpaceDefinition, now: int) -> bool:
        """Return whether it can be relied on that there is room for so much more, as the definitions were then."""
        return (
            self.behind == CHANGES.last
            # A clock may be set back.
            and 0 <= now - self.at_us < _MICROS
            and self.level.messages + more.messages + _AMPLE <= limits.messages
            and self.level.pages + more.pages + _AMPLE <= limits.capacity
        )
