"""Checks that several values share."""

from __future__ import annotations

from qmcore.errors import InvalidArgumentError


def whole(value: object, what: str, low: int, high: int) -> None:
    """Refuse what is not a whole number from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidArgumentError(f"the {what} must be a whole number from {low} to {high}, got {value!r}")
