r"""The output of all programs: results as data, screens that draw them, and the texts about archives and moves.

Here stand numbers in a short form that is easy to read, and identifiers as qmadmin(1) writes them: bytes that cannot be
printed, blanks and backslashes are `\xx`. Tuxedo's form is a backslash and two hexadecimal digits for a byte, as in
`hello\20world`.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

from qmcore.errors import InvalidArgumentError

BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "_.-=+*%#"
"""Bars for a terminal without block characters."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_LARGE = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def span(seconds: float | None) -> str:
    """Return a span of time in its two largest units, as 4s, 3m07s, 5h20m, 12d3h; `-` for none."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 1:
        return "<1s" if seconds else "0s"
    at = next(at for at, (size, _) in enumerate(_UNITS) if whole >= size)
    size, unit = _UNITS[at]
    shown = f"{whole // size}{unit}"
    if at == len(_UNITS) - 1:
        return shown
    smaller, smaller_unit = _UNITS[at + 1]
    rest = whole % size // smaller
    return shown + (f"{rest:02}{smaller_unit}" if unit in "mh" else f"{rest}{smaller_unit}")


def duration(micros: int) -> str:
    """Return how long something took in one unit, as 850us, 1.5ms, 20ms, 1.2s; from a minute on as a span."""
    for size, unit in ((1, "us"), (1_000, "ms"), (1_000_000, "s")):
        decimals = int(size > 1 and micros < 9.95 * size)
        shown = f"{micros / size:.{decimals}f}".removesuffix(".0")
        if float(shown) < (60 if unit == "s" else 1000):
            return f"{shown}{unit}"
    return span(micros / 1_000_000)


def rate(per_second: float | None) -> str:
    """Return a rate: with a decimal below ten, and `-` for none."""
    if per_second is None:
        return "-"
    if 0 < per_second < 0.05:
        return "<0.1"
    return f"{per_second:.1f}" if 0 < per_second < 10 else count(round(per_second))


def count(number: int) -> str:
    """Return a number in at most five columns: in full below ten thousand, then as 12k, 3.4M."""
    for size, letter in _LARGE if number >= 10_000 else ():
        if number >= size:
            tenths = number * 10 // size
            return f"{tenths / 10:.1f}{letter}" if tenths < 100 else f"{tenths // 10}{letter}"
    return str(number)


def share(used: int, limit: int) -> str:
    """Return how much of a limit is in use, as 12/100 (12%)."""
    return f"{count(used)}/{count(limit)}" + (f" {100 * used // limit}%" if limit else "")


def sparkline(values: Sequence[int], width: int, bars: str = BARS) -> str:
    """Return the last `width` values as a line of bars, each as high as its part of the largest."""
    shown = values[-width:] if width > 0 else ()
    most = max(shown, default=0)
    if not most:
        return bars[0] * len(shown)
    # A value that is not zero must be visible.
    return "".join(bars[0] if not value else bars[max(1, math.ceil(value * (len(bars) - 1) / most))] for value in shown)


def counted(count: int, what: str) -> str:
    """Return a number of things in words: `1 call`, `2 calls`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def end_of(status: int) -> str:
    """Return how a process has ended: its exit status, or the signal whose number is negative here."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


# ---- identifiers -----------------------------------------------------------------------------------------------------


_HEX = "0123456789abcdefABCDEF"


def printable(text: str) -> str:
    """Return the text with everything that cannot be printed escaped, so that no name can drive the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def quoted(text: str) -> str:
    """Return a text in quotes, as the shell reads a word with blanks in it."""
    if "\\" in text and "'" not in text:
        return f"'{text}'"
    inside = text.replace('"', '\\"')
    return f'"{inside}"'


def escaped(identifier: bytes) -> str:
    """Return an identifier as text that `unescaped` reads back."""
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x5C else f"\\{byte:02x}" for byte in identifier)


def unescaped(text: str) -> bytes:
    r"""Return the bytes that a text means; a backslash without two hexadecimal digits or another is refused."""
    first, *parts = text.split("\\")
    found = first.encode(errors="surrogateescape")
    while parts:
        part = parts.pop(0)
        if part == "" and parts:
            # Two backslashes are one.
            found += b"\\" + parts.pop(0).encode(errors="surrogateescape")
            continue
        if len(part) < 2 or not set(part[:2]) <= set(_HEX):
            raise InvalidArgumentError(f"a backslash must be followed by two hexadecimal digits: {text!r}")
        found += bytes([int(part[:2], 16)]) + part[2:].encode(errors="surrogateescape")
    return found
