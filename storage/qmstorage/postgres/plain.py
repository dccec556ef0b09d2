"""The statements of the short way: each does with one message all that the ordinary way does in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    Text,
    bindparam,
    case,
    cast,
    column,
    delete,
    exists,
    func,
    literal_column,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import REGCLASS, insert
from sqlalchemy.types import BigInteger, Integer, LargeBinary

from qmcore.order import LAST
from qmstorage import rows
from qmstorage.dialect import Among, Named
from qmstorage.schema import counter, due, expiring, held, message, ready, waiter
from qmstorage.selection import THIS
from qmstorage.statements import given

_KEY: Final = ("space_id", "queue_id", "slot")

ZERO: Any = literal_column("0")
ONE: Any = literal_column("1")
NUMBER_OF_TRANSACTION: Final = cast(func.pg_current_xact_id(), Text)
"""By which another session can ask whether the transaction was committed."""


def by(name: str, kind: Any = None) -> Any:
    """Return the place of a value, which is a large number unless its type says otherwise."""
    return bindparam(name, type_=kind or BigInteger())


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

    The rows are made if need be, and tell then which session writes them. Of `highest` the greater one stays.
    """
    zero = dict.fromkeys(counter.columns.keys(), ZERO)
    own = {"space_id": by("space_id", Integer()), "queue_id": queue, "slot": by("slot", Integer())}
    row = {**zero, **own, "generation": by("session"), **changes}
    adding = insert(counter).from_select(list(row), source.with_only_columns(*row.values()))
    new = {name: counter.c[name] + adding.excluded[name] for name in changes}
    if "sequence" in changes:
        new["sequence"] = adding.excluded.sequence
    if "highest" in changes:
        new["highest"] = func.greatest(counter.c.highest, adding.excluded.highest)
    return adding.on_conflict_do_update(index_elements=_KEY, set_=new).cte("counted")


def next_number() -> Any:
    """Return the expression that is the next sequence number of the queue space."""
    return func.nextval(cast(by("sequence", Text()), REGCLASS))


def arrival(
    number: Any,
    number_of_message: Any,
    columns: Sequence[str] = rows.ALL,
    each: Mapping[str, Any] = MappingProxyType({}),
) -> list[Any]:
    """Return the statements that store messages and let them stand; `number` is what gives their places in the order.

    They have something in these columns; `each` is what each has for itself, by the names of the columns.
    """
    key = (
        by("key_head", LargeBinary())
        .op("||")(func.int8send(number.c.number.op("#")(by("inverting"))))
        .op("||")(literal_column(f"'\\x{LAST.hex()}'::bytea"))
    )
    ours = {"id": number_of_message, "message_id": number_of_message, "order_key": key, "retries": ZERO, **each}

    def stored(table: Any, names: Sequence[str]) -> Any:
        row = {name: ours[name] if name in ours else by(name, table.c[name].type) for name in names}
        return insert(table).from_select(list(row), select(*row.values()).select_from(number))

    steps = [stored(message, columns).cte("stored"), stored(ready, ready.columns.keys()).cte("stands")]
    if "expires_at" in columns:
        expires = select(by("queue_id", Integer()), by("expires_at"), number_of_message).select_from(number)
        noted = insert(expiring).from_select(expiring.columns.keys(), expires.where(by("expires_at").is_not(None)))
        steps.append(noted.cte("noted"))
    return steps


def _counted_twice(of: Any, changes: dict[str, Any], level: Any = None) -> Any:
    """Return the statement that counts for the queue space and for the queue, once for each row of a source.

    `level` is what the queue space holds then, where it may be more than ever before.
    """
    both = union_all(select(ZERO.label("number")), select(by("of_queue", Integer()))).subquery("both")
    most = {} if level is None else {"highest": case((both.c.number == ZERO, level), else_=ZERO)}
    return counted(both.c.number, select(both.c.number).select_from(of, both), changes | most)


# ---- arrival ---------------------------------------------------------------------------------------------------------


def _room(messages: Any, pages: Any) -> Any:
    """Return what the queue space holds with so much more, where the definitions are known and there is room."""
    after_messages, after_pages = func.sum(counter.c.messages) + messages, func.sum(counter.c.pages) + pages
    is_enough = after_messages <= by("most_messages"), after_pages <= by("most_pages")
    level = cast(after_messages, BigInteger).label("level")
    return select(level).where(*OF_SPACE).having(IS_KNOWN, *is_enough).cte("has_room")


_HAS_ROOM = _room(ONE, by("pages"))
_NUMBER = select(next_number().label("number"), _HAS_ROOM.c.level).cte("given")

