"""The port: what the engine asks of a store, in the verbs of queues.

A `Volume` is one physical store: an SQLite file, later a PostgreSQL schema. All work on it runs in a `Unit`, one short
database transaction. The rules are the acts' (`qmcore.acts`); a unit only moves rows from one state to another.
Messages stand in a `Store`: the unit itself is the one on disk, and a queue space may have another one in memory.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from qmcore.device import DeviceEntry, DeviceInfo, Extent
from qmcore.message import Body, ConsumedMessage, EnqueueControl, Message, MessageInfo, Origin, State
from qmcore.queue import Queue, QueueDefinition, QueueUsage
from qmcore.selection import Choice
from qmcore.space import Space, SpaceDefinition

if TYPE_CHECKING:
    from qmcore.condition import Condition

T = TypeVar("T")

Cursor: TypeAlias = tuple[bytes | int, int]
"""Where a listing stands."""

Listing: TypeAlias = list[tuple[Cursor, MessageInfo]]
"""A part of a listing: messages without their bodies, each with the cursor behind it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """How much a queue, or a queue space as a whole, holds; `size` is bytes of bodies."""

    messages: int
    pages: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """What an arrival has led to: the last sequence number that was given, and the use of queue space and queue."""

    sequence: int
    space: Use
    queue: Use


class Role(enum.IntEnum):
    """What a transaction has a message for."""

    DEQUEUED = 0
    ENQUEUED = 1
    """It is enqueued when the transaction commits, and stands in the store because its process does not keep it."""
    LOCKED = 2
    """Nobody else may have it, and it stays when the transaction commits."""


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
class Withdrawn:
    """A message that was taken out of `ready` or `due` to be given other terms, and the terms that it has.

    `until_us` is when it becomes available, where it is kept back; that may be later than the sender said.
    """

    place: Place
    pages: int
    size: int
    priority: int
    enqueued_us: int
    available_us: int | None
    expires_us: int | None
    until_us: int | None
    origin_queue: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Routing:
    """What decides where a message goes when it leaves its queue: its priority, and the error queue that it names."""

    priority: int
    error_queue: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """What a message has from its arrival on: its order key, and times that are absolute by now."""

    order_key: bytes
    enqueued_us: int
    available_us: int | None
    expires_us: int | None
    group_id: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message on its way into a queue."""

    id: int
    queue_id: int
    standing: Standing
    pages: int
    size: int
    headers: str | None
    control: EnqueueControl
    body: Body


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spilled:
    """A message that a transaction enqueues when it commits, as it stands in the store until then.

    `available_us` and `expires_us` are times that were given, `delay` and `lifetime` spans that the commit begins.
    `place` is empty, TOP, or the order key of the message that it stands before.
    """

    message_id: int
    pages: int
    size: int
    priority: int
    available_us: int | None
    expires_us: int | None
    delay: int | None
    lifetime: int | None
    place: bytes

    TOP = b"\0"


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

    def __str__(self) -> str:
        return f"{self.role} {self.pid} on {self.host}"


class Outcome(enum.Enum):
    """What the volume knows of a transaction."""

    ACTIVE = "active"
    PREPARED = "prepared"
    COMMITTED = "committed"
    """It is committed on disk, and what it did in memory may still have to follow."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transaction as the volume knows it: its number, who owns it, how it stands, since and until when."""

    id: int
    space_id: int
    owner_id: int
    state: Outcome
    started_us: int
    deadline_us: int | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A capacity command that somebody is to start: of which queue, for which messages, and the use that it is for."""

    queue_id: int
    memory: bool
    value: int


class DeviceRecords(Protocol):
    """The device list and the table of contents; only the volume that QMCONFIG names has them."""

    def device(self) -> DeviceInfo:
        """Return what the device records about itself."""

    def set_commands(self, *, enabled: bool) -> None:
        """Record whether capacity commands run."""

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
    """Queue spaces and queues as administrators define them."""

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

    def change_queue(self, queue: Queue) -> None:
        """Record what is new about a queue, and change the generation."""

    def remove_queue(self, queue: Queue) -> None:
        """Remove a queue with the messages and counters that it has, and change the generation."""


class Counters(Protocol):
    """How much queue spaces and queues hold, and what went through them."""

    def reserve(self, space_id: int, count: int) -> int:
        """Give out `count` sequence numbers and return the last."""

    def last_sequence(self, space_id: int) -> int:
        """Return the last sequence number that was given out."""

    def arrive(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int) -> Arrival:
        """Count messages in and give out as many sequence numbers."""

    def leave(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out; `how` is the counter that grows: dequeued, expired, discarded or moved."""

    def charge(self, space_id: int, *, messages: int, pages: int, size: int) -> Use:
        """Count room of the queue space that no queue has yet, in or, less than nothing, out."""

    def level(self, space_id: int) -> Use:
        """Return how much the queue space holds."""

    def use(self, queue: Queue) -> Use:
        """Return how much the queue holds."""

    def usage(self, queue: Queue, now_us: int) -> QueueUsage:
        """Return what the queue holds and what went through it."""


