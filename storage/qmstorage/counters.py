"""How much queue spaces and queues hold, in SQL: one counter row for each, in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

from qmcore.errors import SystemFailureError
from qmcore.numbers import random_number
from qmcore.purpose import WrongPurposeError
from qmcore.queue import Queue
from qmcore.records import Counted, Figures, Role, Use
from qmstorage.dialect import OF_QUEUES, these
from qmstorage.schema import counter, due, held, highest
from qmstorage.sql import (
    BigInteger,
    ColumnElement,
    Integer,
    Table,
    Text,
    Update,
    bindparam,
    cast,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from qmstorage.statements import Row, given, insert_into
from qmstorage.states import NOT_PARKED, PARKED
from qmstorage.unit_part import StorePart, UnitPart


def adding(*names: str) -> Update:
    """Return the statement that adds `by_...` to each of these counters; in the order of the columns of the table."""
    return update(counter).values({name: counter.c[name] + bindparam(f"by_{name}") for name in names})


# Written out, so that its values can be given in their order.
OF_SPACE = (given(counter.c.space_id, "space_id"), counter.c.queue_id == literal_column("0"))
MOST = {"highest": func.max(counter.c.highest, counter.c.messages)}
"""Keeps what a queue space held before a change. Whatever messages there were at most, some leave after that, or it is
what there is: those who bring messages need not look. Sessions that share counters do it in another way."""
_OF_QUEUE = (given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "of_queue"))
_USE = (counter.c.messages, counter.c.pages, counter.c.size)
_ADD = insert_into(counter)
_REMOVE = delete(counter).where(*_OF_QUEUE)
_RESERVE = update(counter).where(*_OF_QUEUE).values(sequence=counter.c.sequence + bindparam("by_numbers"))
# Of the row of the queue, and of that of the queue space. What RETURNING costs, and two rows in one statement, is more
# than a statement more: with one writer at a time, what was looked up is still so.
_ARRIVE = adding("sequence", "messages", "pages", "size", "enqueued").where(*_OF_QUEUE)
_BEFORE = select(counter.c.sequence, *_USE).where(*_OF_QUEUE)
_CHARGE = adding("messages", "pages", "size").where(*OF_SPACE).values(MOST)
_LOWER_SPACE = (
    update(counter)
    .where(*OF_SPACE)
    .values(
        {
            "messages": counter.c.messages - bindparam("by_messages"),
            "pages": counter.c.pages - bindparam("by_pages"),
            "size": counter.c.size - bindparam("by_size"),
            "discarded": counter.c.discarded + bindparam("by_messages"),
            **MOST,
        }
    )
)


def _leave(how: str) -> Update:
    return update(counter).values(
        {
            "messages": counter.c.messages - bindparam("by_messages"),
            "pages": counter.c.pages - bindparam("by_pages"),
            "size": counter.c.size - bindparam("by_size"),
            how: counter.c[how] + bindparam("by_how"),
        }
    )


_HOW = ("dequeued", "expired", "discarded", "moved")
_LEAVE = {how: _leave(how).where(*_OF_QUEUE) for how in _HOW}
_LEAVE_SPACE = {how: _leave(how).where(*OF_SPACE).values(MOST) for how in _HOW}
_MOST_MESSAGES = select(func.max(counter.c.highest), func.sum(counter.c.messages)).where(*OF_SPACE)
_LAST_SEQUENCE = select(counter.c.sequence).where(*OF_SPACE)
_USE_OF_QUEUE = select(*_USE).where(*_OF_QUEUE)
_FLOW = (counter.c.enqueued, counter.c.dequeued, counter.c.expired, counter.c.discarded, counter.c.moved)
_COUNTED = select(counter.c.queue_id).where(given(counter.c.space_id, "of_space"), counter.c.queue_id > 0)
_GENERATION = select(counter.c.generation).where(
    given(counter.c.space_id, "space_id"), counter.c.queue_id == 0, counter.c.slot == 0
)


def _count(table: Table, *which: ColumnElement[bool]) -> ColumnElement[int]:
    """Return how many rows of a queue there are, of those which are counted row by row."""
    its = select(func.count()).select_from(table).where(table.c.queue_id == counter.c.queue_id, *which)
    return its.scalar_subquery()


def _total(of: ColumnElement[int]) -> ColumnElement[int]:
    """Return the sum over the rows of a queue, of which it has several where sessions share its counters."""
    # PostgreSQL makes another type of a sum.
    return cast(func.sum(of), BigInteger)


_FIGURES = (
    select(
        counter.c.queue_id,
        *(_total(column) for column in (*_USE, *_FLOW)),
        _count(due, due.c.available_at > bindparam("now"), NOT_PARKED),
        _count(due, PARKED),
        _count(held, held.c.role != int(Role.ENQUEUED)),
    )
    .where(*OF_QUEUES)
    .group_by(counter.c.queue_id)
)
"""All that `Figures` tells, in its order."""
_NOTED = select(highest.c.resource, highest.c.value).where(given(highest.c.space_id, "of_space"))
ITS = (given(highest.c.space_id, "of_space"), given(highest.c.resource, "of_resource"))
USED = bindparam("used", type_=BigInteger())
NEW = select(bindparam("of_space", type_=Integer()), bindparam("of_resource", type_=Text()), USED)
"""The row of a limit."""
_RAISE = update(highest).where(*ITS, highest.c.value < USED).values(value=USED)
_ADD_HIGHEST = insert(highest).from_select(highest.columns.keys(), NEW.where(~exists().where(*ITS)))
_FORGET_HIGHEST = delete(highest).where(given(highest.c.space_id, "of_space"))
_FORGET_MESSAGES = (
    update(counter)
    .where(given(counter.c.space_id, "of_space"), counter.c.queue_id == literal_column("0"))
    .values(highest=literal_column("0"))
)


class Counters(StorePart):
    """How much queue spaces and queues hold, and what went through them."""

    def reserve(self, space_id: int, count: int) -> Sequence[int]:
        """Give out `count` sequence numbers, which ascend."""
        last = self._whole(space_id)[0]
        self.run_in_order(_RESERVE, count, space_id, 0)
        return range(last + 1, last + count + 1)

    def bring_to_disk(self, space_id: int) -> None:
        """Change something on disk, so that with the commit all is there that was committed before."""
        self.reserve(space_id, 0)

    def last_sequence(self, space_id: int) -> int:
        """Return the last sequence number that was given out."""
        return int(self.all(_LAST_SEQUENCE, space_id=space_id)[0][0])

    def arrive(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int) -> Counted:
        """Count messages in and give out as many sequence numbers."""
        last, messages, whole_pages, whole_size = self._whole(space_id)
        for each in (0, queue_id):
            self.run_in_order(_ARRIVE, count, count, pages, size, count, space_id, each)
        after = Use(messages + count, whole_pages + pages, whole_size + size)
        return Counted(range(last + 1, last + count + 1), after)

    def arrive_charged(self, space_id: int, queue_id: int, use: Use) -> Sequence[int]:
        """Count messages in, the room of which is counted already as that of no queue; give out as many numbers."""
        last = self._whole(space_id)[0]
        count, pages, size = use
        self.run_in_order(_ARRIVE, count, 0, 0, 0, count, space_id, 0)
        self.run_in_order(_ARRIVE, count, count, pages, size, count, space_id, queue_id)
        return range(last + 1, last + count + 1)

    def leave(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out; `how` is the counter that grows: dequeued, expired, discarded or moved."""
        if count and how == "dequeued" and not self.store.purpose.settles:
            raise WrongPurposeError(self.store.purpose, "consumes messages")
        execute, texts = self.cursor.execute, self.texts.in_order
        execute(texts[_LEAVE_SPACE[how]], (count, pages, size, count, space_id))
        execute(texts[_LEAVE[how]], (count, pages, size, count, space_id, queue_id))

    def come_to_places(self, space_id: int, consumers: Sequence[int], *, count: int, pages: int, size: int) -> None:
        """Count messages in for each of these consumers alone: their queue counts them once."""
        for each in consumers:
            self.run_in_order(_ARRIVE, 0, count, pages, size, count, space_id, each)

    def leave_place(self, space_id: int, consumer_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out for a consumer alone; `how` is as in `leave`."""
        if count and how == "dequeued" and not self.store.purpose.settles:
            raise WrongPurposeError(self.store.purpose, "consumes messages")
        self.run_in_order(_LEAVE[how], count, pages, size, count, space_id, consumer_id)

    def forget(self, space_id: int, consumer_id: int) -> None:
        """Count a consumer no longer, for which nothing stands any more."""
        self.run(_REMOVE, space_id=space_id, of_queue=consumer_id)

    def charge(self, space_id: int, *, messages: int, pages: int, size: int) -> None:
        """Count room of the queue space that no queue has yet, in or, less than nothing, out."""
        self.run_in_order(_CHARGE, messages, pages, size, space_id)

    def level(self, space_id: int) -> Use:
        """Return how much the queue space holds."""
        return Use(*self._whole(space_id)[1:])

    def most_messages(self, space_id: int) -> int:
        """Return how many messages of the queue space stood here at most at one time, since that began to count."""
        return max(int(count or 0) for count in self.all(_MOST_MESSAGES, space_id=space_id)[0])

    def counted(self, space_id: int) -> set[int]:
        """Return the queues of a queue space that are counted."""
        return {row[0] for row in self.all(_COUNTED, of_space=space_id)}

    def generation(self, space_id: int) -> int | None:
        """Return the generation of a queue space, which stands with its counters; None where it is gone."""
        row = self.one(_GENERATION, space_id=space_id)
        return None if row is None else int(row[0])

    def use(self, of: Queue) -> Use:
        """Return how much the queue holds."""
        return self.use_of(of.space_id, of.id)

    def figures(self, queues: Sequence[Queue], now_us: int) -> dict[int, Figures]:
        """Return what each of these queues of one queue space holds and what went through it, by their numbers."""
        if not queues:
            return {}
        # Where a row is gone, qcheck says so; whatever else is asked goes on.
        return {row[0]: Figures(*row[1:]) for row in self.all(_FIGURES, now=now_us, **these(queues))}

    def add(self, space_id: int, queue_id: int) -> None:
        """Begin to count a queue, or with 0 the queue space as a whole."""
        zero = dict.fromkeys((column.name for column in counter.columns), 0)
        own = {"space_id": space_id, "queue_id": queue_id, "slot": 0, "generation": random_number()}
        self.run(_ADD, **(zero | own))

    def remove(self, space_id: int, queue_id: int) -> None:
        """Count the queue no longer; what it held is counted out of the queue space."""
        use = self.use_of(space_id, queue_id)
        self.run(_LOWER_SPACE, space_id=space_id, by_messages=use.messages, by_pages=use.pages, by_size=use.size)
        self.run(_REMOVE, space_id=space_id, of_queue=queue_id)

    def _whole(self, space_id: int) -> Row:
        """Return the last sequence number of a queue space that was given out, and the queue space's use."""
        row: Row | None = self.run_in_order(_BEFORE, space_id, 0).fetchone()
        if row is None:
            raise SystemFailureError(
                f"the record of queue space number {space_id} is damaged: nothing is counted of it",
                hint="Restore the device from a backup.",
            )
        return row

    def use_of(self, space_id: int, queue_id: int) -> Use:
        """Return how much a queue holds, or with 0 the queue space; nothing where it is not counted."""
        return Use(*(self.one(_USE_OF_QUEUE, space_id=space_id, of_queue=queue_id) or (0, 0, 0)))


class Highest(UnitPart):
    """The highest use of limits."""

    def of_space(self, space_id: int) -> dict[str, int]:
        """Return the highest use that was noted of each limit of a queue space; none for one that was never used."""
        return dict(self.all(_NOTED, of_space=space_id))

    def raise_to(self, space_id: int, limit: str, used: int) -> None:
        """Note how much of a limit is in use, unless more was noted before."""
        values = {"of_space": space_id, "of_resource": limit, "used": used}
        if self.run(_RAISE, **values).rowcount == 0:
            self.run(_ADD_HIGHEST, **values)

    def forget(self, space_id: int) -> None:
        """Forget the highest use of a queue space, that of messages on disk too, and change the generation."""
        self.run(_FORGET_HIGHEST, of_space=space_id)
        self.run(_FORGET_MESSAGES, of_space=space_id)
        self.unit.change_generation(space_id)
