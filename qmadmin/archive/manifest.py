"""The manifest, which describes an archive, and the strict reading of its fields. `manifest_file`: as a file."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from qmadmin.archive import Fault, refused, refused_part
from qmadmin.archive.columns import MINOR, MINOR_OF_PARTS, STATES
from qmcore.attributes import attributes_of, defaults, plain
from qmcore.bulk_rows import Adopted
from qmcore.message import State
from qmcore.queue import QueueDefinition
from qmcore.space import SpaceDefinition
from qmcore.values import dataclass

NO_INCARNATION: Final = "0" * 16
"""The incarnation of messages that were never in a queue space: their identifiers are valid nowhere."""

_PART_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,119}\.parquet")


class Content(enum.Enum):
    """Whether an import takes definitions, or messages, or both."""

    ALL = "all"
    DEFINITIONS = "definitions"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages of a queue are in one state and kept in memory or not; `size` is bytes of bodies."""

    state: State
    memory: bool
    messages: int
    pages: int
    size: int


@dataclass(frozen=True, slots=True)
class Portion:
    """The messages of one queue in a part, in one state, in memory or not.

    `first` and `last` are the smallest and the largest of its sequence numbers, including those of groups.
    """

    space: str
    queue: str
    state: State
    memory: bool
    messages: int
    pages: int
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartEntry:
    """A part: its file, with its rows, bytes and SHA-256 as digits, and its content.

    `staged` is the name of the file before the archive is finished, if it is another one.
    """

    name: str
    rows: int
    size: int
    sha256: str
    portions: tuple[Portion, ...]
    staged: str = dataclasses.field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Messages of a queue space that the archive omits or changes because of open transactions.

    `held` messages that a transaction had dequeued or locked were left out, `as_rolled_back` such messages are in the
    archive as ready. `pending` messages were to be enqueued by transactions, of which `active` and `prepared` were
    open.
    """

    held: int = 0
    as_rolled_back: int = 0
    pending: int = 0
    active: int = 0
    prepared: int = 0


@dataclass(frozen=True, slots=True)
class ArchivedQueue:
    """A queue: its definition, whether it was started, and how many of its messages are in the archive."""

    definition: QueueDefinition
    enqueue_enabled: bool
    dequeue_enabled: bool
    counts: tuple[Count, ...]

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.definition.name


@dataclass(frozen=True, slots=True)
class ArchivedSpace:
    """A queue space: its definition, its queues, and what keeps identifiers of its messages valid elsewhere.

    All sequence numbers of its messages, including those of groups, are from `first` to `last`; both are 0 if there are
    none. If `incarnation` is NO_INCARNATION, messages get new identifiers when they are imported. `adopted` are the
    foreign identifiers that are valid in it; their shift leads to its own numbers.
    """

    definition: SpaceDefinition
    incarnation: str
    first: int
    last: int
    adopted: tuple[Adopted, ...]
    queues: tuple[ArchivedQueue, ...]
    left_out: LeftOut = dataclasses.field(default_factory=LeftOut)

    @property
    def name(self) -> str:
        """The name of the queue space."""
        return self.definition.name


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """The source of an archive: the device as shown, its id, its kind of store, its page size in bytes.

    All messages are as they were at `snapshot_us`.
    """

    device: str
    device_id: str
    kind: str
    page_size: int
    snapshot_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The manifest of an archive.

    `archive` is its identifier, 32 hexadecimal digits; `release` the release that wrote it; `selection` the selection
    of the export, in the form of its program. `content` is what an import takes from it; the definitions of the queues
    of its messages are always in it. `minor` is the minor version of the format, and is lowered to what the archive
    needs, so that releases before this one read it; 0 has no `content`.
    """

    archive: str
    created_us: int
    release: str
    source: ArchiveSource
    selection: Mapping[str, Any]
    spaces: tuple[ArchivedSpace, ...]
    parts: tuple[PartEntry, ...]
    content: Content = Content.ALL
    minor: int = MINOR

    def __post_init__(self) -> None:
        object.__setattr__(self, "minor", min(self.minor, _minor_needed(self.spaces)))
        _check_names(self)
        _check_counts(self)

    @property
    def messages(self) -> int:
        """How many messages the archive has."""
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """How many bytes the parts have."""
        return sum(part.size for part in self.parts)

    def standings(self) -> dict[tuple[str, str, State, bool], int]:
        """Return how many messages there are by queue space, queue, state, and whether they were in memory."""
        return {
            (space.name, queue.name, count.state, count.memory): count.messages
            for space in self.spaces
            for queue in space.queues
            for count in queue.counts
        }

    def part(self, name: str) -> PartEntry:
        """Return the part of that name; KeyError if there is none."""
        for entry in self.parts:
            if entry.name == name:
                return entry
        raise KeyError(name)


