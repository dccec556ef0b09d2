"""A queue space: its limits as an administrator defines them, and their use."""

from __future__ import annotations

import dataclasses

from qmcore import names
from qmcore.checks import whole
from qmcore.errors import InvalidArgumentError

PAGE_QUANTUM = 4
"""Pages of a queue space are rounded down to a multiple of this."""

NUMBER_MAX = 2**31 - 1
ACTIONS_DEFAULT = 64
"""More than Tuxedo's none: here it is the threads of one program that wait beside each other."""

IPC_KEY_RANGE = (32_769, 262_142)
"""The keys that Tuxedo's guide advises; others are accepted, with a warning by the shell."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpaceDefinition:
    """What qspacecreate fixes about a queue space.

    `pages` of the device hold its messages; `queues`, `transactions`, `processes` and `messages` limit how many of
    each there may be at one time. `error_queue` may be empty: messages that are out of retries are then discarded.
    `actions` are blocking dequeues beyond one for each process, `memory` the bytes for non-persistent messages.
    `blocking`, `overflow`, `handles`, `cursors`, `owners`, `temporary_queues` and `filter_memory` are kept for
    scripts that name them and have no effect.
    """

    name: str
    ipc_key: int
    pages: int
    queues: int
    transactions: int
    processes: int
    messages: int
    error_queue: str = ""
    blocking: int = 16
    actions: int = ACTIONS_DEFAULT
    memory: int = 0
    overflow: int = 0
    handles: int = 0
    cursors: int = 0
    owners: int = 0
    temporary_queues: int = 0
    filter_memory: int = 0

    def __post_init__(self) -> None:
        names.space_name(self.name)
        if self.error_queue:
            names.queue_name(self.error_queue, "error queue name")
        for field, least in _LEAST.items():
            what = field.replace("_", " ")
            whole(getattr(self, field), f"{what} of queue space {self.name!r}", least, NUMBER_MAX)
        if self.pages <= self.overhead:
            raise InvalidArgumentError(
                f"queue space {self.name!r} needs more than {self.overhead} pages for {self.queues} queues,"
                f" got {self.pages}",
                hint="One page and one for each queue are overhead; the rest holds messages.",
            )

    @property
    def overhead(self) -> int:
        """Pages that hold no messages: one, and one for each queue."""
        return 1 + self.queues

    @property
    def capacity(self) -> int:
        """Pages that hold messages."""
        return self.pages - self.overhead


def rounded_pages(pages: int) -> int:
    """Return the pages that a queue space or an extent gets when `pages` are asked for."""
    return pages - pages % PAGE_QUANTUM


_LEAST = {
    "ipc_key": 1,
    "pages": 0,
    "queues": 1,
    "transactions": 1,
    "processes": 1,
    "messages": 1,
    "blocking": 0,
    "actions": 0,
    "memory": 0,
    "overflow": 0,
    "handles": 0,
    "cursors": 0,
    "owners": 0,
    "temporary_queues": 0,
    "filter_memory": 0,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """A queue space as it is stored: its number in the volume, the incarnation in its message ids, its definition."""

    id: int
    incarnation: str
    definition: SpaceDefinition
    initialized: bool
    created_at: int

    @property
    def name(self) -> str:
        """The name of the queue space."""
        return self.definition.name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpaceUsage:
    """How much of each limit of a queue space is in use; `memory` is bytes for non-persistent messages."""

    queues: int
    transactions: int
    processes: int
    messages: int
    pages: int
    actions: int = 0
    memory: int = 0