class MessageRecords(Protocol):
    """Messages and the states that they pass through."""

    def put(self, new: NewMessage) -> None:
        """Store a message, without a state yet."""

    def key_of(self, queue_id: int, message_id: int) -> bytes | None:
        """Return the order key of a message that is still to be consumed from the queue."""

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

    def take_expired(self, queue_id: int, now_us: int, limit: int) -> list[Holding]:
        """Take at most `limit` messages that have expired out of their states."""

    def withdraw(self, queue_id: int, message_id: int) -> Withdrawn | None:
        """Take a message out of `ready` or `due`, and out of what expires; None if it is in neither."""

    def amend(
        self, message_id: int, *, order_key: bytes, priority: int, available_us: int | None, expires_us: int | None
    ) -> None:
        """Give a message that stays stored another order key, priority and times."""

    def find(self, space: Space, queue_id: int, choice: Choice) -> bytes | None:
        """Return the order key of the first ready message that is chosen."""

    def take(self, space: Space, queue_id: int, choice: Choice) -> Place | None:
        """Take the first ready message that is chosen out of `ready`."""

    def take_many(self, space: Space, queue_id: int, choice: Choice, limit: int) -> list[Place]:
        """Take the first `limit` ready messages that are chosen out of `ready`; return them in order."""

    def take_group(self, queue_id: int, group_id: int) -> list[Place]:
        """Take the ready messages of a group out of `ready`; return them in order."""

    def take_due(self, space: Space, queue_id: int, condition: Condition | None, limit: int) -> list[Place]:
        """Take at most `limit` messages that are kept back, and are chosen, out of `due`."""

    def peek(self, space: Space, queue_name: str, queue_id: int, order_key: bytes) -> Message | None:
        """Return the ready message with that order key, which stays where it is."""

    def read(self, space: Space, queue_name: str, place: Place, *, body: bool = True) -> tuple[Message, int]:
        """Return a message that stays stored, and its pages; without its body if that is not wanted."""

    def remove(self, space: Space, queue_name: str, place: Place, *, body: bool = True) -> tuple[Message, int]:
        """Delete a message and return it, and its pages; without its body if that is not wanted."""

    def group_of(self, message_id: int) -> int | None:
        """Return the group that a message belongs to."""

    def routing(self, message_id: int) -> Routing:
        """Return what decides where a message goes."""

    def discard(self, message_id: int) -> tuple[int, int]:
        """Delete a message, and return its pages and its size."""

    def move(self, message_id: int, *, new_id: int, queue_id: int, order_key: bytes, origin: Origin) -> None:
        """Give a message another queue and number; it no longer expires and names no error queue."""

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


