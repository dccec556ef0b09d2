"""Where messages stand, on disk or in the memory of a queue space: what the engine asks of such a place, part by part.

It is a part of the port (`qmcore.port`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from qmcore.bulk_rows import Row, Run, Tally
from qmcore.message import Message, MessageInfo, State
from qmcore.queue import Queue
from qmcore.records import (
    Changeable,
    Cursor,
    Edge,
    Figures,
    Holding,
    Listing,
    Place,
    Role,
    Routing,
    Swept,
    Use,
)
from qmcore.selection import Choice
from qmcore.space import Space

if TYPE_CHECKING:
    from qmcore.condition import Condition
    from qmcore.findings import Fault


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

    def with_parked_of_groups(self, queue_id: int, message_ids: Sequence[int]) -> list[int]:
        """Return these messages, and after each the parked ones of its group."""

    def described(self, space: Space, queue_name: str, message_id: int) -> tuple[MessageInfo, bytes | None]:
        """Return what can be asked of a message, wherever it stands: all about it, and its body if that is read.

        A body is read that is JSON and not too large. SystemFailureError if it is not stored, or damaged.
        """


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


class Soundness(Protocol):
    """Whether what is stored fits together."""

    def faults(
        self,
        space: Space,
        queues: Sequence[Queue],
        page_size: int,
        step: Callable[[], None],
        hidden: Sequence[tuple[int, Queue]] = (),
    ) -> list[Fault]:
        """Return what is wrong with the messages of a queue space; `step` is called every now and then.

        `hidden` are the queues that only imports know, as `ImportRecords.hidden_queues` gives them. They are charged
        from the beginning on for all that they will hold.
        """

    def last_number(self, space: Space) -> int:
        """Return the highest sequence number of the messages that are stored; 0 where there is none."""

    def latest(self, space: Space) -> int:
        """Return about the latest time that is stored of a queue space."""

    def strays(self) -> int:
        """Return how many messages belong to no queue space that there is."""


class DamageRecords(Protocol):
    """Messages whose record is gone or cannot be read. It is asked in a unit that is alone."""

    def found(self, space: Space, queue: Queue) -> list[int]:
        """Return the messages of a queue that are damaged, and that no transaction holds."""

    def expunge(self, queue: Queue, message_ids: Sequence[int]) -> None:
        """Remove messages and their places, whatever is left of them. Nothing is counted."""

    def uncounted(self, space: Space, queue: Queue) -> Use:
        """Return by how much a queue has more than is counted of it; less than nothing where it has less."""


class Counters(Protocol):
    """How much queue spaces and queues hold, and what went through them."""

    def reserve(self, space_id: int, count: int) -> Sequence[int]:
        """Give out `count` sequence numbers, which ascend; others may get some that lie between them."""

    def bring_to_disk(self, space_id: int) -> None:
        """Change something on disk, so that with the commit all is there that was committed before."""

    def last_sequence(self, space_id: int) -> int:
        """Return the last sequence number that was given out."""

    def leave(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out; `how` is the counter that grows: dequeued, expired, discarded or moved."""

    def charge(self, space_id: int, *, messages: int, pages: int, size: int) -> None:
        """Count room of the queue space that no queue has yet, in or, less than nothing, out."""

    def level(self, space_id: int) -> Use:
        """Return how much the queue space holds."""

    def most_messages(self, space_id: int) -> int:
        """Return how many messages of the queue space stood here at most at one time, since that began to count."""

    def use(self, queue: Queue) -> Use:
        """Return how much the queue holds."""

    def figures(self, queues: Sequence[Queue], now_us: int) -> dict[int, Figures]:
        """Return what each of these queues of one queue space holds and what went through it, by their numbers.

        One that is not counted, as its record is damaged, may be left out. It takes as many statements for all queues
        as for one.
        """

    def add(self, space_id: int, queue_id: int) -> None:
        """Begin to count a queue."""

    def counted(self, space_id: int) -> set[int]:
        """Return the queues of a queue space that are counted."""


class StateRecords(Protocol):
    """Where messages stand while no transaction holds them."""

    def next_due(self, queue_id: int) -> int | None:
        """Return when the next message of the queue that is kept back becomes available."""

    def pending_work(self, queue_id: int, messages_of: int, now_us: int) -> tuple[bool, bool]:
        """Return whether the queue has messages that became available, and ones that expired."""

    def first_moments(self) -> list[tuple[int, int]]:
        """Return when the next messages of each queue become available and expire, of all queues that have any."""

    def release_due(self, queue_id: int, now_us: int, limit: int) -> int:
        """Make at most `limit` messages ready that have become available, and return how many."""

    def expired(self, queue_id: int, now_us: int, limit: int) -> list[Holding]:
        """Return at most `limit` messages that have expired and that nobody else is taking, or takes before the end.

        Damaged ones are left out, and do not expire any more.
        """

    def standing(self, queue_id: int, messages_of: int, choice: Choice, limit: int) -> list[Holding]:
        """Return at most `limit` ready messages that are chosen, and as many that are kept back.

        Nobody else is taking them, or takes them before the end. Where one is damaged, a SystemFailureError says so.
        """

    def changeable(self, queue_id: int, message_id: int) -> Changeable | None:
        """Return a message that no transaction holds, and its terms; None where it is not there, or damaged."""

    def given_back_until(self, queue_id: int, now_us: int) -> int | None:
        """Return when the last message is available that a rollback keeps back for a time, not its sender."""

    def ready_edge(self, queue_id: int, start: bytes, end: bytes, *, last: bool) -> Edge | None:
        """Return the first or last ready message from one key on and before another.

        That of a damaged one, which says no time, is the last time that there is, here and in `level_edges`.
        """

    def level_edges(self, queues: Sequence[Queue], *, last: bool) -> dict[int, list[Edge]]:
        """Return the first or last ready message of each level of the keys, by the numbers of the queues.

        A level is all keys of a queue that begin with the same `LEVEL_BYTES`; the queues are of one queue space. It
        takes one statement for all of them, which looks up as many messages as there are levels, and one for each
        queue.
        """

    def find(self, queue_id: int, messages_of: int, choice: Choice) -> bytes | None:
        """Return the order key of the first ready message that is chosen."""

    def take_alone(self, queue_id: int) -> None:
        """Let nobody else who asks for this take messages out of the queue before the unit is committed."""


