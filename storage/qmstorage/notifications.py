"""What those who wait are told once a unit of work is committed."""

from __future__ import annotations

import sys
from typing import Final

ALL: Final = sys.maxsize
"""As many as there are."""


class Notifications:
    """Queues whose waiters are to be woken, and for how many messages.

    Those who take any message of a queue wait in turn: each message wakes one of them. Each message wakes all others:
    only they know whether it is the one that they wait for.
    """

    def __init__(self) -> None:
        self.queues: set[int] = set()
        """Where something came or changed."""
        self.turns: dict[int, int] = {}
        """How many to wake of those who wait in turn, by queue."""

    def clear(self) -> None:
        """Forget all of it."""
        self.queues.clear()
        self.turns.clear()

    def came(self, queue_id: int, messages: int = 1) -> None:
        """Messages can be dequeued from the queue."""
        self.queues.add(queue_id)
        self.turns[queue_id] = self.turns.get(queue_id, 0) + messages

    def changed(self, queue_id: int) -> None:
        """All who wait for the queue have to look again."""
        self.came(queue_id, ALL)

    def passed_on(self, queue_id: int) -> None:
        """Somebody who waited in turn, and may have been woken, has left messages for the next."""
        self.turns[queue_id] = self.turns.get(queue_id, 0) + 1

    def add(self, other: Notifications) -> None:
        """Take over what another has to tell."""
        self.queues |= other.queues
        for queue_id, messages in other.turns.items():
            self.turns[queue_id] = self.turns.get(queue_id, 0) + messages