def check_part_name(name: str) -> str:
    """Return a name if a part can have it: lowercase letters, digits, `_`, `-` and `.`, with `.parquet` at its end."""
    if not _PART_NAME.fullmatch(name):
        raise refused(Fault.PART_NAME, f"{name!r} is not a name that a part of an archive can have", part=name)
    return name


def counted(parts: Iterable[PartEntry]) -> dict[tuple[str, str], tuple[Count, ...]]:
    """Return the counts of each queue in the parts, by queue space and queue, in the order of the states."""
    sums: dict[tuple[str, str], dict[tuple[State, bool], Count]] = {}
    for part in parts:
        for portion in part.portions:
            of_queue = sums.setdefault((portion.space, portion.queue), {})
            known = of_queue.get((portion.state, portion.memory), Count(portion.state, portion.memory, 0, 0, 0))
            of_queue[portion.state, portion.memory] = dataclasses.replace(
                known,
                messages=known.messages + portion.messages,
                pages=known.pages + portion.pages,
                size=known.size + portion.size,
            )
    return {queue: in_order(of_queue.values()) for queue, of_queue in sums.items()}


def in_order(counts: Iterable[Count]) -> tuple[Count, ...]:
    """Return counts in the order of the states, those on disk first, without empty ones."""
    return tuple(sorted((c for c in counts if c.messages), key=lambda count: (STATES.index(count.state), count.memory)))


def _minor_needed(spaces: Iterable[ArchivedSpace]) -> int:
    """Return the minor version that has all that is defined other than by default."""
    of_queues = [_minor_of(queue.definition) for space in spaces for queue in space.queues]
    return max([MINOR_OF_PARTS, *of_queues, *(_minor_of(space.definition) for space in spaces)])


def _minor_of(definition: object) -> int:
    usual, known = defaults(type(definition)), attributes_of(type(definition))
    used = [known[name].since for name, value in plain(definition).items() if value != usual.get(name, value)]
    return max(used, default=0)


def _check_names(manifest: Manifest) -> None:
    spaces = [space.name for space in manifest.spaces]
    queues = [(s.name, q.name) for s in manifest.spaces for q in s.queues]
    parts = [check_part_name(part.name) for part in manifest.parts]
    for what, names in (("queue space", spaces), ("queue", queues), ("part", parts)):
        name, times = next(iter(Counter(names).most_common(1)), ("", 0))
        if times > 1:
            raise refused(Fault.MANIFEST, f"the manifest has the {what} {name!r} twice")


def _check_counts(manifest: Manifest) -> None:
    """Refuse parts that do not have the messages that the queues count."""
    found = counted(manifest.parts)
    for space in manifest.spaces:
        for queue in space.queues:
            name = (space.name, queue.name)
            if in_order(queue.counts) != found.pop(name, ()):
                raise refused(
                    Fault.CONTENTS,
                    f"the parts of the archive do not have the messages of queue {name[1]!r} of queue space"
                    f" {name[0]!r} that its manifest counts",
                    space=name[0],
                    queue=name[1],
                )
    for strange in found:
        raise refused(
            Fault.CONTENTS,
            f"a part of the archive has messages of queue {strange[1]!r} of queue space {strange[0]!r}, which its"
            " manifest does not define",
            space=strange[0],
            queue=strange[1],
        )
    _check_sequences(manifest)


def _check_sequences(manifest: Manifest) -> None:
    ranges = {space.name: (space.first, space.last) for space in manifest.spaces}
    for part in manifest.parts:
        if part.rows != sum(portion.messages for portion in part.portions):
            raise refused_part(Fault.CONTENTS, part.name, "does not have as many rows as messages")
        for portion in part.portions:
            first, last = ranges[portion.space]
            if not first <= portion.first <= portion.last <= last:
                raise refused_part(
                    Fault.CONTENTS,
                    part.name,
                    f"has sequence numbers from {portion.first} to {portion.last}, and queue space"
                    f" {portion.space!r} only those from {first} to {last}",
                )
