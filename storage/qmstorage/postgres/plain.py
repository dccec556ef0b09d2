"""The statements of the short way: each does with one message all that the ordinary way does in several."""

from __future__ import annotations

from typing import Any, Final

from qmstorage import rows
from qmstorage.schema import counter, due, expiring, held, message, ready, waiter
from qmstorage.selection import THIS
from qmstorage.sql import (
    BigInteger,
    Integer,
    Text,
    bindparam,
    cast,
    delete,
    elements,
    exists,
    func,
    literal_column,
    postgresql,
    select,
    true,
    union_all,
)
from qmstorage.statements import given

_KEY: Final = ("space_id", "queue_id", "slot")

ZERO: Any = literal_column("0")
ONE: Any = literal_column("1")
NUMBER_OF_TRANSACTION: Final = cast(func.pg_current_xact_id(), Text)
"""By which another session can ask whether the transaction was committed."""


def by(name: str, kind: Any = None) -> Any:
    """Return the place of a value, which is a large number unless its type says otherwise."""
    return bindparam(name, type_=BigInteger() if kind is None else kind)


LOCK: Final = select(func.pg_advisory_xact_lock_shared(by("key")))
"""Takes the lock of the volume together with others, before anything is looked at."""

LOCK_RELAXED: Final = LOCK.add_columns(
    func.set_config(*(literal_column(word) for word in ("'synchronous_commit'", "'off'", "true")))
)
"""The same, and lets the transaction be committed without a wait for the disk."""

OF_SPACE: Final = (given(counter.c.space_id, "space_id"), counter.c.queue_id == ZERO)
IS_KNOWN: Final = func.max(counter.c.generation).filter(counter.c.slot == ZERO) == by("known")
"""Of all rows of a queue space: its generation is the one that is known."""


def counted(queue: Any, source: Any, changes: dict[str, Any]) -> Any:
    """Return the statement that adds changes to this session's rows of queues, one for each row of the source.

    The rows are made if need be, and tell then which session writes them.
    """
    zero = dict.fromkeys(counter.columns.keys(), ZERO)
    own = {"space_id": by("space_id", Integer()), "queue_id": queue, "slot": by("slot", Integer())}
    row = {**zero, **own, "generation": by("session"), **changes}
    adding = postgresql.insert(counter).from_select(list(row), source.with_only_columns(*row.values()))
    new = {name: counter.c[name] + adding.excluded[name] for name in changes}
    if "sequence" in changes:
        new["sequence"] = adding.excluded.sequence
    return adding.on_conflict_do_update(index_elements=_KEY, set_=new).cte("counted")


def next_number() -> Any:
    """Return the expression that is the next sequence number of the queue space."""
    return func.nextval(cast(by("sequence", Text()), postgresql.REGCLASS))


def _counted_twice(of: Any, changes: dict[str, Any]) -> Any:
    """Return the statement that counts for the queue space and for the queue, once for each row of a source."""
    both = union_all(select(ZERO.label("number")), select(by("of_queue", Integer()))).subquery("both")
    return counted(both.c.number, select(both.c.number).select_from(of, both), changes)


# ---- what sessions tell ----------------------------------------------------------------------------------------------

_IS_WAITED_FOR = exists().where(given(waiter.c.queue_id, "of_queue"))

_FIRST_ROW: Final = dict.fromkeys(counter.columns.keys(), ZERO) | {
    "space_id": by("space_id", Integer()),
    "slot": by("slot", Integer()),
    "generation": by("session"),
}
CLAIM: Final = (
    postgresql.insert(counter)
    .from_select(
        list(_FIRST_ROW), select(*_FIRST_ROW.values()).where(exists().where(*OF_SPACE, counter.c.slot == ZERO))
    )
    .on_conflict_do_update(index_elements=_KEY, set_={"generation": by("session")})
    .returning(counter.c.sequence)
)
"""Notes which session writes a row of the counters from now on, and gives the last number that the row tells of.

It does nothing where the queue space is gone.
"""

TELL: Final = select(func.pg_notify(by("channel", Text()), literal_column("''"))).where(_IS_WAITED_FOR)
"""Tells those who wait for a queue, if there are any."""

# ---- departure -------------------------------------------------------------------------------------------------------

_HAS_GENERATION = exists().where(*OF_SPACE, counter.c.slot == ZERO, counter.c.generation == by("known"))
_IS_DUE = exists().where(given(due.c.queue_id, "of_queue"), due.c.available_at <= by("now"))
_HAS_EXPIRED = exists().where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= by("now"))
_IS_WHOLE = exists().where(elements.Named(message.c.id, ready.c.message_id), message.c.body_id.is_(None))


_TAKES: Final = (ready.c.message_id, ready.c.order_key, ready.c.retries)


