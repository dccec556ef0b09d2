"""An import of an archive: which queues it fills, how, with which numbers and times, and how far it is.

A plan is what was asked for, and does not change while its import goes on, whichever process continues it: it is stored
with the import as text, and an interrupted import is found again by an identical plan.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeAlias

from qmcore.attributes import attributes_of, defaults, made, plain
from qmcore.bulk_rows import Adopted
from qmcore.errors import InvalidArgumentError
from qmcore.numbers import SEQUENCE_MAX
from qmcore.queue import QueueDefinition
from qmcore.records import Use
from qmcore.values import dataclass

Source: TypeAlias = tuple[str, str]
"""A queue of an archive: the name of its queue space, and its own."""

NOTHING = Use(0, 0, 0)


class Mode(enum.Enum):
    """What happens to an existing queue of that name."""

    CREATE = "create"
    """There must be none; the queue appears when the import is published."""
    REPLACE = "replace"
    """It is destroyed when the import is published, and replaced by the new one; there need not be one."""
    APPEND = "append"
    """It stays as it is defined, and gets the messages after the import was published, some at a time."""


class Stage(enum.Enum):
    """How far an import is."""

    LOADING = "loading"
    """Batches are loaded, which are not visible yet."""
    MERGING = "merging"
    """It was published, and some of its messages are still to be moved into their queues, or some to be removed."""
    DONE = "done"
    ABANDONED = "abandoned"
    """It was given up, and what it had loaded is being removed."""


class TimePolicy(enum.Enum):
    """What happens to the times of messages."""

    KEEP = "keep"
    SHIFT = "shift"
    """All times of a message move by the same span, including its consumption; the time of a move stays."""
    RECOMPUTE = "recompute"
    """Messages are enqueued when the import begins, and their delays and lifetimes start again in full. What a retry
    has delayed becomes available when it would have; consumed messages keep their times."""


@dataclass(frozen=True, slots=True)
class Times:
    """What happens to the times of messages: `policy`, and for SHIFT either a span or the moment that it begins at.

    `by_us` are the microseconds that times move by, negative for earlier ones. `since_us` is a time of day, such as
    that of the snapshot: times move by what has passed from it until the import begins. A time that would leave the
    years 1 to 9999 becomes the earliest or the latest one.
    """

    policy: TimePolicy = TimePolicy.KEEP
    by_us: int | None = None
    since_us: int | None = None

    def __post_init__(self) -> None:
        given = (self.by_us is not None) + (self.since_us is not None)
        if given != (self.policy is TimePolicy.SHIFT):
            raise InvalidArgumentError(
                "times are shifted by a span or since a moment, and one of them has to be given; others take neither"
            )

    def shift(self, started_us: int) -> int:
        """Return the microseconds that all times move by in an import that began at a time; 0 where they do not."""
        if self.since_us is not None:
            return started_us - self.since_us
        return self.by_us or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQueue:
    """A queue of an archive, and how it is imported.

    `definition` has the name that it gets; its order and grouping are those of the archive. `use` are its persistent
    messages that are still to be consumed, `memory_use` the non-persistent ones, `retained` those that are kept after
    they were consumed; their pages are those of the device that they are imported to.
    """

    source_space: str
    source: str
    definition: QueueDefinition
    mode: Mode = Mode.CREATE
    enqueue_enabled: bool = True
    dequeue_enabled: bool = False
    use: Use = NOTHING
    memory_use: Use = NOTHING
    retained: Use = NOTHING

    @property
    def key(self) -> Source:
        """The queue of the archive."""
        return self.source_space, self.source

    @property
    def name(self) -> str:
        """The name that it gets."""
        return self.definition.name

    @property
    def charged(self) -> Use:
        """What it is charged for on disk: for consumed messages, the pages alone."""
        return Use(self.use.messages, self.use.pages + self.retained.pages, self.use.size)

    @property
    def brings_messages(self) -> bool:
        """Whether it is more than a definition."""
        return any(each.messages for each in (self.use, self.memory_use, self.retained))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is imported from an archive into a queue space, and how. All of it comes from one queue space.

    `archive` is the identifier of the archive. `first` and `last` are the least and the greatest sequence number of the
    messages that are carried, those of their groups included; `last` is below `first` where there is none. `adopted`
    are the identifiers that stay valid; their shifts lead to the sequence numbers of the archive. `again`: even if
    queues of it were imported into the queue space before.
    """

    archive: str
    queues: tuple[PlannedQueue, ...]
    first: int = 1
    last: int = 0
    adopted: tuple[Adopted, ...] = ()
    times: Times = dataclasses.field(default_factory=Times)
    again: bool = False

    def __post_init__(self) -> None:
        sources = [planned.key for planned in self.queues]
        if len({space for space, _ in sources}) > 1:
            raise InvalidArgumentError(
                "an import takes the queues of one queue space of an archive",
                hint="Import those of each queue space separately: their messages are numbered separately.",
            )
        _refuse_twice("queue of the archive", [source for _, source in sources])
        _refuse_twice("name", [planned.name for planned in self.queues])
        if not self.count and any(planned.use != NOTHING or planned.retained != NOTHING for planned in self.queues):
            raise InvalidArgumentError("an import of messages takes sequence numbers, and the plan has none")
        if self.count and not 0 <= self.first <= self.last <= SEQUENCE_MAX:
            raise InvalidArgumentError(f"sequence numbers are 0 to {SEQUENCE_MAX}, not {self.first} to {self.last}")

    @property
    def count(self) -> int:
        """How many sequence numbers it takes."""
        return max(self.last - self.first + 1, 0)

    @property
    def use(self) -> Use:
        """What it takes of the disk of the queue space."""
        return total(planned.charged for planned in self.queues)

    @property
    def memory_use(self) -> Use:
        """What it takes of the memory of the queue space."""
        return total(planned.memory_use for planned in self.queues)

    def to_json(self) -> str:
        """Return the plan as text, the same for identical plans."""
        values = {
            "archive": self.archive,
            "queues": [_planned_to_json(planned) for planned in self.queues],
            "first": self.first,
            "last": self.last,
            "adopted": [dataclasses.asdict(piece) for piece in self.adopted],
            "times": {**dataclasses.asdict(self.times), "policy": self.times.policy.value},
            "again": self.again,
        }
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the plan of a text of `to_json`."""
        values = json.loads(text)
        values["queues"] = tuple(_planned_from_json(planned) for planned in values["queues"])
        values["adopted"] = tuple(Adopted(**piece) for piece in values["adopted"])
        values["times"] = Times(**{**values["times"], "policy": TimePolicy(values["times"]["policy"])})
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportJob:
    """An import as a queue space records it.

    `shift` is added to a sequence number of the archive to give ours, `page_size` is that of the device. `queues` are
    the numbers of the queues that are being filled, by their names in the archive: none once the import is done.
    `loaded` is what batches have loaded so far, retained messages included, on disk and in memory together; nothing
    once it was published.
    """

    id: int
    space_id: int
    archive: str
    plan: ImportPlan
    state: Stage
    shift: int
    page_size: int
    started_us: int
    ended_us: int | None
    queues: Mapping[Source, int]
    loaded: Use


def total(uses: Iterable[Use]) -> Use:
    """Return the sum of all of them."""
    each = list(uses)
    return Use(sum(use.messages for use in each), sum(use.pages for use in each), sum(use.size for use in each))


def _refuse_twice(what: str, named: list[str]) -> None:
    for name in named:
        if named.count(name) > 1:
            raise InvalidArgumentError(f"the {what} {name!r} is in the import twice", queue=name)


def _planned_to_json(planned: PlannedQueue) -> dict[str, Any]:
    values = {field.name: getattr(planned, field.name) for field in dataclasses.fields(planned)}
    uses = {name: tuple(values[name]) for name in _USES}
    return {**values, **uses, "mode": planned.mode.value, "definition": _definition_to_json(planned.definition)}


def _planned_from_json(values: dict[str, Any]) -> PlannedQueue:
    uses = {name: Use(*values[name]) for name in _USES}
    definition = _definition_from_json(values["definition"])
    return PlannedQueue(**{**values, **uses, "mode": Mode(values["mode"]), "definition": definition})


def _definition_to_json(definition: QueueDefinition) -> dict[str, Any]:
    """Return the attributes, without later ones that have their defaults: so an earlier release wrote the same text."""
    known, usual = attributes_of(QueueDefinition), defaults(QueueDefinition)
    told: dict[str, Any] = plain(definition)
    told = {name: value for name, value in told.items() if not known[name].since or value != usual[name]}
    for name, parts in _THRESHOLDS.items():
        told[name] = [told.pop(part) for part in parts]
    return told


def _definition_from_json(values: dict[str, Any]) -> QueueDefinition:
    limits = {part: told for name, parts in _THRESHOLDS.items() for part, told in zip(parts, values[name], strict=True)}
    return made(QueueDefinition, defaults(QueueDefinition) | values | limits)


_THRESHOLDS = {
    f"{prefix}threshold": tuple(f"{prefix}{part}" for part in ("high", "low", "command")) for prefix in ("", "memory_")
}
_USES = ("use", "memory_use", "retained")
