"""A message: the body, and the control information that travels with it (TPQCTL)."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from qmcore import json_body, names, times
from qmcore.checks import check_int, index_of
from qmcore.errors import BadMessageIdError, InvalidArgumentError
from qmcore.queue import Delivery
from qmcore.values import dataclass

Body: TypeAlias = bytes | memoryview | None
"""The content of a message to be enqueued: a view of bytes is not copied."""

PRIORITY_RANGE = (1, 100)
PRIORITY_DEFAULT = 50
BODY_MAX = 64 * 1024 * 1024
HEADER_PAGES_BYTES = 256
"""Bytes that each message is charged for its control information when its pages are counted."""

_INCARNATION_DIGITS = 16
_SEQUENCE_DIGITS = 16
MESSAGE_ID_DIGITS = _INCARNATION_DIGITS + _SEQUENCE_DIGITS
_INT64 = (-(2**63), 2**63 - 1)
_USUAL_TYPES = ("CARRAY", "STRING", "JSON")
_NO_TIMES: Final = (None, None, None, None, False)


class State(enum.Enum):
    """The state of a message."""

    READY = "ready"
    DELAYED = "delayed"
    PARKED = "parked"
    HELD = "held"
    CONSUMED = "consumed"


PARKED_UNTIL: Final = times.LATEST
"""The time of availability of a message that is put aside: the last that there is, which never comes.

A message that is kept back until then is parked, whoever asked for that time; it is available again when somebody gives
it another one.
"""

STORED = (State.READY, State.DELAYED, State.PARKED, State.HELD)
"""The states of messages that are still to be consumed; others are kept for the record only."""


class Reason(enum.Enum):
    """Why a message was moved from its queue."""

    RETRIES = "retries"
    EXPIRED = "expired"
    ADMIN = "admin"
    FORWARD = "forward"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a moved message came from: its queue, its identifier there, why and when it was moved, and its last error.

    `first` is the identifier that its enqueue returned, before its first move.
    """

    queue: str
    msgid: str
    reason: Reason
    moved_us: int
    error: str = ""
    first: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueControl:
    """What the sender asks for. Times and spans are microseconds; None leaves the choice to the queue.

    `delay` and `lifetime` count from the end of the enqueue, inside a transaction from its commit. `top` and `before`
    (a message identifier) ask for a place that the order of the queue does not give. `topic` is the header `topic`, at
    most 255 bytes.
    """

    priority: int = PRIORITY_DEFAULT
    corrid: bytes | None = None
    delay: int | None = None
    available_us: int | None = None
    lifetime: int | None = None
    expires_us: int | None = None
    never_expires: bool = False
    reply_queue: str | None = None
    failure_queue: str | None = None
    error_queue: str | None = None
    urcode: int = 0
    appkey: int = 0
    client_id: str = ""
    delivery: Delivery | None = None
    reply_delivery: Delivery | None = None
    headers: Mapping[str, str] | None = None
    type: str = "CARRAY"
    subtype: str = ""
    top: bool = False
    before: str | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        priority, urcode, appkey = self.priority, self.urcode, self.appkey
        if not (
            type(priority) is type(urcode) is type(appkey) is int
            and PRIORITY_RANGE[0] <= priority <= PRIORITY_RANGE[1]
            and urcode == appkey == 0
        ):
            self._check_numbers()
        if (self.delay, self.available_us, self.lifetime, self.expires_us, self.never_expires) != _NO_TIMES:
            self._check_times()
        corrid: bytes | str | None = self.corrid
        if corrid is not None and (type(corrid) is not bytes or len(corrid) > names.CORRELATION_ID_MAX):
            object.__setattr__(self, "corrid", names.correlation_id(corrid))
        if self.client_id != "":
            names.plain(self.client_id, "client identifier")
        for header, value in (self.headers or {}).items():
            names.plain(header, "name of a header")
            names.plain(value, f"header {header!r}")
        if self.type not in _USUAL_TYPES:
            names.buffer_type(self.type, "type")
        if self.subtype:
            names.buffer_type(self.subtype, "subtype")
        for name, what in (
            (self.reply_queue, "reply queue name"),
            (self.failure_queue, "failure queue name"),
            (self.error_queue, "error queue name"),
        ):
            if name is not None:
                names.queue_name(name, what)
        if self.top and self.before is not None:
            raise InvalidArgumentError("a message goes to the top or before another one, not both")
        if self.topic is not None:
            names.topic(self.topic)
            its = (self.headers or {}).get(names.TOPIC_HEADER, self.topic)
            if its != self.topic:
                raise InvalidArgumentError(
                    f"the topic {names.shown(self.topic)} is not that of the headers, {names.shown(its)}",
                    hint="Give the topic once.",
                )

    def _check_numbers(self) -> None:
        """Refuse what is out of range, and convert numbers of other types, such as those of numpy, to int."""
        for field, what, least, most in (
            ("priority", "priority", *PRIORITY_RANGE),
            ("urcode", "user return code", *_INT64),
            ("appkey", "application key", *_INT64),
        ):
            object.__setattr__(self, field, index_of(check_int(getattr(self, field), what, least, most)))

    def _check_times(self) -> None:
        if self.delay is not None and self.available_us is not None:
            raise InvalidArgumentError("a message takes a delay or a time of availability, not both")
        if (self.lifetime is not None) + (self.expires_us is not None) + self.never_expires > 1:
            raise InvalidArgumentError("a message takes one of: a lifetime, a time of expiry, no expiry")
        if self.delay is not None:
            times.checked_span(self.delay, "delay")
        if self.lifetime is not None:
            times.checked_span(self.lifetime, "expiry")
        if self.available_us is not None:
            times.checked_moment(self.available_us, "time of availability")
        if self.expires_us is not None:
            times.checked_moment(self.expires_us, "time of expiry")

    def available_at(self, now: int) -> int | None:
        """Return when a message that arrives at `now` becomes available; None is at once."""
        return now + self.delay if self.delay is not None else self.available_us

    def expires_at(self, now: int, default: int | None) -> int | None:
        """Return when a message that arrives at `now` expires, `default` being the queue's expiration in seconds."""
        if self.lifetime is not None:
            return now + self.lifetime
        if self.expires_us is not None or self.never_expires or default is None:
            return self.expires_us
        return now + default * times.MICROS


