"""The rules for each value of a message, column by column, wherever it was stored or written by others.

What the API stores meets them. An archive may come from anybody, and a device may be damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from qmcore import names, numbers, times
from qmcore.bulk_rows import BODY, COLUMNS, SEQUENCE, Row
from qmcore.damage import damaged
from qmcore.errors import QueueError
from qmcore.message import BODY_MAX, PRIORITY_RANGE, Reason
from qmcore.queue import Delivery

_INT64: Final = (-(2**63), 2**63 - 1)


class Range(NamedTuple):
    """A whole number from `low` to `high`; `what` says it in words."""

    low: int
    high: int
    what: str

    def holds(self, value: Any) -> bool:
        """Return whether a value is such a number."""
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high


class Shape(NamedTuple):
    """A text or bytes that meet a condition; `what` says it in words."""

    condition: Callable[[Any], object]
    what: str

    def holds(self, value: Any) -> bool:
        """Return whether a value meets the condition: it returns something true, and does not raise."""
        try:
            return bool(self.condition(value))
        except (QueueError, ValueError, TypeError, AttributeError, RecursionError):
            return False


def _is_headers(text: str) -> bool:
    names.plain(text, "headers")
    found = json.loads(text)
    return isinstance(found, dict) and all(names.plain(value, "header") == value for value in found.values())


def _is_named(text: str) -> bool:
    return names.plain(text, "text") == text


_MOMENT: Final = Range(times.EARLIEST, times.LATEST, "a time between the years 1 and 9999")
_SEQUENCE: Final = Range(1, numbers.SEQUENCE_MAX, "a sequence number")
_ANY_NUMBER: Final = Range(*_INT64, "a whole number of 64 bits")
_QUEUE: Final = Shape(names.queue_name, "the name of a queue")
_TYPE: Final = Shape(lambda text: names.buffer_type(text, "type"), "a type of at most 127 bytes")
_DELIVERY: Final = Shape(Delivery, f"one of {', '.join(delivery.value for delivery in Delivery)}")
_MSGID: Final = Shape(re.compile("[0-9a-f]{32}").fullmatch, "a message identifier")
_TEXT: Final = Shape(_is_named, "a text in UTF-8 without NUL characters")

RULES: Final[Mapping[str, Range | Shape]] = {
    "sequence": _SEQUENCE,
    "order_key": Shape(lambda key: isinstance(key, bytes), "bytes"),
    "priority": Range(*PRIORITY_RANGE, "a priority from 1 to 100"),
    "enqueued_at": _MOMENT,
    "available_at": _MOMENT,
    "expires_at": _MOMENT,
    "pages": Range(1, 2**62, "a number of pages, 1 or more"),
    "size": Range(0, BODY_MAX, f"a number of bytes from 0 to {BODY_MAX}"),
    "urcode": _ANY_NUMBER,
    "appkey": _ANY_NUMBER,
    "corrid": Shape(
        lambda value: isinstance(value, bytes) and len(value) <= names.CORRELATION_ID_MAX, "at most 32 bytes"
    ),
    "reply_queue": _QUEUE,
    "failure_queue": _QUEUE,
    "error_queue": _QUEUE,
    "delivery_asked": _DELIVERY,
    "reply_delivery": _DELIVERY,
    "client_id": _TEXT,
    "type": _TYPE,
    "subtype": _TYPE,
    "group_sequence": _SEQUENCE,
    "origin_queue": _QUEUE,
    "origin_msgid": _MSGID,
    "origin_reason": Shape(Reason, f"one of {', '.join(reason.value for reason in Reason)}"),
    "origin_error": _TEXT,
    "moved_at": _MOMENT,
    "first_msgid": _MSGID,
    "expires_before": _MOMENT,
    "headers": Shape(_is_headers, "a JSON object of texts"),
    "retries": Range(0, 2**31 - 1, "a number of 0 or more"),
    "until": _MOMENT,
    "consumed_at": _MOMENT,
    "consumer": _TEXT,
    "transaction": _ANY_NUMBER,
}
"""The rule for the values of each column; the body may be any bytes."""

REQUIRED: Final = (
    "sequence",
    "order_key",
    "priority",
    "enqueued_at",
    "pages",
    "size",
    "urcode",
    "appkey",
    "type",
    "retries",
)
"""The columns in which every message has a value."""

TOGETHER: Final = ("origin_queue", "origin_msgid", "origin_reason", "moved_at")
"""The columns that a moved message has all of, and any other none of."""

_DOUBTFUL: Final = {
    name: COLUMNS.index(name) for name in ("delivery_asked", "reply_delivery", "origin_reason", "headers")
}
"""The columns that may have a wrong value in any store."""

_RULES: Final = [(at, name, RULES[name], name in REQUIRED) for at, name in enumerate(COLUMNS) if name in RULES]
_TOGETHER: Final = [COLUMNS.index(name) for name in TOGETHER]


def fault_of(row: Row) -> str | None:
    """Return what is wrong with a message, as the end of a sentence; None where nothing is."""
    for at, name, rule, is_required in _RULES:
        value = row[at]
        if value is None:
            if is_required:
                return f"it has no {name}"
        elif not rule.holds(value):
            return f"its field {name} is not {rule.what}"
    if len({row[at] is None for at in _TOGETHER}) > 1:
        return "its origin is incomplete"
    return None


def refuse_damaged(rows: Sequence[Row], queue: str, msgid: Callable[[int], str]) -> None:
    """Refuse messages of a queue if one is damaged; `msgid` names them by their sequence numbers."""
    for name, at in _DOUBTFUL.items():
        for value in {row[at] for row in rows}:
            if value is not None and not RULES[name].holds(value):
                sequence = next(row[SEQUENCE] for row in rows if row[at] == value)
                what = f"its field {name} is not {RULES[name].what}"
                raise damaged(sequence, what, msgid=msgid(sequence), queue=queue)


def refuse_of_another_kind(rows: Sequence[Row], queue: str, msgid: Callable[[int], str]) -> None:
    """Refuse messages of a queue if one has what only a damaged file has, in any of its columns; this takes longer."""
    for row in rows:
        what = fault_of(row) or (None if isinstance(row[BODY], bytes | None) else "its field body is not bytes")
        if what is not None:
            raise damaged(row[SEQUENCE], what, msgid=msgid(row[SEQUENCE]), queue=queue)
