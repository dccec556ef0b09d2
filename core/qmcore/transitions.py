"""What a store is asked to do to messages, and what it answers: values of plain data, which can be packed.

An act builds a value from the definitions that it knows; a store executes it, alone, together with those of other
callers, for another process, or in a transaction of the application. Where the definitions are others by then, the
store does nothing and says so, and the act builds the value again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from qmcore.message import Body
from qmcore.records import Use
from qmcore.selection import Choice


class Guard(NamedTuple):
    """Who asks, and what must hold at the moment in which a store acts.

    `asker` is the user of the system, `owner_id` the attachment, None where nobody is attached, and `consumer` what is
    recorded of who consumed a message. The queue space may
    hold so many `messages` on disk and in memory together, so many `pages` on disk, and `memory_pages` in memory.
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
    `criteria` of the order. The last of several messages comes first where it `descends`.
    """

    queue_id: int
    head: bytes | None
    criteria: tuple[str, ...]
    descends: bool
    grouping: bool
    levels: tuple[Level, ...]


class Times(NamedTuple):
    """When a message is available and expires, in microseconds: moments, or spans that begin when it comes."""

    delay: int | None
    available_us: int | None
    lifetime: int | None
    expires_us: int | None


class Terms(NamedTuple):
    """What a sender asks for, but for the content: messages may have it in common.

    `head` is the part of the order key before the sequence number, None where it depends on times that the store
    gives; the number is inverted where it `descends`. Where the message is to stand before another one, that is to be
    found: `before` are the numbers that it may have, the newest first. `times` is None where there is none. `options`
    are what few senders give: () for none, the values of USUAL_OPTIONS, or those of ALL_OPTIONS.
    """

    memory: bool
    type: str
    priority: int
    head: bytes | None
    descends: bool
    times: Times | None
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


class Enqueue(NamedTuple):
    """Messages are to come to stand in a queue, in this order, all or none."""

    guard: Guard
    route: Route
    arrivals: Sequence[Arrival]


class Source(NamedTuple):
    """How messages are taken out of a queue: made once for each generation of the definitions.

    What is consumed is kept for the record where it `retains`, and was kept long enough after `retention_us`; None is
    for ever. At the low limits `levels` its capacity commands are armed again.
    """

    queue_id: int
    grouping: bool
    retains: bool
    retention_us: int | None
    levels: tuple[Level, ...]


class Holder(NamedTuple):
    """A transaction that is to hold what is claimed: as a store is to know it, unless it is `recorded` already.

    The queue space may have so many `transactions`, and had at most `highest` at one time, as far as is known. It holds
    messages to consume them, or only to lock them (`role`). Where it `locks` some, those come first. With the claim it
    gets `numbers` sequence numbers for what it enqueues.
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
    """Messages have come: the sequence numbers of their identifiers, and the capacity commands to start."""

    sequences: Sequence[int]
    reached: Sequence[Reached] = ()


class Reason(enum.IntEnum):
    """Why a store has done nothing."""

    STALE = 0
    """The definitions are those of another generation."""
    MESSAGES = 1
    PAGES = 2
    MEMORY = 3
    """The limits of the queue space."""
    NO_MEMORY = 4
    """The memory of the queue space cannot take part in this."""
    NO_SUCH_MESSAGE = 5
    """The message that another was to stand before is not there."""
    DAMAGED = 6
    """A message cannot be read."""
    GIVEN_UP = 7
    """Others have rolled the transaction back."""
    TRANSACTIONS = 8
    """The limit of the queue space."""


class Refused(NamedTuple):
    """Nothing was done. Of a limit it says how much was in use, the limit, and what was wanted.

    Of NO_SUCH_MESSAGE and DAMAGED `used` is the number of the queue, `wanted` that of the message, and `what` says what
    is wrong with it.
    """

    reason: Reason
    used: int = 0
    limit: int = 0
    wanted: int = 0
    what: str = ""


STALE = Refused(Reason.STALE)

Command: TypeAlias = Enqueue | Claim
Result: TypeAlias = Enqueued | Claimed | Empty
