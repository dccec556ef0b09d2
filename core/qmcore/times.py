"""Times are UTC microseconds since 1970 as integers, and come from one injected clock."""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from qmcore.checks import number_of
from qmcore.errors import InvalidArgumentError

MICROS = 1_000_000
SPAN_MAX = (2**31 - 1) * MICROS
"""The longest delay, lifetime or timeout, in microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""The earliest time."""

LATEST = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""The latest time."""


class Clock(Protocol):
    """Where the engine gets the time from; tests inject their own and move it."""

    def now(self) -> int:
        """Return the time of day in microseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Return seconds on a clock that is never set back; only differences mean something."""

    def steady(self) -> int:
        """Return microseconds on a clock that all processes on a device share, and by which timeouts end.

        Setting the time of day does not move it, where there is such a clock; only differences mean something.
        """

    def now_and_steady(self) -> tuple[int, int]:
        """Return `now` and `steady` of one moment."""

    def is_over(self, started_us: int, deadline_us: int) -> bool:
        """Return whether a period is over that began at a time of `now` and ends at one of `steady`, on any machine."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> int:
        """Return the time of day in microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    monotonic = staticmethod(time.monotonic)
    """Returns seconds on a clock that is never set back."""

    def steady(self) -> int:
        """Return microseconds on a clock that is never set back, and is the same for all processes of the machine."""
        return time.monotonic_ns() // 1000

    def now_and_steady(self) -> tuple[int, int]:
        """Return `now` and `steady` of one moment."""
        return time.time_ns() // 1000, time.monotonic_ns() // 1000

    def is_over(self, started_us: int, deadline_us: int) -> bool:  # noqa: ARG002 - the steady clock tells it alone
        """Return whether the time is over."""
        return deadline_us <= self.steady()


def from_datetime(moment: datetime) -> int:
    """Return the microseconds of an aware datetime; a naive one is refused, because its zone is unknown."""
    if not isinstance(moment, datetime):
        raise InvalidArgumentError(f"the time must be a datetime, got {moment!r}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidArgumentError(
            f"the time {moment.isoformat()} has no time zone",
            hint="Give an aware datetime, such as datetime.now(timezone.utc).",
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_datetime(micros: int) -> datetime:
    """Return the aware datetime (UTC) of a time in microseconds."""
    return _EPOCH + timedelta(microseconds=micros)


def span(value: float | timedelta, what: str) -> int:
    """Return a length of time in microseconds from seconds or a timedelta; negative ones are refused."""
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
    else:
        seconds = value if type(value) in (int, float) else number_of(value)
        if seconds is None:
            raise InvalidArgumentError(f"the {what} must be a number of seconds or a timedelta, got {value!r}")
        if not math.isfinite(seconds):
            raise InvalidArgumentError(f"the {what} must be a finite number of seconds, got {value}")
        micros = round(seconds * MICROS)
    return checked_span(micros, what)


def checked_span(micros: object, what: str) -> int:
    """Return a length of time that is neither negative nor too long: at most 2147483647 seconds."""
    if isinstance(micros, int) and 0 <= micros <= SPAN_MAX:
        return micros
    raise InvalidArgumentError(f"the {what} must be 0 to {SPAN_MAX // MICROS} seconds, got {_seconds(micros)}")


def checked_moment(micros: object, what: str) -> int:
    """Return a time between the years 1 and 9999."""
    if isinstance(micros, int) and EARLIEST <= micros <= LATEST:
        return micros
    raise InvalidArgumentError(f"the {what} must be between the years 1 and 9999, got {_seconds(micros)} since 1970")


def moved(micros: int, by_us: int) -> int:
    """Return a time moved by microseconds; one that would leave the years 1 to 9999 becomes their first or last one.

    The last one stays what it is: it stands for a time that does not come.
    """
    return micros if micros == LATEST else min(max(micros + by_us, EARLIEST), LATEST)


def _seconds(micros: object) -> str:
    return f"{micros / MICROS:g} seconds" if isinstance(micros, (int, float)) else repr(micros)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
UNITS_HINT = "Give seconds, or a number with s, m, h or d after it, such as 10m."


def in_seconds(text: str) -> str:
    """Return a span with a unit (`90s`, `10m`, `2h`, `1.5d`) as a number of seconds; any other text unchanged."""
    found = re.fullmatch(r"(\d{1,12})(?:\.(\d{1,6}))?([smhd])", text, re.ASCII)
    if found is None:
        return text
    whole, decimals, unit = found.groups(default="")
    micros = int(whole + decimals.ljust(6, "0")) * _UNITS[unit]
    seconds, rest = divmod(micros, MICROS)
    return f"{seconds}.{rest:06}".rstrip("0").rstrip(".") if rest else f"{seconds}"


_ISO = re.compile(r"(\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?) ?(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def parse_absolute(text: str) -> int:
    """Return the time of a text `YY[MM[DD[hh[mm[ss]]]]]` or in ISO 8601, as qmadmin(1) reads it.

    Without a zone it is local time; one that the clock skips is refused, and one that occurs twice means the first.
    Parts left out take their smallest value; years 00-37 are 2000-2037 and 70-99 are 1970-1999.
    """
    try:
        moment = _read(text)
        micros = from_datetime(moment if moment.tzinfo else _here(moment))
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"the time {text!r} does not exist: {error}") from None
    if not EARLIEST <= micros <= LATEST:
        raise InvalidArgumentError(f"the time {text!r} is not between the years 1 and 9999 in UTC")
    return micros


def is_ambiguous(text: str) -> bool:
    """Return whether a local time occurs twice, because the clock is put back."""
    try:
        moment = _read(text)
        return moment.tzinfo is None and _here(moment) != moment.replace(fold=1).astimezone()
    except (ValueError, OverflowError, InvalidArgumentError):
        return False


def _read(text: str) -> datetime:
    """Return the time in its zone, or without one where the text has none."""
    found = _ISO.fullmatch(text)
    if found is None:
        return _of_digits(text)
    return datetime.fromisoformat("".join(part for part in found.groups() if part))


_BESIDE = {
    datetime(1, 1, 1).date(): datetime(1, 1, 2),  # noqa: DTZ001 - it is local
    datetime(9999, 12, 31).date(): datetime(9999, 12, 30),  # noqa: DTZ001 - it is local
}


def _here(moment: datetime) -> datetime:
    """Return a time of this machine's zone, the first where it occurs twice; ValueError for one that is skipped."""
    if (beside := _BESIDE.get(moment.date())) is not None:
        # Python looks up the zone a day further, where there is none.
        return moment.replace(tzinfo=beside.astimezone().tzinfo)
    found = moment.astimezone()
    if found.replace(tzinfo=None) != moment:
        raise ValueError("the clock is put forward past it")
    return found


