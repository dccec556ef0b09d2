"""What is carried of a message from one queue space to another: its row in an order that both ends know.

An export reads rows of this form and an import loads them. A row says everything about a message but its queue space,
its queue and its state, which are the same for a run of rows.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from qmcore.message import State
from qmcore.records import Cursor
from qmcore.values import dataclass

Row: TypeAlias = tuple[Any, ...]
"""The values of `COLUMNS`, in that order, of one message."""

COLUMNS: Final = (
    "sequence",
    "order_key",
    "priority",
    "enqueued_at",
    "available_at",
    "expires_at",
    "pages",
    "size",
    "urcode",
    "appkey",
    "corrid",
    "reply_queue",
    "failure_queue",
    "error_queue",
    "delivery_asked",
    "reply_delivery",
    "client_id",
    "type",
    "subtype",
    "group_sequence",
    "origin_queue",
    "origin_msgid",
    "origin_reason",
    "origin_error",
    "moved_at",
    "headers",
    "body",
    "first_msgid",
    "expires_before",
    "retries",
    "until",
    "consumed_at",
    "consumer",
    "transaction",
)
"""Names as in the message table, in its order, and where they differ:

`sequence` is the sequence number in the queue space that the row is of, `group_sequence` that of the first message of
its group. `headers` is JSON text, `body` the whole body or None. `retries` is how often it was rolled back. `until` is
when a delayed message becomes available. `consumed_at`, `consumer` and `transaction` are of a consumed one. Times are
UTC microseconds; what a message does not have is None.
"""

SEQUENCE: Final = COLUMNS.index("sequence")
ORDER_KEY: Final = COLUMNS.index("order_key")
SIZE: Final = COLUMNS.index("size")
PAGES: Final = COLUMNS.index("pages")
HEADERS: Final = COLUMNS.index("headers")
BODY: Final = COLUMNS.index("body")

ROWS_MAX: Final = 1_000
"""Messages of a batch at most."""

BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of bodies of a batch at most, unless it has one message only."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive messages of one queue in one state: a part of the work of an export.

    `after` is the cursor before the first, `until` that of the last; None is from the first, or to the last one.
    `memory` says that they are the non-persistent ones. `messages` is how many there are in the snapshot that the run
    was made of.
    """

    queue: str
    state: State
    memory: bool
    after: Cursor | None
    until: Cursor | None
    messages: int


@dataclass(frozen=True, slots=True)
class Tally:
    """How many messages there are, their pages, and the bytes of their bodies.

    `first` and `last` are the lowest and the highest sequence number in them, either their own or that of the first
    message of their group, which may be gone; 0 where there are no messages.
    """

    messages: int = 0
    pages: int = 0
    size: int = 0
    first: int = 0
    last: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of both together."""
        if not (self.messages and other.messages):
            return self if self.messages else other
        return Tally(
            self.messages + other.messages,
            self.pages + other.pages,
            self.size + other.size,
            min(self.first, other.first),
            max(self.last, other.last),
        )


@dataclass(frozen=True, slots=True)
class Adopted:
    """Message identifiers of another queue space that are valid here.

    The sequence numbers `first` to `last` of the identifiers with this incarnation, plus `shift`, are ours.
    """

    incarnation: str
    first: int
    last: int
    shift: int
