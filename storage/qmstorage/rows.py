"""Between rows of the `message` table and the engine's values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qmcore import numbers
from qmcore.message import Message, MessageInfo, Origin, Reason, State
from qmcore.queue import Delivery
from qmcore.records import NewMessage
from qmcore.space import Space
from qmstorage.schema import message

_COLUMNS: Final = tuple(column.name for column in message.columns)
_NO_ORIGIN: Final = dict.fromkeys(("origin_queue", "origin_msgid", "origin_reason", "origin_error", "moved_at"))


def to_row(new: NewMessage) -> dict[str, Any]:
    """Return the column values of a new message."""
    control, standing = new.control, new.standing
    return {
        "id": new.id,
        "queue_id": new.queue_id,
        "order_key": standing.order_key,
        "priority": control.priority,
        "enqueued_at": standing.enqueued_us,
        "available_at": standing.available_us,
        "expires_at": standing.expires_us,
        "pages": new.pages,
        "size": new.size,
        "urcode": control.urcode,
        "appkey": control.appkey,
        "corrid": control.corrid,
        "reply_queue": control.reply_queue,
        "failure_queue": control.failure_queue,
        "error_queue": control.error_queue,
        "group_id": standing.group_id,
        "delivery_asked": control.delivery and control.delivery.value,
        "reply_delivery": control.reply_delivery and control.reply_delivery.value,
        "client_id": control.client_id or None,
        "type": control.type,
        "subtype": control.subtype or None,
        "headers": new.headers,
        "body_id": None,
        "body": new.body,
        **_NO_ORIGIN,
    }


def to_message(facts: Mapping[str, Any], body: bytes | None, retries: int, state: State) -> Message:
    """Return the message of which `facts` tells all but its body."""
    return Message(body=body, **facts, retries=retries, state=state)


def to_info(facts: dict[str, Any], *, retries: int, state: State, until: int | None) -> MessageInfo:
    """Return a message without its body; `until` is when one that is kept back becomes available."""
    if until is not None:
        facts["available_us"] = until
    return MessageInfo(**facts, retries=retries, state=state)


def facts(row: Sequence[Any], space: Space, queue: str, delivery: Delivery) -> dict[str, Any]:
    """Return what a row without its body says of the message."""
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
    ) = row
    return {
        "msgid": space.msgid(numbers.sequence(number)),
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
        "delivery_asked": Delivery(delivery_asked) if delivery_asked else None,
        "reply_delivery": Delivery(reply_delivery) if reply_delivery else None,
        "type": kind,
        "subtype": subtype or "",
        "headers": json.loads(headers) if headers else {},
        "group": None if group_id is None else space.msgid(numbers.sequence(group_id)),
        "origin": origin_queue
        and Origin(origin_queue, origin_msgid, Reason(origin_reason), moved_at, origin_error or ""),
    }


assert _COLUMNS[-3:] == ("headers", "body_id", "body")  # noqa: S101 - `facts` and the statements rely on it
