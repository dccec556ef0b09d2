"""A queue: what an administrator defines about it, and what it holds."""

from __future__ import annotations

import dataclasses
import enum

from qmcore import names
from qmcore.checks import whole
from qmcore.errors import InvalidArgumentError
from qmcore.limits import Threshold
from qmcore.order import OutOfOrder, QueueOrder

RETRIES_MAX = 2**31 - 1
DELAY_MAX = 2**31 - 1
EXPIRATION_MAX = 2**31 - 1


class Delivery(enum.Enum):
    """Where messages are kept: on disk, or in memory that is lost on restart."""

    PERSIST = "persist"
    NONPERSIST = "nonpersist"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """What qcreate fixes about a queue.

    `retries` is how often a message may be rolled back and still return (0: never), `retry_delay` the seconds it then
    stays unavailable, `expiration` the seconds after which a message without an expiry of its own goes (None: never).
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

    def __post_init__(self) -> None:
        names.queue_name(self.name)
        for field, kind in _KINDS.items():
            if not isinstance(getattr(self, field), kind):
                raise InvalidArgumentError(
                    f"the {field} of queue {self.name!r} must be a {kind.__name__}, got {getattr(self, field)!r}"
                )
        names.command(self.threshold.command)
        names.command(self.memory_threshold.command)
        whole(self.retries, f"number of retries of queue {self.name!r}", 0, RETRIES_MAX)
        whole(self.retry_delay, f"retry delay of queue {self.name!r} in seconds", 0, DELAY_MAX)
        if self.expiration is not None:
            whole(self.expiration, f"default expiration of queue {self.name!r} in seconds", 0, EXPIRATION_MAX)


_KINDS: dict[str, type] = {
    "order": QueueOrder,
    "out_of_order": OutOfOrder,
    "threshold": Threshold,
    "memory_threshold": Threshold,
    "delivery": Delivery,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it is stored: its number in the volume and its definition."""

    id: int
    space_id: int
    definition: QueueDefinition

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.definition.name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueUsage:
    """What a queue holds now, and what went through it since it was created.

    `messages` counts all: `ready`, `delayed` (not yet available) and `held` (by a transaction). `size` is bytes of
    bodies, `pages` pages of the device. `first_us` is when the message was enqueued that is first in order.
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
    first_us: int | None = None
