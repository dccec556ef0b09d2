"""What waiters are told once a unit of work is committed."""

from __future__ import annotations

import sys
from typing import Final

ALL: Final = sys.maxsize
"""As many as there are."""


class Notifications:
    """Queues whose waiters are to be woken, and for how many messages.

    Waiters that take any message of a queue wait in turn: each message wakes one of them. It wakes all others, as only
    they know whether it is the one that they wait for.
    """

    def __init__(self) -> None:
        self.queues: set[int] = set()
        """Queues in which messages arrived or something changed."""
        self.turns: dict[int, int] = {}
        """How many to wake of those that wait in turn, by queue."""

    def came(self, queue_id: int, messages: int = 1) -> None:
        """Note that messages can be dequeued from the queue."""
        self.queues.add(queue_id)
        self.turns[queue_id] = self.turns.get(queue_id, 0) + messages

    def changed(self, queue_id: int) -> None:
        """Note that all that wait for the queue have to look again."""
        self.came(queue_id, ALL)

    def passed_on(self, queue_id: int) -> None:
        """Note that one that waited in turn, and may have been woken, has left messages for the next."""
        self.turns[queue_id] = self.turns.get(queue_id, 0) + 1

    def add(self, other: Notifications) -> None:
        """Add those of another unit."""
        self.queues |= other.queues
        for queue_id, messages in other.turns.items():
            self.turns[queue_id] = self.turns.get(queue_id, 0) + messages
