"""What a store may do in fewer steps than the acts take: a message comes or goes, and nothing special is asked of it.

What the queue space allows is known to the caller, as it was at one generation of the definitions; a store that finds
another generation, no room, or anything that takes more than this, does nothing and says so. Then the ordinary way is
gone, which also says what is wrong.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from qmcore.records import Use
from qmcore.space import Space
from qmcore.transitions import Enqueue


class PlainEnd(NamedTuple):
    """A transaction is to be committed that holds messages of one queue and brings one message, or none.

    `holds` is what it holds. The message has the number of its identifier.
    """

    space: Space
    generation: int
    transaction_id: int
    owner_id: int
    queue_id: int
    holds: Use
    brings: Enqueue | None


class Shortcut(Protocol):
    """The short way of a volume."""

    @property
    def spares_journeys(self) -> bool:
        """Whether each step of the ordinary way is a journey to a server."""

    def level(self, space_id: int) -> tuple[int, Use]:
        """Return the generation of a queue space, and how much it holds."""

    def end(self, end: PlainEnd) -> bool:
        """Commit a transaction, durably; False: nothing was done."""
