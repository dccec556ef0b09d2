"""Commands that show the content of messages, and dequeue them."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.console import escaped
from qmadmin.console.process import let_through
from qmadmin.console.render import fsync
from qmadmin.console.results import Field, Line, Moment, Notice, Outcome, Record, Shown, Value, Verbatim, field, hidden
from qmadmin.shell import putting
from qmadmin.shell.declare import Option, Positional
from qmadmin.shell.kinds import FileName, Number, Span, Taken
from qmadmin.shell.listing import WHERE, CorrelationId, DamagedCount, MessageId
from qmadmin.shell.messages import number
from qmadmin.shell.notices import UsageError
from qmadmin.shell.redirection import for_us_only, sync_directory
from qmadmin.shell.session import Criteria, Session
from qmcore.damage import is_damage
from qmcore.errors import SystemFailureError
from qmcore.message import Message, MessageInfo, State
from qmcore.message_attributes import ATTRIBUTES, MessageAttribute, ValueKind

if TYPE_CHECKING:
    from io import FileIO

    from qmcore.condition import Condition

WHICH = (
    Option("-m msgid", "msgid", "The message with this identifier.", MessageId()),
    Option("-i corrid", "corrid", "Messages with this correlation identifier.", CorrelationId(), excludes="-m"),
    WHERE,
)
SHOWN = (
    Option("-k count", "count", "How many messages at most; the default is 1.", Number("number of messages", 1), 1),
    Option("-x", "in_hex", "Show bodies as hexadecimal digits; otherwise text is shown as text."),
    Option(
        "-o file",
        "output",
        "Write the bodies one after the other into a new file, in place of showing them.",
        FileName(),
    ),
)
QUEUE = Positional(
    "queue_name",
    Taken(),
    "The queue, or queue:consumer; by default the current one, if one is set.",
    "Queue name: ",
    meant=lambda session: session.queue,
)


@putting.CONTENT.command(
    "qget",
    *WHICH,
    *SHOWN,
    Option(
        "-s seconds", "wait", "How long to wait for the first message: seconds, or 10m, 2h.", Span("seconds to wait"), 0
    ),
    QUEUE,
)
def qget(
    session: Session, *, queue_name: str, count: int, wait: int, in_hex: bool, output: str | None, **asked: Any
) -> Outcome:
    """Dequeue messages and show them.

    Each message is removed from the queue only after it has been shown, or is on the disk in the file that -o or > FILE
    names; a message that cannot be shown stays. An interrupt ends the wait, or the command after the message that is
    being shown.

        qget -s 10 answers
        qget -m 8f3b0c6d2a1e4f570000000000000007 -o order.json orders
    """
    space = session.opened()
    taken = 0
    with _sink(output, on_disk=True) as sink:
        # A file that cannot be synced is refused before anything is dequeued.
        _settle(session, sink)
        while taken < count:
            with space.transaction():
                with let_through():
                    found = space.lock(queue_name, **asked, wait=0 if taken else wait)
                if found is None:
                    break
                # It is locked by this command itself, which need not be shown.
                _deliver(session, dataclasses.replace(found, state=State.READY), sink, in_hex=in_hex)
                _settle(session, sink)
                # It is removed once it has been delivered; releasing a lock does not count as a try.
                space.remove(queue_name, msgid=found.msgid)
            taken += 1
    if asked["msgid"] is not None and not taken:
        space.refuse_held(queue_name, asked["msgid"])
    return _what_was(queue_name, taken, output)


@putting.CONTENT.command(
    "qpeek",
    *WHICH,
    *SHOWN,
    Option("-r", "retained", "Show retained messages, which were consumed already."),
    QUEUE,
    shows_only=True,
)
def qpeek(
    session: Session, *, queue_name: str, count: int, in_hex: bool, output: str | None, retained: bool, **asked: Any
) -> Outcome:
    """Show the content of messages of a queue, and leave them unchanged.

    They are shown in the order in which they will be dequeued, followed by those that are not available yet, that were
    parked, with the reason, or that a transaction holds. Damaged ones are left out and counted, unless one is named by
    -m, which is refused then.

        qpeek orders
        qpeek -k 10 -w "origin_queue = 'orders'" errq
    """
    criteria = Criteria(**asked)
    shown, left_out = 0, DamagedCount(queue_name)
    with _sink(output, on_disk=False) as sink:
        for read in _found(session, queue_name, criteria.whole, left_out, retained=retained):
            try:
                message = read()
            except SystemFailureError as error:
                if criteria.msgid is not None or not is_damage(error):
                    raise
                left_out.count(1)
                continue
            if message is None:
                continue
            with let_through():
                _deliver(session, message, sink, in_hex=in_hex)
            shown += 1
            if shown == count:
                break
    return [*_what_was(queue_name, shown, output), *left_out.notices()]


def _found(
    session: Session, queue: str, condition: Condition | None, left_out: DamagedCount, *, retained: bool
) -> Iterator[Callable[[], Message | None]]:
    """Yield for each listed message a function that reads it with its body, if it still exists."""
    space = session.opened()
    if retained:
        for consumed in space.history(queue, condition=condition, left_out=left_out.count):
            yield functools.partial(space.recall, queue, consumed.info.msgid)
    else:
        for listed in space.messages(queue, condition=condition, left_out=left_out.count):
            yield functools.partial(space.content, listed)


def _what_was(queue: str, count: int, output: str | None) -> list[Shown]:
    if not count:
        return [Notice.info(f"No messages matched on queue {queue}")]
    if output is None:
        return []
    return [Line(f"{number(count)} written to {output}", {"queue": queue, "messages": count, "file": output})]


class _Sink:
    """A file for bodies; `messages` is how many complete ones are in it or, with `on_disk`, on the disk."""

    def __init__(self, stream: FileIO, *, on_disk: bool) -> None:
        self._stream = stream
        self._on_disk = on_disk
        self._end = 0
        self.messages = 0

    def write(self, body: bytes) -> None:
        """Write the body of a message."""
        left = memoryview(body)
        while left:
            left = left[self._stream.write(left) :]
        if self._on_disk:
            fsync(self._stream.fileno())
        self._end += len(body)
        self.messages += 1

    def cut(self) -> None:
        """Remove the incomplete body at the end of the file."""
        self._stream.truncate(self._end)


@contextlib.contextmanager
def _sink(output: str | None, *, on_disk: bool) -> Iterator[_Sink | None]:
    """Open a new file for bodies; it is removed afterwards if there were none.

    With `on_disk` its name is synced before anything is written, and each body after it was written.
    """
    if output is None:
        yield None
        return
    path = Path(output)
    try:
        with open(path, "xb", buffering=0, opener=for_us_only) as stream:
            sink = _Sink(stream, on_disk=on_disk)
            try:
                if on_disk:
                    sync_directory(path.parent)
                yield sink
            finally:
                sink.cut()
                if not sink.messages:
                    path.unlink(missing_ok=True)
    except FileExistsError:
        raise UsageError(f"File {output} exists already", hint="Name one that does not, or remove it.") from None
    except OSError as error:
        raise UsageError(f"Failed to write {output}: {error.strerror}") from None


def _deliver(session: Session, message: Message, sink: _Sink | None, *, in_hex: bool) -> None:
    """Deliver a message: show it, or write it to the file."""
    if sink is None:
        session.draw(_shown(session, message, in_hex=in_hex))
        session.output.flush()
        return
    sink.write(message.body or b"")


def _settle(session: Session, sink: _Sink | None) -> None:
    """Sync what was delivered; in a file for bodies it is on the disk already."""
    if sink is None:
        session.output.settle()


def _shown(session: Session, message: Message, *, in_hex: bool) -> list[Record | Verbatim]:
    if session.modes.format.is_for_programs:
        return [Record("", (*_facts(message), hidden(**_encoded(message.body, in_hex=in_hex))))]
    facts = tuple(fact for fact in _facts(message) if fact.value is not None)
    record = Record(f"Message {message.msgid}", facts)
    return [record, Verbatim(_lines(message.body, in_hex=in_hex))]


def _facts(message: MessageInfo) -> tuple[Field, ...]:
    labels = {"origin_error": "Parked because of"} if message.state is State.PARKED else {}
    return tuple(_fact(known, known.get(message), labels.get(known.name, known.label)) for known in ATTRIBUTES.values())


def _fact(known: MessageAttribute, value: Any, label: str) -> Field:
    key = {"size": "bytes", "group_msgid": "group"}.get(known.name, known.name.removesuffix("_at"))
    if known.name == "headers":
        headers = dict(value or {})
        return Field(known.label, ", ".join(f"{name}={text}" for name, text in headers.items()) or None, {key: headers})
    if known.kind is ValueKind.TIME and value is not None:
        value = Moment(value)
    if known.kind is ValueKind.BYTES and value is not None:
        value = escaped(value)
    # Attributes that are not set are not shown.
    return field(key, label, None if known.name in ("urcode", "appkey") and value == 0 else value)


def _encoded(body: bytes | None, *, in_hex: bool) -> dict[str, Value]:
    """Return a body for programs: its encoding, and the encoded text."""
    if body is None:
        return {"encoding": None, "body": None}
    if in_hex:
        return {"encoding": "hex", "body": body.hex()}
    try:
        return {"encoding": "text", "body": body.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "body": base64.b64encode(body).decode()}


def _lines(body: bytes | None, *, in_hex: bool) -> Iterator[str]:
    if body is None:
        yield "(no body)"
        return
    text = None
    if not in_hex:
        with contextlib.suppress(UnicodeDecodeError):
            text = body.decode()
    if text is not None:
        yield from text.splitlines() or [""]
        return
    for start in range(0, len(body), 16):
        row = body[start : start + 16]
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<47}  {printable}"
