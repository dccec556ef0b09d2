"""Checks that several values share."""

from __future__ import annotations

import operator
from datetime import timedelta

from qmcore.errors import InvalidArgumentError

_SECOND = timedelta(seconds=1)


def check_int(value: object, what: str, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`, of any type that Python accepts as an index; refuse anything else."""
    number = value if isinstance(value, int) else index_of(value)
    if number is None or isinstance(number, bool) or not low <= number <= high:
        raise InvalidArgumentError(f"the {what} must be a whole number from {low} to {high}, got {value!r}")
    return number


def check_number(value: object, what: str, low: int, high: int) -> float:
    """Return a number from `low` to `high`, of any numeric type; refuse anything else."""
    number = None if flag_of(value) is not None else number_of(value)
    if number is None or not low <= number <= high:
        raise InvalidArgumentError(f"the {what} must be a number from {low} to {high}, got {value!r}")
    return float(number)


def index_of(value: object) -> int | None:
    """Return the int of a whole number of another type, such as one of numpy; None for what is not one."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def number_of(value: object) -> int | float | None:
    """Return the int or float of a number of any type; None for anything else, such as a text."""
    if isinstance(value, (int, float)):
        return value
    whole_number = index_of(value)
    if whole_number is not None or not hasattr(value, "__float__"):
        return whole_number
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def flag_of(value: object) -> bool | None:
    """Return the bool of a bool, or of numpy's; None for what is neither."""
    if isinstance(value, bool):
        return value
    item = getattr(value, "item", None)
    found = item() if callable(item) and getattr(value, "shape", None) == () else None
    return found if isinstance(found, bool) else None


def buffer_of(value: object) -> memoryview | bytes | None:
    """Return the bytes of a buffer of any form; None for anything else, such as a number of numpy.

    They are copied only where they are not contiguous.
    """
    if getattr(value, "shape", None) == () and not isinstance(value, memoryview):
        return None
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    if "O" in view.format:
        # It has addresses of objects, which mean nothing elsewhere.
        return None
    try:
        return view.cast("B") if view.c_contiguous else view.tobytes()
    except (TypeError, ValueError, NotImplementedError):
        # It is empty with several dimensions, or has numbers in the format of another machine.
        return view.tobytes()


def keep_int(record: object, field: str, what: str, low: int, high: int) -> None:
    """Check a field of a frozen record as `check_int` does, and make it an int where it is a number of another type."""
    value = getattr(record, field)
    number = check_int(value, what, low, high)
    if number is not value:
        object.__setattr__(record, field, number)


def seconds_of(value: object, what: str, high: int) -> int:
    """Return a number of seconds from 0 to `high`, which may be given as a timedelta; refuse anything else."""
    seconds, rest = divmod(value, _SECOND) if isinstance(value, timedelta) else (value, None)
    if rest:
        raise InvalidArgumentError(f"the {what} must be whole seconds, got {value!r}")
    return check_int(seconds, what, 0, high)
