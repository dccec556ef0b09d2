"""The manifest: what an archive says about itself. `manifest_file` has its form."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from qmadmin.archive.columns import MINOR, STATES
from qmadmin.archive.faults import Fault, refused, refused_part
from qmcore.bulk_rows import Adopted
from qmcore.message import State
from qmcore.queue import QueueDefinition
from qmcore.space import SpaceDefinition

NO_INCARNATION: Final = "0" * 16
"""The incarnation of messages that were in no queue space: their identifiers are valid nowhere."""

_PART_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,119}\.parquet")


class Content(enum.Enum):
    """Whether definitions are carried, or messages, or both."""

    ALL = "all"
    DEFINITIONS = "definitions"
    MESSAGES = "messages"


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """How many messages of a queue are in one state and kept in memory or not; `size` is bytes of bodies."""

    state: State
    memory: bool
    messages: int
    pages: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Portion:
    """What a part has of one queue, in one state, in memory or not.

    `first` and `last` are the smallest and the largest of its sequence numbers, those of groups among them.
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


@dataclasses.dataclass(frozen=True, slots=True)
class PartEntry:
    """A part: its file, how many rows and bytes that has, the SHA-256 of it as digits, and what it holds.

    `staged` is the name of the file while the archive is not finished, where that is another one.
    """

    name: str
    rows: int
    size: int
    sha256: str
    portions: tuple[Portion, ...]
    staged: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What of a queue space is not in the archive, or not as it was, for it belonged to open transactions.

    `held` messages that a transaction had dequeued or locked were left out, `as_rolled_back` such messages are in the
    archive as ready. `pending` messages were to be enqueued by transactions, of which `active` and `prepared` were
    open.
    """

    held: int = 0
    as_rolled_back: int = 0
    pending: int = 0
    active: int = 0
    prepared: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ArchivedQueue:
    """A queue: its definition, which directions were started, and how many messages of it are in the archive."""

    definition: QueueDefinition
    enqueue_enabled: bool
    dequeue_enabled: bool
    counts: tuple[Count, ...]

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self.definition.name


@dataclasses.dataclass(frozen=True, slots=True)
class ArchivedSpace:
    """A queue space: its definition, its queues, and what makes identifiers of its messages valid elsewhere.

    All sequence numbers of its messages, those of groups among them, are from `first` to `last`; both are 0 where
    there are none. Where `incarnation` is NO_INCARNATION messages get new identifiers when they are imported.
    `adopted` are the foreign identifiers that are valid in it; their shift leads to its own numbers.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where an archive comes from: the device as it is shown, its number, its kind of store, its page size in bytes.

    All messages are as they were at `snapshot_us`.
    """

    device: str
    device_id: str
    kind: str
    page_size: int
    snapshot_us: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an archive says about itself.

    `archive` is its identifier, 32 hexadecimal digits; `release` the program that wrote it; `selection` what was asked
    for, in the words of who wrote it. `content` is what is meant to be imported of it; the definitions of what the
    messages were in stand in it all the same. `minor` is the minor version of the format; 0 knows no `content`.
    """

    archive: str
    created_us: int
    release: str
    source: Source
    selection: Mapping[str, Any]
    spaces: tuple[ArchivedSpace, ...]
    parts: tuple[PartEntry, ...]
    content: Content = Content.ALL
    minor: int = MINOR

    def __post_init__(self) -> None:
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

    def part(self, name: str) -> PartEntry:
        """Return the part of that name; KeyError where there is none."""
        for entry in self.parts:
            if entry.name == name:
                return entry
        raise KeyError(name)


def check_part_name(name: str) -> str:
    """Return a name if it can be a part's: small letters, digits, `_`, `-` and `.`, and `.parquet` at its end."""
    if not _PART_NAME.fullmatch(name):
        raise refused(Fault.PART_NAME, f"{name!r} is not a name that a part of an archive can have", part=name)
    return name


def counted(parts: Iterable[PartEntry]) -> dict[tuple[str, str], tuple[Count, ...]]:
    """Return what parts have of each queue, by queue space and queue, in the order of the states."""
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
    """Return counts in the order of the states, those on disk first, without those of no messages."""
    return tuple(sorted((c for c in counts if c.messages), key=lambda count: (STATES.index(count.state), count.memory)))


def _check_names(manifest: Manifest) -> None:
    spaces = [space.name for space in manifest.spaces]
    queues = [(s.name, q.name) for s in manifest.spaces for q in s.queues]
    parts = [check_part_name(part.name) for part in manifest.parts]
    for what, names in (("queue space", spaces), ("queue", queues), ("part", parts)):
        name, times = next(iter(Counter(names).most_common(1)), ("", 0))
        if times > 1:
            raise refused(Fault.MANIFEST, f"the manifest has the {what} {name!r} twice")


def _check_counts(manifest: Manifest) -> None:
    """Refuse parts that do not have what the queues are said to have."""
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
