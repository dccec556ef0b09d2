"""The kinds of arguments: each reads a text into a value or refuses it, and offers values for completion."""

from __future__ import annotations

import abc
import dataclasses
import enum
import glob
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from qmadmin.console.results import Entry
from qmadmin.shell import notices
from qmadmin.shell.notices import UsageError
from qmcore import limits, names, queue, times
from qmcore.errors import InvalidArgumentError
from qmcore.limits import CapacityLimit, Threshold
from qmcore.order import Criterion, OutOfOrder, QueueOrder
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

T = TypeVar("T")
Given = Mapping[str, Any]
"""The values of the earlier arguments of a command, by name."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value that an argument could have, and a few words about it."""

    text: str
    about: str = ""


class Kind(abc.ABC, Generic[T]):
    """The kind of an argument."""

    separator = ""
    """The separator of a list of values; empty if only one is allowed."""

    @abc.abstractmethod
    def read(self, text: str, given: Given, /) -> T:
        """Return the value, or raise UsageError or InvalidArgumentError."""

    def doubt(self, _text: str, /) -> str:
        """Return a warning about a text that was read but may not be what was meant; empty for none."""
        return ""

    def candidates(self, _session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return possible values; the caller drops those that do not begin with `begun`."""
        return ()


@dataclasses.dataclass(frozen=True)
class Choice(Kind[str]):
    """One of a few words; `what` names the argument in a refusal."""

    what: str
    words: tuple[str, ...]

    def read(self, text: str, _given: Given, /) -> str:
        """Return the word."""
        if text.lower() not in self.words:
            raise UsageError(f"The {self.what} must be {' or '.join(self.words)}, got {text!r}")
        return text.lower()

    def candidates(self, _session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the words."""
        return [Candidate(word) for word in self.words]


class YesNo(Kind[bool]):
    """`y` or `n`."""

    def read(self, text: str, _given: Given, /) -> bool:
        """Return whether it is yes."""
        if text.lower() in ("y", "yes"):
            return True
        if text.lower() in ("n", "no"):
            return False
        raise UsageError(f"The answer must be y or n, got {text!r}")

    def candidates(self, _session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return both."""
        return [Candidate("y", "yes"), Candidate("n", "no")]


@dataclasses.dataclass(frozen=True)
class Number(Kind[int]):
    """A whole number from `least` to `most`; `what` names it in a refusal."""

    what: str
    least: int = 0
    most: int = 2**31 - 1
    not_numeric: Entry | None = None
    hint: str = ""

    def read(self, text: str, _given: Given, /) -> int:
        """Return the number."""
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()):
            if self.not_numeric is not None:
                raise UsageError.of(self.not_numeric(), repr(text), hint=self.hint)
            raise UsageError(f"The {self.what} must be numeric: {text!r}", hint=self.hint)
        # A very long number takes quadratic time, and Python refuses it with an error of its own.
        value = int(text) if len(digits) <= 20 else self.most + 1
        if not self.least <= value <= self.most or text[:1] == "-":
            raise UsageError(f"The {self.what} must be {self.least} to {self.most}, got {text}")
        return value


@dataclasses.dataclass(frozen=True)
class Span(Number):
    """A whole number of seconds, or a number with its unit behind it: `90s`, `10m`, `2h`, `1d`."""

    hint: str = times.UNITS_HINT

    def read(self, text: str, given: Given, /) -> int:
        """Return the seconds."""
        return super().read(times.in_seconds(text), given)


@dataclasses.dataclass(frozen=True)
class Seconds(Kind[float]):
    """A number of seconds from `least` to `most`, with decimals; `what` names it in a refusal."""

    what: str
    least: float
    most: float

    def read(self, text: str, _given: Given, /) -> float:
        """Return the seconds."""
        text = times.in_seconds(text)
        if re.fullmatch(r"\d{1,9}(\.\d{0,6})?|\.\d{1,6}", text, re.ASCII) is None:
            raise UsageError(f"The {self.what} must be a number of seconds: {text!r}", hint=times.UNITS_HINT)
        if not self.least <= float(text) <= self.most:
            raise UsageError(f"The {self.what} must be {self.least:g} to {self.most:g} seconds, got {text}")
        return float(text)


@dataclasses.dataclass(frozen=True)
class Decimal(Kind[float]):
    """A number from `least` to `most`, with decimals; `what` names it in a refusal."""

    what: str
    least: float
    most: float

    def read(self, text: str, _given: Given, /) -> float:
        """Return the number."""
        if re.fullmatch(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}", text, re.ASCII) is None:
            raise UsageError(f"The {self.what} must be numeric: {text!r}")
        if not self.least <= float(text) <= self.most:
            raise UsageError(f"The {self.what} must be {self.least:g} to {self.most:g}, got {text}")
        return float(text)


@dataclasses.dataclass(frozen=True)
class DeviceIndex(Number):
    """The index of an entry of the universal device list."""

    what: str = "device list index"

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the entries that there are."""
        return [Candidate(str(entry.index), entry.path) for entry in session.device.entries()]


class FileName(Kind[str]):
    """The path of a file, which need not exist."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the path."""
        return names.path(text)

    def candidates(self, session: Session, begun: str, /) -> Iterable[Candidate]:
        """Return the device itself, and files."""
        files = glob.glob(glob.escape(begun) + "*")  # noqa: PTH207 - paths are offered as they were begun
        found = [Candidate(file + "/" * Path(file).is_dir()) for file in sorted(files)]
        return [Candidate(session.path, "QMCONFIG"), *(file for file in found if file.text != session.path)]


class VolumeName(Kind[str | int]):
    """A file or schema of the device list, by its path or by the index of an entry."""

    def read(self, text: str, _given: Given, /) -> str | int:
        """Return the index, or the path; a file whose name is a number has a path with a slash, such as ./1."""
        return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else names.path(text)

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the entries that there are."""
        return [Candidate(str(entry.index), entry.path) for entry in session.device.entries()]


class SpaceName(Kind[str]):
    """The name of a queue space, which need not exist."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the name."""
        return _named(text, names.space_name, names.SPACE_NAME_MAX, notices.SPACE_NAME_TOO_LONG)

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the queue spaces of the device, those whose volumes are missing too."""
        found = {
            name: f"its volume is {volume.state}"
            for volume in session.device.missing_volumes()
            for name in volume.spaces
        }
        found |= {space.name: f"{space.definition.pages} pages" for space in session.device.spaces()}
        return [Candidate(name, found[name]) for name in sorted(found)]


class QueueName(Kind[str]):
    """The name of a queue, which need not exist."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the name."""
        return names.queue_name(text)

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the queues of the open queue space."""
        if session.space is None:
            return []
        return [Candidate(found.name, f"{found.definition.order}") for found in session.space.queues()]


class Taken(QueueName):
    """What messages are taken from: the name of a queue, or of one of several consumers as `queue:consumer`."""

    def read(self, text: str, given: Given, /) -> str:
        """Return the name."""
        queue, colon, consumer = text.rpartition(":")
        if colon and len(text.encode(errors="replace")) > names.QUEUE_NAME_MAX:
            return f"{super().read(queue, given)}:{names.subscription_name(consumer, 'name of a consumer')}"
        return super().read(text, given)

    def candidates(self, session: Session, begun: str, /) -> Iterable[Candidate]:
        """Return the queues of the open queue space, and the consumers that have subscribed to one."""
        if session.space is None:
            return []
        found = session.space.subscriptions()
        several = [Candidate(f"{each.queue}:{each.name}", f"consumer of {each.queue}") for each in found]
        return [*super().candidates(session, begun), *several]


class QueueNameOrNone(QueueName):
    """The name of a queue, or nothing."""

    def read(self, text: str, given: Given, /) -> str:
        """Return the name, empty for none."""
        return super().read(text, given) if text else ""


class ErrorQueueName(Kind[str]):
    """The name of an error queue."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the name."""
        return _named(
            text,
            lambda name: names.queue_name(name, "error queue name"),
            names.QUEUE_NAME_MAX,
            notices.ERROR_QUEUE_TOO_LONG,
        )


def _named(text: str, checked: Callable[[str], str], longest: int, too_long: Entry) -> str:
    """Return a name that passes the check; one that is too long is refused in the words of the catalogue."""
    try:
        return checked(text)
    except InvalidArgumentError as error:
        if len(text.encode(errors="replace")) > longest:
            raise UsageError.of(too_long(length=longest + 1), error.message) from error
        raise


class Words(Kind[str]):
    """Any text."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the text."""
        return text


class CapacityCommand(Kind[str]):
    """A shell command that is run when a queue is full enough."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the command."""
        return _named(text, names.command, names.COMMAND_MAX, notices.COMMAND_TOO_LONG)


class Order(Kind[QueueOrder]):
    """A comma list of order criteria."""

    separator = ","

    def read(self, text: str, _given: Given, /) -> QueueOrder:
        """Return the order."""
        return QueueOrder.parse(text)

    def candidates(self, _session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the criteria."""
        return [Candidate(criterion.value) for criterion in Criterion]


class Exceptions(Kind[OutOfOrder]):
    """Which exceptions from the order of a queue are allowed."""

    separator = ","

    def read(self, text: str, _given: Given, /) -> OutOfOrder:
        """Return the exceptions."""
        return OutOfOrder.parse(text)

    def candidates(self, _session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the words."""
        return [Candidate("none"), Candidate("top"), Candidate("msgid")]


class HighLimit(Kind[CapacityLimit]):
    """A capacity limit with its unit."""

    def read(self, text: str, _given: Given, /) -> CapacityLimit:
        """Return the limit."""
        return limits.parse_high(text)


class LowLimit(Kind[CapacityLimit]):
    """A capacity limit below the one that was given as `high`."""

    def read(self, text: str, given: Given, /) -> CapacityLimit:
        """Return the limit."""
        return limits.parse_low(text, given["high"])


class MemoryThreshold(Kind[Threshold]):
    """High limit, low limit and command for non-persistent messages, with commas between."""

    def read(self, text: str, given: Given, /) -> Threshold:
        """Return the threshold."""
        parts = text.split(",", 2)
        if len(parts) < 2:
            raise UsageError(
                f"The memory threshold {text!r} is not of the form nhigh,nlow,ncmd",
                hint='For example: -n "80%,10%,/usr/app/bin/mailme"',
            )
        high = limits.parse_high(parts[0], limits.MEMORY_UNITS)
        low = limits.parse_low(parts[1], high)
        return Threshold(high, low, CapacityCommand().read(parts[2], given) if len(parts) > 2 else "")


class Expiration(Kind[int | None]):
    """`+seconds`, a span with its unit, or `none`."""

    def read(self, text: str, given: Given, /) -> int | None:
        """Return the seconds, None for none."""
        if text.lower() == "none":
            return None
        span = times.in_seconds(text.removeprefix("+"))
        if span == text:
            raise UsageError(f"The expiration time {text!r} is neither +seconds nor none", hint=times.UNITS_HINT)
        return Span("expiration time in seconds", most=queue.EXPIRATION_MAX).read(span, given)

    def candidates(self, _session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the word."""
        return [Candidate("none", "messages do not expire")]


class Retention(Kind[int]):
    """A number of seconds, a span with its unit, or `forever`."""

    def read(self, text: str, given: Given, /) -> int:
        """Return the seconds."""
        if text.lower() == "forever":
            return queue.FOREVER
        return Span("retention in seconds", most=queue.RETENTION_MAX).read(text, given)

    def candidates(self, _session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the word."""
        return [Candidate("forever", "consumed messages are kept until they are purged")]


class MemoryUnit(enum.Enum):
    """The unit of an amount of memory."""

    BYTES = "b"
    BLOCKS = "B"


@dataclass(frozen=True, slots=True)
class Memory:
    """An amount of memory; blocks are pages of the device."""

    value: int
    unit: MemoryUnit

    def in_bytes(self, page_size: int) -> int:
        """Return the bytes, rounded down to whole pages."""
        pages = self.value if self.unit is MemoryUnit.BLOCKS else self.value // page_size
        return pages * page_size


class MemorySize(Kind[Memory]):
    """A number of bytes (b) or blocks (B); without a letter, blocks."""

    def read(self, text: str, given: Given, /) -> Memory:
        """Return the amount."""
        units = {unit.value: unit for unit in MemoryUnit}
        unit = units.get(text[-1:])
        number = Number("memory for non-persistent messages").read(text[:-1] if unit else text, given)
        return Memory(number, unit or MemoryUnit.BLOCKS)


class HelpTopic(Kind[str]):
    """The subject of help: a topic, or the name of a command."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the name."""
        return text

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return topics and commands."""
        catalogue = session.catalogue
        return [
            *(Candidate(group.topic, group.title) for group in catalogue.groups),
            *(Candidate(command.name, command.summary) for command in catalogue.commands),
        ]
