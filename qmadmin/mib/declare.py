"""Declarations for the classes of the management information base: attributes, each declared once.

Checks of requests, and the reference of the classes, derive from these declarations.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping, Set
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from qmadmin.console import escaped, unescaped
from qmcore import names, times
from qmcore.checks import check_int, check_number
from qmcore.errors import InvalidArgumentError, QueueError
from qmcore.order import Criterion
from qmcore.queue import EXPIRATION_MAX
from qmcore.space import NUMBER_MAX
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.space import QueueSpace


class Code(enum.Enum):
    """Why a request was refused (TA_ERROR)."""

    TAEINVAL = "a class, an attribute or a value is invalid"
    TAEREQUIRED = "an attribute is missing"
    TAEPERM = "an attribute cannot be set"
    TAESUPPORT = "this release, or the object, does not support it"


class MibError(Exception):
    """A request was refused: `code` says why (TA_ERROR), `attribute` which one is at fault (TA_BADFLD).

    `message` is a sentence, `hint` says what to do about it. Errors of the engine keep their own classes.
    """

    def __init__(self, code: Code, attribute: str, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.attribute = attribute
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.code, self.attribute, self.message, self.hint)


def _restored(code: Code, attribute: str, message: str, hint: str) -> MibError:
    return MibError(code, attribute, message, hint=hint)


@contextlib.contextmanager
def blaming(attribute: str) -> Iterator[None]:
    """Name the attribute in refusals that the block raises."""
    try:
        yield
    except InvalidArgumentError as error:
        raise MibError(Code.TAEINVAL, attribute, f"{attribute}: {error.message}", hint=error.hint) from error


S = TypeVar("S", bound="Subject")

Value: TypeAlias = str | int
"""The types of values: strings are str, longs are int."""

Values: TypeAlias = Mapping[str, Value]
"""Attributes of one object by their names."""


class Flags(enum.IntFlag):
    """What a change may do even if something is in use (TA_FLAGS)."""

    NONE = 0
    QMIB_FORCECLOSE = 0x20000
    QMIB_FORCEPURGE = 0x40000
    QMIB_FORCEDELETE = 0x80000
    QMIB_GIVEUP = 0x10000000

    @property
    def meaning(self) -> str:
        """The meaning of the flag."""
        return _MEANINGS[self]


_MEANINGS = {
    Flags.QMIB_FORCECLOSE: "Let CLE remove the memory of a queue space even if processes are attached to it.",
    Flags.QMIB_FORCEPURGE: "Let INV destroy a queue even if it holds messages.",
    Flags.QMIB_FORCEDELETE: "Let INV destroy a queue space even if processes are attached or it holds messages.",
    Flags.QMIB_GIVEUP: "Let INV give up a queue space whose volume is lost; refused if the volume is there."
    " Tuxedo has no such flag.",
}


class ValueType(enum.Enum):
    """The type of an attribute."""

    STRING = "string"
    LONG = "long"


class Mark(enum.Flag):
    """The role of an attribute in requests."""

    NONE = 0
    KEY = enum.auto()
    """It selects objects in a GET."""
    NEEDED = enum.auto()
    """It must be given in every request."""
    SET_KEY = enum.auto()
    """It must be given in every SET, and identifies the object."""
    REQUIRED = enum.auto()
    """It must be given to create an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Generic[S]):
    """One attribute of a class.

    `permissions` are those of Tuxedo for owner, operator and others; a change requires a `w` for the owner. `values`
    describes its allowed values, `about` its meaning. `get` returns its value in a selected object; None leaves it out.
    `field` is the field that a change sets, by its name in the actions of the class, and `read` converts the given
    value, or refuses it.
    """

    name: str
    kind: ValueType = ValueType.STRING
    permissions: str = "r--r--r--"
    values: str
    about: str
    marks: Mark = Mark.NONE
    get: Callable[[S], Value | None] | None = None
    field: str = ""
    read: Callable[[Any], Any] = lambda value: value

    @property
    def writable(self) -> bool:
        """Whether a change may set it."""
        return "w" in self.permissions[:3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to a class, checked and read: keys and changes by the fields that attributes set.

    `warn` is called with what the answer lacks.
    """

    device: Device
    keys: Mapping[str, Any]
    changes: Mapping[str, Any]
    flags: Flags = Flags.NONE
    warn: Callable[[str], None] = lambda _sentence: None


@dataclass(frozen=True, slots=True, kw_only=True)
class MibClass(Generic[S]):
    """A class of objects: its attributes, how it finds objects, and what a SET does for each state.

    `actions` are by the three letters of TA_STATE, or empty for a change of attributes; each returns the object as it
    is then, or None if it is gone. `states` says what TA_STATE means on GET, `meanings` on SET. The device records the
    `destructive` actions, with `noun` as the name of the kind of object.
    """

    name: str
    noun: str
    about: str
    attributes: tuple[Attribute[S], ...]
    states: Mapping[str, str]
    select: Callable[[Request], Iterator[S]]
    actions: Mapping[str, Callable[[Request], S | None]]
    meanings: Mapping[str, str]
    destructive: Set[str]

    def attribute(self, name: str) -> Attribute[S] | None:
        """Return the attribute of that name."""
        return next((found for found in self.attributes if found.name == name), None)

    def marked(self, mark: Mark) -> list[Attribute[S]]:
        """Return the attributes with that mark."""
        return [found for found in self.attributes if mark in found.marks]

    def values(self, subject: S) -> dict[str, Value]:
        """Return the attributes of an object that have a value."""
        known = [each for each in self.attributes if each.get is not None and subject.has(each.name)]
        found = {each.name: each.get(subject) for each in known if each.get is not None}
        return {name: value for name, value in found.items() if value is not None}


SPACE = "TA_APPQSPACENAME"
QUEUE = "TA_APPQNAME"
DEVICE = "TA_QMCONFIG"
MACHINE = "TA_LMID"
STATE = "TA_STATE"
VOLUME_STATE = "TA_VOLUMESTATE"

ROLE = "MIB"
"""The name of the process in the queue space while a request has it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An object of a class: the device and the queue space that it is on, or the queue space itself."""

    device: Device
    space: str

    @property
    def state(self) -> str:
        """Its state in three letters."""
        return "VAL"

    def has(self, attribute: str) -> bool:  # noqa: ARG002 - one that is missing has few
        """Return whether an attribute has a value, as far as that does not depend on the attribute alone."""
        return True


def common(
    states: str, *, marks: Mark, permissions: str = "rw-r--r--", selects: bool = False
) -> tuple[Attribute[Any], ...]:
    """Return the attributes that each class has: where an object is, and its state.

    `marks` are those of the queue space's name; `states` and `permissions` are those of TA_STATE; with `selects` a GET
    may select by it.
    """
    return (
        Attribute(
            name=SPACE,
            values="1 to 15 bytes",
            about="The queue space.",
            marks=marks,
            get=lambda subject: subject.space,
            field="space",
            permissions="ru-r--r--",
        ),
        Attribute(
            name=DEVICE,
            values="a path",
            about="The device. It must be the device of the request, and may be omitted.",
            marks=Mark.KEY,
            get=lambda subject: subject.device.path,
            permissions="ru-r--r--",
        ),
        Attribute(
            name=MACHINE,
            values="none",
            about="The machine. It must be omitted, because there is no configured application.",
            permissions="ru-r--r--",
        ),
        Attribute(
            name=STATE,
            permissions=permissions,
            values=states,
            about="The state.",
            get=lambda subject: subject.state,
            marks=Mark.KEY if selects else Mark.NONE,
            field="state" if selects else "",
        ),
    )


def count(name: str, about: str, get: Callable[[S], Any] | None, values: str = "0 or more") -> Attribute[S]:
    """Return an attribute that is a number, and only read."""
    return Attribute(name=name, kind=ValueType.LONG, values=values, about=about, get=get)


@contextlib.contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """Undo what the request has done if the rest of it is refused.

    If that fails, too, the refusal has that failure as its cause.
    """
    try:
        yield
    except QueueError as error:
        try:
            undo()
        except QueueError as left:
            raise error from left
        raise


@contextlib.contextmanager
def opened(request: Request) -> Iterator[QueueSpace]:
    """Open the queue space that a request names for as long as the request takes."""
    with request.device.open_space(request.keys["space"], role=ROLE) as space:
        yield space


NEVER = "NONE"
"""The word for a time that never comes."""

_ORDERS = {Criterion.PRIORITY.value: "PRIO", Criterion.EXPIRATION.value: "EXPIR"}


def word(*allowed: str) -> Callable[[str], str]:
    """Return a reader of one of the words, in upper or lower case."""

    def read(text: str) -> str:
        if text.upper() not in allowed:
            raise InvalidArgumentError(f"{names.shown(text)} is not {' or '.join(allowed)}")
        return text.upper()

    return read


def number(what: str, least: int, most: int = NUMBER_MAX) -> Callable[[int], int]:
    """Return a reader of whole numbers."""

    def read(value: int) -> int:
        check_int(value, what, least, most)
        return value

    return read


def written_order(order: str) -> str:
    """Return the order of a queue in the words of the management information base."""
    return ",".join(_ORDERS.get(criterion, criterion.upper()) for criterion in order.split(","))


def amount(text: str) -> tuple[int, bool]:
    """Read a number of bytes (b) or of blocks (B, or no letter), and whether it is blocks."""
    digits = text[:-1] if text[-1:] in ("b", "B") else text
    value = _digits(digits, "memory in bytes (b) or blocks (B)")
    return value, not text.endswith("b")


def in_bytes(memory: tuple[int, bool], page_size: int) -> int:
    """Return an amount as bytes, rounded down to whole pages; blocks are pages of the device."""
    value, blocks = memory
    return (value if blocks else value // page_size) * page_size


def decimal(what: str, least: int, most: int) -> Callable[[str], float]:
    """Return a reader of numbers with decimals, which are texts."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise InvalidArgumentError(f"{names.shown(text)} is not a number") from None
        return check_number(value, what, least, most)

    return read


def span(text: str) -> int | None:
    """Read `+seconds`, with an optional unit after the number (`+10m`), or `NONE`."""
    if text.upper() == NEVER:
        return None
    if not text.startswith("+"):
        raise InvalidArgumentError(f"{names.shown(text)} is neither +seconds nor {NEVER}")
    value = _digits(times.in_seconds(text[1:]), "seconds")
    check_int(value, "number of seconds", 0, EXPIRATION_MAX)
    return value


def moment(text: str) -> datetime | float:
    """Read `+seconds`, or `YY[MM[DD[hh[mm[ss]]]]]` or ISO 8601 in local time."""
    if text.startswith("+"):
        return float(span(text) or 0)
    return times.to_datetime(times.parse_absolute(text))


def moment_or_never(text: str) -> datetime | float | None:
    """Read a time, or `NONE`."""
    return None if text.upper() == NEVER else moment(text)


def instant(text: str) -> int:
    """Read `YY[MM[DD[hh[mm[ss]]]]]` or ISO 8601 in local time as microseconds."""
    return times.parse_absolute(text)


def instant_or_never(text: str) -> int | str:
    """Read a time as microseconds, or `NONE`."""
    return NEVER if text.upper() == NEVER else instant(text)


def written_moment(micros: int | None) -> str:
    """Return a time as `YYMMDDhhmmss` in local time; empty for None."""
    return "" if micros is None else times.local(micros).strftime("%y%m%d%H%M%S")


def identifier(text: str) -> bytes:
    r"""Read a correlation identifier, in which `\20` stands for the byte of that hexadecimal number."""
    names.encoded(text, "correlation identifier")
    return names.correlation_id(unescaped(text))


def written_identifier(raw: bytes | None) -> str:
    r"""Return a correlation identifier as text: blanks, backslashes and what cannot be printed become `\20`."""
    return escaped(raw or b"")


def _digits(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidArgumentError(f"{names.shown(text)} is not a number of {what}")
    return int(text)
