"""The statements that check whether what is stored is consistent, and those that find and remove damaged messages.

They are loaded on first use: building them takes long, and few programs need them.
"""

from __future__ import annotations

from typing import Any, Final

from qmcore import numbers
from qmcore.message import HEADER_PAGES_BYTES
from qmcore.records import Role
from qmstorage import rows
from qmstorage.schema import (
    chunk,
    counter,
    due,
    expiring,
    forwarding,
    held,
    history,
    message,
    owner,
    queue,
    ready,
    share,
    space,
    spent,
    trans,
)
from qmstorage.sql import (
    CTE,
    ColumnElement,
    CompoundSelect,
    LargeBinary,
    Select,
    Table,
    and_,
    bindparam,
    cast,
    delete,
    elements,
    exists,
    func,
    literal,
    or_,
    select,
    union,
    union_all,
)
from qmstorage.statements import Statement, given, written


def _of_space(column: ColumnElement[Any]) -> ColumnElement[bool]:
    return column.between(bindparam("low", type_=column.type), bindparam("high", type_=column.type))


def _places(*tables: Table) -> CompoundSelect[Any]:
    return union_all(*(select(table.c.message_id).where(_of_space(table.c.message_id)) for table in tables))


def _counted(found: Any) -> Select[Any]:
    return select(func.count()).select_from(found.subquery())


_IS_SPILLED = written(held.c.role, Role.ENQUEUED)
_AVAILABLE = union_all(*(select(table.c.queue_id, table.c.message_id) for table in (ready, due))).subquery("available")
_KEYED = union_all(
    *(
        select(table.c.queue_id, table.c.message_id, table.c.order_key).where(_of_space(table.c.message_id))
        for table in (ready, due)
    ),
    select(held.c.queue_id, held.c.message_id, held.c.order_key).where(_of_space(held.c.message_id), ~_IS_SPILLED),
).subquery("keyed")


_OF_SEVERAL = message.c.queue_id.in_(select(queue.c.id).where(queue.c.multiple_consumers))
"""A message of a queue for several consumers, which stands in a place of each. All of them are on disk."""


_ENDED = select(func.count()).where(spent.c.message_id == share.c.message_id).scalar_subquery()
"""How many places of a message are over that were not subtracted yet."""
_SWEPT_NEXT = select(share.c.message_id).where(_of_space(share.c.message_id), share.c.places <= _ENDED)
"""What nobody has a place of: it goes with the next sweep, and is no message any more."""


def _placing(*tables: Table, shares: bool) -> list[tuple[str, Statement]]:
    places = _places(*tables).subquery("places")
    several = select(places.c.message_id).group_by(places.c.message_id).having(func.count() > 1)
    unplaced: ColumnElement[bool] = message.c.id.not_in(select(places.c.message_id))
    more: list[tuple[str, Statement]] = []
    if shares:
        unplaced = and_(unplaced, message.c.id.not_in(_SWEPT_NEXT))
        several = several.where(places.c.message_id.not_in(select(share.c.message_id)))
        there = select(func.count()).select_from(places).where(places.c.message_id == share.c.message_id)
        more = [
            (
                "{} that fewer or more consumers have a place for than are counted",
                _counted(
                    select(share.c.message_id).where(
                        _of_space(share.c.message_id), share.c.places != there.scalar_subquery() + _ENDED
                    )
                ),
            ),
            (
                "{} that is gone, or came with a single place, and that consumers are still counted for",
                _counted(
                    union(
                        select(spent.c.message_id).where(
                            _of_space(spent.c.message_id), spent.c.message_id.not_in(select(share.c.message_id))
                        ),
                        select(share.c.message_id).where(
                            _of_space(share.c.message_id), share.c.message_id.not_in(select(message.c.id))
                        ),
                    )
                ),
            ),
        ]
    return [
        (
            "{} without a place in a queue: nobody can ever dequeue it",
            _counted(select(message.c.id).where(_of_space(message.c.id), unplaced)),
        ),
        ("{} in more than one place", _counted(several)),
        *more,
        (
            "{} that a queue has a place for and that is not there",
            _counted(select(places.c.message_id).where(places.c.message_id.not_in(select(message.c.id)))),
        ),
    ]


PLACING: Final = {
    False: _placing(ready, due, held, history, shares=True),
    True: _placing(ready, due, held, shares=False),
}
"""By whether the messages are in memory, as the others."""


