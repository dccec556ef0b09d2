"""What passes between the engine and a store: messages on their way, places, owners, transactions, claims, figures.

What is created for each message is a named tuple, which takes a third of the time of a frozen data class.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from qmcore.message import MessageInfo, Reason
from qmcore.two_phase import Told
from qmcore.values import dataclass
from qmcore.xid import Xid

Cursor: TypeAlias = tuple[bytes | int, int]
"""A position in a listing."""

S = TypeVar("S")


class Part(list[tuple[Cursor, S]]):
    """A part of a listing: what is listed, each with the cursor after it."""

    left_out = 0
    """How many messages it leaves out, because they are damaged."""


Listing: TypeAlias = Part[MessageInfo]
"""A part of a listing of messages without their bodies."""


class Use(NamedTuple):
    """How much a queue, or a queue space as a whole, holds; `size` is bytes of bodies."""

    messages: int
    pages: int
    size: int

    def plus(self, other: Use) -> Use:
        """Return what both take together."""
        return Use(self.messages + other.messages, self.pages + other.pages, self.size + other.size)


class Counted(NamedTuple):
    """The result of an arrival: the sequence numbers that were given, and the use of the queue space."""

    sequences: Sequence[int]
    space: Use


class Swept(NamedTuple):
    """What a sweep has done after consumers: the places that it has `looked` at, and `last` of which message.

    So many messages have `gone`.
    """

    looked: int
    last: int
    gone: int


NOTHING_SWEPT: Final = Swept(0, 0, 0)


class Figures(NamedTuple):
    """What is counted of a queue in one store, and how many of its messages are not ready, and why."""

    messages: int = 0
    pages: int = 0
    size: int = 0
    enqueued: int = 0
    dequeued: int = 0
    expired: int = 0
    discarded: int = 0
    moved: int = 0
    delayed: int = 0
    parked: int = 0
    held: int = 0

    def plus(self, other: Figures) -> Figures:
        """Return what both stores tell together."""
        return Figures(*map(int.__add__, self, other))


class Edge(NamedTuple):
    """A ready message by which others of its queue are judged: its order key, and when it was enqueued."""

    order_key: bytes
    enqueued_us: int


class Role(enum.IntEnum):
    """What a transaction has a message for."""

    DEQUEUED = 0
    ENQUEUED = 1
    """It is enqueued when the transaction commits, and is in the store because its process does not keep it."""
    LOCKED = 2
    """No other may have it, and it stays when the transaction commits."""


class Place(NamedTuple):
    """Where a message stands, or stood: its queue, its order key there, and how often it was tried."""

    message_id: int
    queue_id: int
    order_key: bytes
    retries: int


class Holding(NamedTuple):
    """A message in its state: a transaction holds it, or it is ready, or kept back until `until_us`."""

    place: Place
    pages: int
    size: int
    expires_us: int | None
    until_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changeable:
    """A message that no transaction holds, and the terms that it has, or is to have.

    `until_us` is when it becomes available, where it is kept back; that may be later than the sender said.
    `expires_before_us` is the expiry that it had before it went to an error queue, and `last_error` is why it was
    parked, or its last error.
    """

    holding: Holding
    priority: int
    enqueued_us: int
    available_us: int | None
    expires_us: int | None
    until_us: int | None
    origin_queue: str | None
    expires_before_us: int | None
    last_error: str

    @property
    def moment_us(self) -> int:
        """What an order by time goes by."""
        return self.enqueued_us if self.available_us is None else self.available_us


@dataclass(frozen=True, slots=True)
class Routing:
    """What decides where a message goes when it leaves its queue: its priority, and the error queue that it names.

    `expires_before_us` is the expiry that it had before it went to an error queue.
    """

    priority: int
    error_queue: str | None
    expires_before_us: int | None
    origin_reason: str | None

    def error_queue_from(self, queue: str) -> str | None:
        """Return the error queue that the message names, unless it is there because it has failed before."""
        has_failed = self.origin_reason in (Reason.RETRIES.value, Reason.EXPIRED.value)
        return None if has_failed and self.error_queue == queue else self.error_queue


@dataclass(frozen=True, slots=True)
class Nothing:
    """No message was there.

    `next_due_us` is when the next one that is kept back becomes available, `held` whether a transaction holds one.
    `unfinished`: there was so much to release or to remove that only a step was done, and it should be tried again.
    """

    queue_ids: tuple[int, ...]
    next_due_us: int | None
    held: bool = False
    unfinished: bool = False


class Standing(NamedTuple):
    """What a message has from its arrival on: its order key, and times that are absolute by now."""

    order_key: bytes
    enqueued_us: int
    available_us: int | None
    expires_us: int | None
    group_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spilled:
    """A message that a transaction enqueues when it commits, as it is stored until then.

    `available_us` and `expires_us` are times that were given, `delay` and `lifetime` spans that the commit begins.
    A `lifetime` of DEFAULT is what the queue says then. `place` is as in `Terms`. In a queue for several consumers it
    is for those of `consumers` that have subscribed then; in another queue that is None.
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
    consumers: Sequence[int] | None = None

    DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process attached to a queue space. `lock` is the file, or the key of a server, that it has locked."""

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


class HousekeepingTurn(enum.Enum):
    """Who does the housekeeping of a queue space, as a process is told that asks for it."""

    OURS = "nobody did it in the last second, and this process does it now"
    OTHERS = "it was done in the last second, or is left to others"
    LOST = "the same, and this process is not recorded as attached: it was taken for dead"


class Outcome(enum.Enum):
    """What the volume knows of a transaction."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    """It is active, and used by nobody until it is resumed. The volume has it as an active one."""
    PREPARED = "prepared"
    COMMITTED = "committed"
    """It is committed on disk, and its changes in memory may still have to follow."""
    HEURISTIC_COMMIT = "heuristic commit"
    HEURISTIC_ROLLBACK = "heuristic rollback"
    """An administrator has ended it without the decision of its coordinator, which is to be told."""

    @property
    def is_heuristic(self) -> bool:
        """Whether it is over, and only the record of how is kept for its coordinator."""
        return self in (Outcome.HEURISTIC_COMMIT, Outcome.HEURISTIC_ROLLBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transaction as the volume records it: its number, owner and state, since and until when.

    One that is suspended since `suspended_us` is active, and its owner is the process that has suspended it.

    `started_us` is a time of day, `deadline_us` one of the steady clock, which no setting of the time of day moves.

    A branch of a distributed transaction has an `xid`. Once it is prepared, at `prepared_us`, the queues are known that
    it has `taken_from`, and those that it `brings_to`, who `consumer` is that has the messages, and how many are
    `nonpersistent`. Of one that is suspended it is only known in which it may have messages. One that was ended without
    the decision of its coordinator was so at `ended_us`, by whom `ended_by` says. `decider` tells whom recovery asks;
    `decided` is what it was told where that is not how the branch was ended, "committed" or "rolled back".
    """

    id: int
    space_id: int
    owner_id: int
    state: Outcome
    started_us: int
    deadline_us: int | None
    xid: Xid | None = None
    prepared_us: int | None = None
    taken_from: tuple[int, ...] = ()
    brings_to: tuple[int, ...] = ()
    consumer: str = ""
    nonpersistent: int = 0
    ended_us: int | None = None
    ended_by: str = ""
    suspended_us: int | None = None
    decider: str = ""
    decided: str = ""

    @property
    def queue_ids(self) -> Sequence[int]:
        """The queues in which it may have messages."""
        return sorted({*self.taken_from, *self.brings_to})


