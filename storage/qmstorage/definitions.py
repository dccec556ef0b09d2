"""The device list, queue spaces and queues in SQL."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Table,
    bindparam,
    delete,
    func,
    insert,
    literal,
    null,
    select,
    tuple_,
    union_all,
    update,
)

from qmcore import limits, numbers
from qmcore.device import DeviceEntry, DeviceInfo, Extent
from qmcore.errors import BadResourceError
from qmcore.limits import Threshold
from qmcore.message import State
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.port import Cursor, Level, Listing
from qmcore.queue import Delivery, Queue, QueueDefinition, QueueUsage
from qmcore.space import Space, SpaceDefinition
from qmstorage import rows
from qmstorage.runner import Row, Runner, Statement, given, insert_into
from qmstorage.schema import (
    adopted,
    counter,
    device,
    due,
    entry,
    expiring,
    extent,
    held,
    history,
    message,
    owner,
    queue,
    ready,
    space,
    threshold,
    trans,
    waiter,
)

_DEVICE = select(device)
_ADD_DEVICE = insert_into(device)
_ENTRIES = select(entry).order_by(entry.c.dlindex)
_ADD_ENTRY = insert_into(entry)
_RENAME_ENTRY = update(entry).where(given(entry.c.dlindex, "at")).values(path=bindparam("new_path"))
_REMOVE_ENTRY = delete(entry).where(given(entry.c.dlindex, "at"))
_EXTENTS = select(extent).order_by(extent.c.space, extent.c.number)
_ADD_EXTENT = insert_into(extent)
_REMOVE_EXTENTS = delete(extent).where(given(extent.c.space, "name"))

_SPACES = select(space).order_by(space.c.name)
_SPACE = select(space).where(given(space.c.name, "name"))
_FREE_SPACE_ID = select(func.coalesce(func.max(space.c.id), 0) + 1)
_ADD_SPACE = insert_into(space)
_SET_INITIALIZED = update(space).where(given(space.c.id, "space_id")).values(initialized=literal(True))
_REMOVE_SPACE = delete(space).where(given(space.c.id, "space_id"))
_ADD_COUNTER = insert_into(counter)
_GENERATION = select(counter.c.generation).where(given(counter.c.space_id, "space_id"), counter.c.queue_id == 0)
_CHANGE_GENERATION = (
    update(counter)
    .where(given(counter.c.space_id, "space_id"), counter.c.queue_id == 0)
    .values(generation=bindparam("new_generation"))
)
_LEVEL = select(counter.c.sequence, counter.c.messages, counter.c.pages).where(
    given(counter.c.space_id, "space_id"), counter.c.queue_id == 0
)
_QUEUES = select(queue).where(given(queue.c.space_id, "space_id")).order_by(queue.c.name)
_ADD_QUEUE = (
    insert(queue).values({c.name: bindparam(c.name) for c in queue.columns if c.name != "id"}).returning(queue.c.id)
)
_REMOVE_QUEUE = delete(queue).where(given(queue.c.id, "queue_id"))
_REMOVE_SPACE_QUEUES = delete(queue).where(given(queue.c.space_id, "space_id"))
_COUNTERS = select(
    counter.c.messages,
    counter.c.pages,
    counter.c.size,
    counter.c.enqueued,
    counter.c.dequeued,
    counter.c.expired,
    counter.c.discarded,
    counter.c.moved,
).where(given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "queue_id"))
_REMOVE_COUNTER = delete(counter).where(given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "queue_id"))
_LOWER_SPACE = (
    update(counter)
    .where(given(counter.c.space_id, "space_id"), counter.c.queue_id == 0)
    .values(
        messages=counter.c.messages - bindparam("by_messages"),
        pages=counter.c.pages - bindparam("by_pages"),
        size=counter.c.size - bindparam("by_size"),
        discarded=counter.c.discarded + bindparam("by_messages"),
    )
)
_COUNT_DUE = (
    select(func.count())
    .select_from(due)
    .where(given(due.c.queue_id, "queue_id"), due.c.available_at > bindparam("now"))
)
_COUNT_HELD = select(func.count()).select_from(held).where(given(held.c.queue_id, "queue_id"))
_FIRST = (
    select(message.c.enqueued_at)
    .join(ready, ready.c.message_id == message.c.id)
    .where(given(ready.c.queue_id, "queue_id"))
    .order_by(ready.c.order_key)
    .limit(1)
)
_STATES = (ready, due, held, history)
_REMOVE_MESSAGES = delete(message).where(
    message.c.id.in_(
        union_all(*(select(table.c.message_id).where(given(table.c.queue_id, "queue_id")) for table in _STATES))
    )
)
_EMPTY_QUEUE = [
    delete(table).where(given(table.c.queue_id, "queue_id")) for table in (*_STATES, expiring, waiter, threshold)
]
_REMOVE_SPACE_MESSAGES = delete(message).where(message.c.id.between(bindparam("low"), bindparam("high")))
_EMPTY_SPACE = [delete(table).where(given(table.c.space_id, "space_id")) for table in (trans, owner, adopted, counter)]
_INFO = [column for column in message.columns if column.name != "body"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Listing:
    """How messages in one state are listed: a statement, and a cursor before the first of them."""

    statement: Statement
    start: Cursor


def _list(state: Table, until: ColumnElement[Any], first: ColumnElement[Any], second: ColumnElement[Any]) -> Statement:
    behind = tuple_(first, second) > tuple_(
        bindparam("first", type_=first.type), bindparam("second", type_=second.type)
    )
    return (
        select(state.c.retries, until, first, second, *_INFO)
        .join_from(state, message, state.c.message_id == message.c.id)
        .where(given(state.c.queue_id, "of_queue"), behind)
        .order_by(first, second)
        .limit(bindparam("most"))
    )


_LISTINGS = {
    State.READY: _Listing(_list(ready, null(), ready.c.order_key, ready.c.message_id), (b"", 0)),
    State.DELAYED: _Listing(_list(due, due.c.available_at, due.c.available_at, due.c.message_id), (-(2**63), 0)),
    State.HELD: _Listing(_list(held, null(), held.c.trans_id, held.c.message_id), (0, 0)),
}


class Definitions(Runner):
    """The device list, queue spaces and queues."""

    def device(self) -> DeviceInfo:
        """Return what the device records about itself."""
        row = self.one(_DEVICE)
        if row is None:
            raise BadResourceError("the file has no device record")
        return DeviceInfo(id=row[0], page_size=row[2], durability=row[3], group=row[4], created_at=row[6])

    def add_device(self, info: DeviceInfo, *, main: bool) -> None:
        """Record the device in a new volume; `main` in the one that QMCONFIG names."""
        self.run(
            _ADD_DEVICE,
            id=info.id,
            main=main,
            page_size=info.page_size,
            durability=info.durability,
            group_name=info.group,
            commands=True,
            created_at=info.created_at,
        )

    def entries(self) -> list[DeviceEntry]:
        """Return the device list in the order of its indexes."""
        return [DeviceEntry(*row) for row in self.all(_ENTRIES)]

    def add_entry(self, new: DeviceEntry) -> None:
        """Add an entry to the device list."""
        self.run(_ADD_ENTRY, dlindex=new.index, path=new.path, first_page=new.offset, pages=new.pages)

    def rename_entry(self, index: int, path: str) -> None:
        """Give an entry of the device list another path."""
        self.run(_RENAME_ENTRY, at=index, new_path=path)

    def remove_entry(self, index: int) -> None:
        """Remove an entry from the device list."""
        self.run(_REMOVE_ENTRY, at=index)

    def extents(self) -> list[Extent]:
        """Return the table of contents."""
        return [Extent(*row) for row in self.all(_EXTENTS)]

    def add_extents(self, extents: Iterable[Extent]) -> None:
        """Add rows to the table of contents."""
        for new in extents:
            self.run(
                _ADD_EXTENT,
                space=new.space,
                number=new.number,
                dlindex=new.entry,
                first_page=new.first,
                pages=new.pages,
            )

    def remove_extents(self, name: str) -> None:
        """Remove the rows of a queue space from the table of contents."""
        self.run(_REMOVE_EXTENTS, name=name)

    def space(self, name: str) -> Space | None:
        """Return the queue space of that name."""
        row = self.one(_SPACE, name=name)
        return None if row is None else _space(row)

    def spaces(self) -> list[Space]:
        """Return all queue spaces of the volume by name."""
        return [_space(row) for row in self.all(_SPACES)]

    def add_space(self, definition: SpaceDefinition, incarnation: str, created_us: int) -> Space:
        """Record a queue space, its counters at zero."""
        row = self.one(_FREE_SPACE_ID)
        assert row is not None  # noqa: S101 - an aggregate always has a row
        values = dataclasses.asdict(definition)
        new = Space(row[0], incarnation, definition, initialized=False, created_at=created_us)
        self.run(_ADD_SPACE, id=new.id, incarnation=incarnation, initialized=False, created_at=created_us, **values)
        self._add_counter(new.id, 0)
        return new

    def set_initialized(self, space_id: int) -> None:
        """Record that the disk of the queue space has been allocated."""
        self.run(_SET_INITIALIZED, space_id=space_id)

    def remove_space(self, space_id: int) -> None:
        """Remove a queue space with everything in it."""
        low = numbers.number(space_id, 0)
        for old in self.queues(space_id):
            for statement in _EMPTY_QUEUE:
                self.run(statement, queue_id=old.id)
        self.run(_REMOVE_SPACE_MESSAGES, low=low, high=numbers.number(space_id + 1, 0) - 1)
        self.run(_REMOVE_SPACE_QUEUES, space_id=space_id)
        for statement in _EMPTY_SPACE:
            self.run(statement, space_id=space_id)
        self.run(_REMOVE_SPACE, space_id=space_id)

    def generation(self, space_id: int) -> int | None:
        """Return a number that changes with each change of a definition; None where the queue space is gone."""
        row = self.one(_GENERATION, space_id=space_id)
        return None if row is None else int(row[0])

    def queues(self, space_id: int) -> list[Queue]:
        """Return the queues of a queue space by name."""
        return [_queue(row) for row in self.all(_QUEUES, space_id=space_id)]

    def add_queue(self, space_id: int, definition: QueueDefinition, created_us: int) -> Queue:
        """Record a queue, its counters at zero, and change the generation."""
        row = self.one(_ADD_QUEUE, space_id=space_id, created_at=created_us, **_queue_values(definition))
        assert row is not None  # noqa: S101 - RETURNING gives the row
        self._add_counter(space_id, row[0])
        self._change_generation(space_id)
        return Queue(row[0], space_id, definition)

    def remove_queue(self, old: Queue) -> None:
        """Remove a queue with the messages and counters that it has, and change the generation."""
        messages, pages, size = self.all(_COUNTERS, space_id=old.space_id, queue_id=old.id)[0][:3]
        self.run(_REMOVE_MESSAGES, queue_id=old.id)
        for statement in _EMPTY_QUEUE:
            self.run(statement, queue_id=old.id)
        self.run(_LOWER_SPACE, space_id=old.space_id, by_messages=messages, by_pages=pages, by_size=size)
        self.run(_REMOVE_COUNTER, space_id=old.space_id, queue_id=old.id)
        self.run(_REMOVE_QUEUE, queue_id=old.id)
        self._change_generation(old.space_id)

    def level(self, space_id: int) -> Level:
        """Return how much the queue space holds."""
        return Level(*self.all(_LEVEL, space_id=space_id)[0])

    def usage(self, of: Queue, now_us: int) -> QueueUsage:
        """Return what the queue holds and what went through it."""
        messages, pages, size, *flow = self.all(_COUNTERS, space_id=of.space_id, queue_id=of.id)[0]
        ((delayed,),) = self.all(_COUNT_DUE, queue_id=of.id, now=now_us)
        ((held_now,),) = self.all(_COUNT_HELD, queue_id=of.id)
        first = self.one(_FIRST, queue_id=of.id)
        enqueued, dequeued, expired, discarded, moved = flow
        return QueueUsage(
            messages=messages,
            ready=messages - delayed - held_now,
            delayed=delayed,
            held=held_now,
            pages=pages,
            size=size,
            enqueued=enqueued,
            dequeued=dequeued,
            expired=expired,
            discarded=discarded,
            moved=moved,
            first_us=None if first is None else first[0],
        )

    def messages(self, of: Space, in_queue: Queue, state: State, after: Cursor | None, limit: int) -> Listing:
        """Return at most `limit` messages of the queue in one state, those behind the cursor, each with its cursor."""
        listing = _LISTINGS[state]
        first, second = after or listing.start
        return [
            ((at, then), rows.to_info(row, of.incarnation, in_queue.name, retries=retries, state=state, until=until))
            for retries, until, at, then, *row in self.all(
                listing.statement, of_queue=in_queue.id, first=first, second=second, most=limit
            )
        ]

    def _add_counter(self, space_id: int, queue_id: int) -> None:
        zero = dict.fromkeys((column.name for column in counter.columns), 0)
        own = {"space_id": space_id, "queue_id": queue_id, "generation": secrets.randbits(62)}
        self.run(_ADD_COUNTER, **(zero | own))

    def _change_generation(self, space_id: int) -> None:
        # By chance, not by counting: a number that was used in a transaction which then failed must not come again,
        # nor one of a destroyed queue space whose own number is used again.
        self.run(_CHANGE_GENERATION, space_id=space_id, new_generation=secrets.randbits(62))


def _space(row: Row) -> Space:
    values = dict(zip(space.columns.keys(), row, strict=True))
    number, incarnation = values.pop("id"), values.pop("incarnation")
    initialized, created_at = bool(values.pop("initialized")), values.pop("created_at")
    return Space(number, incarnation, SpaceDefinition(**values), initialized, created_at)


def _queue(row: Row) -> Queue:
    values = dict(zip(queue.columns.keys(), row, strict=True))
    definition = QueueDefinition(
        name=values["name"],
        order=QueueOrder.parse(values["ordering"]),
        out_of_order=OutOfOrder.parse(values["out_of_order"]),
        retries=values["retries"],
        retry_delay=values["retry_delay"],
        threshold=_threshold(values["high"], values["low"], values["command"]),
        memory_threshold=_threshold(values["memory_high"], values["memory_low"], values["memory_command"]),
        delivery=Delivery(values["delivery"]),
        expiration=values["expiration"],
    )
    return Queue(values["id"], values["space_id"], definition)


def _queue_values(definition: QueueDefinition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "ordering": str(definition.order),
        "out_of_order": str(definition.out_of_order),
        "retries": definition.retries,
        "retry_delay": definition.retry_delay,
        "high": str(definition.threshold.high),
        "low": str(definition.threshold.low),
        "command": definition.threshold.command,
        "memory_high": str(definition.memory_threshold.high),
        "memory_low": str(definition.memory_threshold.low),
        "memory_command": definition.memory_threshold.command,
        "delivery": definition.delivery.value,
        "expiration": definition.expiration,
        "error_queue": None,
        "keep_expired": False,
        "grouping": False,
        "retention": 0,
        "enqueue_enabled": True,
        "dequeue_enabled": True,
    }


def _threshold(high: str, low: str, command: str) -> Threshold:
    upper = limits.parse_high(high)
    return Threshold(upper, limits.parse_low(low, upper), command)
