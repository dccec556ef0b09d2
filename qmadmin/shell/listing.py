"""Commands that select messages, by the current queue and the criteria, and list them; the kinds of values for that."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from qmadmin.console import escaped, unescaped
from qmadmin.console.results import Afterwards, Column, Line, Notice, Outcome, Table, Value, table_of
from qmadmin.shell import notices
from qmadmin.shell.declare import Group, Needs, Option, Positional
from qmadmin.shell.kinds import Candidate, Choice, Given, Kind, Number, Span, Taken
from qmadmin.shell.notices import UsageError
from qmadmin.shell.queue_parameters import DELIVERY
from qmadmin.shell.session import Criteria, Range, Session
from qmcore import damage, names, times
from qmcore.damage import DAMAGE_HINT
from qmcore.errors import InvalidArgumentError, SystemFailureError
from qmcore.message import PRIORITY_RANGE, MessageInfo
from qmcore.queue import Delivery

if TYPE_CHECKING:
    from qmadmin.space import QueueSpace
    from qmcore.condition import Condition

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


# ---- commands --------------------------------------------------------------------------------------------------------


SELECTION = Group("Selection of messages", "selection", needs=Needs.OPEN_SPACE)
WHERE = Option(
    "-w condition",
    "condition",
    "Messages for which a condition over their properties is true, such as \"priority > 50 AND header.region = 'eu'\";"
    " qmadmin-queue(7) has its grammar.",
    ConditionText(),
    extension=True,
)


@SELECTION.command(
    "qset",
    Positional(
        "queue_name",
        Taken(),
        "The queue, or queue:consumer, that becomes the current one; without it, the current one is shown.",
    ),
    shows_only=True,
    lasts=True,
)
def qset(session: Session, queue_name: str | None) -> Outcome:
    """Set or print the current queue.

    The current queue is the one whose messages are listed, changed, moved and deleted. It is forgotten when a queue
    space is opened or closed.

        qset orders
    """
    if queue_name is not None:
        session.queue = session.opened().queue(queue_name).name
    return Line(f"Current queue is '{session.chosen()}'", {"queue": session.chosen()})


@SELECTION.command(
    "qscan",
    Option(
        "-t deq_time1[-deq_time2]",
        "available",
        "Messages that become available at a time, or between two times with a dash between, both included:"
        " YY[MM[DD[hh[mm[ss]]]]] or ISO 8601 in local time, or +seconds or 10m, 2h, 1d from now. A message without"
        " such a time became available when it was enqueued.",
        TimeRange(),
    ),
    Option(
        "-p priority1[-priority2]",
        "priority",
        "Messages with this priority, or between two priorities.",
        PriorityRange(),
    ),
    Option("-m msgid", "msgid", "The message with this identifier.", MessageId()),
    Option(
        "-i corrid",
        "corrid",
        "Messages with this correlation identifier. Unprintable characters, blanks and backslashes are"
        " written as a backslash and two hexadecimal digits, as in hello\\20world.",
        CorrelationId(),
    ),
    Option("-d persist|nonpersist", "delivery", "Messages on disk (persist) or in memory (nonpersist).", DELIVERY),
    Option("-e exptime1[-exptime2]", "expires", "Messages that expire at a time, or between two times.", TimeRange()),
    WHERE,
    Positional("nothing", Choice("argument", ("none",)), "Remove all criteria.", metavar="none"),
    shows_only=True,
    lasts=True,
)
def qscan(session: Session, *, delivery: str | None, nothing: str | None, **asked: Any) -> Outcome:
    r"""Set or print the criteria that select messages of the current queue.

    Messages that meet all criteria are selected; without criteria, all messages are. New criteria replace all earlier
    ones. They are forgotten when a queue space is opened or closed, and stay when the current queue is changed.

        qscan -p 50-100 -t 2601-2602
        qscan -i hello\20world
        qscan none
    """
    wanted = Criteria(delivery=Delivery(delivery) if delivery else None, **asked)
    if wanted and nothing:
        raise UsageError("The argument none cannot be given with criteria")
    if wanted or nothing:
        session.criteria = wanted
    if not session.criteria:
        return Line("No criteria are set: all messages are selected", {"criteria": None})
    return Line(f"Criteria are {session.criteria}", {"criteria": str(session.criteria)})


MESSAGES = Group("Messages", needs=Needs.OPEN_SPACE)


@MESSAGES.command(
    "qlist",
    Option("-b", "bodies", "Show the beginning of each body in place of the other columns.", extension=True),
    Option(
        "-k count",
        "count",
        "How many messages at most; 0 means all. The default is 1000 at a terminal, and all elsewhere.",
        Number("number of messages"),
        extension=True,
    ),
    Positional("queue_name", Taken(), "The queue, or queue:consumer; without it, the current one."),
    short="ql",
    shows_only=True,
)
def qlist(session: Session, queue_name: str | None, bodies: bool, count: int | None) -> Outcome:
    """List the selected messages of a queue, in the order in which they will be dequeued.

    It shows the message identifier, priority, retries so far, size in bytes, delivery, reply delivery if one is set,
    whether the message is ready, delayed, parked or held by a transaction, and when it becomes available and expires,
    if that is set. In verbose mode it also shows the correlation identifier and the time of the enqueue. With -b there
    is one line for each message at any width: identifier, state, bytes, and as much of the beginning of the body as
    fits; qpeek shows all of it. Nothing is shown of a body above 1 MiB.

        qlist
        qlist -b -k 20 errq
    """
    name, criteria = queue_name or session.chosen(), session.criteria
    left_out = DamagedCount(name)
    found_all = session.opened().messages(name, condition=criteria.whole, left_out=left_out.count)
    messages = filter(criteria.has_delivery_of, found_all)
    first = next(messages, None)
    columns = _OF_BODIES if bodies else _COLUMNS if session.detailed else _COLUMNS[:_BRIEF]
    if first is None:
        nothing = session.nothing(notices.NO_MESSAGES_MATCHED(queue=name), columns)
        return [*nothing, Afterwards(left_out.notices)]
    found: Iterable[MessageInfo] = itertools.chain([first], messages)
    more: list[Notice] = []
    if count is None and session.is_read_at_terminal:
        seen = list(itertools.islice(found, _AT_A_TERMINAL + 1))
        if len(seen) > _AT_A_TERMINAL:
            more = [Notice.info(f"the first {_AT_A_TERMINAL} messages are shown", "All: qlist -k 0")]
        found = seen[:_AT_A_TERMINAL]
    elif count:
        found = itertools.islice(found, count)
    space = session.opened()
    table = Table(columns, (_beginning(space, message) for message in found)) if bodies else table_of(found, columns)
    return [table, *more, Afterwards(left_out.notices)]


class DamagedCount:
    """How many messages of a queue a listing leaves out because they are damaged."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._count = 0

    def count(self, count: int) -> None:
        """Count some more."""
        self._count += count

    def notices(self) -> list[Notice]:
        """Return the notices about them."""
        if not self._count:
            return []
        return [Notice.warning(damage.left_out(self._count, self._queue), DAMAGE_HINT)]


