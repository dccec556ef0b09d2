"""What a store may do in fewer steps than the acts take: one message comes or goes, and nothing special is asked of it.

It is for stores to which each step is a journey. What the queue space allows is known to the caller, as it was at one
generation of the definitions; a store that finds another generation, no room, or anything that takes more than this,
does nothing and says so. Then the ordinary way is gone, which also says what is wrong.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from qmcore.message import Message
from qmcore.records import NewMessage
from qmcore.space import Space


class PlainArrival(NamedTuple):
    """A message that comes to stand in the order of its queue, ready at once.

    The store gives the number of the message and the order key, which `new` has not: the key is `key_head`, the
    sequence number, inverted where the order `descends`, and the last byte of every key. `most_messages` and
    `most_pages` are what the queue space may hold with it.
    """

    space: Space
    generation: int
    new: NewMessage
    key_head: bytes
    descends: bool
    most_messages: int
    most_pages: int


class PlainDeparture(NamedTuple):
    """The first message of a queue is to be consumed, where nothing is due or has expired at `now_us`."""

    space: Space
    generation: int
    queue_id: int
    queue_name: str
    now_us: int


class Shortcut(Protocol):
    """The short way of a volume."""

    def arrive(self, arrival: PlainArrival) -> int | None:
        """Enqueue a message, durably, and return its sequence number; None: nothing was done."""

    def depart(self, departure: PlainDeparture) -> Message | None:
        """Dequeue a message for good and return it; None: nothing was done, or there is none."""