def _keys(elsewhere: ColumnElement[bool]) -> list[tuple[str, Statement]]:
    is_misplaced = or_(elsewhere, _KEYED.c.order_key != message.c.order_key)
    misplaced = select(message.c.id).join(_KEYED, _KEYED.c.message_id == message.c.id).where(is_misplaced)
    return [("{} whose place is in another queue, or at another position, than the message says", _counted(misplaced))]


_ELSEWHERE = _KEYED.c.queue_id != message.c.queue_id
_NO_CONSUMER = ~exists().where(queue.c.id == _KEYED.c.queue_id, queue.c.parent_id == message.c.queue_id)
KEYS: Final = {False: _keys(and_(_ELSEWHERE, _NO_CONSUMER)), True: _keys(_ELSEWHERE)}


def _expiry(*but: ColumnElement[bool]) -> list[tuple[str, Statement]]:
    """Return what is asked of expiries; messages go by themselves wherever they stand, `but` for which it is held."""
    noted = select(expiring.c.message_id).where(
        expiring.c.queue_id == message.c.queue_id,
        expiring.c.expires_at == message.c.expires_at,
        expiring.c.message_id == message.c.id,
    )
    its = and_(message.c.id == expiring.c.message_id, message.c.expires_at == expiring.c.expires_at)
    is_held = and_(expiring.c.message_id.not_in(select(_AVAILABLE.c.message_id)), *but)
    return [
        (
            "{} that would never expire as it should",
            _counted(
                select(message.c.id)
                .join(_AVAILABLE, _AVAILABLE.c.message_id == message.c.id)
                .where(_of_space(message.c.id), message.c.expires_at.is_not(None), ~noted.exists())
            ),
        ),
        (
            "{} that would expire although it should not",
            _counted(
                select(expiring.c.message_id)
                .outerjoin(message, its)
                .where(_of_space(expiring.c.message_id), or_(message.c.id.is_(None), is_held))
            ),
        ),
    ]


EXPIRY: Final = {False: _expiry(~_OF_SEVERAL), True: _expiry()}
PARTS: CTE = (
    select(
        chunk.c.body_id,
        func.sum(func.length(chunk.c.content)).label("size"),
        func.count().label("parts"),
        func.max(chunk.c.number).label("last"),
    )
    .where(_of_space(chunk.c.body_id))
    .group_by(chunk.c.body_id)
    .cte("parts")
)
BODIES: list[tuple[str, Statement]] = [
    (
        "{} whose body is not as long as it should be",
        _counted(
            select(message.c.id).where(
                _of_space(message.c.id),
                message.c.body_id.is_(None),
                func.coalesce(func.length(message.c.body), 0) != message.c.size,
            )
        ),
    ),
    (
        "{} whose large body is incomplete",
        _counted(
            select(message.c.id)
            .outerjoin(PARTS, PARTS.c.body_id == message.c.body_id)
            .where(
                _of_space(message.c.id),
                message.c.body_id.is_not(None),
                or_(
                    PARTS.c.body_id.is_(None),
                    PARTS.c.size != message.c.size,
                    PARTS.c.parts != PARTS.c.last + 1,
                ),
            )
        ),
    ),
    (
        "{} that is gone, and whose large body is still there and takes room",
        _counted(
            select(PARTS.c.body_id).where(
                PARTS.c.body_id.not_in(select(message.c.body_id).where(message.c.body_id.is_not(None)))
            )
        ),
    ),
    (
        "{} whose pages are not counted by its size",
        _counted(
            select(message.c.id).where(
                _of_space(message.c.id),
                message.c.pages
                != (
                    bindparam("page", type_=message.c.pages.type)
                    + (HEADER_PAGES_BYTES - 1)
                    + func.coalesce(elements.Octets(message.c.headers), 0)
                    + message.c.size
                )
                // bindparam("page", type_=message.c.pages.type),
            )
        ),
    ),
]
HELD_WITHOUT_TRANSACTION: list[tuple[str, Statement]] = [
    (
        "{} that a transaction holds which is not there: nobody can ever dequeue it",
        _counted(
            select(held.c.message_id).where(_of_space(held.c.message_id), held.c.trans_id.not_in(select(trans.c.id)))
        ),
    )
]
_HERE = bindparam("of_space", type_=owner.c.space_id.type)
ORPHANED_FORWARDINGS = (
    select(func.count())
    .select_from(forwarding)
    .outerjoin(owner, owner.c.id == forwarding.c.owner_id)
    .outerjoin(queue, queue.c.id == forwarding.c.queue_id)
    .where(
        or_(
            and_(owner.c.id.is_(None), func.coalesce(queue.c.space_id, _HERE) == _HERE),
            and_(queue.c.id.is_(None), owner.c.space_id == _HERE),
        )
    )
)
# As bytes, whatever has been written there.
ORDER_KEYS = select(_KEYED.c.queue_id, cast(_KEYED.c.order_key, LargeBinary))
_SUMS = (func.count(), func.sum(message.c.pages), func.sum(message.c.size))
STORED = select(message.c.queue_id, *_SUMS).where(_of_space(message.c.id)).group_by(message.c.queue_id)
RETAINED = (
    select(message.c.queue_id, *_SUMS)
    .join(history, history.c.message_id == message.c.id)
    .where(_of_space(message.c.id))
    .group_by(message.c.queue_id)
)
SPILLED = (
    select(message.c.queue_id, *_SUMS)
    .join(held, held.c.message_id == message.c.id)
    .where(_of_space(message.c.id), _IS_SPILLED)
    .group_by(message.c.queue_id)
)
CONSUMERS: Final = select(queue.c.id, queue.c.name).where(
    given(queue.c.space_id, "of_space"), queue.c.parent_id > literal(0)
)
PLACED: Final = (
    select(_KEYED.c.queue_id, *_SUMS)
    .join(message, message.c.id == _KEYED.c.message_id)
    .where(_OF_SEVERAL)
    .group_by(_KEYED.c.queue_id)
)
"""What stands for each consumer."""
COUNTERS = (
    select(counter.c.queue_id, *(func.sum(counter.c[name]) for name in ("messages", "pages", "size")))
    .where(counter.c.space_id == bindparam("of_space"))
    .group_by(counter.c.queue_id)
)
NEWEST = select(message.c.enqueued_at).where(_of_space(message.c.id)).order_by(message.c.id.desc()).limit(1)
LATEST = (
    select(func.max(trans.c.started_at)).where(trans.c.space_id == bindparam("of_space")),
    select(func.max(owner.c.since)).where(owner.c.space_id == bindparam("of_space")),
)
STRAYS = (
    select(func.count())
    .select_from(message)
    .where(message.c.id.op(">>")(literal(numbers.SEQUENCE_BITS)).not_in(select(space.c.id)))
)
LAST = select(func.max(message.c.id)).where(_of_space(message.c.id))

