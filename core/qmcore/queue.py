"""A queue: what an administrator defines about it, and what it holds."""

from __future__ import annotations

import dataclasses
import enum

from qmcore import names
from qmcore.checks import keep_flag, keep_seconds, keep_whole
from qmcore.errors import InvalidArgumentError
from qmcore.limits import Threshold
from qmcore.order import OutOfOrder, QueueOrder

RETRIES_MAX = 2**31 - 1
DELAY_MAX = 2**31 - 1
EXPIRATION_MAX = 2**31 - 1
RETENTION_MAX = 2**31 - 1
FOREVER = -1
"""The retention that never ends."""


class Delivery(enum.Enum):
    """Where messages are kept: on disk, or in memory that is lost on restart.

    A sender may also ask for DEFAULT, to say explicitly that the queue decides; no stored message has this value.
    """

    PERSIST = "persist"
    NONPERSIST = "nonpersist"
    DEFAULT = "default"

    # That of an Enum is a function in Python, and each message is counted by where it is kept.
    __hash__ = object.__hash__


KEPT = (Delivery.PERSIST, Delivery.NONPERSIST)
"""Where messages can be kept."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """The attributes of a queue, as qcreate sets them.

    `retries` is how often a message may be rolled back and still return (0: never), `retry_delay` the seconds for which
    it is then unavailable, `expiration` the seconds after which a message without an expiry of its own expires (None:
    never). `error_queue` is used in place of the queue space's, and with `keep_expired` expired messages go to it too.
    `grouping` keeps the messages of one transaction together: one consumer at a time gets them. `retention` is how many
    seconds consumed messages are retained, FOREVER or 0. Seconds may be given as timedeltas.
    """

    name: str
    order: QueueOrder = dataclasses.field(default_factory=QueueOrder)
    out_of_order: OutOfOrder = OutOfOrder.NONE
    retries: int = 0
    retry_delay: int = 0
    threshold: Threshold = dataclasses.field(default_factory=Threshold.none)
    memory_threshold: Threshold = dataclasses.field(default_factory=Threshold.none)
    delivery: Delivery = Delivery.PERSIST
    expiration: int | None = None
    error_queue: str = ""
    keep_expired: bool = False
    grouping: bool = False
    retention: int = 0

    def __post_init__(self) -> None:
        names.queue_name(self.name)
        if self.error_queue:
            names.queue_name(self.error_queue, f"error queue name of queue {self.name!r}")
        for field, kind in _KINDS.items():
            if not isinstance(getattr(self, field), kind):
                raise InvalidArgumentError(
                    f"the {field} of queue {self.name!r} must be a {kind.__name__}, got {getattr(self, field)!r}"
                )
        for flag in ("keep_expired", "grouping"):
            keep_flag(self, flag, f"{flag} of queue {self.name!r}")
        names.command(self.threshold.command)
        names.command(self.memory_threshold.command)
        keep_whole(self, "retries", f"number of retries of queue {self.name!r}", 0, RETRIES_MAX)
        keep_seconds(self, "retry_delay", f"retry delay of queue {self.name!r} in seconds", DELAY_MAX)
        if self.expiration is not None:
            keep_seconds(self, "expiration", f"default expiration of queue {self.name!r} in seconds", EXPIRATION_MAX)
        if self.delivery not in KEPT:
            raise InvalidArgumentError(f"queue {self.name!r} needs a delivery of its own: persist or nonpersist")
        if self.grouping and self.delivery is Delivery.NONPERSIST:
            raise InvalidArgumentError(f"queue {self.name!r} cannot group non-persistent messages")
        if self.retention != FOREVER:
            keep_seconds(self, "retention", f"retention of queue {self.name!r} in seconds", RETENTION_MAX)

    @property
    def commands(self) -> list[str]:
        """The capacity commands, each once."""
        return sorted({self.threshold.command, self.memory_threshold.command} - {""})


_KINDS: dict[str, type] = {
    "order": QueueOrder,
    "out_of_order": OutOfOrder,
    "threshold": Threshold,
    "memory_threshold": Threshold,
    "delivery": Delivery,
    "error_queue": str,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it is stored: its number in the volume, its definition, and which directions are started."""

    id: int
    space_id: int
    definition: QueueDefinition
    enqueue_enabled: bool = True
    dequeue_enabled: bool = True

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.definition.name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueUsage:
    """What a queue holds now, and its counters since it was created.

    `messages` counts all: `ready`, `delayed` (not yet available) and `held` (by a transaction). `size` is the total
    length of the bodies in bytes, `pages` the pages of the device, including those of retained messages.
    `nonpersistent` is how many of the messages are kept in memory, in `memory_pages` pages of it. `first_us` is when
    the first message in order was enqueued; `oldest_us` when the oldest ready one was, None also if the order goes by
    times and does not show it. The counters include non-persistent messages since their memory was created.
    """

    messages: int
    ready: int
    delayed: int
    held: int
    pages: int
    size: int
    enqueued: int
    dequeued: int
    expired: int
    discarded: int
    moved: int
    nonpersistent: int = 0
    memory_pages: int = 0
    first_us: int | None = None
    oldest_us: int | None = None
