"""The columns of a part: one row for each message, declared here and nowhere else."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Final

from qmcore import message_attributes as messages
from qmcore.message import State
from qmcore.queue import Delivery

MINOR: Final = 2
"""The minor version that this release writes; a later one may have more columns and more fields in the manifest."""


class Kind(enum.Enum):
    """The type of a column, by the name that Arrow has for it."""

    TEXT = "string"
    BYTES = "binary"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    TIME = "timestamp[us, tz=UTC]"
    FLAG = "bool"
    """No message has one; tables of queues do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, what it means and in which unit, and whether each message has a value.

    `carried` is the name that its value has in `qmcore.bulk_rows.COLUMNS`; a column without one is made of what a run
    of rows has in common. `since` is the minor version of the format that brought it.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""
    required: bool = False
    carried: str = ""
    since: int = 0


STATES: Final = (State.READY, State.DELAYED, State.CONSUMED)
"""The states that a message has in an archive: what is held stands in no archive as held."""

DELIVERIES: Final = {False: Delivery.PERSIST.value, True: Delivery.NONPERSIST.value}
"""The value of the column `delivery`, by whether the message is kept in memory."""


def _of(name: str, kind: Kind, meaning: str, unit: str = "", *, required: bool = False, since: int = 0) -> Column:
    """Return a column of what is carried of a message and is not an attribute of it."""
    return Column(name, kind, meaning, unit, required, name, since)


def _known(*names: str, carried: bool = True) -> Iterator[Column]:
    """Yield the columns of attributes of a message."""
    for name in names:
        known = messages.ATTRIBUTES[name]
        kind = f"INT{known.bits}" if known.kind is messages.Kind.WHOLE else known.kind.name.replace("MSGID", "TEXT")
        unit = "UTC" if kind == "TIME" else known.unit
        yield Column(name, Kind[kind], known.about, unit, known.required, name if carried else "", known.since)


COLUMNS: Final = (
    Column("space", Kind.TEXT, "Queue space that the message is in.", required=True),
    *_known("queue", "state", "delivery", "msgid", carried=False),
    _of("sequence", Kind.INT64, "Sequence number of the message, unique in its queue space.", required=True),
    _of(
        "order_key",
        Kind.BYTES,
        "Place in the queue: the message with the smallest key, compared byte by byte, is dequeued first.",
        required=True,
    ),
    *_known("priority", "enqueued_at", "available_at", "expires_at"),
    _of("until", Kind.TIME, "Of a delayed message: when it becomes available.", "UTC"),
    _of(
        "pages",
        Kind.INT64,
        "Pages that it takes on the device it was exported from.",
        "pages of the source",
        required=True,
    ),
    *_known("size", "retries", "urcode", "appkey", "corrid", "reply_queue", "failure_queue", "error_queue"),
    *_known("delivery_asked", "reply_delivery", "client_id", "type", "subtype"),
    *_known("group_msgid", carried=False),
    _of(
        "group_sequence",
        Kind.INT64,
        "Sequence number of the first message of its group, in a queue that groups messages.",
    ),
    *_known("origin_queue", "origin_msgid", "origin_reason", "origin_error", "moved_at", "headers"),
    _of("body", Kind.BYTES, "The body, exactly the bytes that the sender gave; null is not the same as empty."),
    _of("consumed_at", Kind.TIME, "Of a consumed message: when it was consumed.", "UTC"),
    _of("consumer", Kind.TEXT, "Of a consumed message: the process that consumed it."),
    _of("transaction", Kind.INT64, "Of a consumed message: number of the transaction that consumed it, if any."),
    *_known("first_msgid"),
    _of(
        "expires_before",
        Kind.TIME,
        "In an error queue: when it would have expired in its original queue.",
        "UTC",
        since=2,
    ),
)

BY_NAME: Final = {column.name: column for column in COLUMNS}
