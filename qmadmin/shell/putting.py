"""The command that puts messages on queues."""

from __future__ import annotations

import binascii
import contextlib
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from qmadmin.console.results import Line, Notice, Outcome
from qmadmin.shell.declare import Group, Needs, Option, Positional
from qmadmin.shell.kinds import FileName, Given, Kind, Number, QueueName, Words
from qmadmin.shell.listing import CorrelationId, MessageId, When, WhenOrNone
from qmadmin.shell.messages import number
from qmadmin.shell.notices import UsageError
from qmadmin.shell.queue_parameters import DELIVERY
from qmadmin.shell.redirection import refuse_the_device
from qmcore import times
from qmcore.message import BODY_MAX, PRIORITY_DEFAULT, PRIORITY_RANGE, EnqueueControl
from qmcore.queue import Delivery

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

CONTENT = Group("Content of messages", "content", needs=Needs.OPEN_SPACE, extension=True)
_INT64_MAX = 2**63 - 1
_LINES_AT_A_TIME = 1000


class Headers(Kind[dict[str, str]]):
    """Headers as name=value, with commas between."""

    def read(self, text: str, _given: Given, /) -> dict[str, str]:
        """Return the headers by name."""
        found = {}
        for part in text.split(","):
            name, sign, value = part.partition("=")
            if not sign or not name:
                raise UsageError(f"The header {part!r} is not of the form name=value")
            found[name] = value
        return found


FILE: Final = Option("-f file", "file", "Read the message from a file; - is the standard input.", FileName())

MESSAGE_OPTIONS: Final = (
    Option("-z", "without_body", "Enqueue a message without a body, which is not the same as an empty one."),
    Option("-x", "in_hex", "The text consists of hexadecimal digits, two for each byte."),
    Option(
        "-C type", "type", "The type of the body; by default STRING if it is given as text, otherwise CARRAY.", Words()
    ),
    Option("-s subtype", "subtype", "The subtype of the body.", Words(), ""),
    Option("-p priority", "priority", "Its priority, 1 to 100.", Number("priority", *PRIORITY_RANGE)),
    Option(
        "-t time",
        "available",
        "When it becomes available: +seconds or a span such as 10m, 2h, 1d from now, or YY[MM[DD[hh[mm[ss]]]]] or"
        " ISO 8601, such as 2026-11-25T20:00, in local time.",
        When(),
    ),
    Option("-e exptime", "expires", "When it expires, in the same forms, or none.", WhenOrNone(), "default"),
    Option("-i corrid", "corrid", "Its correlation identifier.", CorrelationId()),
    Option("-d persist|nonpersist", "delivery", "Where the message is kept; by default as the queue says.", DELIVERY),
    Option("-r replyq", "reply_queue", "The queue for the reply.", QueueName()),
    Option("-q persist|nonpersist", "reply_delivery", "Where the reply is kept.", DELIVERY),
    Option("-F failureq", "failure_queue", "The failure queue.", QueueName()),
    Option("-E errorq", "error_queue", "The error queue, in place of that of its queue.", QueueName()),
    Option("-u urcode", "urcode", "The user return code.", Number("user return code", most=_INT64_MAX), 0),
    Option("-k appkey", "appkey", "The application key.", Number("application key", most=_INT64_MAX), 0),
    Option("-H name=value", "headers", "Headers, separated by commas.", Headers()),
    Option("-T", "top", "Put it before all others, if the queue allows it."),
)
"""What a message asks for, and what its body is, where it is enqueued by a command or by a schedule."""


TEXT = Positional(
    "text",
    Words(),
    "The message, kept as UTF-8; a pair of quotes with nothing between is an empty one.",
    "Message text: ",
    unless=("file", "without_body"),
    clearable=True,
    missing="A pair of quotes with nothing between is an empty message.",
    unrecorded=True,
)


