"""Capacity limits: the use at which a queue's capacity command runs, and the use at which it is rearmed."""

from __future__ import annotations

import enum
import re

from qmcore.errors import InvalidArgumentError
from qmcore.names import shown
from qmcore.values import dataclass

_DIGITS_MAX = 18
_FORM = re.compile(r"(.*?)([^\d]?)", re.DOTALL)


class Unit(enum.Enum):
    """The unit of a capacity limit, by its letter."""

    BYTES = "b"
    BLOCKS = "B"
    PERCENT = "%"
    MESSAGES = "m"


PERSISTENT_UNITS = frozenset(Unit)
MEMORY_UNITS = frozenset((Unit.BYTES, Unit.BLOCKS, Unit.PERCENT))


@dataclass(frozen=True, slots=True)
class CapacityLimit:
    """A number of bytes, blocks, messages, or percent of the queue space; blocks are pages of the device."""

    value: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.value}{self.unit.value}"

    def measure(self, *, messages: int, pages: int, size: int, capacity: int) -> int:
        """Return the use of a queue in the unit of this limit, whole percents of `capacity` pages rounded down."""
        match self.unit:
            case Unit.BYTES:
                return size
            case Unit.BLOCKS:
                return pages
            case Unit.PERCENT:
                return pages * 100 // capacity if capacity else 0
            case Unit.MESSAGES:
                return messages

    def is_reached(self, *, messages: int, pages: int, size: int, capacity: int) -> bool:
        """Return whether the use of a queue is at or above this limit."""
        return self.measure(messages=messages, pages=pages, size=size, capacity=capacity) >= self.value

    def is_undercut(self, *, messages: int, pages: int, size: int, capacity: int) -> bool:
        """Return whether the use of a queue is at or below this limit."""
        if self.unit is Unit.PERCENT:
            return pages * 100 <= self.value * capacity
        return self.measure(messages=messages, pages=pages, size=size, capacity=capacity) <= self.value


@dataclass(frozen=True, slots=True)
class Threshold:
    """At `high` the command runs, once; it may run again after the use has fallen to `low`."""

    high: CapacityLimit
    low: CapacityLimit
    command: str = ""

    @classmethod
    def none(cls) -> Threshold:
        """Return the default: high 100 %, low 0 %, no command."""
        return cls(CapacityLimit(100, Unit.PERCENT), CapacityLimit(0, Unit.PERCENT))


def parse_high(text: str, units: frozenset[Unit] = PERSISTENT_UNITS) -> CapacityLimit:
    """Read a high limit such as `80%`, `100m`, `5000b` or `20B`; at least 1, and at most 100 %."""
    number, letter = _split(text)
    unit = _unit(letter, units)
    if unit is None:
        raise _refused(
            1205, "Invalid high threshold type", text, f"Write one of these after the number: {_letters(units)}."
        )
    if not _is_number(number):
        raise _refused(1206, "High threshold must be numeric", text, "Write a whole number before the unit.")
    value = int(number)
    if value == 0 or value > _largest(unit):
        raise _refused(1207, "Invalid high threshold number", text, f"Give 1 to {_largest(unit)}.")
    return CapacityLimit(value, unit)


def parse_low(text: str, high: CapacityLimit) -> CapacityLimit:
    """Read a low limit below `high`, in the same unit, which may be left off."""
    number, letter = _split(text)
    if not _is_number(number):
        raise _refused(1209, "Low threshold must be numeric", text, "Write a whole number before the unit.")
    if letter and _unit(letter, PERSISTENT_UNITS) is None:
        raise _refused(1208, "Invalid low threshold type", text, f"Use the unit of the high limit, {high.unit.value}.")
    if letter and letter != high.unit.value:
        raise _refused(
            1210, "High and low threshold types do not match", f"{high} and {text}", f"Use the unit {high.unit.value}."
        )
    value = int(number)
    if value >= high.value:
        raise _refused(
            1212,
            "Low threshold must be less than high threshold",
            text,
            f"Give 0 to {high.value - 1}{high.unit.value}.",
        )
    return CapacityLimit(value, high.unit)


def _split(text: str) -> tuple[str, str]:
    match = _FORM.fullmatch(text.strip())
    assert match is not None  # noqa: S101 - the form matches every text
    return match[1], match[2]


def _is_number(text: str) -> bool:
    # Python refuses to read thousands of digits, and accepts digits of other scripts.
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _unit(letter: str, units: frozenset[Unit]) -> Unit | None:
    return next((unit for unit in units if unit.value == letter), None)


def _letters(units: frozenset[Unit]) -> str:
    return ", ".join(unit.value for unit in Unit if unit in units)


def _largest(unit: Unit) -> int:
    return 100 if unit is Unit.PERCENT else 2**53


def _refused(catalogue: int, sentence: str, text: str, hint: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{sentence}: {shown(text)}", hint=hint, catalogue=catalogue)
