"""Between rows of the `message` table and the engine's values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from qmcore import numbers
from qmcore.damage import damaged
from qmcore.errors import SystemFailureError
from qmcore.message import Message, MessageInfo, Origin, Reason, State
from qmcore.queue import Delivery
from qmcore.row_rules import RULES
from qmcore.space import Space
from qmcore.times import EARLIEST, LATEST
from qmcore.transitions import ALL_OPTIONS, USUAL_OPTIONS, Arrival
from qmstorage import bodies
from qmstorage.schema import message
from qmstorage.statements import Row

ALL: Final = tuple(column.name for column in message.columns)
"""The columns of a message, in their order."""

FACTS: Final = tuple(column for column in message.columns if column.name not in ("body_id", "body"))
"""The columns of which `facts` makes what is told of a message, in the order in which it takes their values."""

READ: Final = (*FACTS, message.c.body_id, message.c.body)
"""All columns in the order in which they are read."""

WITHOUT_BODY: Final = READ[:-1]
"""The same but for the body."""

_PLACES: Final = {column.name: at for at, column in enumerate(READ)}
NUMBERS: Final = (int, float)
"""What a body is read as only where the file is damaged."""

ID: Final = _PLACES["id"]
QUEUE: Final = _PLACES["queue_id"]
EXPIRES: Final = _PLACES["expires_at"]
PAGES: Final = _PLACES["pages"]
SIZE: Final = _PLACES["size"]
BODY_ID: Final = _PLACES["body_id"]
BODY: Final = _PLACES["body"]
"""Where columns stand in a row that was read."""

PLAIN: Final = (
    "id",
    "queue_id",
    "order_key",
    "priority",
    "enqueued_at",
    "pages",
    "size",
    "urcode",
    "appkey",
    "type",
    "body",
)
"""The columns that a message without any options has something in."""

USUAL: Final = (
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
    "type",
    "headers",
    "body",
)
"""The columns that a message with the usual options has something in."""

for _names in (PLAIN, USUAL):
    # That is the order in which SQLAlchemy writes them, and in which the values of a row are given.
    assert _names == tuple(name for name in ALL if name in _names)  # noqa: S101 - what goes by them relies on it

_NOTHING_ASKED: Final = dict.fromkeys(ALL) | {"urcode": 0, "appkey": 0}


def new_row(
    number: int,
    queue_id: int,
    key: bytes,
    now: int,
    available: int | None,
    expires: int | None,
    group_id: int | None,
    arrival: Arrival,
) -> Row:
    """Return the row of a message that comes with options: the values of USUAL or of ALL, as many as it needs."""
    body, size, pages, terms, _ = arrival
    options = terms.options
    if size > bodies.IN_ROW_MAX or group_id is not None or len(options) > len(USUAL_OPTIONS):
        row = full_row(number, queue_id, key, now, available, expires, group_id, arrival)
        return tuple(row[name] for name in ALL)
    urcode, appkey, corrid, reply_queue, headers = options or _NO_OPTIONS
    head = number, queue_id, key, terms.priority, now, available, expires, pages, size
    return (*head, urcode, appkey, corrid, reply_queue, terms.type, headers, body)


_NO_OPTIONS: Final = (0, 0, None, None, None)


def full_row(
    number: int,
    queue_id: int,
    key: bytes,
    now: int,
    available: int | None,
    expires: int | None,
    group_id: int | None,
    arrival: Arrival,
) -> dict[str, Any]:
    """Return the values of all columns of a message that comes; a body that is too large for a row is kept apart."""
    body, size, pages, terms, _ = arrival
    is_apart = size > bodies.IN_ROW_MAX
    return {
        **_NOTHING_ASKED,
        **dict(zip(ALL_OPTIONS, terms.options, strict=False)),
        "id": number,
        "queue_id": queue_id,
        "order_key": key,
        "priority": terms.priority,
        "enqueued_at": now,
        "available_at": available,
        "expires_at": expires,
        "pages": pages,
        "size": size,
        "type": terms.type,
        "group_id": group_id,
        "body_id": number if is_apart else None,
        "body": None if is_apart else body,
    }


def to_message(facts: Mapping[str, Any], body: bytes | None, retries: int, state: State) -> Message:
    """Return the message of which `facts` tells all but its body; SystemFailureError for retries that are no number."""
    if retries.__class__ is not int:
        raise _without_retries(facts)
    return Message(body=body, **facts, retries=retries, state=state)


def to_info(facts: dict[str, Any], *, retries: int, state: State, until: int | None) -> MessageInfo:
    """Return a message without its body; `until` is when one that is kept back becomes available.

    Raises SystemFailureError for retries that are no number.
    """
    if retries.__class__ is not int:
        raise _without_retries(facts)
    if until is not None:
        facts["available_us"] = until
    return MessageInfo(**facts, retries=retries, state=state)


def _without_retries(facts: Mapping[str, Any]) -> SystemFailureError:
    what = f"its field retries is not {RULES['retries'].what}"
    return damaged(facts["msgid"], what, msgid=facts["msgid"], queue=facts["queue"])


def facts(row: Sequence[Any], space: Space, queue: str, delivery: Delivery) -> dict[str, Any]:
    """Return what a row without its body says of the message; SystemFailureError where it cannot be read."""
    (
        number,
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
    ) = row
    try:
        its_headers = json.loads(headers) if headers else {}
        asked = Delivery(delivery_asked) if delivery_asked else None
        for_replies = Delivery(reply_delivery) if reply_delivery else None
        reason = Reason(origin_reason) if origin_queue else None
        if (
            its_headers.__class__ is not dict
            or (pages + size + priority + urcode + appkey).__class__ is not int
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
            or (reason is not None and not _is_origin(moved_at, origin_queue, origin_msgid, origin_error, first_msgid))
        ):
            raise TypeError("a value of the record is of another kind")
    except (ValueError, TypeError, RecursionError) as error:
        raise _unreadable(row, space, queue) from error
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
        "delivery_asked": asked,
        "reply_delivery": for_replies,
        "type": kind,
        "subtype": subtype or "",
        "headers": its_headers,
        "group": None if group_id is None else space.msgid(numbers.sequence(group_id)),
        "origin": reason
        and Origin(origin_queue, origin_msgid, reason, moved_at, origin_error or "", first_msgid or origin_msgid),
    }


def _is_origin(moved_at: Any, queue: Any, msgid: Any, error: Any, first_msgid: Any) -> bool:
    """Return whether values are of the kinds that the origin of a message has."""
    return (
        EARLIEST <= moved_at <= LATEST
        and queue.__class__ is msgid.__class__ is str
        and all(text is None or text.__class__ is str for text in (error, first_msgid))
    )


def checked(row: Sequence[Any], space: Space, queue: str) -> None:
    """Refuse a row, without its body, of which not all is as it has to be."""
    its = dict(zip((column.name for column in FACTS), row, strict=True))
    if any(its.get(name) is not None and not rule.holds(its[name]) for name, rule in RULES.items()):
        raise _unreadable(row, space, queue)


def wrong_body(row: Sequence[Any], space: Space, queue: str) -> SystemFailureError:
    """Return the diagnostic for a message whose body, which comes last, is not as long as it should be."""
    size = "no" if row[BODY].__class__ in NUMBERS else len(row[BODY] or b"")
    what = f"its body has {size} bytes, and should have {row[SIZE]}"
    return damaged(row[ID], what, msgid=space.msgid(numbers.sequence(row[ID])), queue=queue)


def _unreadable(row: Sequence[Any], space: Space, queue: str) -> SystemFailureError:
    """Return the diagnostic for a message of which a row, without its body, cannot be read."""
    its = dict(zip((column.name for column in FACTS), row, strict=True))
    wrong = [name for name, rule in RULES.items() if its.get(name) is not None and not rule.holds(its[name])]
    what = f"its field {wrong[0]} is not {RULES[wrong[0]].what}" if wrong else "its record cannot be read"
    return damaged(row[0], what, msgid=space.msgid(numbers.sequence(row[0])), queue=queue)
