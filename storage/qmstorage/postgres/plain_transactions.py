"""The statements of the short way for transactions: one holds the first message of one, another one commits it."""

from __future__ import annotations

from typing import Any, Final

from qmcore import numbers
from qmcore.order import LAST
from qmcore.records import Outcome, Role, Use
from qmcore.transitions import Arrival, Commit, Route
from qmstorage import bodies, rows
from qmstorage.positions import position_of
from qmstorage.postgres.plain import (
    IS_KNOWN,
    NUMBER_OF_TRANSACTION,
    OF_SPACE,
    ONE,
    ZERO,
    by,
    counted,
    next_number,
    no_longer_expiring,
    taken,
)
from qmstorage.schema import chunk, counter, expiring, held, message, owner, ready, trans, waiter
from qmstorage.sql import (
    BigInteger,
    Integer,
    LargeBinary,
    cast,
    delete,
    elements,
    exists,
    func,
    insert,
    literal_column,
    select,
    union_all,
)
from qmstorage.statements import given
from qmstorage.transactions import written_state

_USE: Final = Use._fields


# ---- what a queue space holds ----------------------------------------------------------------------------------------

_SUMS_OF_SPACE = [cast(func.coalesce(func.sum(counter.c[name]), ZERO), BigInteger).label(name) for name in _USE]

LEVEL: Final = select(func.max(counter.c.generation).filter(counter.c.slot == ZERO), *_SUMS_OF_SPACE).where(*OF_SPACE)
"""Gives the generation of a queue space, null where it is gone, and its messages, pages and bytes."""

# ---- hold ------------------------------------------------------------------------------------------------------------

_IS_ATTACHED = exists().where(given(owner.c.id, "of_owner"))
_OPEN = (
    select(func.count())
    .select_from(trans)
    .where(given(trans.c.space_id, "space_id"), trans.c.state != written_state(Outcome.COMMITTED))
    .scalar_subquery()
)
_TAKEN = taken(_IS_ATTACHED, by("most_transactions") > _OPEN)
_FOUND = select(*rows.READ).where(message.c.id == select(_TAKEN.c.message_id).scalar_subquery()).cte("found")
_RECORD: Final = {
    "id": by("trans_id"),
    "space_id": by("space_id", Integer()),
    "owner_id": by("of_owner"),
    "state": written_state(Outcome.ACTIVE),
    "started_at": by("started_at"),
    "deadline": by("deadline"),
}
_HOLDING: Final = {
    "trans_id": by("trans_id"),
    "message_id": _FOUND.c.id,
    "queue_id": _FOUND.c.queue_id,
    "order_key": _TAKEN.c.order_key,
    "retries": _TAKEN.c.retries,
    "pages": _FOUND.c.pages,
    "size": _FOUND.c.size,
    "expires_at": _FOUND.c.expires_at,
    "role": literal_column(str(int(Role.DEQUEUED))),
}
_NUMBERS = select(next_number()).select_from(func.generate_series(cast(ONE, BigInteger), by("numbers")))

_LEVEL = select(*_SUMS_OF_SPACE).where(*OF_SPACE).subquery("level")

HOLD: Final = (
    select(*_FOUND.c, _TAKEN.c.retries, func.array(_NUMBERS.scalar_subquery()), *_LEVEL.c, _OPEN, NUMBER_OF_TRANSACTION)
    .where(_FOUND.c.id == _TAKEN.c.message_id)
    .add_cte(
        no_longer_expiring(_FOUND),
        insert(trans).from_select(list(_RECORD), select(*_RECORD.values()).select_from(_TAKEN)).cte("begun"),
        insert(held)
        .from_select(list(_HOLDING), select(*_HOLDING.values()).where(_FOUND.c.id == _TAKEN.c.message_id))
        .cte("holding"),
    )
)
"""Records a transaction, which holds the first message of a queue, and gives what DEPART gives.

Besides it gives sequence numbers, in any order, the messages, pages and bytes that the queue space holds, and how many
other transactions it has. It does nothing where DEPART would not, where the process is not attached, or where there
are transactions enough.
"""

