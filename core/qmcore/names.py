"""Names and their limits. Lengths count bytes of UTF-8, as the C structures that they come from do."""

from __future__ import annotations

from qmcore.checks import buffer_of
from qmcore.errors import InvalidArgumentError
from qmcore.redacted import redacted

QUEUE_NAME_MAX = 127
SUBSCRIPTION_NAME_MAX = 127
SPACE_NAME_MAX = 15
CORRELATION_ID_MAX = 32
COMMAND_MAX = 127
TYPE_MAX = 127
PATH_MAX = 1024
SCHEDULE_NAME_MAX = 127
RULE_MAX = 255
TOPIC_MAX = 255
TOPIC_HEADER = "topic"
"""The header that has the topic of a message."""


def queue_name(text: str, what: str = "queue name") -> str:
    """Return `text` if it can name a queue: 1 to 127 bytes, no control characters."""
    return _checked(text, what, QUEUE_NAME_MAX)


def subscription_name(text: str, what: str = "subscription name") -> str:
    """Return `text` if it can name a consumer of a queue for several: 1 to 127 bytes, no control characters."""
    return _checked(text, what, SUBSCRIPTION_NAME_MAX)


def space_name(text: str, what: str = "queue space name") -> str:
    """Return `text` if it can name a queue space: 1 to 15 bytes, no control characters."""
    return _checked(text, what, SPACE_NAME_MAX)


def schedule_name(text: str) -> str:
    """Return `text` if it can name a schedule, or raise InvalidArgumentError."""
    return _checked(text, "schedule name", SCHEDULE_NAME_MAX)


def rule(text: str, what: str = "rule") -> str:
    """Return `text` if it can be the rule of a schedule, or its time zone; whether it means anything is not known."""
    return _checked(text, what, RULE_MAX)


def path(text: str) -> str:
    """Return `text` if it can be the path of a device list entry: 1 to 1024 bytes, no control characters."""
    return _checked(text, "device name", PATH_MAX)


def buffer_type(text: str, what: str) -> str:
    """Return `text` if it can be the type or subtype of a message: 1 to 127 bytes, no control characters."""
    return _checked(text, what, TYPE_MAX)


def command(text: str) -> str:
    """Return `text` if it can be a capacity command: at most 127 bytes; empty means none."""
    return _checked(text, "threshold command", COMMAND_MAX) if text else ""


def correlation_id(value: bytes | str) -> bytes:
    """Return the identifier without its NUL padding: at most 32 bytes, a str taken as UTF-8."""
    if isinstance(value, str):
        # An ASCII text has a UTF-8 form.
        raw = value.encode() if value.isascii() else encoded(value, "correlation identifier")
    else:
        raw = value if type(value) is bytes else _bytes_of(value)
    stripped = raw.rstrip(b"\0")
    if len(stripped) > CORRELATION_ID_MAX:
        raise InvalidArgumentError(
            f"correlation identifier {raw!r} has {len(stripped)} bytes, the limit is {CORRELATION_ID_MAX}",
            hint="Shorten it, or put the long form into a header.",
        )
    return stripped


def _bytes_of(value: object) -> bytes:
    found = buffer_of(value)
    if found is None:
        raise InvalidArgumentError(f"the correlation identifier must be bytes or str, got {value!r}")
    return bytes(found)


def topic(text: str) -> str:
    """Return the topic of a message, or refuse one that is too long."""
    size = len(encoded(plain(text, "topic"), "topic"))
    if size > TOPIC_MAX:
        raise InvalidArgumentError(f"the topic {shown(text)} has {size} bytes, the limit is {TOPIC_MAX}")
    return text


def plain(text: object, what: str) -> str:
    """Return `text` if every store can keep it: a str without NUL that has a UTF-8 form."""
    if not isinstance(text, str):
        raise InvalidArgumentError(f"the {what} must be a str, got {text!r}")
    encoded(text, what)
    if "\0" in text:
        raise InvalidArgumentError(f"the {what} {shown(text)} has a NUL character")
    return text


def shown(text: str) -> str:
    """Return a text in quotes for a message, without passwords, truncated where it is long."""
    text = redacted(text)
    return repr(text if len(text) <= 60 else text[:57] + "...")


def storable(text: str) -> str:
    """Return a text as every store can keep it: NUL, and what is not Unicode, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def encoded(text: str, what: str) -> bytes:
    """Return the UTF-8 of `text`; InvalidArgumentError where it has none."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"the {what} has no UTF-8 form: {error.reason} at {error.start}") from None


def _checked(text: object, what: str, limit: int) -> str:
    if not isinstance(text, str):
        raise InvalidArgumentError(f"the {what} must be a str, got {text!r}")
    if not text:
        raise InvalidArgumentError(f"the {what} is empty", hint=f"Give 1 to {limit} bytes.")
    size = len(encoded(text, what))
    if size > limit:
        raise InvalidArgumentError(f"the {what} {shown(text)} has {size} bytes, the limit is {limit}")
    if any(not char.isprintable() for char in text):
        raise InvalidArgumentError(f"the {what} {text!r} has a character that cannot be printed")
    return text