class HoldRecords(Protocol):
    """What transactions hold."""

    def hold(
        self,
        transaction_id: int,
        place: Place,
        *,
        pages: int,
        size: int,
        expires_us: int | None,
        role: Role = Role.DEQUEUED,
    ) -> None:
        """Let the transaction hold a message that was taken out of `ready`."""

    def first_locked(self, transaction_id: int, space: Space, queue_id: int, choice: Choice) -> Holding | None:
        """Return the first message of the queue that is chosen of those that the transaction has locked."""

    def dequeue_locked(self, transaction_id: int, place: Place) -> None:
        """Let the transaction consume, when it commits, a message that it has locked."""

    def give_back(self, transaction_id: int, queue_id: int, role: Role) -> list[Holding]:
        """Take what the transaction has of the queue for this out of `held`, in the order of the keys."""

    def consume(self, transaction_id: int, queue_id: int) -> Use:
        """Delete all messages that the transaction dequeued from the queue; return how much that was."""

    def spill(
        self, transaction_id: int, new: NewMessage, place: bytes, *, delay: int | None, lifetime: int | None
    ) -> None:
        """Store a message that the transaction enqueues when it commits; nobody sees it until then."""

    def spilled(self, transaction_id: int, queue_id: int, after: int, limit: int) -> list[Spilled]:
        """Return at most `limit` messages that the transaction has spilled for the queue, numbered above `after`."""

    def settle(self, message_id: int, standing: Standing) -> None:
        """Give a spilled message the order key and the times that the commit gives it, without a state yet."""

    def spilled_use(self, transaction_id: int, queue_id: int) -> Use:
        """Return how much the transaction has spilled for the queue."""

    def forget_spilled(self, transaction_id: int, queue_id: int) -> None:
        """Let the transaction no longer hold what it has spilled for the queue, which stays stored."""

    def discard_spilled(self, transaction_id: int, queue_id: int) -> Use:
        """Delete what the transaction has spilled for the queue; return how much that was."""

    def held_in(self, queue_id: int) -> bool:
        """Tell whether a transaction holds a message of the queue, be it one that it enqueues."""

    def taken_from(self, queue_id: int) -> bool:
        """Tell whether a transaction has dequeued or locked a message of the queue."""

    def holds_any(self, transaction_id: int, queue_ids: Iterable[int]) -> bool:
        """Tell whether the transaction has something of one of the queues."""

    def holders(self) -> list[int]:
        """Return the transactions that hold something."""


class Store(Counters, MessageRecords, HoldRecords, Protocol):
    """Where messages stand: on disk, or in the memory of a queue space."""


class MemoryStore(Store, Protocol):
    """The memory of a queue space, which holds its non-persistent messages."""

    def add_counters(self, space_id: int, queue_id: int) -> None:
        """Begin to count a queue."""

    def counted(self, space_id: int) -> set[int]:
        """Return the queues that are counted."""

    def abandon(self, space_id: int, queue_id: int) -> None:
        """Delete all messages of a queue and count it no longer."""

    def clear(self, space_id: int, queues: Sequence[Queue]) -> None:
        """Delete all messages, and begin to count anew."""


class HistoryRecords(Protocol):
    """Messages that are kept after they were consumed."""

    def retain(self, place: Place, consumed_us: int, consumer: str) -> None:
        """Keep a message that was taken out of its states."""

    def retain_held(self, transaction_id: int, queue_id: int, consumed_us: int, consumer: str) -> Use:
        """Keep all messages that the transaction dequeued from the queue; return how much that was."""

    def history(
        self, space: Space, queue: Queue, after: Cursor | None, limit: int, condition: Condition | None = None
    ) -> list[tuple[Cursor, ConsumedMessage]]:
        """Return at most `limit` retained messages of the queue in the order of their consumption."""

    def recall(self, space: Space, queue: Queue, message_id: int) -> Message | None:
        """Return a retained message with its body."""

    def has_outlived(self, queue_id: int, before_us: int) -> bool:
        """Tell whether the queue has retained messages that were consumed before a time."""

    def forget(self, queue_id: int, before_us: int, limit: int) -> tuple[int, int]:
        """Delete at most `limit` messages that were consumed before a time; return how many, and their pages."""