_PLACES: Final = {False: (ready, due, history), True: (ready, due)}
"""The tables of messages that no transaction holds, by whether they are in memory, where none are retained."""

_OF_QUEUE: Final = given(message.c.queue_id, "of_queue")
_ITS_ID: Final = given(message.c.id, "of_message")


def _lacking(table: Any) -> Any:
    return select(table.c.message_id).where(
        given(table.c.queue_id, "of_queue"), ~exists().where(message.c.id == table.c.message_id)
    )


WITHOUT_RECORD: Final = {
    in_memory: union(*(_lacking(table) for table in places)) for in_memory, places in _PLACES.items()
}
"""The messages of a queue that have a place and no record."""

_WRONG_BODY: Final = (
    select(message.c.id)
    .outerjoin(PARTS, PARTS.c.body_id == message.c.body_id)
    .where(
        _OF_QUEUE,
        or_(
            and_(message.c.body_id.is_(None), func.coalesce(func.length(message.c.body), 0) != message.c.size),
            and_(message.c.body_id.is_not(None), func.coalesce(PARTS.c.size, -1) != message.c.size),
        ),
    )
)
_STANDS: Final = {
    in_memory: or_(
        *(
            exists().where(table.c.queue_id == message.c.queue_id, table.c.message_id == message.c.id)
            for table in places
        )
    )
    for in_memory, places in _PLACES.items()
}
REMOVE_BODY: Final = delete(chunk).where(chunk.c.body_id.in_(select(message.c.body_id).where(_ITS_ID)))
REMOVE: Final = rows.forgetting(_ITS_ID, _OF_QUEUE)
REMOVE_PLACES: Final = {
    in_memory: [
        delete(table).where(given(table.c.queue_id, "of_queue"), given(table.c.message_id, "of_message"))
        for table in (*places, expiring)
    ]
    for in_memory, places in _PLACES.items()
}
NO_LONGER_EXPIRING: Final = delete(expiring).where(
    given(expiring.c.queue_id, "of_queue"), ~exists().where(message.c.id == expiring.c.message_id)
)
SUMS: Final = [statement.where(_OF_QUEUE) for statement in (STORED, RETAINED, SPILLED)]
WRONG_BODIES: Final = {in_memory: _WRONG_BODY.where(stands) for in_memory, stands in _STANDS.items()}