class Decision(NamedTuple):
    """A decision to commit a distributed transaction, and one who is to be told of it."""

    gtrid: bytes
    told: Told
    decided_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarding:
    """What a forwarder reports of its work on one queue. Counts are since the forwarder started.

    `calls` of the service that were begun; of those `successes` and `failures`, and `retries` of the failures after
    which the message is tried again: the others went to an error queue, or were discarded. `refused` calls that did not
    count as a try, because the service could not work. `dropped_replies` for which there was no reply queue.
    `in_flight` calls run now, and at most `workers` run at the same time.

    `rate` is how many messages were forwarded in the last minute. Half of the calls of the last minutes took at most
    `p50_us` microseconds, 95 and 99 percent at most `p95_us` and `p99_us`; None where there were none. `last_error` is
    why the last call failed, and `last_error_us` when; "" and None where none has. The queue is not served until
    `paused_until_us` because of `trouble`; None and "" where it is. `changed_us` is when this was reported.

    Texts have at most TEXT_MAX characters.
    """

    queue: str
    calls: int = 0
    successes: int = 0
    failures: int = 0
    retries: int = 0
    refused: int = 0
    dropped_replies: int = 0
    in_flight: int = 0
    workers: int = 1
    rate: int = 0
    p50_us: int | None = None
    p95_us: int | None = None
    p99_us: int | None = None
    last_error: str = ""
    last_error_us: int | None = None
    paused_until_us: int | None = None
    trouble: str = ""
    changed_us: int = 0

    TEXT_MAX: ClassVar[int] = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRecord:
    """An import as the volume records it: its plan is text, its stage a word; `shift` leads to our sequence numbers."""

    id: int
    space_id: int
    archive: str
    plan: str
    stage: str
    shift: int
    started_us: int
    ended_us: int | None