# ---- end -------------------------------------------------------------------------------------------------------------


def _arrival(number: Any, number_of_message: Any) -> list[Any]:
    """Return the statements that store a message and let it stand; `number` is what gives its place in the order."""
    key = (
        by("key_head", LargeBinary())
        .op("||")(func.int8send(number.c.number.op("#")(by("inverting"))))
        .op("||")(literal_column(f"'\\x{LAST.hex()}'::bytea"))
    )
    ours = {"id": number_of_message, "message_id": number_of_message, "order_key": key, "retries": ZERO}

    def stored(table: Any) -> Any:
        row = {column.name: ours.get(column.name, by(column.name, column.type)) for column in table.columns}
        return insert(table).from_select(list(row), select(*row.values()).select_from(number))

    expires = select(by("queue_id", Integer()), by("expires_at"), number_of_message).select_from(number)
    noted = insert(expiring).from_select(expiring.columns.keys(), expires.where(by("expires_at").is_not(None)))
    return [stored(message).cte("stored"), stored(ready).cte("stands"), noted.cte("noted")]


_HELD = (
    given(held.c.queue_id, "of_queue"),
    given(held.c.trans_id, "trans_id"),
    held.c.role == literal_column(str(int(Role.DEQUEUED))),
)
_HAS_ROOM = exists(
    select(ONE)
    .where(*OF_SPACE)
    .having(
        IS_KNOWN,
        func.sum(counter.c.messages) + by("whole_messages") <= by("most_messages"),
        func.sum(counter.c.pages) + by("whole_pages") <= by("most_pages"),
    )
)
_HOLDS_WHAT_IS_KNOWN = exists(
    select(ONE)
    .where(*_HELD)
    .having(
        func.count() == by("held_messages"),
        func.sum(held.c.pages) == by("held_pages"),
        func.sum(held.c.size) == by("held_size"),
    )
)
_ENDED = (
    delete(trans)
    .where(
        given(trans.c.id, "trans_id"),
        given(trans.c.owner_id, "of_owner"),
        trans.c.state == written_state(Outcome.ACTIVE),
        _HAS_ROOM,
        _HOLDS_WHAT_IS_KNOWN,
    )
    .returning(trans.c.id)
    .cte("ended")
)
_CONSUMED = delete(held).where(*_HELD, exists(select(_ENDED.c.id))).returning(held.c.message_id).cte("consumed")
_GONE = (
    rows.forgetting(elements.Among(message.c.id, select(_CONSUMED.c.message_id)))
    .returning(message.c.body_id)
    .cte("gone")
)
_NUMBER = select(next_number().label("number")).select_from(_ENDED).cte("given")
_PLACE = select(_NUMBER.c.number).where(by("brings") == ONE).cte("place")


CHANGES: Final = {place: tuple(f"{place}_{each}" for each in _USE) for place in ("whole", "from", "to")}
"""The names of the values by which messages, pages and bytes change.

They do in the whole queue space, in the queue that messages go from, and in another one that a message comes to.
"""


def _change(place: str, queue: Any, *, enqueued: Any = ZERO, dequeued: Any = ZERO) -> Any:
    """Return what changes in the counters of a queue."""
    row = {"number": queue, **{each: by(name) for each, name in zip(_USE, CHANGES[place], strict=True)}}
    row |= {"enqueued": enqueued, "dequeued": dequeued}
    return select(*(value.label(each) for each, value in row.items()))


_CHANGES = union_all(
    _change("whole", ZERO, enqueued=by("brings"), dequeued=by("held_messages")),
    _change("from", by("of_queue", Integer()), enqueued=by("from_enqueued"), dequeued=by("held_messages")),
    _change("to", by("queue_id", Integer()), enqueued=by("brings")).where(by("has_other") == ONE),
).subquery("changes")

