"""The rules of schedules: fields of cron, or `every` and a span. Only here is known what they mean.

Cron is read by cronsim, which does at the begin and the end of summer time what Debian's cron does: what comes at a
certain hour comes once a day, right behind an hour that is left out, and in the first of two that have the same name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from qmcore import times
from qmcore.errors import InvalidArgumentError, SystemFailureError

if TYPE_CHECKING:
    from datetime import tzinfo

    from qmcore.schedule import Schedule

INTERVAL_LEAST: Final = times.MICROS
"""The shortest interval, in microseconds: due moments are looked for once a second."""

_FORMS: Final = (
    "Give minute, hour, day of month, month and day of week, such as '30 6 * * MON-FRI', with the second before them if"
    " need be; or a span, such as 'every 10m'."
)


def following(schedule: Schedule, after_us: int) -> int | None:
    """Return the first due moment of a schedule after a time, both in microseconds; None where there is none.

    Raises InvalidArgumentError for a rule or a time zone that does not exist, SystemFailureError without cronsim.
    """
    zone = _zone(schedule.timezone)
    interval = _interval(schedule.rule)
    if interval is not None:
        first = schedule.counted_from_us
        moment = first + (max((after_us - first) // interval, 0) + 1) * interval
        return moment if moment <= times.LATEST else None
    return _following_of_cron(schedule.rule, zone, after_us)


def _interval(rule: str) -> int | None:
    """Return the microseconds of an interval; None for a rule of another form."""
    word, _, text = rule.strip().partition(" ")
    if word.lower() != "every":
        return None
    seconds = times.in_seconds(text.strip())
    found = re.fullmatch(r"(\d{1,10})(?:\.(\d{1,6}))?", seconds, re.ASCII)
    if found is None:
        raise InvalidArgumentError(f"the span of the rule {rule!r} is not one", hint=times.UNITS_HINT)
    micros = int(found[1]) * times.MICROS + int((found[2] or "").ljust(6, "0"))
    if not INTERVAL_LEAST <= micros <= times.SPAN_MAX:
        raise InvalidArgumentError(
            f"the span of the rule {rule!r} must be {INTERVAL_LEAST // times.MICROS} to"
            f" {times.SPAN_MAX // times.MICROS} seconds"
        )
    return micros


def _zone(name: str) -> tzinfo:
    from datetime import UTC
    from zoneinfo import ZoneInfo

    if name.upper() == "UTC":
        # Also where the system has no time zones.
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidArgumentError(
            f"there is no time zone {name!r}",
            hint="Give an IANA name such as Europe/Berlin; the package tzdata has them where the system has none.",
        ) from None


def _following_of_cron(rule: str, zone: tzinfo, after_us: int) -> int | None:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        # It comes with the package, but may be left out of what is sent to other machines, as Spark's executors.
        raise SystemFailureError(
            f"the rule {rule!r} cannot be read, because the package cronsim is not installed",
            hint="Install it, as in: pip install cronsim",
        ) from error
    fields = rule.split()
    if len(fields) == 6 and fields[0] == "0":
        # The same, but summer time is minded in five fields only.
        del fields[0]
    try:
        moments = CronSim(" ".join(fields), times.to_datetime(after_us).astimezone(zone))
    except CronSimError as error:
        reason = str(error)[:1].lower() + str(error)[1:]
        raise InvalidArgumentError(f"the rule {rule!r} is no rule of cron: {reason}", hint=_FORMS) from None
    try:
        # In an hour that comes twice, those of the first one are asked for once more.
        return next((found for found in map(times.from_datetime, moments) if found > after_us), None)
    except OverflowError:
        return None
