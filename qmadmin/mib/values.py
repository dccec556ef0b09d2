"""How values are written in attributes, where that is not how the engine has them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from qmadmin.console.escapes import escaped, unescaped
from qmcore import names, times
from qmcore.checks import whole
from qmcore.errors import InvalidArgumentError
from qmcore.order import Criterion
from qmcore.queue import EXPIRATION_MAX
from qmcore.space import NUMBER_MAX

NEVER = "NONE"
"""What stands for a time that never comes."""

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
        whole(value, what, least, most)
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


def span(text: str) -> int | None:
    """Read `+seconds`, where a unit may stand behind the number (`+10m`), or `NONE`."""
    if text.upper() == NEVER:
        return None
    if not text.startswith("+"):
        raise InvalidArgumentError(f"{names.shown(text)} is neither +seconds nor {NEVER}")
    value = _digits(times.in_seconds(text[1:]), "seconds")
    whole(value, "number of seconds", 0, EXPIRATION_MAX)
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
    """Return a time as `YYMMDDhhmmss` in local time; nothing for none."""
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