def _first(*conditions: Any) -> Any:
    """Return the query that locks the first messages of a queue, where nothing is to be seen to before."""
    return (
        select(THIS)
        .where(given(ready.c.queue_id, "of_queue"), _HAS_GENERATION, ~_IS_DUE, ~_HAS_EXPIRED, *conditions)
        .order_by(ready.c.order_key)
        .with_for_update(skip_locked=True, of=ready)
    )


def taken(*conditions: Any) -> Any:
    """Return the statement that takes the first message of a queue, unless its body is kept apart or it is damaged."""
    first = _first(*conditions).limit(ONE).scalar_subquery()
    return delete(ready).where(first == THIS, _IS_WHOLE).returning(*_TAKES).cte("taken")


def no_longer_expiring(which: Any) -> Any:
    """Return the statement that forgets when a message expires."""
    return (
        delete(expiring)
        .where(
            given(expiring.c.queue_id, "of_queue"),
            expiring.c.expires_at == select(which.c.expires_at).scalar_subquery(),
            expiring.c.message_id == select(which.c.id).scalar_subquery(),
        )
        .cte("forgotten")
    )


_TAKEN = taken()
_GONE = rows.forgetting(message.c.id == select(_TAKEN.c.message_id).scalar_subquery()).returning(*rows.READ).cte("gone")

_SHRINKS = {"messages": literal_column("-1"), "pages": -_GONE.c.pages, "size": -_GONE.c.size, "dequeued": ONE}

DEPART: Final = (
    select(*_GONE.c, _TAKEN.c.retries, NUMBER_OF_TRANSACTION)
    .where(_GONE.c.id == _TAKEN.c.message_id)
    .add_cte(no_longer_expiring(_GONE), _counted_twice(_GONE, _SHRINKS))
)
"""Dequeues the first message of a queue, and gives its columns, its retries, and the number of the transaction.

Where the definitions are other ones, something is due or has expired, or the body is kept apart, it does nothing.
"""

_TAKEN_TOGETHER = delete(ready).where(elements.Among(THIS, _first().limit(by("most")))).returning(*_TAKES).cte("taken")
_GONE_TOGETHER = (
    # `Named` alone does not make the other table known to a DELETE.
    rows.forgetting(
        elements.Named(message.c.id, _TAKEN_TOGETHER.c.message_id), _TAKEN_TOGETHER.c.message_id.is_not(None)
    )
    .returning(*rows.READ, _TAKEN_TOGETHER.c.retries, _TAKEN_TOGETHER.c.order_key.label("place"))
    .cte("gone")
)
_ALL_GONE = (
    select(
        func.count().label("messages"), *(func.sum(_GONE_TOGETHER.c[name]).label(name) for name in ("pages", "size"))
    )
    .select_from(_GONE_TOGETHER)
    .having(func.count() > ZERO)
    .subquery("all_gone")
)
_SHRINKS_BY = {name: -_ALL_GONE.c[name] for name in ("messages", "pages", "size")} | {"dequeued": _ALL_GONE.c.messages}

_COUNT_TAKEN = select(func.count().label("messages")).select_from(_TAKEN_TOGETHER).subquery("counted")
DEPART_TOGETHER: Final = (
    select(*_GONE_TOGETHER.c, _COUNT_TAKEN.c.messages, NUMBER_OF_TRANSACTION)
    .select_from(_COUNT_TAKEN.outerjoin(_GONE_TOGETHER, true()))
    .where(_COUNT_TAKEN.c.messages > ZERO)
    .add_cte(_counted_twice(_ALL_GONE, _SHRINKS_BY))
)
"""Dequeues the first messages of a queue, and gives of each what DEPART gives, with its place in the order besides.

Behind that comes how many there should be: fewer rows, or one of nothing, say that the others have no record, so that
it must not be committed.

They come in any order. It does nothing where DEPART would do nothing, but for bodies that are kept apart: it must not
be committed where there are any. EXPIRE_NO_LONGER is to follow it where any of them expires.
"""


_NEXT_DUE = select(due.c.available_at).where(given(due.c.queue_id, "of_queue")).order_by(due.c.available_at).limit(ONE)
_HAS_READY = exists().where(given(ready.c.queue_id, "of_queue"))
_IS_HELD = exists().where(given(held.c.queue_id, "of_queue"))

EMPTY: Final = select(_NEXT_DUE.scalar_subquery(), _IS_HELD, _HAS_READY).where(_HAS_GENERATION, ~_IS_DUE, ~_HAS_EXPIRED)
"""Gives when the next message of a queue is due, whether a transaction holds one, and whether there is one by now.

It gives no row where DEPART does nothing because of the definitions, or of what is due or has expired.
"""