PLAIN_CONTROL: Final = EnqueueControl()
"""The control information of a sender that asks for nothing."""

PLAIN_CONTROLS: Final = {"CARRAY": PLAIN_CONTROL} | {kind: EnqueueControl(type=kind) for kind in ("STRING", "JSON")}
"""The control information of a sender that asks for nothing, by the type of the message."""


# Neither this nor `Message` is frozen: creating one would take five times as long, with each dequeue.
@dataclasses.dataclass(slots=True, kw_only=True)
class MessageInfo:
    """Everything about a stored message except its body. Times ending in `_us` are microseconds since 1970, UTC.

    It is a copy: changing it changes nothing that is stored.

    `available_us` of a parked message is the last time that there is, 9999-12-31T23:59:59Z. `last_error` is the last
    error before the message was moved, or why it was parked.

    `size` is the length of the body in bytes. In a queue that groups messages, those that stay together have the same
    `group`. `delivery` is where the message is kept, `delivery_asked` what its sender asked for, and `reply_delivery`
    what the sender asked for its replies; None if the sender left the choice.
    """

    msgid: str
    queue: str
    priority: int
    enqueued_us: int
    available_us: int | None
    expires_us: int | None
    corrid: bytes | None
    reply_queue: str | None
    failure_queue: str | None
    error_queue: str | None
    urcode: int
    appkey: int
    client_id: str
    size: int
    retries: int
    delivery: Delivery
    reply_delivery: Delivery | None
    type: str
    subtype: str
    headers: Mapping[str, str]
    group: str | None
    origin: Origin | None
    state: State
    delivery_asked: Delivery | None = None
    last_error: str = ""

    @property
    def topic(self) -> str | None:
        """The topic that its sender gave it, which is its header `topic`; None if it has none."""
        return self.headers.get(names.TOPIC_HEADER)

    @property
    def first_msgid(self) -> str:
        """The identifier that the enqueue returned: the one before the first move, or the present one."""
        return self.origin.first if self.origin else self.msgid

    @property
    def enqueued_at(self) -> datetime:
        """When the message was enqueued, in a transaction when that committed (UTC); a move does not change it."""
        return times.to_datetime(self.enqueued_us)

    @property
    def available_at(self) -> datetime | None:
        """When the message became or becomes available (UTC), if the sender or a retry delay set a time."""
        return None if self.available_us is None else times.to_datetime(self.available_us)

    @property
    def expires_at(self) -> datetime | None:
        """When the message expires (UTC), if ever."""
        return None if self.expires_us is None else times.to_datetime(self.expires_us)


