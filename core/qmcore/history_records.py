"""Messages that are kept after they were consumed: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from qmcore.message import ConsumedMessage, Message
from qmcore.queue import Queue
from qmcore.records import Cursor, Part, Place
from qmcore.space import Space

if TYPE_CHECKING:
    from qmcore.condition import Condition


class HistoryRecords(Protocol):
    """Messages that are kept after they were consumed."""

    def retain(self, place: Place, consumed_us: int, consumer: str) -> None:
        """Keep a message that was taken out of its states."""

    def of_queue(
        self, space: Space, queue: Queue, after: Cursor | None, limit: int, condition: Condition | None = None
    ) -> Part[ConsumedMessage]:
        """Return at most `limit` retained messages of the queue in the order of their consumption."""

    def recall(self, space: Space, queue: Queue, message_id: int, since_us: int) -> Message | None:
        """Return a retained message with its body, if it was consumed since a time."""

    def first_consumed(self) -> list[tuple[int, int]]:
        """Return when the first of the retained messages of each queue was consumed, of all queues that have any."""

    def has_outlived(self, queue_id: int, before_us: int) -> bool:
        """Return whether the queue has retained messages that were consumed before a time."""

    def forget(self, queue_id: int, before_us: int, limit: int) -> tuple[int, int]:
        """Delete at most `limit` messages that were consumed before a time; return how many, and their pages."""