_SUMS = {"sequence": _NUMBER.c.number} | {name: _CHANGES.c[name] for name in (*_USE, "enqueued", "dequeued")}

END: Final = select(
    _NUMBER.c.number, exists().where(given(waiter.c.queue_id, "queue_id")), NUMBER_OF_TRANSACTION
).add_cte(
    delete(chunk).where(elements.Among(chunk.c.body_id, select(_GONE.c.body_id))).cte("bodies"),
    *_arrival(_PLACE, by("id")),
    counted(_CHANGES.c.number, select(_CHANGES.c.number).select_from(_NUMBER, _CHANGES), _SUMS),
)
"""Commits a transaction that holds so many messages of a queue, and enqueues what it `brings`: 0 messages or 1.

It gives a sequence number, also where no message needs one: this session's row of the queue space tells by it what was
done; whether anybody waits for the message, and the number of the transaction. It does nothing where the definitions
are other ones, there is no room, or the transaction is not as it is known.
"""

# ---- the values of END -----------------------------------------------------------------------------------------------

_NO_MESSAGE: Final[dict[str, Any]] = dict.fromkeys((*message.columns.keys(), "key_head", "inverting"))
_MOST: Final = 2**62
"""More than there is room for."""

_INVERTED: Final = -1
"""What turns a number around, bit by bit."""


def is_plain(command: Commit, now: int) -> bool:
    """Return whether a transaction holds messages of one queue, and brings at most one that is available at once."""
    brings = [(route, arrival) for route, arrivals in command.brings for arrival in arrivals]
    if command.guard.memory_pages or command.locks or command.stored or len(command.sources) != 1 or len(brings) > 1:
        return False
    (source,) = command.sources
    if source.retains or source.levels or not command.holds.messages:
        return False
    for route, arrival in brings:
        available = position_of(route, arrival.terms, now).available_us
        if route.levels or arrival.size > bodies.IN_ROW_MAX or (available is not None and available > now):
            return False
    return True


def values_of_end(command: Commit, now: int, sequences: str) -> dict[str, Any]:
    """Return the values of END: what changes in the queue space, in the queue that messages go from, and in another.

    `sequences` is what the names of sequences begin with.
    """
    space_id, holds, (source,) = command.guard.space_id, command.holds, command.sources
    values: dict[str, Any] = _NO_MESSAGE | {"queue_id": source.queue_id, "most_messages": _MOST, "most_pages": _MOST}
    brought, has_other = Use(0, 0, 0), False
    for route, (arrival,) in command.brings:
        values |= _values_of_arrival(command, route, arrival, now)
        brought, has_other = Use(1, arrival.pages, arrival.size), route.queue_id != source.queue_id
    gone = Use(-holds.messages, -holds.pages, -holds.size)
    whole = gone.plus(brought)
    for place, change in (("whole", whole), ("from", gone if has_other else whole), ("to", brought)):
        values.update(zip(CHANGES[place], change, strict=True))
    return values | {
        "trans_id": command.transaction_id,
        "of_owner": command.owner_id,
        "of_queue": source.queue_id,
        "space_id": space_id,
        "known": command.guard.generation,
        "sequence": f"{sequences}{space_id}",
        "held_messages": holds.messages,
        "held_pages": holds.pages,
        "held_size": holds.size,
        "brings": brought.messages,
        "from_enqueued": 0 if has_other else brought.messages,
        "has_other": int(has_other),
    }


def _values_of_arrival(command: Commit, route: Route, arrival: Arrival, now: int) -> dict[str, Any]:
    guard = command.guard
    available, expires, head, descends = position_of(route, arrival.terms, now)
    first = guard.space_id << numbers.SEQUENCE_BITS
    row = rows.full_row(first | arrival.sequence, route.queue_id, b"", now, available, expires, None, arrival)
    limits = {"most_messages": guard.messages, "most_pages": guard.pages}
    return row | limits | {"key_head": head, "inverting": _INVERTED if descends else 0}
