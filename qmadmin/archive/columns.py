"""The columns of a part: one row for each message, declared here and nowhere else."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

from qmcore import message_attributes as messages
from qmcore.message import State
from qmcore.queue import Delivery
from qmcore.values import dataclass

MINOR: Final = 3
"""The newest minor version that this release reads and writes; a later one may have more columns and more fields."""

MINOR_OF_PARTS: Final = 2
"""The minor version that the columns of parts are of. An archive has a newer one only if it needs that."""


class ColumnType(enum.Enum):
    """The type of a column, by the name that Arrow has for it."""

    TEXT = "string"
    BYTES = "binary"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    TIME = "timestamp[us, tz=UTC]"
    FLAG = "bool"
    """Not used for messages, but in tables of queues; so is the next one."""
    REAL = "double"


@dataclass(frozen=True, slots=True)
class ArchiveColumn:
    """A column: its name, its type, its meaning and unit, and whether each message has a value.

    `carried` is the name of its value in `qmcore.bulk_rows.COLUMNS`; a column without one has a value that a run of
    rows has in common. `since` is the minor version of the format that added it.
    """

    name: str
    kind: ColumnType
    meaning: str
    unit: str = ""
    required: bool = False
    carried: str = ""
    since: int = 0


STATES: Final = (State.READY, State.DELAYED, State.CONSUMED)
"""The states of a message in an archive, where none is held."""

DELIVERIES: Final = {False: Delivery.PERSIST.value, True: Delivery.NONPERSIST.value}
"""The value of the column `delivery`, by whether the message is kept in memory."""


def _of(
    name: str, kind: ColumnType, meaning: str, unit: str = "", *, required: bool = False, since: int = 0
) -> ArchiveColumn:
    """Return a column of a message that is not one of its attributes."""
    return ArchiveColumn(name, kind, meaning, unit, required, name, since)


def _known(*names: str, carried: bool = True) -> Iterator[ArchiveColumn]:
    """Yield the columns of attributes of a message."""
    for name in names:
        known = messages.ATTRIBUTES[name]
        kind = (
            f"INT{known.bits}" if known.kind is messages.ValueKind.WHOLE else known.kind.name.replace("MSGID", "TEXT")
        )
        unit = "UTC" if kind == "TIME" else known.unit
        yield ArchiveColumn(
            name, ColumnType[kind], known.about, unit, known.required, name if carried else "", known.since
        )


COLUMNS: Final = (
    ArchiveColumn("space", ColumnType.TEXT, "The queue space that the message is in.", required=True),
    *_known("queue", "state", "delivery", "msgid", carried=False),
    _of("sequence", ColumnType.INT64, "The sequence number of the message, unique in its queue space.", required=True),
    _of(
        "order_key",
        ColumnType.BYTES,
        "The place in the queue: the message with the smallest key, compared byte by byte, is dequeued first.",
        required=True,
    ),
    *_known("priority", "enqueued_at", "available_at", "expires_at"),
    _of("until", ColumnType.TIME, "When a delayed message becomes available.", "UTC"),
    _of(
        "pages",
        ColumnType.INT64,
        "The pages that it takes on the device it was exported from.",
        "pages of the source",
        required=True,
    ),
    *_known("size", "retries", "urcode", "appkey", "corrid", "reply_queue", "failure_queue", "error_queue"),
    *_known("delivery_asked", "reply_delivery", "client_id", "type", "subtype"),
    *_known("group_msgid", carried=False),
    _of(
        "group_sequence",
        ColumnType.INT64,
        "The sequence number of the first message of its group, in a queue that groups messages.",
    ),
    *_known("origin_queue", "origin_msgid", "origin_reason", "origin_error", "moved_at", "headers"),
    _of("body", ColumnType.BYTES, "The body, exactly the bytes that the sender gave; null is not the same as empty."),
    _of("consumed_at", ColumnType.TIME, "When a consumed message was consumed.", "UTC"),
    _of("consumer", ColumnType.TEXT, "The process that consumed a consumed message."),
    _of("transaction", ColumnType.INT64, "The number of the transaction that consumed a consumed message, if any."),
    *_known("first_msgid"),
    _of(
        "expires_before",
        ColumnType.TIME,
        "When a message in an error queue would have expired in its original queue.",
        "UTC",
        since=2,
    ),
)

BY_NAME: Final = {column.name: column for column in COLUMNS}
