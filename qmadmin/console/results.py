"""The results of commands: data that a screen draws, and remedies of errors. Nothing here depends on terminals."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmcore.errors import Alternative, QueueError
from qmcore.redacted import redacted
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmcore.volume_record import MissingVolume


class Severity(enum.Enum):
    """The word before a notice."""

    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark that is not a result: it goes to stderr, after its severity.

    `number` is the number of the sentence in Tuxedo's message catalogue, if it has one; it goes into the log. `lacks`
    says that the result is not whole: this sets the exit status, but is no error that ends a script.
    """

    severity: Severity
    text: str
    hint: str = ""
    number: int | None = None
    lacks: bool = False

    def __post_init__(self) -> None:
        # A text that a notice quotes may contain a password.
        object.__setattr__(self, "text", redacted(self.text))
        object.__setattr__(self, "hint", redacted(self.hint))

    @classmethod
    def error(cls, text: str, hint: str = "", number: int | None = None) -> Notice:
        """Return what went wrong."""
        return cls(Severity.ERROR, text, hint, number)

    @classmethod
    def warning(cls, text: str, hint: str = "") -> Notice:
        """Return what may be wrong."""
        return cls(Severity.WARN, text, hint)

    @classmethod
    def info(cls, text: str, hint: str = "") -> Notice:
        """Return what is good to know."""
        return cls(Severity.INFO, text, hint)


@dataclass(frozen=True, slots=True)
class Entry:
    """A numbered sentence of Tuxedo's message catalogue, with placeholders for facts."""

    number: int
    severity: Severity
    form: str

    def __call__(self, **facts: object) -> Notice:
        """Return the notice with the facts filled in."""
        return Notice(self.severity, self.form.format(**facts), number=self.number)


def of_missing(volumes: Iterable[MissingVolume], *, lacks: bool = True) -> list[Notice]:
    """Return warnings about missing volumes, without which all else goes on; `lacks`: the result is not whole."""
    return [Notice(Severity.WARN, str(volume), volume.advice, lacks=lacks) for volume in volumes]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines whose layout is part of the result; they can be read only once, while they are shown."""

    lines: Iterable[str]


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in microseconds since 1970, UTC."""

    micros: int


Value = str | int | float | Moment | None
Datum = Value | Mapping[str, str] | Sequence[Mapping[str, Value]]
"""The value of a cell; programs get numbers as numbers, times as ISO 8601 in UTC, and None as null."""


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence that is the result of a command, such as `Queue 'service1' created`.

    `data` is what programs get, by key.
    """

    text: str
    data: Mapping[str, Datum] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its key for programs, its title, and whether its values are right-aligned numbers.

    With `cut` its values are cut if a terminal is too narrow for them. `of` is what it shows of an item of `table_of`:
    an attribute, by default the one named like the key, or a function.
    """

    key: str
    title: str
    right: bool = False
    cut: bool = False
    of: str | Callable[[Any], Value] = ""

    def getter(self) -> Callable[[Any], Value]:
        """Return a function that returns the value of an item; an attribute whose name ends with `_us` is a moment."""
        if callable(self.of):
            return self.of
        get = operator.attrgetter(self.of or self.key)
        if self.of.endswith("_us"):
            return lambda item: None if (micros := get(item)) is None else Moment(micros)
        return lambda item: found.value if isinstance(found := get(item), enum.Enum) else found


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values under titles, in a fixed order of columns.

    The rows may be read from the device as they are drawn.
    """

    columns: tuple[Column, ...]
    rows: Iterable[Sequence[Value]]


def table_of(items: Iterable[Any], columns: tuple[Column, ...]) -> Table:
    """Return a table with a row for each item, with the values that the columns define."""
    getters = [column.getter() for column in columns]
    return Table(columns, ([get(item) for get in getters] for item in items))


@dataclass(frozen=True, slots=True)
class Rounds:
    """Results that arrive over time, round by round; each is shown at once.

    Programs get a document for each. The next round is requested when the one before has been shown.
    """

    rounds: Iterable[Sequence[Shown]]


@dataclass(frozen=True, slots=True)
class Field:
    """A property of an object: its label and value for people, and its data for programs, by key.

    Without a label it is for programs only.
    """

    label: str
    value: Value
    data: Mapping[str, Datum]


def hidden(**data: Datum) -> Field:
    """Return properties that are for programs only."""
    return Field("", None, data)


def field(key: str, label: str, value: Value) -> Field:
    """Return a property that is the same for people and programs."""
    return Field(label, value, {key: value})


@dataclass(frozen=True, slots=True)
class Record:
    """One object: its title for people, then its properties."""

    title: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part of some prose."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True)
class Term:
    """A term and what it means."""

    term: str
    text: str


@dataclass(frozen=True, slots=True)
class Example:
    """Lines to be shown as they are."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels, each followed by a text."""

    pairs: tuple[tuple[str, str], ...]


Block = Heading | Paragraph | Term | Example | Labels


@dataclass(frozen=True, slots=True)
class Prose:
    """Text to be read by a person, such as help."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Afterwards:
    """Remarks that are known only after everything before them was shown, because rows are read only then."""

    notices: Callable[[], Sequence[Notice]]


Result = Line | Verbatim | Table | Record | Prose
Shown = Result | Rounds | Notice | Afterwards
Outcome = Shown | Sequence[Shown] | None
"""The types that a handler may return."""


def each(outcome: Outcome) -> Sequence[Shown]:
    """Return the results of a handler, one by one."""
    if outcome is None:
        return ()
    return outcome if isinstance(outcome, Sequence) else (outcome,)


def remedy(error: QueueError, options: Mapping[Alternative, str]) -> str:
    """Return the hint of a diagnostic, with the option that requests the alternative."""
    option = "" if error.alternative is None else options.get(error.alternative, "")
    return f"{error.hint} {option}".strip()


@contextlib.contextmanager
def remedied(options: Mapping[Alternative, str]) -> Iterator[None]:
    """Name in refusals of the engine, raised in the block, the options that lift them."""
    try:
        yield
    except QueueError as error:
        error.hint = remedy(error, options)
        raise
