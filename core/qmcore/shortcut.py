"""What a store may do in fewer steps than the acts take: a message comes or goes, and nothing special is asked of it.

What the queue space allows is known to the caller, as it was at one generation of the definitions; a store that finds
another generation, no room, or anything that takes more than this, does nothing and says so. Then the ordinary way is
gone, which also says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from qmcore.message import Message
from qmcore.records import Nothing, TransactionRecord, Use
from qmcore.space import Space
from qmcore.transitions import Enqueue


class PlainDeparture(NamedTuple):
    """The first message of a queue is to be consumed, where nothing is due or has expired at `now_us`."""

    space: Space
    generation: int
    queue_id: int
    queue_name: str
    now_us: int


class PlainHold(NamedTuple):
    """The same message is to be held by a transaction, which the volume does not know yet.

    There may be `most_transactions` of the queue space with it. The caller gets `numbers` sequence numbers besides.
    """

    departure: PlainDeparture
    transaction: TransactionRecord
    most_transactions: int
    numbers: int


class PlainHeld(NamedTuple):
    """A message that is held, the pages that it is charged for, and the sequence numbers that were asked for.

    `level` is how much the queue space holds.
    """

    message: Message
    pages: int
    sequences: Sequence[int]
    level: Use


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

    def depart(self, departure: PlainDeparture) -> Message | Nothing | None:
        """Dequeue a message for good and return it, or that the queue has none; None: nothing was done."""

    def depart_together(self, departure: PlainDeparture, most: int) -> list[Message] | Nothing | None:
        """Dequeue at most `most` messages for good, in their order; as with `depart`.

        None also where the ordinary way is as short.
        """

    def level(self, space_id: int) -> tuple[int, Use]:
        """Return the generation of a queue space, and how much it holds."""

    def hold(self, hold: PlainHold) -> PlainHeld | Nothing | None:
        """Record a transaction and let it hold a message, or return that the queue has none; None: nothing was done."""

    def end(self, end: PlainEnd) -> bool:
        """Commit a transaction, durably; False: nothing was done."""
