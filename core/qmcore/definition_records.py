"""Queue spaces and queues as administrators define them: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from typing import Protocol

from qmcore.bulk_rows import Adopted
from qmcore.queue import Queue, QueueDefinition
from qmcore.space import Space, SpaceDefinition


class SpaceRecords(Protocol):
    """Queue spaces."""

    def find(self, name: str) -> Space | None:
        """Return the queue space of that name."""

    def listed(self) -> list[Space]:
        """Return all queue spaces of the volume by name."""

    def add(self, definition: SpaceDefinition, incarnation: str, created_us: int) -> Space:
        """Record a queue space, its counters at zero."""

    def change(self, space: Space) -> None:
        """Record what is new about a queue space, and change the generation."""

    def set_initialized(self, space_id: int) -> None:
        """Record that the disk of the queue space has been allocated."""

    def remove(self, space_id: int) -> None:
        """Remove a queue space with everything in it."""

    def adopt(self, space_id: int, adopted: Adopted) -> None:
        """Let message ids of another queue space be valid in this one, and change the generation.

        Their sequence numbers here are nobody else's.
        """

    def succeed(self, space_id: int, incarnation: str) -> None:
        """Give a queue space another incarnation, and change the generation."""


class QueueRecords(Protocol):
    """Queues."""

    def of_space(self, space_id: int) -> list[Queue]:
        """Return the queues of a queue space by name."""

    def versions(self, space_id: int) -> dict[int, int]:
        """Return for each queue of a queue space, by its number, a number that changes with each change of it."""

    def find(self, queue_id: int) -> Queue:
        """Return a queue that exists, by its number."""

    def add(self, space_id: int, definition: QueueDefinition, created_us: int) -> Queue:
        """Record a queue, its counters at zero, and change the generation."""

    def change(self, queue: Queue) -> None:
        """Record what is new about a queue, and change the generation."""

    def remove(self, queue: Queue) -> None:
        """Remove a queue with the messages and counters that it has, and change the generation."""