class TransactionRecords(Protocol):
    """Transactions, their owners, those who wait, and capacity commands that are to be started."""

    def add_transaction(self, record: TransactionRecord) -> None:
        """Record an active transaction."""

    def end_transaction(self, transaction_id: int, owner_id: int) -> bool:
        """Remove the transaction if that owner still has it; False means that it was given up, or is committed."""

    def forget_committed(self, transaction_id: int) -> None:
        """Remove a committed transaction, because memory has followed it."""

    def mark_committed(self, transaction_id: int, owner_id: int) -> bool:
        """Record that the transaction is committed and memory has to follow; False means that it was given up."""

    def is_active(self, transaction_id: int, owner_id: int) -> bool:
        """Tell whether that owner still has the transaction, and it is active."""

    def transactions(self, space_id: int) -> list[TransactionRecord]:
        """Return the transactions of a queue space."""

    def transaction_count(self, space_id: int) -> int:
        """Return how many transactions of the queue space are open."""

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

    def waits(self, space_id: int) -> dict[int, int]:
        """Return who waits for messages of the queue space, and how many waits each has."""

    def notify(self, queue_id: int) -> None:
        """Have those told, once the unit is committed, who wait for the queue."""

    def claim(self, claim: Claim, owner_id: int, now_us: int) -> bool:
        """Claim that a capacity command is started by this owner; False where the limit was reached before."""

    def claims(self, space_id: int) -> list[tuple[Claim, int]]:
        """Return the capacity commands that were claimed and not started yet, each with the owner who was to."""

    def take_over(self, claim: Claim, of_owner: int, owner_id: int) -> bool:
        """Claim what another owner had claimed; False where somebody else did."""

    def is_claimed(self, claim: Claim) -> bool:
        """Tell whether the command is still to be started: its queue may be gone, or its claim undone."""

    def settle_claim(self, claim: Claim) -> None:
        """Note that the command was started."""

    def rearm(self, queue_id: int, *, memory: bool) -> bool:
        """Let the high limit be reached anew; False where it was not reached, or its command is not started yet."""

    def is_tripped(self, queue_id: int, *, memory: bool) -> bool:
        """Tell whether the high limit was reached and the use has not been down at the low limit since."""


class Unit(DeviceRecords, DefinitionRecords, Store, HistoryRecords, TransactionRecords, Protocol):
    """One short database transaction. It is the store on disk itself."""

    def memory(self, space_id: int) -> MemoryStore | None:
        """Return the store of a queue space's non-persistent messages, where it has one and this process can use it."""

    def memory_level(self, space_id: int) -> Use:
        """Return how much the memory of a queue space holds, also where this unit has no part in it."""

    def afterwards(self, action: Callable[[], None]) -> None:
        """Have something done by whoever asked for the unit, once it is committed."""


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

    def comes_free(self, seconds: float) -> bool:
        """Tell whether a write could begin within the seconds, which other writers may take until then."""

    def write_on(self, connection: object, work: Callable[[Unit], T]) -> T:
        """Run `work` on the caller's own connection to the store, in its transaction; it stands or falls with that."""

    def is_joined(self, connection: object = None) -> bool:
        """Tell whether this thread has a transaction of the application open, for which `write` would wait for ever.

        It has joined one on the store, or is about to join that of the connection.
        """

    def attach_memory(self, space: Space, queues: Sequence[Queue]) -> bool:
        """Open the memory of a queue space for its non-persistent messages; tell whether it had to be made."""

    def detach_memory(self, space: Space) -> None:
        """Let go of the memory of a queue space, once for each time that it was attached."""

    def remove_memory(self, space: Space, *, unused: bool = False) -> None:
        """Remove the memory of a queue space; with `unused` only where no process is attached to the queue space."""

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