def _of_digits(text: str) -> datetime:
    if not text.isascii() or not text.isdigit() or len(text) % 2 or not 2 <= len(text) <= 12:
        raise InvalidArgumentError(
            f"the time {text!r} is not of the form YY[MM[DD[hh[mm[ss]]]]]",
            hint="Other forms are ISO 8601, such as 2026-11-25T20:00, and for a time from now +600, 10m, 2h or 1d.",
        )
    parts = [int(text[at : at + 2]) for at in range(0, len(text), 2)]
    if 38 <= parts[0] <= 69:
        raise InvalidArgumentError(f"the year {text[:2]} of the time {text!r} is not one of 00-37 and 70-99")
    full = [parts[0] + (2000 if parts[0] < 70 else 1900), *parts[1:]]
    full += [1, 1, 0, 0, 0][len(full) - 1 :]
    return datetime(*full)  # type: ignore[arg-type]  # noqa: DTZ001 - it is local


def local(micros: int) -> datetime:
    """Return the aware datetime in local time; in UTC where the local one would leave the years 1 to 9999."""
    moment = to_datetime(micros)
    try:
        return moment.astimezone()
    except (OverflowError, ValueError):
        return moment


def show(micros: int) -> str:
    """Return the time in local time with its zone, to the second."""
    moment = local(micros)
    return f"{moment.year:04}{moment:-%m-%d %H:%M:%S %z}"


def iso(micros: int) -> str:
    """Return the time as ISO 8601 in UTC, to the microsecond."""
    return to_datetime(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")
