"""The statements of the short way: each does with one message all that the ordinary way does in several."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Text, bindparam, cast, delete, exists, func, literal_column, select, union_all
from sqlalchemy.dialects.postgresql import REGCLASS, insert
from sqlalchemy.types import BigInteger, Integer, LargeBinary

from qmcore.order import LAST
from qmstorage.among import Among, Named
from qmstorage.choosing import THIS
from qmstorage.runner import given
from qmstorage.schema import counter, due, expiring, message, ready, waiter

_ZERO: Any = literal_column("0")
_ONE: Any = literal_column("1")
_USE: Final = ("messages", "pages", "size")
_KEY: Final = ("space_id", "queue_id", "slot")


def _by(name: str, kind: Any = None) -> Any:
    return bindparam(name, type_=kind or BigInteger())


def _counted(of: Any, **changes: Any) -> Any:
    """Return the statement that adds to this session's rows of the queue space and the queue, made if need be.

    They tell which session was the last to write them, and the last number that it was given.
    """
    both = union_all(select(_ZERO.label("number")), select(_by("of_queue", Integer()))).subquery("both")
    zero = dict.fromkeys(counter.columns.keys(), _ZERO)
    own = {"space_id": _by("space_id", Integer()), "queue_id": both.c.number, "slot": _by("slot", Integer())}
    row = {**zero, **own, "generation": _by("session"), **changes}
    adding = insert(counter).from_select(list(row), select(*row.values()).select_from(of, both))
    return adding.on_conflict_do_update(
        index_elements=_KEY,
        set_={
            name: adding.excluded[name] if name == "sequence" else counter.c[name] + adding.excluded[name]
            for name in changes
        },
    )


LOCK: Final = select(func.pg_advisory_xact_lock_shared(_by("key")))
"""Takes the lock of the volume together with others, before anything is looked at."""

# ---- arrival ---------------------------------------------------------------------------------------------------------

_HAS_ROOM = (
    select(_ONE.label("one"))
    .where(given(counter.c.space_id, "space_id"), counter.c.queue_id == _ZERO)
    .having(
        func.max(counter.c.generation).filter(counter.c.slot == _ZERO) == _by("known"),
        func.sum(counter.c.messages) < _by("most_messages"),
        func.sum(counter.c.pages) + _by("pages") <= _by("most_pages"),
    )
    .cte("has_room")
)
_NUMBER = (
    select(func.nextval(cast(_by("sequence", Text()), REGCLASS)).label("number")).select_from(_HAS_ROOM).cte("given")
)
_ID = _by("first") + _NUMBER.c.number
_ORDER_KEY = (
    _by("key_head", LargeBinary())
    .op("||")(func.int8send(_NUMBER.c.number.op("#")(_by("inverting"))))
    .op("||")(literal_column(f"'\\x{LAST.hex()}'::bytea"))
)
_GIVEN_BY_US: Final = {"id": _ID, "message_id": _ID, "order_key": _ORDER_KEY, "retries": _ZERO}


def _brought(table: Any) -> Any:
    row = {name: _GIVEN_BY_US.get(name, _by(name, column.type)) for name, column in table.columns.items()}
    return insert(table).from_select(list(row), select(*row.values()).select_from(_NUMBER))


_EXPIRES = select(_by("queue_id", Integer()), _by("expires_at"), _ID).where(_by("expires_at").is_not(None))

ARRIVE: Final = (
    select(_NUMBER.c.number)
    .add_cte(_brought(message).cte("stored"))
    .add_cte(insert(expiring).from_select(expiring.columns.keys(), _EXPIRES).cte("noted"))
    .add_cte(_brought(ready).cte("stands"))
    .add_cte(
        _counted(
            _NUMBER,
            sequence=_NUMBER.c.number,
            messages=_ONE,
            pages=_by("pages"),
            size=_by("size"),
            enqueued=_ONE,
        ).cte("counted")
    )
)
"""Enqueues a message where the definitions are known and there is room, and gives its sequence number."""

CLAIM: Final = (
    insert(counter)
    .values(
        dict.fromkeys(counter.columns.keys(), _ZERO)
        | {"space_id": _by("space_id", Integer()), "slot": _by("slot", Integer()), "generation": _by("session")}
    )
    .on_conflict_do_update(index_elements=_KEY, set_={"generation": _by("session")})
    .returning(counter.c.sequence)
)
"""Notes which session writes a row of the counters from now on, and gives the last number that the row tells of."""

TELL: Final = select(func.pg_notify(_by("channel", Text()), literal_column("''"))).where(
    exists().where(given(waiter.c.queue_id, "of_queue"))
)
"""Tells those who wait for a queue, if there are any."""

# ---- departure -------------------------------------------------------------------------------------------------------

_IS_KNOWN = exists().where(
    given(counter.c.space_id, "space_id"),
    counter.c.queue_id == _ZERO,
    counter.c.slot == _ZERO,
    counter.c.generation == _by("known"),
)
_IS_DUE = exists().where(given(due.c.queue_id, "of_queue"), due.c.available_at <= _by("now"))
_HAS_EXPIRED = exists().where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= _by("now"))
_FIRST = (
    select(THIS)
    .where(given(ready.c.queue_id, "of_queue"), _IS_KNOWN, ~_IS_DUE, ~_HAS_EXPIRED)
    .order_by(ready.c.order_key)
    .with_for_update(skip_locked=True, of=ready)
    .limit(_ONE)
)
_IS_KEPT_APART = exists().where(Named(message.c.id, ready.c.message_id), message.c.body_id.is_not(None))
_TAKEN = (
    delete(ready)
    .where(_FIRST.scalar_subquery() == THIS, ~_IS_KEPT_APART)
    .returning(ready.c.message_id, ready.c.retries)
    .cte("taken")
)
_GONE = delete(message).where(Among(message.c.id, select(_TAKEN.c.message_id))).returning(*message.columns).cte("gone")

DEPART: Final = (
    select(*_GONE.c, _TAKEN.c.retries, cast(func.pg_current_xact_id(), Text))
    .where(_GONE.c.id == _TAKEN.c.message_id)
    .add_cte(
        delete(expiring)
        .where(
            given(expiring.c.queue_id, "of_queue"),
            Among(expiring.c.expires_at, select(_GONE.c.expires_at)),
            Among(expiring.c.message_id, select(_GONE.c.id)),
        )
        .cte("forgotten")
    )
    .add_cte(
        _counted(
            _GONE,
            messages=literal_column("-1"),
            pages=-_GONE.c.pages,
            size=-_GONE.c.size,
            dequeued=_ONE,
        ).cte("counted")
    )
)
"""Dequeues the first message of a queue, and gives its columns, its retries, and the number of the transaction.

Where the definitions are other ones, something is due or has expired, or the body is kept apart, it does nothing.
"""
