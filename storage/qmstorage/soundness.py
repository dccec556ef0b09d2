"""Whether what is stored fits together: each message in one place, its body whole, everything counted as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    CTE,
    CompoundSelect,
    Integer,
    LargeBinary,
    Select,
    Table,
    and_,
    bindparam,
    cast,
    func,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from qmcore import numbers
from qmcore.findings import Fault
from qmcore.message import HEADER_PAGES_BYTES
from qmcore.queue import Queue
from qmcore.records import Role
from qmcore.space import Space
from qmstorage.runner import Runner, Statement, written
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
    space,
    trans,
)

if TYPE_CHECKING:
    from sqlalchemy.sql import ColumnElement
    from sqlalchemy.sql.compiler import SQLCompiler


class _Octets(FunctionElement[int]):
    """How many bytes a text has in UTF-8."""

    type = Integer()
    inherit_cache = True


@compiles(_Octets)
def _octets(element: _Octets, compiler: SQLCompiler, **options: Any) -> str:
    return f"length(CAST({compiler.process(element.clauses, **options)} AS BLOB))"


@compiles(_Octets, "postgresql")
def _octets_on_postgresql(element: _Octets, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length({compiler.process(element.clauses, **options)})"


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


def _placing(*tables: Table) -> list[tuple[str, Statement]]:
    places = _places(*tables).subquery("places")
    return [
        (
            "{} without a place in a queue: nobody can ever dequeue it",
            _counted(
                select(message.c.id).where(_of_space(message.c.id), message.c.id.not_in(select(places.c.message_id)))
            ),
        ),
        (
            "{} in more than one place",
            _counted(select(places.c.message_id).group_by(places.c.message_id).having(func.count() > 1)),
        ),
        (
            "{} that a queue has a place for and that is not there",
            _counted(select(places.c.message_id).where(places.c.message_id.not_in(select(message.c.id)))),
        ),
    ]


_PLACING = _placing(ready, due, held, history)
_PLACING_IN_MEMORY = _placing(ready, due, held)
_KEYS: list[tuple[str, Statement]] = [
    (
        "{} whose place is in another queue, or at another position, than the message says",
        _counted(
            select(message.c.id)
            .join(_KEYED, _KEYED.c.message_id == message.c.id)
            .where(or_(_KEYED.c.queue_id != message.c.queue_id, _KEYED.c.order_key != message.c.order_key))
        ),
    )
]
_EXPIRY: list[tuple[str, Statement]] = [
    (
        "{} that would never expire as it should",
        _counted(
            select(message.c.id)
            .join(_AVAILABLE, _AVAILABLE.c.message_id == message.c.id)
            .where(
                _of_space(message.c.id),
                message.c.expires_at.is_not(None),
                ~select(expiring.c.message_id)
                .where(
                    expiring.c.queue_id == _AVAILABLE.c.queue_id,
                    expiring.c.expires_at == message.c.expires_at,
                    expiring.c.message_id == message.c.id,
                )
                .exists(),
            )
        ),
    ),
    (
        "{} that would expire although it should not",
        _counted(
            select(expiring.c.message_id)
            .outerjoin(
                message, and_(message.c.id == expiring.c.message_id, message.c.expires_at == expiring.c.expires_at)
            )
            .where(
                _of_space(expiring.c.message_id),
                or_(message.c.id.is_(None), expiring.c.message_id.not_in(select(_AVAILABLE.c.message_id))),
            )
        ),
    ),
]
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
_BODIES: list[tuple[str, Statement]] = [
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
                    + func.coalesce(_Octets(message.c.headers), 0)
                    + message.c.size
                )
                // bindparam("page", type_=message.c.pages.type),
            )
        ),
    ),
]
_HELD_BY_NOBODY: list[tuple[str, Statement]] = [
    (
        "{} that a transaction holds which is not there: nobody can ever dequeue it",
        _counted(
            select(held.c.message_id).where(_of_space(held.c.message_id), held.c.trans_id.not_in(select(trans.c.id)))
        ),
    )
]
_HERE = bindparam("of_space", type_=owner.c.space_id.type)
_TOLD_BY_NOBODY = (
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
# As bytes, whatever somebody has written there.
_ORDER_KEYS = select(_KEYED.c.queue_id, cast(_KEYED.c.order_key, LargeBinary))
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
_COUNTERS = (
    select(counter.c.queue_id, *(func.sum(counter.c[name]) for name in ("messages", "pages", "size")))
    .where(counter.c.space_id == bindparam("of_space"))
    .group_by(counter.c.queue_id)
)
_NEWEST = select(message.c.enqueued_at).where(_of_space(message.c.id)).order_by(message.c.id.desc()).limit(1)
_LATEST = (
    select(func.max(trans.c.started_at)).where(trans.c.space_id == bindparam("of_space")),
    select(func.max(owner.c.since)).where(owner.c.space_id == bindparam("of_space")),
)
_STRAYS = (
    select(func.count())
    .select_from(message)
    .where(message.c.id.op(">>")(literal(numbers.SEQUENCE_BITS)).not_in(select(space.c.id)))
)
_ROWS = 10_000
"""How many positions are looked at between two steps."""

_LAST = select(func.max(message.c.id)).where(_of_space(message.c.id))


class Soundness(Runner):
    """Whether what a store has fits together. It is asked of what nobody changes meanwhile."""

    in_memory = False

    def faults(
        self,
        space: Space,
        queues: Sequence[Queue],
        page_size: int,
        step: Callable[[], None],
        hidden: Sequence[tuple[int, Queue]] = (),
    ) -> list[Fault]:
        """Return what is wrong with the messages of a queue space; `step` is called every now and then."""
        self._step = step
        low = numbers.number(space.id, 0)
        self._bounds = {"low": low, "high": low + numbers.SEQUENCE_MAX}
        parts: list[Callable[[], Iterator[Fault]]] = [
            lambda: self._ask(_PLACING_IN_MEMORY if self.in_memory else _PLACING),
            lambda: self._ask(_KEYS),
            lambda: self._ask(_EXPIRY),
            lambda: self._ask(_BODIES, page=page_size),
            lambda: self._ask([] if self.in_memory else _HELD_BY_NOBODY),
            lambda: self._told_by_nobody(space),
            lambda: self._misplaced([*queues, *(queue for _, queue in hidden)]),
            lambda: self._miscounted(space, queues, hidden),
        ]
        return [fault for part in parts for fault in part()]

    def last_number(self, space: Space) -> int:
        """Return the highest sequence number of the messages that are stored; 0 where there is none."""
        low = numbers.number(space.id, 0)
        return numbers.sequence(self.all(_LAST, low=low, high=low + numbers.SEQUENCE_MAX)[0][0] or 0)

    def latest(self, space: Space) -> int:
        """Return about the latest time that is stored of a queue space: of the last message, and of who is there."""
        low = numbers.number(space.id, 0)
        last = self.all(_NEWEST, low=low, high=low + numbers.SEQUENCE_MAX)
        others = [self.all(statement, of_space=space.id)[0][0] for statement in _LATEST]
        return int(max([0, *(row[0] for row in last), *(other for other in others if other is not None)]))

    def strays(self) -> int:
        """Return how many messages belong to no queue space that there is."""
        return int(self.all(_STRAYS)[0][0])

    def _ask(self, questions: list[tuple[str, Statement]], **values: Any) -> Iterator[Fault]:
        for sentence, statement in questions:
            ((count,),) = self.all(statement, **self._bounds, **values)
            self._step()
            if count:
                yield Fault(sentence.format(_messages(count)), count)

    def _told_by_nobody(self, space: Space) -> Iterator[Fault]:
        if self.in_memory:
            return
        ((count,),) = self.all(_TOLD_BY_NOBODY, of_space=space.id)
        if count:
            yield Fault(f"figures of a forwarder, or of a queue, that is not there: {count} rows", count)

    def _misplaced(self, queues: Sequence[Queue]) -> Iterator[Fault]:
        orders = {queue.id: queue.definition.order for queue in queues}
        wrong = 0
        for at, (queue_id, key) in enumerate(self.run(_ORDER_KEYS, **self._bounds)):
            wrong += queue_id in orders and not orders[queue_id].is_key(key)
            if at % _ROWS == 0:
                self._step()
        if wrong:
            yield Fault(f"{_messages(wrong)} at a position that the order of the queue does not know", wrong)

    def _miscounted(
        self, space: Space, queues: Sequence[Queue], hidden: Sequence[tuple[int, Queue]]
    ) -> Iterator[Fault]:
        names = {queue.id: f"queue {queue.name!r}" for queue in queues}
        filled = {queue.id: f"queue {queue.name!r} of import {number}" for number, queue in hidden}
        stored, spilled = self._sums(STORED), self._sums(SPILLED)
        retained = {} if self.in_memory else self._sums(RETAINED)
        strays = sum(count for queue_id, (count, _, _) in stored.items() if queue_id not in names | filled)
        # Memory learns of the end of a queue when somebody looks after it.
        if strays and not self.in_memory:
            yield Fault(f"{_messages(strays)} of a queue that is not there", strays)
        wanted_of = {
            queue_id: expected(stored.get(queue_id, _NONE), retained.get(queue_id, _NONE), spilled.get(queue_id, _NONE))
            for queue_id in names | filled
        }
        counted = {row[0]: tuple(row[1:]) for row in self.all(_COUNTERS, of_space=space.id)}
        more = []
        for queue_id, name in filled.items():
            charged, wanted = counted.get(queue_id, _NONE), wanted_of.pop(queue_id)
            more.append(tuple(part - there for part, there in zip(charged, wanted, strict=True)))
            if min(more[-1]) < 0:
                yield Fault(f"{name} has {_use(wanted)}, and is charged for {_use(charged)}")
        # What is retained is counted by its pages alone, and what is spilled in the queue space as a whole.
        whole = expected(_total(stored.values()), _total(retained.values()), _NONE)
        wanted_of[0] = _total([whole, *more])
        for queue_id, wanted in wanted_of.items():
            if self.in_memory and wanted == _NONE and queue_id not in counted:
                # Memory learns of a new queue when somebody looks after it.
                continue
            if counted.get(queue_id) != wanted:
                yield Fault(
                    f"{names.get(queue_id, 'the queue space')} has {_use(wanted)}, and {_use(counted.get(queue_id))}"
                    " are counted"
                )

    def _sums(self, statement: Statement) -> dict[int, tuple[int, int, int]]:
        found = self.all(statement, **self._bounds)
        self._step()
        return {row[0]: (row[1], row[2], row[3]) for row in found}


_NONE = (0, 0, 0)


def expected(
    stored: tuple[int, int, int], retained: tuple[int, int, int], spilled: tuple[int, int, int]
) -> tuple[int, int, int]:
    """Return the messages, pages and bytes that are to be counted of a queue that has these."""
    return (stored[0] - retained[0] - spilled[0], stored[1] - spilled[1], stored[2] - retained[2] - spilled[2])


def _total(sums: Iterable[tuple[int, ...]]) -> tuple[int, int, int]:
    rows = list(sums)
    return sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _use(use: tuple[int, ...] | None) -> str:
    if use is None:
        return "none"
    return f"{_messages(use[0])}, {use[1]} pages and {use[2]} bytes"
