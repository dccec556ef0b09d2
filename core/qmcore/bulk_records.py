"""What the engine asks of a store about messages in bulk: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from qmcore.bulk_rows import Row, Run, Tally
from qmcore.message import State
from qmcore.queue import Queue
from qmcore.records import Cursor, Place, Use
from qmcore.space import Space

if TYPE_CHECKING:
    from qmcore.condition import Condition


class BulkRead(Protocol):
    """Messages in bulk, as an export reads them. What is read is to be a snapshot, or comes in one unit."""

    def tally(self, queue_id: int, state: State) -> Tally:
        """Return how many messages of the queue are in a state, counted one by one."""

    def boundaries(
        self,
        space: Space,
        queue: Queue,
        state: State,
        every: int,
        condition: Condition | None = None,
        *,
        most: int | None = None,
    ) -> list[tuple[Cursor, int]]:
        """Return the cursor of each `every`-th message of the queue in one state, and of the last.

        Each comes with how many messages there are from the one before it, without that, to its own: runs of them
        are about equal parts of the work. Only messages that fulfil the condition are counted, of those the first
        `most`.
        """

    def places(self, space: Space, queue: Queue, state: State, condition: Condition | None = None) -> Generator[Cursor]:
        """Yield the cursor of each message of the queue in one state that fulfils the condition, in their order.

        Cursors of a queue in several stores say together which message comes first. Other things may be asked of the
        unit meanwhile.
        """

    def rows(
        self, space: Space, queue: Queue, run: Run, condition: Condition | None = None, *, body: bool = True
    ) -> Iterator[list[Row]]:
        """Yield the messages of a run that fulfil the condition, in the order of their cursors.

        A batch has at most `bulk_rows.ROWS_MAX` messages, and bodies of `bulk_rows.BYTES_MAX` bytes; one message may
        have more. Without `body` there are no bodies. No batch is empty. Other things may be asked of the unit
        meanwhile.
        """


class BulkLoad(Protocol):
    """Messages that come and go many at a time, in queues that nobody sees."""

    def load(self, space_id: int, queue_id: int, state: State, rows: Sequence[Row]) -> None:
        """Store messages as they are carried, and let them stand; nobody is told. Nothing is counted.

        Numbers, order keys and times of the rows are those that hold here. Held ones become ready. In memory, one that
        is there already stays as it is.
        """

    def adjust(self, space_id: int, queue_id: int, use: Use, *, passed: int = 0) -> None:
        """Add to what is counted of a queue alone, not of its queue space: its use, and how many were enqueued."""

    def passed(self, space_id: int, queue_id: int) -> int:
        """Return how many messages of the queue were ever enqueued."""

    def rehome(self, from_queue: int, to_queue: int, limit: int) -> tuple[int, Use]:
        """Give about `limit` messages of a queue that nobody sees another queue; groups stay whole. Nothing is counted.

        They keep their order keys. Return how many it was, kept ones included, and what they are charged for.
        """

    def empty(self, queue_id: int, limit: int) -> tuple[int, Use]:
        """Delete at most `limit` messages of a queue that nobody sees, and return the same. Nothing is counted."""

    def remove_unchanged(self, queue_id: int, places: Sequence[Place]) -> Use:
        """Delete those of these messages that are ready or kept back, and whose key and retries are the given ones.

        Others stay as they are, and so may those that somebody else is taking. Return how many it was and what they
        were charged for. Nothing is counted.
        """
