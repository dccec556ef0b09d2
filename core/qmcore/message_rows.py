"""A stored message as a row of plain values, as a store reads it, and the message that is made of it.

What a store gives back may come from a damaged file: `fault_in` tells whether a message can be made of a row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from qmcore import numbers
from qmcore.damage import damaged
from qmcore.errors import SystemFailureError
from qmcore.message import Message, MessageInfo, Origin, Reason, State
from qmcore.queue import Delivery
from qmcore.row_rules import RULES
from qmcore.space import Space
from qmcore.times import EARLIEST, LATEST

FIELDS: Final = (
    "id",
    "queue_id",
    "order_key",
    "priority",
    "enqueued_at",
    "available_at",
    "expires_at",
    "pages",
    "size",
    "urcode",
    "appkey",
    "corrid",
    "reply_queue",
    "failure_queue",
    "error_queue",
    "delivery_asked",
    "reply_delivery",
    "client_id",
    "type",
    "subtype",
    "group_id",
    "origin_queue",
    "origin_msgid",
    "origin_reason",
    "origin_error",
    "moved_at",
    "headers",
    "first_msgid",
    "expires_before",
    "body_id",
    "body",
)
"""What a row has, in the order in which it is read; where a body is not wanted it is left off."""

(
    ID,
    QUEUE,
    KEY,
    _PRIORITY,
    _ENQUEUED,
    _AVAILABLE,
    EXPIRES,
    PAGES,
    SIZE,
    _URCODE,
    _APPKEY,
    _CORRID,
    _REPLY_QUEUE,
    _FAILURE_QUEUE,
    _ERROR_QUEUE,
    _DELIVERY,
    _REPLY_DELIVERY,
    _CLIENT,
    _TYPE,
    _SUBTYPE,
    GROUP,
    _ORIGIN,
    _ORIGIN_MSGID,
    _REASON,
    _ORIGIN_ERROR,
    _MOVED,
    _HEADERS,
    _FIRST_MSGID,
    _EXPIRES_BEFORE,
    BODY_ID,
    BODY,
) = range(len(FIELDS))
"""Where each stands in a row."""

_NONE_BEFORE_TYPE: Final = (None,) * (_TYPE - _FAILURE_QUEUE)
_NONE_BEHIND_TYPE: Final = (None,) * (BODY_ID - _SUBTYPE)
"""What most messages have there."""

T = TypeVar("T", bound=MessageInfo)

_DELIVERIES: Final = {delivery.value: delivery for delivery in Delivery}
_REASONS: Final = {reason.value: reason for reason in Reason}
_NOT_BYTES: Final = (int, float)
"""What a body is read as only where the file is damaged."""


def fault_in(row: Sequence[Any], retries: Any) -> str | None:
    """Return what is wrong with a message, as the end of a sentence; None where it can be made of its row.

    The body, where there is one, has to be in the row, also one that was kept apart.
    """
    try:
        is_sound = (
            (row[PAGES] + row[SIZE] + row[_PRIORITY] + row[_URCODE] + row[_APPKEY]).__class__ is int
            and EARLIEST <= row[_ENQUEUED] <= LATEST
            and row[_TYPE].__class__ is str
            and (row[_CORRID] is None or row[_CORRID].__class__ is bytes)
            and (row[_REPLY_QUEUE] is None or row[_REPLY_QUEUE].__class__ is str)
            and (
                (
                    row[_AVAILABLE] is None
                    and row[EXPIRES] is None
                    and row[_FAILURE_QUEUE:_TYPE] == _NONE_BEFORE_TYPE
                    and row[_SUBTYPE:BODY_ID] == _NONE_BEHIND_TYPE
                )
                or _is_rare_sound(row)
            )
        )
    except (ValueError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        return _fault_of_fields(row)
    if retries.__class__ is not int:
        return f"its field retries is not {RULES['retries'].what}"
    if len(row) > BODY:
        body = row[BODY]
        if body.__class__ in _NOT_BYTES or (0 if body is None else len(body)) != row[SIZE]:
            return fault_of_body(row)
    return None


def _is_rare_sound(row: Sequence[Any]) -> bool:
    """Return whether a message can be made of those fields that few messages have; where not, this may also raise."""
    available_at, expires_at = row[_AVAILABLE], row[EXPIRES]
    failure_queue, error_queue, delivery_asked, reply_delivery, client_id = row[_FAILURE_QUEUE:_TYPE]
    (
        subtype,
        group_id,
        origin_queue,
        origin_msgid,
        origin_reason,
        origin_error,
        moved_at,
        headers,
        first_msgid,
        _expires_before,
    ) = row[_SUBTYPE:BODY_ID]
    return (
        (available_at is None or EARLIEST <= available_at <= LATEST)
        and (expires_at is None or EARLIEST <= expires_at <= LATEST)
        and (group_id is None or group_id.__class__ is int)
        and all(
            text is None or text.__class__ is str
            for text in (failure_queue, error_queue, client_id, subtype, origin_error)
        )
        and (not delivery_asked or delivery_asked in _DELIVERIES)
        and (not reply_delivery or reply_delivery in _DELIVERIES)
        and (not headers or json.loads(headers).__class__ is dict)
        and (
            not origin_queue
            or (
                origin_reason in _REASONS
                and EARLIEST <= moved_at <= LATEST
                and origin_queue.__class__ is origin_msgid.__class__ is str
                and (first_msgid is None or first_msgid.__class__ is str)
            )
        )
    )


def message_of(
    kind: type[T],
    row: Sequence[Any],
    space: Space,
    queue: str,
    delivery: Delivery,
    retries: int,
    state: State = State.HELD,
) -> T:
    """Return the message, or the information on it, of a row in which there is no fault.

    A message lacks its body where that was not read.
    """
    # Its constructor takes six times as long, with each message that is dequeued.
    its = object.__new__(kind)
    its.msgid = space.naming(row[ID] & numbers.SEQUENCE_MAX)
    its.queue = queue
    its.priority = row[_PRIORITY]
    its.enqueued_us = row[_ENQUEUED]
    its.available_us = row[_AVAILABLE]
    its.expires_us = row[EXPIRES]
    its.corrid = row[_CORRID]
    its.reply_queue = row[_REPLY_QUEUE]
    its.failure_queue = row[_FAILURE_QUEUE]
    its.error_queue = row[_ERROR_QUEUE]
    its.urcode = row[_URCODE]
    its.appkey = row[_APPKEY]
    its.client_id = row[_CLIENT] or ""
    its.size = row[SIZE]
    its.retries = retries
    its.delivery = delivery
    its.delivery_asked = _DELIVERIES[row[_DELIVERY]] if row[_DELIVERY] else None
    its.reply_delivery = _DELIVERIES[row[_REPLY_DELIVERY]] if row[_REPLY_DELIVERY] else None
    its.type = row[_TYPE]
    its.subtype = row[_SUBTYPE] or ""
    its.headers = json.loads(row[_HEADERS]) if row[_HEADERS] else {}
    its.group = None if row[GROUP] is None else space.msgid(numbers.sequence(row[GROUP]))
    its.origin = _origin_of(row) if row[_ORIGIN] else None
    its.last_error = row[_ORIGIN_ERROR] or ""
    its.state = state
    if isinstance(its, Message):
        its.body = row[BODY] if len(row) > BODY else None
    return its


def _origin_of(row: Sequence[Any]) -> Origin:
    queue, msgid, reason, error, moved_at, _, first, _ = row[_ORIGIN:BODY_ID]
    return Origin(queue, msgid, _REASONS[reason], moved_at, error or "", first or msgid)


def check(row: Sequence[Any], retries: Any, space: Space, queue: str) -> None:
    """Refuse a row, which need not have a body, of which no message can be made: SystemFailureError."""
    fault = fault_in(row[:BODY_ID], retries)
    if fault is not None:
        raise unreadable(row, fault, space, queue)


def check_strictly(row: Sequence[Any], space: Space, queue: str) -> None:
    """Refuse a row, without its body, of which not all is as it has to be."""
    if _wrong_fields(row):
        raise unreadable(row, _fault_of_fields(row), space, queue)


def unreadable(row: Sequence[Any], what: str, space: Space, queue: str) -> SystemFailureError:
    """Return the diagnostic for a message of a queue with which this is wrong."""
    return damaged(row[ID], what, msgid=space.msgid(numbers.sequence(row[ID])), queue=queue)


def fault_of_body(row: Sequence[Any]) -> str:
    """Return what is wrong with a message whose body is not as long as it should be."""
    size = "no" if row[BODY].__class__ in _NOT_BYTES else len(row[BODY] or b"")
    return f"its body has {size} bytes, and should have {row[SIZE]}"


def _wrong_fields(row: Sequence[Any]) -> list[str]:
    its = dict(zip(FIELDS, row[:BODY_ID], strict=False))
    return [name for name, rule in RULES.items() if its.get(name) is not None and not rule.holds(its[name])]


def _fault_of_fields(row: Sequence[Any]) -> str:
    wrong = _wrong_fields(row)
    return f"its field {wrong[0]} is not {RULES[wrong[0]].what}" if wrong else "its record cannot be read"
