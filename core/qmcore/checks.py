"""Checks that several values share."""

from __future__ import annotations

import operator
from typing import Any

from qmcore.errors import InvalidArgumentError


def whole(value: object, what: str, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`, of whatever type that Python takes for an index; refuse all else."""
    number = value if isinstance(value, int) else index_of(value)
    if number is None or isinstance(number, bool) or not low <= number <= high:
        raise InvalidArgumentError(f"the {what} must be a whole number from {low} to {high}, got {value!r}")
    return number


def index_of(value: object) -> int | None:
    """Return the int of a whole number of another type, such as one of numpy; None for what is not one."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def number_of(value: object) -> int | float | None:
    """Return the int or float of a number of whatever type; None for what is not one, as a text is not."""
    if isinstance(value, (int, float)):
        return value
    whole_number = index_of(value)
    if whole_number is not None or not hasattr(value, "__float__"):
        return whole_number
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def keep_whole(record: object, field: str, what: str, low: int, high: int) -> None:
    """Check a field of a frozen record as `whole` does, and make it an int where it is a number of another type."""
    value: Any = getattr(record, field)
    number = whole(value, what, low, high)
    if number is not value:
        object.__setattr__(record, field, number)
