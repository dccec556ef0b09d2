"""The port: what the engine asks of a store, in the verbs of queues.

A `Volume` is one physical store: an SQLite file, later a PostgreSQL schema. All work on it runs in a `Unit`, one short
database transaction. The rules are the acts' (`qmcore.acts`); a unit only moves rows from one state to another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from qmcore.device import DeviceEntry, DeviceInfo, Extent
from qmcore.message import EnqueueControl, Message, MessageInfo, Origin, State
from qmcore.queue import Queue, QueueDefinition, QueueUsage
from qmcore.space import Space, SpaceDefinition

T = TypeVar("T")

Cursor: TypeAlias = tuple[bytes | int, int]
"""Where a listing stands."""

Listing: TypeAlias = list[tuple[Cursor, MessageInfo]]
"""A part of a listing: messages without their bodies, each with the cursor behind it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """How much a queue space holds after an arrival, and the last sequence number given."""

    sequence: int
    messages: int
    pages: int


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A message that was taken out of `ready`, `due` or `held`: where it stood and what it is charged for."""

    message_id: int
    queue_id: int
    order_key: bytes
    retries: int


@dataclasses.dataclass(frozen=True, slots=True)
class Holding:
    """A message as a transaction holds it."""

    place: Place
    pages: int
    size: int
    expires_us: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message on its way into a queue; times are absolute by now."""

    id: int
    queue_id: int
    order_key: bytes
    enqueued_us: int
    available_us: int | None
    expires_us: int | None
    pages: int
    size: int
    headers: str | None
    control: EnqueueControl
    body: bytes | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whoever is attached to a queue space. `lock` names the file that it has locked while it lives."""

    id: int
    space_id: int
    process: str
    pid: int
    host: str
    boot: str
    lock: str
    role: str
    since_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transaction as the volume knows it: its number, who owns it, `active` or `prepared`, since and until when."""

    id: int
    space_id: int
    owner_id: int
    state: str
    started_us: int
    deadline_us: int | None


class DeviceRecords(Protocol):
    """The device list and the table of contents; only the volume that QMCONFIG names has them."""

    def device(self) -> DeviceInfo:
        """Return what the device records about itself."""

    def entries(self) -> list[DeviceEntry]:
        """Return the device list in the order of its indexes."""

    def add_entry(self, entry: DeviceEntry) -> None:
        """Add an entry to the device list."""

    def rename_entry(self, index: int, path: str) -> None:
        """Give an entry of the device list another path."""

    def remove_entry(self, index: int) -> None:
        """Remove an entry from the device list."""

    def extents(self) -> list[Extent]:
        """Return the table of contents."""

    def add_extents(self, extents: Iterable[Extent]) -> None:
        """Add rows to the table of contents."""

    def remove_extents(self, space: str) -> None:
        """Remove the rows of a queue space from the table of contents."""


class DefinitionRecords(Protocol):
    """Queue spaces and queues as administrators define them, and their counters."""

    def space(self, name: str) -> Space | None:
        """Return the queue space of that name."""

    def spaces(self) -> list[Space]:
        """Return all queue spaces of the volume by name."""

    def add_space(self, definition: SpaceDefinition, incarnation: str, created_us: int) -> Space:
        """Record a queue space, its counters at zero."""

    def set_initialized(self, space_id: int) -> None:
        """Record that the disk of the queue space has been allocated."""

    def remove_space(self, space_id: int) -> None:
        """Remove a queue space with everything in it."""

    def generation(self, space_id: int) -> int | None:
        """Return a number that changes with each change of a definition; None where the queue space is gone."""

    def queues(self, space_id: int) -> list[Queue]:
        """Return the queues of a queue space by name."""

    def add_queue(self, space_id: int, definition: QueueDefinition, created_us: int) -> Queue:
        """Record a queue, its counters at zero, and change the generation."""

    def remove_queue(self, queue: Queue) -> None:
        """Remove a queue with the messages and counters that it has, and change the generation."""

    def level(self, space_id: int) -> Level:
        """Return how much the queue space holds."""

    def usage(self, queue: Queue, now_us: int) -> QueueUsage:
        """Return what the queue holds and what went through it."""

    def messages(self, space: Space, queue: Queue, state: State, after: Cursor | None, limit: int) -> Listing:
        """Return at most `limit` messages of the queue in one state, those behind the cursor, each with its cursor."""


