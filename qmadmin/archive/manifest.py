"""The manifest, which describes an archive, and the strict reading of its fields. `manifest_file`: as a file."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn, TypeVar

from qmadmin.archive import Fault, refused, refused_part
from qmadmin.archive.columns import MINOR, STATES
from qmcore import times
from qmcore.attributes import Kind, Plain, Written, attributes_of, defaults, made, plain
from qmcore.bulk_rows import Adopted
from qmcore.errors import InvalidArgumentError
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
    of its messages are always in it. `minor` is the minor version of the format; 0 has no `content`.
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


# ---- fields of JSON --------------------------------------------------------------------------------------------------


R = TypeVar("R")

INT64_MAX: Final = 2**63 - 1


def document(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise refused(Fault.MANIFEST, f"the manifest is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise refused(Fault.MANIFEST, "the manifest is not a JSON object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a field twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


class Fields:
    """The fields of one JSON object; `where` names the object in sentences."""

    def __init__(self, found: object, where: str) -> None:
        if not isinstance(found, dict):
            raise refused(Fault.MANIFEST, f"{where} is not a JSON object")
        self._found: dict[str, Any] = found
        self._asked: set[str] = set()
        self.where = where

    def wrong(self, name: str, wanted: str) -> NoReturn:
        """Refuse the value of a field that is not as required."""
        shown = repr(self._found[name])
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise refused(Fault.MANIFEST, f"{self.where}: the field {name!r} must be {wanted}, got {shown}", field=name)

    def given(self, name: str) -> Any:
        """Return the value of a field."""
        self._asked.add(name)
        if name not in self._found:
            raise refused(Fault.MANIFEST, f"{self.where} lacks the field {name!r}", field=name)
        return self._found[name]

    def text(self, name: str) -> str:
        """Return a text."""
        value = self.given(name)
        if not isinstance(value, str):
            self.wrong(name, "a text")
        return value

    def hexadecimal(self, name: str, digits: int) -> str:
        """Return a text of this number of hexadecimal digits, in lower case."""
        value = self.given(name)
        if not isinstance(value, str) or len(value) != digits or not set(value) <= set("0123456789abcdef"):
            self.wrong(name, f"{digits} hexadecimal digits")
        return value

    def word(self, name: str, words: tuple[str, ...]) -> str:
        """Return one of some words."""
        value = self.given(name)
        if value not in words:
            self.wrong(name, f"one of {', '.join(words)}")
        return str(value)

    def number(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        """Return a whole number of a range."""
        value = self.given(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.given(name)
        if not isinstance(value, bool):
            self.wrong(name, "true or false")
        return value

    def moment(self, name: str) -> int:
        """Return a time as microseconds, which is given as ISO 8601 in UTC."""
        value = self.given(name)
        try:
            found = times.from_datetime(datetime.fromisoformat(value))
        except (TypeError, ValueError, InvalidArgumentError):
            self.wrong(name, "a time such as 2026-01-31T23:59:59.000000Z")
        if times.iso(found) != value:
            self.wrong(name, "a time such as 2026-01-31T23:59:59.000000Z")
        return found

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object unchanged."""
        value = self.given(name)
        if not isinstance(value, dict):
            self.wrong(name, "a JSON object")
        return value

    def part(self, name: str, where: str, read: Callable[[Fields], R]) -> R:
        """Return what `read` makes of an object in this one."""
        return Fields(self.object(name), where).whole(read)

    def parts(self, name: str, where: str, read: Callable[[Fields], R]) -> tuple[R, ...]:
        """Return what `read` makes of each object of a list; `where` names each, counted from 1."""
        value = self.given(name)
        if not isinstance(value, list):
            self.wrong(name, "a list")
        return tuple(Fields(found, f"{where} {at}").whole(read) for at, found in enumerate(value, 1))

    def whole(self, read: Callable[[Fields], R]) -> R:
        """Return what `read` makes of the object; refuse fields that it does not read."""
        found = read(self)
        self.end()
        return found

    def end(self) -> None:
        """Refuse fields that were not read."""
        for name in self._found.keys() - self._asked:
            raise refused(Fault.MANIFEST, f"{self.where} has the unknown field {name!r}", field=name)


def told_definition(definition: object, minor: int) -> dict[str, Plain]:
    """Return the definition of a queue space or a queue as a manifest of a minor version has it."""
    known = attributes_of(type(definition))
    return {name: value for name, value in plain(definition).items() if known[name].since <= minor}


def definition_of(record: type[R], minor: int) -> Callable[[Fields], R]:
    """Return a reader of such a definition: its attributes in their plain form. Later ones have their defaults."""

    def read(fields: Fields) -> R:
        known, values = attributes_of(record), defaults(record)
        values |= {name: _value(fields, name, its.kind) for name, its in known.items() if its.since <= minor}
        fields.end()
        try:
            return made(record, values)
        except InvalidArgumentError as error:
            raise refused(Fault.MANIFEST, f"{fields.where}: {error.message}") from None

    return read


def _value(fields: Fields, name: str, kind: Kind) -> Plain:
    if isinstance(kind, Written) and kind.words:
        return fields.word(name, kind.words)
    if kind.may_be_none and fields.given(name) is None:
        return None
    if kind.plain_type is int:
        return fields.number(name, min(0, kind.least))
    return fields.text(name) if kind.plain_type is str else fields.flag(name)
