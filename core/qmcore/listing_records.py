"""What the engine asks of a store to list the messages of queues: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from qmcore.message import State
from qmcore.queue import Queue
from qmcore.records import Cursor, Listing
from qmcore.space import Space

if TYPE_CHECKING:
    from qmcore.condition import Condition


class ListingRecords(Protocol):
    """The messages of a queue, a part at a time."""

    def messages(
        self,
        space: Space,
        queue: Queue,
        state: State,
        after: Cursor | None,
        limit: int,
        condition: Condition | None = None,
    ) -> Listing:
        """Return at most `limit` messages of the queue in one state, those behind the cursor, each with its cursor."""

    def cursors(
        self,
        space: Space,
        queue: Queue,
        state: State,
        after: Cursor | None,
        limit: int,
        condition: Condition | None = None,
    ) -> list[Cursor]:
        """Return the cursors of what `messages` returns; the second part of each is the number of the message."""
