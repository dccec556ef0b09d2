"""A queue space: its limits as an administrator defines them, and their use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from qmcore import names
from qmcore.attributes import Flag, Plain, Text, Whole, attribute, attributes_of, declared, keep, plain
from qmcore.bulk_rows import Adopted
from qmcore.errors import InvalidArgumentError
from qmcore.identifiers import Identifiers
from qmcore.values import dataclass

PAGE_QUANTUM = 4
"""Pages of a queue space are rounded down to a multiple of this."""

NUMBER_MAX = 2**31 - 1
ACTIONS_DEFAULT = 64
"""More than Tuxedo's none: here it is the threads of one program that wait at the same time."""

IPC_KEY_RANGE = (32_769, 262_142)
"""The keys that Tuxedo's guide advises; others are accepted, with a warning by the shell."""


def _number(what: str, least: int = 0, unit: str = "") -> Whole:
    return Whole(f"{what}{{}}", least, NUMBER_MAX, unit)


def _recorded(what: str, about: str, unit: str = "", *, default: int = 0) -> Any:
    return attribute(default, _number(what, unit=unit), f"{about}. Recorded, without effect.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceDefinition:
    """The attributes of a queue space, as qspacecreate sets them.

    `pages` is its size in pages of the device; `queues`, `transactions`, `processes` and `messages` limit how many of
    each there may be at one time. `error_queue` may be empty: messages that have used up their retries are then
    discarded. `actions` is the number of waiting dequeues in addition to one for each process, `memory` the bytes for
    non-persistent messages. `blocking`, `overflow`, `handles`, `cursors`, `owners`, `temporary_queues` and
    `filter_memory` are recorded for scripts that give them, and have no effect.
    """

    name: str = field(
        metadata=declared(Text("queue space name", names.space_name), "The name of the queue space.", fixed=True)
    )
    ipc_key: int = field(metadata=declared(_number("IPC key", 1), "The IPC key. Recorded, without effect."))
    pages: int = field(
        metadata=declared(
            _number("number of pages"), "Its size in pages of the device, rounded down to a multiple of four."
        )
    )
    queues: int = field(metadata=declared(_number("number of queues", 1), "The maximum number of queues."))
    transactions: int = field(
        metadata=declared(_number("number of transactions", 1), "The maximum number of concurrent transactions.")
    )
    processes: int = field(
        metadata=declared(_number("number of processes", 1), "The maximum number of attached processes.")
    )
    messages: int = field(metadata=declared(_number("number of messages", 1), "The maximum number of messages."))
    error_queue: str = attribute(
        "",
        Text("error queue name", names.queue_name, optional=True),
        "The queue for messages that have used up their retries.",
    )
    blocking: int = _recorded("blocking factor", "The blocking factor", default=16)
    actions: int = attribute(
        ACTIONS_DEFAULT, _number("number of actions"), "Waiting dequeues in addition to one for each process."
    )
    memory: int = attribute(0, _number("memory", unit="bytes"), "Memory for non-persistent messages.")
    overflow: int = _recorded("overflow memory", "Memory for peaks", "bytes")
    handles: int = _recorded("number of handles", "Handles")
    cursors: int = _recorded("number of cursors", "Cursors")
    owners: int = _recorded("number of owners", "Owners")
    temporary_queues: int = _recorded("temporary queues", "Temporary queues")
    filter_memory: int = _recorded("filter memory", "Memory for filters", "bytes")

    def __post_init__(self) -> None:
        keep(self, f"queue space {self.name!r}")
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


@dataclass(frozen=True, slots=True)
class Space:
    """A queue space as it is stored: its number in the volume, the incarnation in its message ids, its definition.

    `adopted` are the message ids of other queue spaces that are valid in this one; their sequence numbers here do not
    overlap.
    """

    id: int
    incarnation: str
    definition: SpaceDefinition
    initialized: bool = field(
        metadata=declared(Flag("initialized{}"), "Whether disk space for its pages is allocated.")
    )
    created_at: int
    # Not in the hash: there may be hundreds, and statements are looked up by their queue space.
    adopted: tuple[Adopted, ...] = dataclasses.field(default=(), hash=False)
    _identifiers: Identifiers = dataclasses.field(init=False, repr=False, compare=False)
    naming: Callable[[int], str] = dataclasses.field(init=False, repr=False, compare=False)
    """Returns identifiers of messages; where none was adopted, in as few calls as possible."""

    def __post_init__(self) -> None:
        identifiers = Identifiers(self.incarnation, self.adopted)
        object.__setattr__(self, "_identifiers", identifiers)
        # As `message_id` names them; a damaged incarnation may have any characters.
        own = f"{self.incarnation.replace('%', '%%')}%016x".__mod__
        naming = identifiers.msgid if self.adopted else own
        object.__setattr__(self, "naming", naming)

    @property
    def name(self) -> str:
        """The name of the queue space."""
        return self.definition.name

    @property
    def attributes(self) -> dict[str, Plain]:
        """All its attributes in their plain form, by name."""
        return plain(self.definition) | plain(self)

    def is_same_as(self, other: Space) -> bool:
        """Return whether it is the same queue space as the other, perhaps with a new incarnation.

        One that was created later under the same name is not the same.
        """
        if self.incarnation == other.incarnation:
            return True
        follows = any(not piece.shift and piece.incarnation == other.incarnation for piece in self.adopted)
        return follows and (self.id, self.created_at) == (other.id, other.created_at)

    def msgid(self, sequence: int) -> str:
        """Return the identifier that message `sequence` shows: its own, or the one with which it was imported."""
        return self.naming(sequence)

    def sequences_of(self, msgid: object) -> tuple[int, ...]:
        """Return the sequence numbers that an identifier can be of, the newest first; none for an unknown one.

        It is mostly one: several only where messages of one range of identifiers came with several imports. Raises
        BadMessageIdError for what is not an identifier.
        """
        return self._identifiers.sequences_of(msgid)

    def pieces(self, first: int, last: int) -> Iterator[Adopted]:
        """Yield in ascending order the identifiers of the sequence numbers `first` to `last` of the queue space.

        Each number is in one piece. The shift is that from the identifier to the number here; our own have none.
        """
        return self._identifiers.pieces(first, last)


ATTRIBUTES: Final = attributes_of(SpaceDefinition) | attributes_of(Space)
"""The attributes of a queue space by their names, as every face knows them."""

Limited: TypeAlias = Literal["queues", "transactions", "processes", "messages", "actions"]
"""The limits of a queue space of which the highest use is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestUse:
    """The highest use of each limit of a queue space at one time, since it was created or last cleaned."""

    queues: int
    transactions: int
    processes: int
    messages: int
    actions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceUsage:
    """How much of each limit of a queue space is in use, and the highest use.

    `memory` is bytes for non-persistent messages, `actions` are blocking dequeues beyond one for each process.
    """

    queues: int
    transactions: int
    processes: int
    messages: int
    pages: int
    actions: int
    memory: int
    highest: HighestUse