def _beginning(space: QueueSpace, message: MessageInfo) -> list[Value]:
    """Return the row of a message with as much of its body as one line can show."""
    try:
        found = space.content(message) if message.size <= _BODY_MOST else None
    except SystemFailureError:
        # The others are shown; qcheck reports this one.
        found = None
    body = None if found is None else found.body
    return [message.msgid, message.state.value, message.size, None if body is None else _in_a_line(body)]


def _in_a_line(body: bytes) -> str:
    beginning = body[:_BODY_SHOWN]
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return beginning.hex()


_COLUMNS = (
    Column("msgid", "Message id"),
    Column("priority", "Prio", right=True),
    Column("retries", "Retries", right=True),
    Column("bytes", "Bytes", right=True, of="size"),
    Column("delivery", "Delivery"),
    Column("reply_delivery", "Reply"),
    Column("state", "State"),
    Column("available", "Available", of="available_us"),
    Column("expires", "Expires", of="expires_us"),
    Column("corrid", "Correlation id", of=lambda message: None if message.corrid is None else escaped(message.corrid)),
    Column("enqueued", "Enqueued", of="enqueued_us"),
)
_OF_BODIES = (
    Column("msgid", "Message id"),
    Column("state", "State"),
    Column("bytes", "Bytes", right=True),
    Column("beginning", "Body", cut=True),
)
_BODY_SHOWN = 200
"""The maximum number of bytes of a body that are shown."""
_BODY_MOST = 1 << 20
"""The maximum size of a body that is read for that."""
_AT_A_TERMINAL = 1000
"""How many messages are listed at a terminal by default."""
_BRIEF = 9
"""How many of the columns are shown while verbose mode is off."""