_IS_WAITED_FOR = exists().where(given(waiter.c.queue_id, "of_queue"))


def _arriving(columns: Sequence[str]) -> Any:
    grows = {"sequence": _NUMBER.c.number, "messages": ONE, "pages": by("pages"), "size": by("size"), "enqueued": ONE}
    return select(_NUMBER.c.number, _IS_WAITED_FOR).add_cte(
        *arrival(_NUMBER, by("first") + _NUMBER.c.number, columns), _counted_twice(_NUMBER, grows, _NUMBER.c.level)
    )


ARRIVE: Final = _arriving(rows.ALL)
"""Enqueues a message where the definitions are known and there is room.

It gives the sequence number, which this session's row of the queue space tells too, and whether anybody waits.
"""

ARRIVE_PLAINLY: Final = _arriving(rows.PLAIN)
"""The same with a message that has no options."""

_EACH: Final = ("body", "size", "pages")
"""What messages that come together have each for itself."""

_BROUGHT = (
    func.unnest(*(by(f"each_{name}", ARRAY(message.c[name].type)) for name in _EACH))
    .table_valued(*(column(name, message.c[name].type) for name in _EACH), with_ordinality="place", name="brought")
    .render_derived()
)
_HAS_ROOM_FOR_ALL = _room(by("count"), by("all_pages"))
_NUMBERED = (
    select(next_number().label("number"), *_BROUGHT.c, _HAS_ROOM_FOR_ALL.c.level)
    .select_from(_HAS_ROOM_FOR_ALL, _BROUGHT)
    .cte("numbered")
)
_GROWS_BY = {"messages": by("count"), "pages": by("all_pages"), "size": by("all_sizes"), "enqueued": by("count")}
_HAVE_COME = select(func.max(_NUMBERED.c.level).label("level")).having(func.count() > ZERO).subquery("come")

ARRIVE_TOGETHER: Final = (
    select(_NUMBERED.c.number, _IS_WAITED_FOR, NUMBER_OF_TRANSACTION)
    .order_by(_NUMBERED.c.place)
    .add_cte(
        *arrival(_NUMBERED, by("first") + _NUMBERED.c.number, rows.PLAIN, {name: _NUMBERED.c[name] for name in _EACH}),
        _counted_twice(_HAVE_COME, _GROWS_BY, _HAVE_COME.c.level),
    )
)
"""Enqueues messages of one queue that have no options, all or none, and gives the sequence number of each.

With it comes whether anybody waits, and the number of the transaction. The session's row does not tell of them.
"""


_FIRST_ROW: Final = dict.fromkeys(counter.columns.keys(), ZERO) | {
    "space_id": by("space_id", Integer()),
    "slot": by("slot", Integer()),
    "generation": by("session"),
}
CLAIM: Final = (
    insert(counter)
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
_IS_WHOLE = exists().where(Named(message.c.id, ready.c.message_id), message.c.body_id.is_(None))


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
_GONE = (
    delete(message)
    .where(message.c.id == select(_TAKEN.c.message_id).scalar_subquery())
    .returning(*rows.READ)
    .cte("gone")
)

_SHRINKS = {"messages": literal_column("-1"), "pages": -_GONE.c.pages, "size": -_GONE.c.size, "dequeued": ONE}

DEPART: Final = (
    select(*_GONE.c, _TAKEN.c.retries, NUMBER_OF_TRANSACTION)
    .where(_GONE.c.id == _TAKEN.c.message_id)
    .add_cte(no_longer_expiring(_GONE), _counted_twice(_GONE, _SHRINKS))
)
"""Dequeues the first message of a queue, and gives its columns, its retries, and the number of the transaction.

Where the definitions are other ones, something is due or has expired, or the body is kept apart, it does nothing.
"""

_TAKEN_TOGETHER = delete(ready).where(Among(THIS, _first().limit(by("most")))).returning(*_TAKES).cte("taken")
_GONE_TOGETHER = (
    delete(message)
    # `Named` alone does not make the other table known to a DELETE.
    .where(Named(message.c.id, _TAKEN_TOGETHER.c.message_id), _TAKEN_TOGETHER.c.message_id.is_not(None))
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

EMPTY: Final = select(_NEXT_DUE.scalar_subquery(), _IS_HELD).where(
    _HAS_GENERATION, ~_HAS_READY, ~_IS_DUE, ~_HAS_EXPIRED
)
"""Gives when the next message of a queue that has none is due, and whether a transaction holds one; else no row."""