@CONTENT.command(
    "qput",
    FILE,
    Option("-l", "lines", "Enqueue each line of the file as a message, without its line end."),
    *MESSAGE_OPTIONS,
    Option("-P topic", "topic", "Its topic, such as order.eu.created, which is the header topic.", Words()),
    Option(
        "-b msgid",
        "before",
        "Put it directly before the message with this identifier, if the queue allows it.",
        MessageId(),
        excludes="-T",
    ),
    Positional("queue_name", QueueName(), "The queue.", "Queue name: "),
    TEXT,
)
def qput(
    session: Session,
    *,
    queue_name: str,
    text: str | None,
    file: str | None,
    lines: bool,
    without_body: bool,
    in_hex: bool,
    **asked: Any,
) -> Outcome:
    r"""Enqueue a message.

    A persistent message is on the disk when the command ends. With -l the lines of a file are enqueued in batches of a
    thousand; after an error a warning says how many were enqueued.

        qput orders "one box of matches"
        qput -p 80 -r answers -i order\2017 -f order.json orders
    """
    space = session.opened()
    if file is not None and (text is not None or without_body):
        raise UsageError("Option -f takes the place of the text and of -z")
    if lines and file is None:
        raise UsageError("Option -l is for the lines of a file, which -f names")
    control = control_of(is_text=file is None and not in_hex and not without_body, **asked)
    if lines:
        with _opened(session, file or "") as stream:
            return _put_lines(session, queue_name, stream, control)
    body = None if without_body else body_of(session, text, file, in_hex=in_hex)
    msgid = space.put(queue_name, body, control)
    return Line(f"Message {msgid} enqueued on queue '{queue_name}'", {"queue": queue_name, "msgid": msgid})


def control_of(
    *,
    is_text: bool,
    type: str | None,  # noqa: A002 - it is what the field is called everywhere else
    available: datetime | timedelta | None,
    expires: datetime | timedelta | str | None,
    delivery: str | None,
    reply_delivery: str | None,
    priority: int | None,
    **rest: Any,
) -> EnqueueControl:
    """Return the control information of what the options ask for."""
    from qmcore.message import EnqueueControl

    delay, available_us = _span_or_moment(available)
    lifetime, expires_us = _span_or_moment(None if isinstance(expires, str) else expires)
    return EnqueueControl(
        type=type or ("STRING" if is_text else "CARRAY"),
        delay=delay,
        available_us=available_us,
        lifetime=lifetime,
        expires_us=expires_us,
        never_expires=expires is None,
        delivery=Delivery(delivery) if delivery else None,
        reply_delivery=Delivery(reply_delivery) if reply_delivery else None,
        priority=PRIORITY_DEFAULT if priority is None else priority,
        **rest,
    )


def _span_or_moment(when: datetime | timedelta | None) -> tuple[int | None, int | None]:
    if isinstance(when, timedelta):
        return times.span(when, "time"), None
    return None, None if when is None else times.from_datetime(when)


def body_of(session: Session, text: str | None, file: str | None, *, in_hex: bool) -> bytes:
    """Return the content of a file, or the text."""
    if file is not None:
        with _opened(session, file) as stream:
            content = stream.read(BODY_MAX + 1)
    else:
        content = (text or "").encode(errors="surrogateescape")
    if not in_hex:
        return content
    try:
        return binascii.unhexlify(b"".join(content.split()))
    except binascii.Error as error:
        raise UsageError(f"The text is not hexadecimal: {error}") from None


def _put_lines(session: Session, queue: str, stream: BinaryIO, control: EnqueueControl) -> Outcome:
    space, count = session.opened(), 0
    batch: list[bytes] = []

    def put() -> None:
        nonlocal count
        count += len(space.put_many([(queue, line, control) for line in batch]))
        batch.clear()

    try:
        for line in stream:
            batch.append(line.rstrip(b"\r\n"))
            if len(batch) == _LINES_AT_A_TIME:
                put()
        put()
    finally:
        if count and sys.exc_info()[0] is not None:
            session.remarks.append(Notice.warning(f"{number(count)} were enqueued before the error"))
    return Line(f"{number(count)} enqueued on queue '{queue}'", {"queue": queue, "messages": count})


@contextlib.contextmanager
def _opened(session: Session, file: str) -> Iterator[BinaryIO]:
    """Open a file for reading, or the standard input unless it has the commands."""
    if file == "-":
        if not session.children_read:
            raise UsageError(
                "The standard input has the commands", hint="Give the commands with -f or -c, or name a file."
            )
        yield sys.stdin.buffer
        return
    refuse_the_device(session, file)
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise UsageError(f"Failed to read {file}: {error.strerror}") from None
