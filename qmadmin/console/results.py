"""What commands return: data that a screen draws, and what is advised on errors. Nothing here knows about terminals."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmcore.errors import Alternative, QueueError
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from qmcore.device import MissingVolume


class Severity(enum.Enum):
    """The word in front of a notice."""

    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """A remark that is not a result: it goes to stderr, with its severity in front.

    `number` is the one that Tuxedo's message catalogue gives the sentence, where it has it; it goes into the log.
    """

    severity: Severity
    text: str
    hint: str = ""
    number: int | None = None

    def __post_init__(self) -> None:
        # Whatever a notice quotes may have a password in it.
        object.__setattr__(self, "text", redacted(self.text))
        object.__setattr__(self, "hint", redacted(self.hint))


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A numbered sentence of Tuxedo's message catalogue, with places for facts."""

    number: int
    severity: Severity
    form: str

    def __call__(self, **facts: object) -> Notice:
        """Return the notice with the facts filled in."""
        return Notice(self.severity, self.form.format(**facts), number=self.number)


def of_missing(volumes: Iterable[MissingVolume]) -> list[Notice]:
    """Return what is told of volumes that are missing, where everything else goes on."""
    return [Notice(Severity.WARN, str(volume), volume.advice) for volume in volumes]


@dataclasses.dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines whose layout is part of the result; they may be read once only, as they are shown."""

    lines: Iterable[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Moment:
    """A time in microseconds since 1970, UTC."""

    micros: int


Value = str | int | float | Moment | None
Datum = Value | Mapping[str, str] | Sequence[Mapping[str, Value]]
"""What a cell shows, and what programs get: numbers as numbers, times as ISO 8601 in UTC, nothing as null."""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A sentence that is the result of a command, such as `Queue 'service1' created`.

    `data` is what programs get of it, by key.
    """

    text: str
    data: Mapping[str, Datum] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its key for programs, its title, and whether its values are numbers, which stand right.

    With `cut` its values are cut short where a terminal is too narrow for them. `of` is what it shows of an item of
    `table_of`: an attribute, by default that of the name of the key, or a function.
    """

    key: str
    title: str
    right: bool = False
    cut: bool = False
    of: str | Callable[[Any], Value] = ""

    def getter(self) -> Callable[[Any], Value]:
        """Return what takes the value out of an item; an attribute whose name ends with `_us` is a moment."""
        if callable(self.of):
            return self.of
        get = operator.attrgetter(self.of or self.key)
        if self.of.endswith("_us"):
            return lambda item: None if (micros := get(item)) is None else Moment(micros)
        return lambda item: found.value if isinstance(found := get(item), enum.Enum) else found


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Rows of values under titles, in a fixed order of columns.

    The rows may be read from the device as they are drawn.
    """

    columns: tuple[Column, ...]
    rows: Iterable[Sequence[Value]]


def table_of(items: Iterable[Any], columns: tuple[Column, ...]) -> Table:
    """Return a table with a row for each item, which shows of it what the columns say."""
    getters = [column.getter() for column in columns]
    return Table(columns, ([get(item) for get in getters] for item in items))


@dataclasses.dataclass(frozen=True, slots=True)
class Rounds:
    """What comes in the course of time, round by round; each is shown at once.

    Programs get a document for each. The next round is asked for when the one before has been shown.
    """

    rounds: Iterable[Sequence[Shown]]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A property of an object: its label and value for people, and what programs get of it, by key.

    Without a label it is for programs only.
    """

    label: str
    value: Value
    data: Mapping[str, Datum]


def field(key: str, label: str, value: Value) -> Field:
    """Return a property that is the same for people and programs."""
    return Field(label, value, {key: value})


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One object: its title for people, then its properties."""

    title: str
    fields: tuple[Field, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part of some prose."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """A term and what it means."""

    term: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """Lines to be shown as they are."""

    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Labels:
    """Labels, each with a text behind it."""

    pairs: tuple[tuple[str, str], ...]


Block = Heading | Paragraph | Term | Example | Labels


@dataclasses.dataclass(frozen=True, slots=True)
class Prose:
    """Text to be read by a person, such as help."""

    blocks: tuple[Block, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Afterwards:
    """Remarks that are known only when everything before them has been shown, because rows are read only then."""

    notices: Callable[[], Sequence[Notice]]


Result = Line | Verbatim | Table | Record | Prose
Shown = Result | Rounds | Notice | Afterwards
Outcome = Shown | Sequence[Shown] | None
"""What a handler may return."""


def each(outcome: Outcome) -> Sequence[Shown]:
    """Return what a handler returned, one by one."""
    if outcome is None:
        return ()
    return outcome if isinstance(outcome, Sequence) else (outcome,)


def remedy(error: QueueError, options: Mapping[Alternative, str]) -> str:
    """Return the hint of a diagnostic, and which option asks for what may be asked for instead."""
    option = "" if error.alternative is None else options.get(error.alternative, "")
    return f"{error.hint} {option}".strip()


@contextlib.contextmanager
def remedied(options: Mapping[Alternative, str]) -> Iterator[None]:
    """Name in what the engine refuses the options that do something about it."""
    try:
        yield
    except QueueError as error:
        error.hint = remedy(error, options)
        raise
