"""How much queue spaces and queues hold, shared by sessions that do not wait for each other.

Each session writes rows of its own, those of its slot, and what is asked for is the sum over the slots. What others
have not committed yet is not in it: a limit can be overshot by what each other session has under way, one operation
or batch. Sequence numbers come from a sequence of the database.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qmcore.purpose import WrongPurposeError
from qmcore.records import Counted, Use
from qmstorage.counters import ITS, NEW, USED, Counters, Highest
from qmstorage.postgres.tables import quoted
from qmstorage.schema import counter, highest
from qmstorage.sql import (
    BigInteger,
    Text,
    bindparam,
    case,
    cast,
    delete,
    exists,
    func,
    literal_column,
    postgresql,
    select,
    union_all,
)
from qmstorage.statements import given

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresMemoryStore, PostgresUnit

_ADD = (
    postgresql.insert(counter)
    .values({column.name: bindparam(column.name) for column in counter.columns})
    .on_conflict_do_nothing()
)
_COUNTS = ("messages", "pages", "size", "enqueued", "dequeued", "expired", "discarded", "moved")
_USE = ("messages", "pages", "size")
_ZERO: Any = literal_column("0")
_WHOLE = _ZERO
_KEY = ("space_id", "queue_id", "slot")


def _sum(column: Any, name: str) -> Any:
    return cast(func.coalesce(func.sum(column), _ZERO), BigInteger).label(name)


def _row(queue: Any, **changes: Any) -> dict[str, Any]:
    own = {"space_id": _given("space_id"), "queue_id": queue, "slot": _given("slot")}
    return {**dict.fromkeys(("generation", "sequence", *_COUNTS), _ZERO), **own, **changes}


def _given(name: str) -> Any:
    return bindparam(name, type_=counter.c[name].type)


def _added(*queues: Any, others: Any = None, **changes: Any) -> Any:
    """Return the statement that adds to this session's rows of the queues, which it makes if need be.

    With the messages that `others` than this session have counted of the whole, the most of all there were is kept.
    """
    most = {} if others is None else {"highest": others + changes["messages"]}
    none = dict.fromkeys(most, _ZERO)
    adding = postgresql.insert(counter).values(
        [_row(queue, **changes, **(most if queue is _WHOLE else none)) for queue in queues]
    )
    new = {name: counter.c[name] + adding.excluded[name] for name in changes}
    if most:
        level = counter.c.messages + adding.excluded.highest
        new["highest"] = case(
            (counter.c.queue_id == _WHOLE, func.greatest(counter.c.highest, level)), else_=counter.c.highest
        )
    return adding.on_conflict_do_update(index_elements=_KEY, set_=new)


def _by(name: str) -> Any:
    return bindparam(name, type_=BigInteger())


_QUEUE = bindparam("of_queue", type_=counter.c.queue_id.type)
_OF_OTHERS = counter.c.slot != _given("slot")
_CHANGES = {"messages": _by("count"), "pages": _by("by_pages"), "size": _by("by_size")}


def _added_and_summed(queues: tuple[Any, ...], *more: Any, **changes: Any) -> Any:
    # What the statement itself changes is not seen by its other parts, so that the own rows come from their change.
    use = (counter.c.queue_id, *(counter.c[name] for name in _USE))
    of_others = given(counter.c.space_id, "space_id"), counter.c.queue_id.in_(queues), _OF_OTHERS
    others = select(*use).where(*of_others).cte("others")
    theirs = select(_sum(others.c.messages, "messages")).where(others.c.queue_id == _WHOLE).scalar_subquery()
    own = _added(*queues, others=theirs, **changes).returning(*use).cte("own")
    both = union_all(select(own), select(others)).subquery("both")
    return (
        select(both.c.queue_id, *(_sum(both.c[name], name) for name in _USE), *more)
        .group_by(both.c.queue_id)
        .order_by(both.c.queue_id)
    )


_NUMBER = cast(func.pg_current_xact_id(), Text)
"""The number of the transaction, by which another session can ask whether it was committed."""

# Of the types that the server's own function has: another one in the path of an application would fit better.
_EACH = func.generate_series(cast(literal_column("1"), BigInteger), _by("count"))
_NEXT = select(func.nextval(bindparam("sequence"))).select_from(_EACH)
# As an array it is asked for once, and not for each row.
_ARRIVE = _added_and_summed(
    (_WHOLE, _QUEUE), func.array(_NEXT.scalar_subquery()), _NUMBER, **_CHANGES, enqueued=_by("count")
)
_ARRIVE_IN_MEMORY = _added_and_summed((_WHOLE, _QUEUE), _NUMBER, **_CHANGES, enqueued=_by("count"))
_CHARGE = _added_and_summed((_WHOLE,), **_CHANGES)
ADJUST = _added(_QUEUE, **_CHANGES, enqueued=_by("by_passed"))
"""Counts for a queue alone."""
_LEAVE = {
    how: _added(_WHOLE, _QUEUE, **_CHANGES, **{how: _by("departed")}).returning(_NUMBER)
    for how in ("dequeued", "expired", "discarded", "moved")
}
_LEAVE_PLACE = {
    how: _added(_QUEUE, **_CHANGES, **{how: _by("departed")}) for how in ("dequeued", "expired", "discarded", "moved")
}
_LOWER_SPACE = _added(_WHOLE, **_CHANGES, discarded=_by("departed"))
_OF_QUEUE = (given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "of_queue"))
_USE_OF_QUEUE = select(*(_sum(counter.c[name], name) for name in _USE)).where(*_OF_QUEUE)
_REMOVE = delete(counter).where(*_OF_QUEUE)
# Where it does not rise no row is locked.
_ADDING = postgresql.insert(highest).from_select(
    highest.columns.keys(), NEW.where(~exists().where(*ITS, highest.c.value >= USED))
)
_RAISE = _ADDING.on_conflict_do_update(
    index_elements=highest.primary_key.columns.keys(),
    set_={"value": _ADDING.excluded.value},
    where=highest.c.value < _ADDING.excluded.value,
)
"""Notes how much of a limit is in use, unless more was noted before."""


class SharedCounters(Counters):
    """How much queue spaces and queues hold, and what went through them."""

    store: PostgresUnit | PostgresMemoryStore

    def sequence_name(self, space_id: int) -> str:
        """Return the name of the sequence that numbers the messages of a queue space."""
        return f"{quoted(self.store.schema)}.sequence_{space_id}"

    def reserve(self, space_id: int, count: int) -> Sequence[int]:
        """Give out `count` sequence numbers, which ascend; other sessions may get some that lie between them."""
        if not count:
            return ()
        return sorted(row[0] for row in self.all(_NEXT, sequence=self.sequence_name(space_id), count=count))

    def bring_to_disk(self, space_id: int) -> None:
        """Write a record, so that with the commit all is on the disk that was committed before."""
        del space_id
        self.cursor.execute("SELECT pg_logical_emit_message(true, 'qmadmin', '')")

    def last_sequence(self, space_id: int) -> int:
        """Return the last sequence number that was given out."""
        self.cursor.execute(f"SELECT last_value, is_called FROM {self.sequence_name(space_id)}")  # noqa: S608 - ours
        last, is_called = self.cursor.fetchone()
        return int(last) if is_called else int(last) - 1

    def arrive(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int) -> Counted:
        """Count messages in and give out as many sequence numbers."""
        values = {"count": count, "by_pages": pages, "by_size": size, "of_queue": queue_id, "slot": self.store.slot}
        if self.store.in_memory:
            # Their numbers come from the store on disk.
            whole, _ = self.all(_ARRIVE_IN_MEMORY, space_id=space_id, **values)
            self.store.heard.append(whole[4])
            return Counted((), Use(*whole[1:4]))
        whole, _ = self.all(_ARRIVE, space_id=space_id, sequence=self.sequence_name(space_id), **values)
        self.store.heard.append(whole[5])
        return Counted(sorted(whole[4]), Use(*whole[1:4]))

    def arrive_charged(self, space_id: int, queue_id: int, use: Use) -> Sequence[int]:
        """Count messages in, the room of which is counted already as that of no queue; give out as many numbers."""
        self.charge(space_id, messages=-use.messages, pages=-use.pages, size=-use.size)
        return self.arrive(space_id, queue_id, count=use.messages, pages=use.pages, size=use.size).sequences

    def leave(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out; `how` is the counter that grows: dequeued, expired, discarded or moved."""
        if count and how == "dequeued" and not self.store.purpose.settles:
            raise WrongPurposeError(self.store.purpose, "consumes messages")
        values = {"count": -count, "by_pages": -pages, "by_size": -size, "departed": count}
        told = self.one(_LEAVE[how], space_id=space_id, of_queue=queue_id, slot=self.store.slot, **values)
        self.store.heard += told or ()

    def come_to_places(self, space_id: int, consumers: Sequence[int], *, count: int, pages: int, size: int) -> None:
        """Count messages in for each of these consumers alone: their queue counts them once."""
        its = {"space_id": space_id, "slot": self.store.slot, "count": count, "by_pages": pages, "by_size": size}
        for each in consumers:
            self.run(ADJUST, of_queue=each, by_passed=count, **its)

    def leave_place(self, space_id: int, consumer_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out for a consumer alone; `how` is as in `leave`."""
        if count and how == "dequeued" and not self.store.purpose.settles:
            raise WrongPurposeError(self.store.purpose, "consumes messages")
        its = {"space_id": space_id, "of_queue": consumer_id, "slot": self.store.slot}
        self.run(_LEAVE_PLACE[how], **its, count=-count, by_pages=-pages, by_size=-size, departed=count)

    def charge(self, space_id: int, *, messages: int, pages: int, size: int) -> None:
        """Count room of the queue space that no queue has yet, in or, less than nothing, out."""
        values = {"count": messages, "by_pages": pages, "by_size": size}
        self.run(_CHARGE, space_id=space_id, slot=self.store.slot, **values)

    def level(self, space_id: int) -> Use:
        """Return how much the queue space holds."""
        return self.use_of(space_id, 0)

    def add(self, space_id: int, queue_id: int) -> None:
        """Begin to count a queue, or with 0 the queue space as a whole, if that is not so yet."""
        zero = dict.fromkeys((column.name for column in counter.columns), 0)
        own = {"space_id": space_id, "queue_id": queue_id, "generation": secrets.randbits(62)}
        self.run(_ADD, **(zero | own))

    def remove(self, space_id: int, queue_id: int) -> None:
        """Count the queue no longer; what it held is counted out of the queue space."""
        use = self.use_of(space_id, queue_id)
        values = {"count": -use.messages, "by_pages": -use.pages, "by_size": -use.size, "departed": use.messages}
        self.run(_LOWER_SPACE, space_id=space_id, slot=self.store.slot, **values)
        self.run(_REMOVE, space_id=space_id, of_queue=queue_id)

    def use_of(self, space_id: int, queue_id: int) -> Use:
        """Return how much a queue holds, or with 0 the queue space; nothing where it is not counted."""
        return Use(*self.all(_USE_OF_QUEUE, space_id=space_id, of_queue=queue_id)[0])


class SharedHighest(Highest):
    """The highest use of limits."""

    def raise_to(self, space_id: int, limit: str, used: int) -> None:
        """Note how much of a limit is in use, unless more was noted before."""
        self.run(_RAISE, of_space=space_id, of_resource=limit, used=used)