class MessageRecords(Protocol):
    """Messages, wherever they stand."""

    def among(self, queue_id: int, message_ids: Sequence[int]) -> list[int]:
        """Return which of these messages are stored and belong to the queue, in whatever state."""

    def peek(self, space: Space, queue_name: str, queue_id: int, order_key: bytes) -> Message | None:
        """Return the ready message with that order key, which stays where it is."""

    def stored(self, space: Space, queue_name: str, message_id: int, state: State, retries: int = 0) -> Message:
        """Return a message with its body, wherever it stands; SystemFailureError if it is not stored, or damaged."""

    def routing(self, message_id: int) -> Routing:
        """Return what decides where a message goes."""


class ShareRecords(Protocol):
    """Messages of queues for several consumers, and the places that they have left."""

    def locked(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places each of these messages has left, 0 where it came with one; there may be less by now.

        Of one that somebody else sees to they are too many. It is for those who have found that messages have expired.
        """

    def expiring(self, queue_id: int, now_us: int, limit: int) -> dict[int, int]:
        """Return at most `limit` messages of a queue for several that have expired, and when; others pass them over."""

    def places_of(self, consumer_id: int, queue_id: int, expired: Mapping[int, int]) -> list[Holding]:
        """Return where these messages of a queue for several stand for a consumer, but for what somebody takes."""

    def no_longer_expiring(self, queue_id: int, expired: Mapping[int, int]) -> int:
        """Forget when messages expire, unless somebody else is taking a place; return of how many."""

    def sweep(self, space_id: int, beyond: int, limit: int, *, patiently: bool) -> Swept:
        """Do what consumers leave undone which end their places: a message with none goes, and is counted out.

        At most so many places are looked at, those of messages with numbers beyond one. Whoever does so `patiently`
        waits a little for others who are at it.
        """


class HoldRecords(Protocol):
    """What transactions hold."""

    def held(self, transaction_id: int, queue_id: int) -> tuple[list[Holding], list[Holding]]:
        """Return what the transaction has dequeued from the queue, and what it has locked, in the order of the keys."""

    def dequeued(self, transaction_id: int, queue_id: int, message_ids: Sequence[int]) -> list[Holding]:
        """Return those of these messages that the transaction has dequeued from the queue, in the order of the keys."""

    def discard_spilled(self, transaction_id: int, queue_id: int) -> Use:
        """Delete what the transaction has spilled for the queue; return how much that was."""

    def brought(self, transaction_id: int, queue_id: int, after: int, limit: int) -> list[int]:
        """Return at most `limit` messages, numbered above `after`, that the transaction has spilled for the queue."""

    def bring_to(self, transaction_id: int, queue_id: int, message_id: int, consumers: Sequence[int]) -> None:
        """Let a message that was spilled for a queue for several be for these consumers, when the commit brings it."""

    def held_in(self, queue_id: int) -> bool:
        """Return whether a transaction holds a message of the queue, be it one that it enqueues."""

    def taken_from(self, queue_id: int) -> bool:
        """Return whether a transaction has dequeued or locked a message of the queue."""

    def holders(self) -> list[int]:
        """Return the transactions that hold something."""

    def counts(self, transaction_id: int, queue_id: int) -> dict[int, int]:
        """Return how many messages of the queue the transaction has, by what for."""

    def count_held(self) -> dict[tuple[int, Role], int]:
        """Return how many messages each transaction has, and for what."""


class Store(Protocol):
    """Where messages stand: on disk, or in the memory of a queue space."""

    @property
    def counters(self) -> Counters:
        """What is counted."""

    @property
    def states(self) -> StateRecords:
        """Messages that no transaction holds."""

    @property
    def messages(self) -> MessageRecords:
        """Messages, wherever they stand."""

    @property
    def shares(self) -> ShareRecords:
        """For how many consumers messages still stand."""

    @property
    def holdings(self) -> HoldRecords:
        """What transactions hold."""

    @property
    def listing(self) -> ListingRecords:
        """The messages of queues, a part at a time."""

    @property
    def bulk_read(self) -> BulkRead:
        """Messages in bulk, as an export reads them."""

    @property
    def bulk_load(self) -> BulkLoad:
        """Messages that come and go many at a time."""

    @property
    def soundness(self) -> Soundness:
        """Whether what is stored fits together."""

    @property
    def damage(self) -> DamageRecords:
        """Messages whose record is gone or cannot be read."""


class MemoryStore(Store, Protocol):
    """The memory of a queue space, which holds its non-persistent messages."""

    def abandon(self, space_id: int, queue_id: int) -> None:
        """Delete all messages of a queue and count it no longer."""

    def clear(self, space_id: int, queues: Sequence[Queue]) -> None:
        """Delete all messages, and reset the counters."""
