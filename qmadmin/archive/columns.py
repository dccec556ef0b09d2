"""The columns of a part: one row for each message, declared here and nowhere else."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

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


def _of(
    name: str,
    kind: Kind,
    meaning: str,
    unit: str = "",
    *,
    required: bool = False,
    carried: str | None = None,
    since: int = 0,
) -> Column:
    """Return a column of what is carried of a message."""
    return Column(name, kind, meaning, unit, required, name if carried is None else carried, since)


COLUMNS: Final = (
    Column("space", Kind.TEXT, "Queue space that the message is in.", required=True),
    Column("queue", Kind.TEXT, "Queue that the message is in.", required=True),
    Column(
        "state",
        Kind.TEXT,
        "`ready`: it can be dequeued. `delayed`: not before `until`. `consumed`: it was consumed and is retained.",
        required=True,
    ),
    Column(
        "delivery",
        Kind.TEXT,
        "`persist`: the message is kept on disk. `nonpersist`: in memory.",
        required=True,
    ),
    Column(
        "msgid",
        Kind.TEXT,
        "Message identifier, 32 hexadecimal digits. It stays valid where the archive is imported.",
        required=True,
    ),
    _of(
        "sequence",
        Kind.INT64,
        "Sequence number of the message, unique in its queue space.",
        required=True,
    ),
    _of(
        "order_key",
        Kind.BYTES,
        "Place in the queue: the message with the smallest key, compared byte by byte, is dequeued first.",
        required=True,
    ),
    _of("priority", Kind.INT16, "Priority, 1 to 100; 100 is the highest.", required=True),
    _of("enqueued_at", Kind.TIME, "When it was enqueued, in a transaction when that committed.", "UTC", required=True),
    _of(
        "available_at",
        Kind.TIME,
        "When it becomes or became available, if the sender or a retry delay set a time.",
        "UTC",
    ),
    _of("expires_at", Kind.TIME, "When it expires, if ever.", "UTC"),
    _of("until", Kind.TIME, "Of a delayed message: when it becomes available.", "UTC"),
    _of(
        "pages",
        Kind.INT64,
        "Pages that it takes on the device it was exported from.",
        "pages of the source",
        required=True,
    ),
    _of("size", Kind.INT64, "Length of the body; 0 if there is none.", "bytes", required=True),
    _of(
        "retries",
        Kind.INT32,
        "How often it was rolled back; always 0 for a consumed message.",
        required=True,
    ),
    _of("urcode", Kind.INT64, "User return code.", required=True),
    _of("appkey", Kind.INT64, "Application key.", required=True),
    _of("corrid", Kind.BYTES, "Correlation identifier, at most 32 bytes, without padding."),
    _of("reply_queue", Kind.TEXT, "Reply queue that the sender named."),
    _of("failure_queue", Kind.TEXT, "Failure queue that the sender named."),
    _of("error_queue", Kind.TEXT, "Error queue that the sender named."),
    _of("delivery_asked", Kind.TEXT, "Delivery that the sender asked for: `persist`, `nonpersist` or `default`."),
    _of("reply_delivery", Kind.TEXT, "Delivery that the sender asked for its replies, in the same words."),
    _of("client_id", Kind.TEXT, "Client identifier."),
    _of("type", Kind.TEXT, "Type of the buffer, such as `CARRAY` or `STRING`.", required=True),
    _of("subtype", Kind.TEXT, "Subtype of the buffer."),
    Column(
        "group_msgid",
        Kind.TEXT,
        "Message identifier of the first message of its group, in a queue that groups messages.",
    ),
    _of(
        "group_sequence",
        Kind.INT64,
        "Sequence number of the first message of its group, in a queue that groups messages.",
    ),
    _of("origin_queue", Kind.TEXT, "Queue from which it was moved."),
    _of("origin_msgid", Kind.TEXT, "Message identifier that it had in that queue."),
    _of("origin_reason", Kind.TEXT, "Why it was moved: `retries`, `expired`, `admin` or `forward`."),
    _of("origin_error", Kind.TEXT, "The last error in that queue."),
    _of("moved_at", Kind.TIME, "When it was moved.", "UTC"),
    _of("headers", Kind.TEXT, "Headers: a JSON object whose values are strings."),
    _of("body", Kind.BYTES, "The body, exactly the bytes that the sender gave; null is not the same as empty."),
    _of("consumed_at", Kind.TIME, "Of a consumed message: when it was consumed.", "UTC"),
    _of("consumer", Kind.TEXT, "Of a consumed message: the process that consumed it."),
    _of("transaction", Kind.INT64, "Of a consumed message: number of the transaction that consumed it, if any."),
    _of("first_msgid", Kind.TEXT, "Message identifier that it had before it was moved for the first time.", since=2),
    _of(
        "expires_before",
        Kind.TIME,
        "In an error queue: when it would have expired in its original queue.",
        "UTC",
        since=2,
    ),
)

BY_NAME: Final = {column.name: column for column in COLUMNS}
