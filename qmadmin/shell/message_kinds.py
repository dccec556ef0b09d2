"""The kinds of arguments that messages have: identifiers, times, priorities, conditions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from qmadmin.console.escapes import escaped, unescaped
from qmadmin.shell.kinds import Candidate, Given, Kind, Number, Span
from qmadmin.shell.notices import UsageError
from qmadmin.shell.session import Range
from qmcore import names, times
from qmcore.errors import InvalidArgumentError
from qmcore.message import PRIORITY_RANGE

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmcore.condition import Condition
    from qmcore.message import MessageInfo

_SECOND = times.MICROS


_OFFERED = 50
"""How many messages completion offers, which are all that is read of a queue of millions."""


class MessageId(Kind[str]):
    """The identifier of a message, which need not exist."""

    def read(self, text: str, _given: Given, /) -> str:
        """Return the identifier."""
        from qmcore.message import checked_id

        return checked_id(text)

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the first messages of the current queue."""
        return [Candidate(found.msgid, _about(found)) for found in _first_messages(session)]


class CorrelationId(Kind[bytes]):
    r"""A correlation identifier; characters that cannot be typed are written as `\xx`."""

    def read(self, text: str, _given: Given, /) -> bytes:
        """Return the bytes of the identifier, without the NULs that it may be padded with."""
        return names.correlation_id(unescaped(text))

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return those of the first messages of the current queue, each once."""
        found: dict[bytes, MessageInfo] = {}
        for message in _first_messages(session):
            if message.corrid is not None:
                found.setdefault(message.corrid, message)
        return [Candidate(escaped(corrid), _about(message)) for corrid, message in found.items()]


def _first_messages(session: Session) -> Iterable[MessageInfo]:
    if session.space is None or session.queue is None:
        return ()
    return itertools.islice(session.space.messages(session.queue), _OFFERED)


def _about(message: MessageInfo) -> str:
    return f"priority {message.priority}, {message.size} bytes, {message.state.value}"


class PriorityRange(Kind[Range]):
    """A priority, or the lowest and the highest with a dash between."""

    def read(self, text: str, given: Given, /) -> Range:
        """Return the range."""
        priority = Number("priority", *PRIORITY_RANGE)
        return _range(text, "priorities", lambda part: priority.read(part, given))


class TimeRange(Kind[Range]):
    """A time, or the first and the last with a dash between; each is a whole second.

    ISO 8601 has dashes as well: the one between is the first that has a time on either side.
    """

    def read(self, text: str, given: Given, /) -> Range:
        """Return the range in microseconds."""
        found = _range(text, "times", lambda part: _micros(part, given))
        return Range(found.low, found.high + _SECOND - 1, text)

    def doubt(self, text: str, /) -> str:
        """Return which one is used of a time that occurs twice."""
        return _doubt(text)


def _range(text: str, what: str, read: Callable[[str], int]) -> Range:
    low, high = _ends(text, read)
    if high < low:
        raise UsageError(f"The range of {what} {text!r} ends before it begins")
    return Range(low, high, text)


def _ends(text: str, read: Callable[[str], int]) -> tuple[int, int]:
    """Return both ends of a range, which are the same for a single value."""
    parts = text.split("-")
    for at in range(1, len(parts)):
        try:
            return read("-".join(parts[:at])), read("-".join(parts[at:]))
        except (UsageError, InvalidArgumentError):
            if len(parts) == 2:
                raise
    value = read(text)
    return value, value


def _doubt(text: str) -> str:
    return (
        f"the time {text} comes twice, as the clock is put back; the first is taken" if times.is_ambiguous(text) else ""
    )


def _past(text: str) -> str:
    is_past = times.parse_absolute(text) <= times.SystemClock().now()
    return f"the time {text} is past: what expires then expires at once" if is_past else ""


def _is_span(text: str) -> bool:
    return text.startswith("+") or times.in_seconds(text) != text


def _micros(text: str, given: Given) -> int:
    if _is_span(text):
        return times.SystemClock().now() // _SECOND * _SECOND + _seconds(text, given) * _SECOND
    return times.parse_absolute(text)


def _seconds(text: str, given: Given) -> int:
    return Span("time in seconds", most=times.SPAN_MAX // times.MICROS).read(text.removeprefix("+"), given)


class When(Kind[datetime | timedelta]):
    """`+seconds` or a span with its unit from now, or a time: YY[MM[DD[hh[mm[ss]]]]] or ISO 8601, in local time."""

    def read(self, text: str, given: Given, /) -> datetime | timedelta:
        """Return the span or the time."""
        if _is_span(text):
            return timedelta(seconds=_seconds(text, given))
        return times.to_datetime(times.parse_absolute(text))

    def doubt(self, text: str, /) -> str:
        """Return which one is used of a time that occurs twice."""
        return _doubt(text)


class WhenOrNone(Kind[datetime | timedelta | None]):
    """The same, or `none`."""

    def read(self, text: str, given: Given, /) -> datetime | timedelta | None:
        """Return the span, the time, or None."""
        return None if text.lower() == "none" else When().read(text, given)

    def doubt(self, text: str, /) -> str:
        """Return which one is used of a time that occurs twice, and that a time in the past means at once."""
        return _doubt(text) or ("" if text.lower() == "none" or _is_span(text) else _past(text))


class ConditionText(Kind["Condition"]):
    """A condition over the properties of messages."""

    def read(self, text: str, _given: Given, /) -> Condition:
        """Return the condition."""
        from qmcore.condition_parser import parse

        return parse(text)
