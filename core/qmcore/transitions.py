"""What a store is asked to do to messages, and what it answers: values of plain data, which can be packed.

An act builds a value from the definitions that it knows; a store executes it, alone, together with those of other
callers, for another process, or in a transaction of the application. Where the definitions are others by then, the
store does nothing and says so, and the act builds the value again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from qmcore.message import Body
from qmcore.records import Holding, Use
from qmcore.selection import Choice
from qmcore.two_phase import Begin, Begun, Decide, Decided, Prepare, Prepared

NO_LIMIT: Final = 2**62
"""What a guard says of limits that do not hold any more, because room was kept and it was promised."""


class Guard(NamedTuple):
    """Who asks, and what must hold at the moment in which a store acts.

    `asker` is the user of the system, `owner_id` the attachment, None where nobody is attached, and `consumer` what is
    recorded of who consumed a message. The queue space may hold so many `messages` on disk and in memory together, so
    many `pages` on disk, and `memory_pages` in memory.
    """

    space_id: int
    incarnation: str
    generation: int
    asker: str
    owner_id: int | None
    consumer: str
    messages: int
    pages: int
    memory_pages: int


class Level(NamedTuple):
    """A high or low limit of a queue that has a capacity command, and is reached `at` so much in its unit.

    `memory`: it is that of the messages in memory. Percents are of `capacity` pages.
    """

    memory: bool
    unit: str
    at: int
    capacity: int


class Route(NamedTuple):
    """How messages come to stand in a queue: made once for each generation of the definitions.

    `head` is the part of an order key before the sequence number, None where that depends on the message by the
    `criteria` of the order. The last of several messages comes first where it `descends`. A message whose sender says
    nothing of that expires after `lifetime` microseconds; None is never. In a queue for several consumers each message
    stands in a place for each of them, by the numbers of `consumers`; else it stands in the queue itself.
    """

    queue_id: int
    head: bytes | None
    criteria: tuple[str, ...]
    descends: bool
    grouping: bool
    lifetime: int | None
    levels: tuple[Level, ...]
    consumers: tuple[int, ...] = ()


NEVER = -2
"""The lifetime of a message that does not expire, whatever its queue says."""


class Times(NamedTuple):
    """When a message is available and expires, in microseconds: moments, or spans that begin when it comes.

    Where it has neither a lifetime nor a time of expiry, its queue says when it expires.
    """

    delay: int | None
    available_us: int | None
    lifetime: int | None
    expires_us: int | None


class Terms(NamedTuple):
    """What a sender asks for, but for the content: messages may have it in common.

    `head` is the part of the order key before the sequence number, None where it depends on times that the store
    gives; the number is inverted where it `descends`. `times` is None where the sender says nothing of them. `place` is
    where the message stands out of order: TOP, or before the one with this order key; else it is empty. Where it is to
    stand before another one, that is to be found: `before` are the numbers that it may have, the newest first.
    `options` are what few senders give: () for none, the values of USUAL_OPTIONS, or those of ALL_OPTIONS.
    """

    memory: bool
    type: str
    priority: int
    head: bytes | None
    descends: bool
    times: Times | None
    place: bytes
    before: tuple[int, ...]
    options: tuple[int | str | bytes | None, ...]


TOP = b"\0"
"""The place before all other messages, where a place is not the order key of the message to stand before."""

USUAL_OPTIONS = ("urcode", "appkey", "corrid", "reply_queue", "headers")
"""What a message may have besides, as columns are named: what requests and replies mostly have."""

ALL_OPTIONS = (
    *USUAL_OPTIONS,
    "failure_queue",
    "error_queue",
    "delivery_asked",
    "reply_delivery",
    "client_id",
    "subtype",
)
"""All that a message may have besides."""


class Arrival(NamedTuple):
    """A message that comes; `sequence` is the number of its identifier, 0 where the store gives it."""

    body: Body
    size: int
    pages: int
    terms: Terms
    sequence: int = 0


class Source(NamedTuple):
    """How messages are taken out of a queue: made once for each generation of the definitions.

    What is consumed is kept for the record where it `retains`, and was kept long enough after `retention_us`; None is
    for ever. At the low limits `levels` its capacity commands are armed again. A consumer of a queue for several takes
    its places of messages of that queue, `parent_id`; a message goes with its last place. For a queue that is 0.
    """

    queue_id: int
    grouping: bool
    retains: bool
    retention_us: int | None
    levels: tuple[Level, ...]
    parent_id: int = 0

    @property
    def messages_of(self) -> int:
        """The number of the queue whose messages they are."""
        return self.parent_id or self.queue_id


class Holder(NamedTuple):
    """A transaction that is to hold messages: as a store is to know it, unless it is `recorded` already.

    The queue space may have so many `transactions`, and had at most `highest` at one time, as far as is known. It holds
    messages to consume them, or only to lock them (`role`), or has spilled them. Where it `locks` some, those come
    first. With a claim it gets `numbers` sequence numbers for what it enqueues.
    """

    transaction_id: int
    owner_id: int
    started_us: int
    deadline_us: int | None
    recorded: bool
    transactions: int
    highest: int
    role: int
    locks: bool
    numbers: int


class Enqueue(NamedTuple):
    """Messages are to come to stand in a queue, in this order, all or none.

    With a `holder` they are spilled: that transaction has them, and they come to stand there when it commits. Their
    numbers and places are known by then, and an `Admit` before them looks whether there is room.
    """

    guard: Guard
    route: Route
    arrivals: Sequence[Arrival]
    holder: Holder | None = None


class Claim(NamedTuple):
    """At most `limit` messages of a queue are to be consumed, or held by a transaction: in its order, of one group.

    `choices` says which, one after the other; () is the first ones. They come without bodies if those are not wanted.
    What is due or has expired goes before; `is_tidy` says that the asker has seen to that just now.
    """

    guard: Guard
    source: Source
    choices: Sequence[Choice]
    limit: int
    body: bool
    is_tidy: bool
    holder: Holder | None


class Admit(NamedTuple):
    """Messages are to come when a transaction commits: there has to be room then, as far as that is known now.

    The transaction will have added `has` by then, and with these messages `more` besides: each a pair, of the disk and
    of the memory; less than nothing where it takes more away. It gets so many sequence `numbers`. `before` are messages
    that others are to stand before: a queue, and the numbers that the message may have, the newest first.
    """

    guard: Guard
    has: tuple[Use, Use]
    more: tuple[Use, Use]
    numbers: int
    before: Sequence[tuple[int, tuple[int, ...]]]


class Commit(NamedTuple):
    """A transaction is to be committed: what it holds goes, and what it brings comes, all or nothing.

    It is that of an owner, and `recorded` where it holds or has spilled anything: messages of the `sources`, of which
    `holds` are known on disk, and ones that are to come to stand by the routes `stored`, of which the disk has
    `spilled`. It `locks` some perhaps, which go back. `brings` are the others; they have the numbers of their
    identifiers, or the store gives them.
    """

    guard: Guard
    transaction_id: int
    owner_id: int
    recorded: bool
    sources: Sequence[Source]
    holds: Use
    locks: bool
    stored: Sequence[Route]
    spilled: int
    brings: Sequence[tuple[Route, Sequence[Arrival]]]


class MoveOrigin(NamedTuple):
    """Where a message that is moved comes from: its queue, its identifier there, why, and the last error.

    `expires_before_us` is the expiry that it had, and has again where it is taken back.
    """

    queue: str
    msgid: str
    reason: str
    error: str
    expires_before_us: int | None


class NewTerms(NamedTuple):
    """By what a message gets its place in the queue of `route`; an order by time goes by `moment_us`."""

    route: Route
    priority: int
    moment_us: int
    available_us: int | None
    expires_us: int | None


class PutBack(NamedTuple):
    """A message stands where it stood, so often tried by now, is kept back until a time, and expires at another."""

    holding: Holding
    retries: int
    until_us: int | None
    expires_us: int | None


class Park(NamedTuple):
    """A message stands where it stood, as often tried as before, and is kept back without a time; why is kept too."""

    holding: Holding
    why: str


class Change(NamedTuple):
    """A message stands where its terms, which may be new ones, put it in its queue.

    Among its equals it keeps its place, which is that of `sequence`.
    """

    holding: Holding
    until_us: int | None
    terms: NewTerms
    sequence: int


class Move(NamedTuple):
    """A message stands where its terms put it in another queue, which gives it an identifier; its tries begin again."""

    holding: Holding
    until_us: int | None
    terms: NewTerms
    origin: MoveOrigin


class Removal(enum.Enum):
    """Why a message is deleted, which is how it is counted. One that was dequeued is kept where its queue retains."""

    DEQUEUED = "dequeued"
    EXPIRED = "expired"
    DISCARDED = "discarded"


class Remove(NamedTuple):
    """A message is deleted."""

    holding: Holding
    why: Removal


Disposition: TypeAlias = PutBack | Park | Change | Move | Remove
"""What becomes of one message, and in which state it is."""


class Dispose(NamedTuple):
    """Messages of a queue, on disk or in `memory`, are taken out of their states, and something becomes of each.

    A transaction holds them where one is named; else they are ready, or kept back. They are as they were looked at, by
    the same work and so that nobody takes them in between: else nothing is done.
    """

    guard: Guard
    source: Source
    memory: bool
    dispositions: Sequence[Disposition]
    transaction_id: int | None = None


class Taken(NamedTuple):
    """A message that was claimed: the values of `message_rows.FIELDS`, its retries, and whether it was in memory."""

    row: tuple[Any, ...]
    retries: int
    memory: bool


class Reached(NamedTuple):
    """A capacity command of a queue that whoever asked is to start now: of a limit that was reached, at this use."""

    queue_id: int
    memory: bool
    value: int


class Claimed(NamedTuple):
    """Messages were claimed, which now `locks` others, or only themselves.

    The transaction got these sequence numbers. `transactions` is how many there are now, where that is more than ever.
    `level` is what the queue space held on disk before, None where nobody has looked.
    """

    taken: Sequence[Taken]
    locks: bool = False
    sequences: Sequence[int] = ()
    transactions: int = 0
    level: Use | None = None
    reached: Sequence[Reached] = ()


class Empty(NamedTuple):
    """There was no message, and nothing was done.

    `next_due_us` is when the next one that is kept back becomes available, `held` whether a transaction holds one.
    `is_untidy`: nobody has looked, because something is due or has expired, and has to be seen to before.
    """

    queue_id: int
    next_due_us: int | None
    held: bool
    is_untidy: bool = False
    reached: Sequence[Reached] = ()


class Enqueued(NamedTuple):
    """Messages have come: the sequence numbers of their identifiers, and the capacity commands to start.

    `transactions` is as in `Claimed`.
    """

    sequences: Sequence[int]
    reached: Sequence[Reached] = ()
    transactions: int = 0


class Admitted(NamedTuple):
    """The messages may come: the sequence numbers, and the order keys of those that others are to stand before.

    `level` is what the queue space holds on disk.
    """

    sequences: Sequence[int]
    places: Sequence[bytes]
    level: Use
    reached: Sequence[Reached] = ()


class Committed(NamedTuple):
    """The transaction is committed."""

    reached: Sequence[Reached] = ()


class Disposed(NamedTuple):
    """Messages have gone where they were to go: the capacity commands to start."""

    reached: Sequence[Reached] = ()


Command: TypeAlias = Enqueue | Claim | Admit | Commit | Dispose | Begin | Prepare | Decide
Result: TypeAlias = Enqueued | Claimed | Empty | Admitted | Committed | Disposed | Begun | Prepared | Decided