@dataclasses.dataclass(slots=True, kw_only=True)
class Message(MessageInfo):
    """A message as it was dequeued or peeked at.

    `body` is None if the message was enqueued without one, which is not the same as empty, or if it was not read.
    """

    body: bytes | None

    @property
    def text(self) -> str:
        """The body read as UTF-8; empty if there is none."""
        return (self.body or b"").decode()

    def json(self) -> Any:
        """Return the value of a body that is JSON, whatever the type of the message.

        Raises BodyError if there is no body, if it is not JSON in UTF-8, and for what an enqueue would refuse: NaN,
        infinity, half of a surrogate pair, more than 256 levels, a whole number of more than 4300 digits.
        """
        return json_body.read(self.body, self.msgid)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedMessage:
    """A message that is kept after it was consumed: what it was, when and by whom, and in which transaction."""

    info: MessageInfo
    consumed_us: int
    consumer: str
    transaction: int | None

    @property
    def consumed_at(self) -> datetime:
        """When the message was consumed (UTC)."""
        return times.to_datetime(self.consumed_us)


def pages_of(size: int, headers: str | None, page_size: int) -> int:
    """Return the pages that a message takes; `size` is bytes of the body, `headers` their JSON text."""
    total = HEADER_PAGES_BYTES + size + (len(headers.encode()) if headers else 0)
    return -(-total // page_size)


def checked_body(body: Body | str) -> Body:
    """Return `body` if it is small enough: at most 64 MiB. A text, which Python lets pass as one, is its UTF-8."""
    if isinstance(body, str):
        body = names.encoded(body, "body")
    if body is not None and len(body) > BODY_MAX:
        raise InvalidArgumentError(
            f"the body has {len(body)} bytes, the limit is {BODY_MAX}",
            hint="Send a reference to the data, or split it.",
        )
    return body


def message_id(incarnation: str, sequence: int) -> str:
    """Return the 32 characters that name message `sequence` of the queue space with this incarnation."""
    return incarnation + sequence.to_bytes(8).hex()


def message_ids(incarnation: str, sequences: Iterable[int]) -> list[str]:
    """Return the same for several messages, without a call for each."""
    return [incarnation + sequence.to_bytes(8).hex() for sequence in sequences]


def parts_of(msgid: object) -> tuple[str, int]:
    """Return the incarnation and the sequence number in a message id; BadMessageIdError for a malformed one."""
    text = msgid.strip().lower() if isinstance(msgid, str) else ""
    if len(text) != MESSAGE_ID_DIGITS or not set(text) <= set("0123456789abcdef"):
        raise BadMessageIdError(
            f"{msgid!r} is not a message identifier, which has {MESSAGE_ID_DIGITS} hexadecimal digits"
        )
    return text[:_INCARNATION_DIGITS], int(text[_INCARNATION_DIGITS:], 16)


def checked_id(msgid: object) -> str:
    """Return a message id as it is stored and compared; BadMessageIdError for a malformed one."""
    incarnation, sequence = parts_of(msgid)
    return message_id(incarnation, sequence)
