"""A stored message as a row of plain values, as a store reads it, and the message that is made of it.

What a store gives back may come from a damaged file: `fault_in` tells whether a message can be made of a row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

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

ID, QUEUE, KEY, EXPIRES, PAGES, SIZE, GROUP, BODY_ID, BODY = map(
    FIELDS.index, ("id", "queue_id", "order_key", "expires_at", "pages", "size", "group_id", "body_id", "body")
)

_DELIVERIES: Final = {delivery.value: delivery for delivery in Delivery}
_REASONS: Final = {reason.value: reason for reason in Reason}
_NOT_BYTES: Final = (int, float)
"""What a body is read as only where the file is damaged."""


def fault_in(row: Sequence[Any], retries: Any) -> str | None:
    """Return what is wrong with a message, as the end of a sentence; None where it can be made of its row.

    The body, where there is one, has to be in the row, also one that was kept apart.
    """
    (
        _number,
        _queue_id,
        _order_key,
        priority,
        enqueued_at,
        available_at,
        expires_at,
        pages,
        size,
        urcode,
        appkey,
        corrid,
        reply_queue,
        failure_queue,
        error_queue,
        delivery_asked,
        reply_delivery,
        client_id,
        kind,
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
    ) = row[:BODY_ID]
    try:
        is_unsound = (
            (pages + size + priority + urcode + appkey).__class__ is not int
            or not EARLIEST <= enqueued_at <= LATEST
            or (available_at is not None and not EARLIEST <= available_at <= LATEST)
            or (expires_at is not None and not EARLIEST <= expires_at <= LATEST)
            or (corrid is not None and corrid.__class__ is not bytes)
            or (group_id is not None and group_id.__class__ is not int)
            or kind.__class__ is not str
            or (reply_queue is not None and reply_queue.__class__ is not str)
            or (failure_queue is not None and failure_queue.__class__ is not str)
            or (error_queue is not None and error_queue.__class__ is not str)
            or (client_id is not None and client_id.__class__ is not str)
            or (subtype is not None and subtype.__class__ is not str)
            or (delivery_asked and delivery_asked not in _DELIVERIES)
            or (reply_delivery and reply_delivery not in _DELIVERIES)
            or (headers and json.loads(headers).__class__ is not dict)
            or (
                origin_queue
                and not (
                    origin_reason in _REASONS
                    and EARLIEST <= moved_at <= LATEST
                    and origin_queue.__class__ is origin_msgid.__class__ is str
                    and all(text is None or text.__class__ is str for text in (origin_error, first_msgid))
                )
            )
        )
    except (ValueError, TypeError, RecursionError):
        is_unsound = True
    if is_unsound:
        return _fault_of_fields(row)
    if retries.__class__ is not int:
        return f"its field retries is not {RULES['retries'].what}"
    if len(row) > BODY:
        body = row[BODY]
        if body.__class__ in _NOT_BYTES or (0 if body is None else len(body)) != size:
            return fault_of_body(row)
    return None


def message_of(
    row: Sequence[Any], space: Space, queue: str, delivery: Delivery, retries: int, state: State = State.HELD
) -> Message:
    """Return the message of a row in which there is no fault; without its body where that was not read."""
    its = facts(row, space, queue, delivery)
    return Message(body=row[BODY] if len(row) > BODY else None, **its, retries=retries, state=state)


def to_info(its: dict[str, Any], *, retries: int, state: State, until: int | None) -> MessageInfo:
    """Return a message without its body, of its facts; `until` is when one that is kept back becomes available.

    Raises SystemFailureError for retries that are not a number.
    """
    if retries.__class__ is not int:
        what = f"its field retries is not {RULES['retries'].what}"
        raise damaged(its["msgid"], what, msgid=its["msgid"], queue=its["queue"])
    if until is not None:
        its["available_us"] = until
    return MessageInfo(**its, retries=retries, state=state)


def facts(row: Sequence[Any], space: Space, queue: str, delivery: Delivery) -> dict[str, Any]:
    """Return all that a sound row says of the message but its body, by the names of `MessageInfo`."""
    (
        number,
        _queue_id,
        _order_key,
        priority,
        enqueued_at,
        available_at,
        expires_at,
        _pages,
        size,
        urcode,
        appkey,
        corrid,
        reply_queue,
        failure_queue,
        error_queue,
        delivery_asked,
        reply_delivery,
        client_id,
        kind,
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
    ) = row[:BODY_ID]
    origin = None
    if origin_queue:
        origin = Origin(
            origin_queue,
            origin_msgid,
            _REASONS[origin_reason],
            moved_at,
            origin_error or "",
            first_msgid or origin_msgid,
        )
    return {
        "msgid": space.naming(number & numbers.SEQUENCE_MAX),
        "queue": queue,
        "priority": priority,
        "enqueued_us": enqueued_at,
        "available_us": available_at,
        "expires_us": expires_at,
        "corrid": corrid,
        "reply_queue": reply_queue,
        "failure_queue": failure_queue,
        "error_queue": error_queue,
        "urcode": urcode,
        "appkey": appkey,
        "client_id": client_id or "",
        "size": size,
        "delivery": delivery,
        "delivery_asked": _DELIVERIES[delivery_asked] if delivery_asked else None,
        "reply_delivery": _DELIVERIES[reply_delivery] if reply_delivery else None,
        "type": kind,
        "subtype": subtype or "",
        "headers": json.loads(headers) if headers else {},
        "group": None if group_id is None else space.msgid(numbers.sequence(group_id)),
        "origin": origin,
    }


def checked_facts(row: Sequence[Any], space: Space, queue: str, delivery: Delivery) -> dict[str, Any]:
    """Return the same of any row; SystemFailureError where it cannot be read."""
    fault = fault_in(row[:BODY_ID], 0)
    if fault is not None:
        raise unreadable(row, fault, space, queue)
    return facts(row, space, queue, delivery)


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
