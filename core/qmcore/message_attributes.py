"""The attributes of a stored message: each is declared once, and every face derives from here.

`MessageInfo` has them in Python. An archive also has what a store needs of a message, such as its order key.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from qmcore.message import MessageInfo


from qmcore.values import dataclass


class ValueKind(enum.Enum):
    """What the values of an attribute are, and so what they can be compared with."""

    WHOLE = "a whole number"
    TIME = "a time"
    TEXT = "text"
    BYTES = "bytes, written as text"
    MSGID = "a message identifier"
    JSON = "a value in a JSON body"
    """For conditions alone: text, a number, true or false, which no attribute is."""


@dataclass(frozen=True, slots=True)
class MessageAttribute:
    """An attribute of a message: its kind, its label for people, and its meaning.

    It is in `MessageInfo` as `of`, or under its own name, with `_us` at the end of a time. `required` says whether each
    message has it, `asked` whether a condition can ask for it, `bits` how many a number needs, and `since` which minor
    version of the archive format added it.
    """

    name: str
    kind: ValueKind
    label: str
    about: str
    of: str = ""
    unit: str = ""
    required: bool = False
    asked: bool = True
    bits: int = 64
    since: int = 0

    @property
    def in_short(self) -> str:
        """What it means in a few words, for a list."""
        words = self.about.partition(". ")[0].removesuffix(".").replace("`", "")
        return f"{words[0].lower()}{words[1:]}"

    @property
    def path(self) -> str:
        """Its path in `MessageInfo`, with dots between the parts."""
        return self.of or self.name.replace("_at", "_us")

    def get(self, info: MessageInfo) -> Any:
        """Return its value in a message, times in microseconds and words of ours as text; None where it has none."""
        value: Any = info
        for part in self.path.split("."):
            value = getattr(value, part, None)
        value = value.value if isinstance(value, enum.Enum) else value
        return None if value in ("", {}) else value


def _own(name: str, kind: ValueKind, label: str, about: str, **more: Any) -> MessageAttribute:
    """Return an attribute that each message has."""
    return MessageAttribute(name, kind, label, about, required=True, **more)


_some = MessageAttribute
_WHOLE, _TIME, _TEXT, _BYTES, _MSGID, _ = ValueKind

_DECLARED: Final = (
    _own("msgid", _MSGID, "", "The message identifier, 32 hexadecimal digits. It stays valid where it is imported."),
    _own("queue", _TEXT, "Queue", "The queue that the message is in.", asked=False),
    _own(
        "state",
        _TEXT,
        "State",
        "`ready`: it can be dequeued. `delayed`: it is not available yet. `parked`: it was put aside without a time;"
        " in an archive it is delayed until 9999-12-31T23:59:59Z. `held`: a transaction holds it; never so in an"
        " archive. `consumed`: it was consumed and is retained.",
        asked=False,
    ),
    _own("priority", _WHOLE, "Priority", "The priority, 1 to 100; 100 is the highest.", bits=16),
    _some("corrid", _BYTES, "Correlation id", "The correlation identifier, at most 32 bytes, without padding."),
    _own("type", _TEXT, "Type", "The type of the body, such as `CARRAY` or `STRING`."),
    _some("subtype", _TEXT, "Subtype", "The subtype of the body, if it has one."),
    _own("size", _WHOLE, "Bytes", "The length of the body in bytes; 0 if there is none.", unit="bytes"),
    _own("retries", _WHOLE, "Retries", "How often it was rolled back; always 0 for a consumed message.", bits=32),
    _own("delivery", _TEXT, "Delivery", "`persist`: it is kept on disk. `nonpersist`: in memory.", asked=False),
    _some(
        "delivery_asked",
        _TEXT,
        "Delivery asked",
        "The delivery that the sender asked for; `default` leaves it to the queue.",
        asked=False,
    ),
    _own("enqueued_at", _TIME, "Enqueued", "When it was enqueued, in a transaction when that committed."),
    _some("available_at", _TIME, "Available", "When it becomes available, if the sender or a retry delay set a time."),
    _some("expires_at", _TIME, "Expires", "When it expires, if ever."),
    _some("reply_queue", _TEXT, "Reply queue", "The queue for replies, if any are wanted."),
    _some(
        "reply_delivery", _TEXT, "Reply delivery", "The delivery that the sender asked for its replies.", asked=False
    ),
    _some("failure_queue", _TEXT, "Failure queue", "The queue for failure messages, if any are wanted."),
    _some("error_queue", _TEXT, "Error queue", "The error queue that the sender named, if any.", asked=False),
    _own("urcode", _WHOLE, "User return code", "The user return code."),
    _own("appkey", _WHOLE, "Application key", "The application key."),
    _some("client_id", _TEXT, "Client", "The client that enqueued the message, if it was named."),
    _some("group_msgid", _MSGID, "Group", "The identifier of the first message of its group.", of="group", asked=False),
    _some("origin_queue", _TEXT, "From queue", "The queue that it was moved from, if it was.", of="origin.queue"),
    _some("origin_msgid", _TEXT, "From message", "The identifier that it had before it was moved.", of="origin.msgid"),
    _some(
        "first_msgid", _TEXT, "First message id", "The identifier before its first move.", of="origin.first", since=2
    ),
    _some(
        "origin_reason",
        _TEXT,
        "Moved because of",
        "Why it was moved: `retries`, `expired`, `admin` or `forward`.",
        of="origin.reason",
    ),
    _some("moved_at", _TIME, "Moved", "When it was moved.", of="origin.moved_us"),
    _some(
        "origin_error",
        _TEXT,
        "Last error",
        "The last error before it was moved, or why it was parked, if known.",
        of="last_error",
    ),
    _some("headers", _TEXT, "Headers", "The headers: a JSON object whose values are strings.", asked=False),
)

ATTRIBUTES: Final[Mapping[str, MessageAttribute]] = {known.name: known for known in _DECLARED}
"""The attributes of a message by their names, as every face knows them, in the order in which people see them."""
