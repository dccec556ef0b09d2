"""Rows of messages: the order in which they are read, what a message that comes is stored as, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from qmcore.message_rows import BODY_ID, FIELDS
from qmcore.order import head_before, head_of, head_on_top
from qmcore.transitions import ALL_OPTIONS, NEVER, TOP, USUAL_OPTIONS, Arrival, Route, Terms, Times
from qmstorage import bodies
from qmstorage.schema import chunk, expiring, message, share, spent
from qmstorage.sql import ColumnElement, Table, delete, select, union_all
from qmstorage.statements import Row, Statement, given

if TYPE_CHECKING:
    from sqlalchemy import Delete

_NO_TIMES: Final = Times(None, None, None, None)
ALL: Final = tuple(column.name for column in message.columns)
"""The columns of a message, in their order."""

READ: Final = tuple(message.c[name] for name in FIELDS)
"""All columns in the order in which they are read."""

FACTS: Final = READ[:BODY_ID]
"""The same but for the body, and where that is."""

WITHOUT_BODY: Final = READ[:-1]
"""The same but for the body."""


def forgetting(*which: ColumnElement[bool]) -> Delete:
    """Return the statement that deletes the rows of messages a place of which has ended: each has one.

    All that deletes rows of messages is built here.
    """
    return delete(message).where(*which)


def emptying(states: Sequence[Table], *others: Table, of_several: bool = False) -> list[Statement]:
    """Return the statements that delete the messages of a queue that are in one of the states, with their bodies.

    What others have of the queue goes too. `of_several`: they may be messages of a queue for several consumers, which
    goes with all of them.
    """
    numbers = union_all(*(select(table.c.message_id).where(given(table.c.queue_id, "of_queue")) for table in states))
    return [
        delete(chunk).where(chunk.c.body_id.in_(select(message.c.body_id).where(message.c.id.in_(numbers)))),
        forgetting(message.c.id.in_(numbers)),
        *(delete(table).where(table.c.message_id.in_(numbers)) for table in ((share, spent) if of_several else ())),
        *(delete(table).where(given(table.c.queue_id, "of_queue")) for table in (*states, expiring, *others)),
    ]


FORGET: Final = forgetting(given(message.c.id, "of_message"))
"""Deletes the row of a message."""

FORGETTING: Final = "DELETE FROM {}.message AS m"
"""How the functions of a server begin to do that, in a schema."""

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


class Position(NamedTuple):
    """The times of a message, and what its order key is made of but for its sequence number.

    `head` is the part before that; the number is inverted where the last of several messages comes first: `descends`.
    """

    available_us: int | None
    expires_us: int | None
    head: bytes
    descends: bool


def position_of(route: Route, terms: Terms, now: int, before: bytes = b"") -> Position:
    """Return the position of a message that comes now; `before` is the key of the message that it stands before."""
    delay, available, lifetime, expires = terms.times or _NO_TIMES
    if delay is not None:
        available = now + delay
    if lifetime is None and expires is None:
        lifetime = route.lifetime
    if lifetime is not None and lifetime != NEVER:
        expires = now + lifetime
    place = before or terms.place
    if place:
        return Position(available, expires, *(head_on_top() if place == TOP else head_before(place)))
    head = terms.head
    if head is None:
        moment = now if available is None else available
        head = head_of(route.criteria, priority=terms.priority, available_at=moment, expires_at=expires)
    return Position(available, expires, head, terms.descends)
