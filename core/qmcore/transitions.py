"""What a store is asked to do to messages, and what it answers: values of plain data, which can be packed.

An act builds a value from the definitions that it knows; a store executes it, alone, together with those of other
callers, for another process, or in a transaction of the application. Where the definitions are others by then, the
store does nothing and says so, and the act builds the value again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from qmcore.message import Body


class Guard(NamedTuple):
    """Who asks, and what must hold at the moment in which a store acts.

    `asker` is the user of the system, `owner_id` the attachment, None where nobody is attached. The queue space may
    hold so many `messages` on disk and in memory together, so many `pages` on disk, and `memory_pages` in memory.
    """

    space_id: int
    incarnation: str
    generation: int
    asker: str
    owner_id: int | None
    messages: int
    pages: int
    memory_pages: int


class Level(NamedTuple):
    """A high limit of a queue that has a capacity command, and is reached `at` so much in its unit.

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


class Reached(NamedTuple):
    """A capacity command that whoever asked is to start now: of a limit that was reached, at this use."""

    memory: bool
    value: int


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


class Refused(NamedTuple):
    """Nothing was done. Of a limit it says how much was in use, the limit, and what was wanted.

    Of NO_SUCH_MESSAGE `used` is the number of the queue, and `wanted` that of the message.
    """

    reason: Reason
    used: int = 0
    limit: int = 0
    wanted: int = 0


STALE = Refused(Reason.STALE)

Command: TypeAlias = Enqueue
Result: TypeAlias = Enqueued