class MessageRecords(Protocol):
    """Messages and the states that they pass through."""

    def reserve(self, space_id: int, count: int) -> int:
        """Give out `count` sequence numbers and return the last."""

    def arrive(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int) -> Level:
        """Count messages in and give out as many sequence numbers; the level's is the last."""

    def leave(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out; `how` is the counter that grows: dequeued, expired, discarded or moved."""

    def put(self, new: NewMessage) -> None:
        """Store a message, without a state yet."""

    def make_ready(self, place: Place) -> None:
        """Let the message be dequeued, in the order of its key; those who wait for the queue are told."""

    def make_due(self, place: Place, available_us: int) -> None:
        """Keep the message back until a time; those who wait for the queue are told."""

    def make_expiring(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Note when a message that no transaction holds expires."""

    def unmake_expiring(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Forget when the message expires."""

    def next_due(self, queue_id: int) -> int | None:
        """Return when the next message of the queue that is kept back becomes available."""

    def pending_work(self, queue_id: int, now_us: int) -> tuple[bool, bool]:
        """Tell whether the queue has messages that became available, and ones that expired."""

    def release_due(self, queue_id: int, now_us: int, limit: int) -> int:
        """Make at most `limit` messages ready that have become available, and return how many."""

    def take_expired(self, queue_id: int, now_us: int, limit: int) -> tuple[int, int, int]:
        """Delete at most `limit` messages that have expired; return how many, their pages and their size."""

    def take_first(self, queue_id: int) -> Place | None:
        """Take the first ready message of the queue out of `ready`."""

    def take_by_id(self, queue_id: int, message_id: int) -> Place | None:
        """Take this message out of `ready` if it stands there, in this queue."""

    def take_by_corrid(self, queue_id: int, corrid: bytes) -> Place | None:
        """Take the first ready message with this correlation identifier out of `ready`."""

    def read(self, space: Space, queue_name: str, place: Place) -> tuple[Message, int]:
        """Return a message that stays stored, and its pages."""

    def remove(self, space: Space, queue_name: str, place: Place) -> tuple[Message, int]:
        """Delete a message and return it, and its pages."""

    def priority(self, message_id: int) -> int:
        """Return the priority of a message."""

    def discard(self, message_id: int) -> None:
        """Delete a message."""

    def move(self, message_id: int, *, new_id: int, queue_id: int, order_key: bytes, origin: Origin) -> None:
        """Give a message another queue and number; it no longer expires."""


class TransactionRecords(Protocol):
    """Transactions, what they hold, their owners, and those who wait."""

    def add_transaction(self, record: TransactionRecord) -> None:
        """Record an active transaction."""

    def end_transaction(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up."""

    def is_active(self, transaction_id: int, owner_id: int) -> bool:
        """Tell whether that owner still has the transaction."""

    def transactions(self, space_id: int) -> list[TransactionRecord]:
        """Return the transactions of a queue space."""

    def transaction_count(self, space_id: int) -> int:
        """Return how many transactions of the queue space are open."""

    def hold(self, transaction_id: int, place: Place, *, pages: int, size: int, expires_us: int | None) -> None:
        """Let the transaction hold a message that was taken out of `ready`."""

    def give_back(self, transaction_id: int, queue_id: int) -> list[Holding]:
        """Take all messages that the transaction dequeued from the queue out of `held`, in the order of their keys."""

    def consume(self, transaction_id: int, queue_id: int) -> tuple[int, int, int]:
        """Delete all messages that the transaction dequeued from the queue; return how many, their pages and size."""

    def held_in(self, queue_id: int) -> bool:
        """Tell whether a transaction holds a message of the queue."""

    def add_owner(self, owner: Owner) -> None:
        """Record who is attached."""

    def is_attached(self, owner_id: int) -> bool:
        """Tell whether the owner was not given up."""

    def owners(self, space_id: int) -> list[Owner]:
        """Return who is attached to the queue space, longest first."""

    def remove_owner(self, owner_id: int) -> list[str]:
        """Forget who was attached, and for what it waited; return the bells that it waited for."""

    def add_waiter(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and which bell to ring."""

    def remove_waiter(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""


class Unit(DeviceRecords, DefinitionRecords, MessageRecords, TransactionRecords, Protocol):
    """One short database transaction."""


class Bell(Protocol):
    """What a waiter sleeps on; any process that shares the volume can ring it by its address."""

    address: str

    def wait(self, seconds: float) -> bool:
        """Sleep until the bell rings or the seconds are over; tell whether it rang."""

    def close(self) -> None:
        """Take the bell down."""


class Volume(Protocol):
    """One physical store. Safe for use by several threads."""

    @property
    def path(self) -> str:
        """The file, as the device list names it."""

    @property
    def readonly(self) -> bool:
        """Whether the volume can only be read."""

    def write(self, work: Callable[[Unit], T], *, durable: bool = True) -> T:
        """Run `work` in one database transaction and commit it; an exception leaves everything as it was.

        When the call returns, a durable commit is on the disk. `work` may be run more than once and must have no
        effect outside of its unit.
        """

    def read(self, work: Callable[[Unit], T]) -> T:
        """Run `work` in one database transaction that changes nothing."""

    def allocate_disk(self, pages: int, progress: Callable[[int], None]) -> None:
        """Make the volume have `pages` free pages on disk, so that a full disk is found now; tell the percent done."""

    def bell(self) -> Bell:
        """Return a bell of this process."""

    def ring(self, addresses: Sequence[str]) -> None:
        """Ring bells, of whichever process; one that is gone is passed over."""

    def wake(self) -> None:
        """Ring all bells of this process; a signal handler may call it."""

    def new_owner(self, space_id: int, role: str, now_us: int) -> Owner:
        """Lock a private file that tells others, as long as this process lives, that it does."""

    def release_owner(self, owner: Owner, bells: Sequence[str] = ()) -> None:
        """Remove the private file of an owner, ours or one that died, and the bells that it has left."""

    def is_alive(self, owner: Owner) -> bool:
        """Tell whether the process of an owner lives and is still attached."""

    def same_boot(self, owner: Owner) -> bool:
        """Tell whether the machine has run without restart since the owner attached."""

    def close(self) -> None:
        """Close the volume; whoever waits is woken."""
