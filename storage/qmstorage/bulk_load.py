"""Messages that are loaded and removed many at a time, in queues that are hidden, in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from qmcore import bulk_rows, numbers
from qmcore.message import State
from qmcore.records import Place, Use
from qmstorage import bodies
from qmstorage.rows import FORGET
from qmstorage.schema import chunk, counter, due, expiring, history, message, ready
from qmstorage.selection import STANDS
from qmstorage.sql import ColumnElement, Table, bindparam, delete, elements, insert, select, update
from qmstorage.statements import Row, Statement, given, insert_into
from qmstorage.unit_part import StorePart

_AT: Final = {name: at for at, name in enumerate(bulk_rows.COLUMNS)}
_KEY, _GROUP, _BODY = _AT["order_key"], _AT["group_sequence"], _AT["body"]
_AVAILABLE, _EXPIRES, _RETRIES, _UNTIL = (_AT[name] for name in ("available_at", "expires_at", "retries", "until"))
_CONSUMED, _CONSUMER, _TRANSACTION = _AT["consumed_at"], _AT["consumer"], _AT["transaction"]

# The columns before and after the group are the same in both, in the same order, and so from the body on.
_SAME: Final = ("id", "queue_id", *bulk_rows.COLUMNS[_KEY:_GROUP], "group_id", *bulk_rows.COLUMNS[_GROUP + 1 : _BODY])
assert tuple(message.columns.keys()) == (*_SAME, "body_id", *bulk_rows.COLUMNS[_BODY:_RETRIES])  # noqa: S101 - `_message_rows` relies on it

_TABLES = (message, ready, due, expiring, history)
_PUT: Final = {table.name: insert_into(table) for table in _TABLES}
# A memory may be ahead of the disk, where a process died between the two.
_PUT_IF_NEW: Final = {
    table.name: insert(table)
    .values({column.name: bindparam(column.name) for column in table.columns})
    .prefix_with("OR IGNORE", dialect="sqlite")
    for table in _TABLES
}
_PASSED = select(counter.c.enqueued).where(given(counter.c.space_id, "of_space"), given(counter.c.queue_id, "of_queue"))
_ADJUST = (
    update(counter)
    .where(given(counter.c.space_id, "of_space"), given(counter.c.queue_id, "of_queue"))
    .values(
        messages=counter.c.messages + bindparam("by_messages"),
        pages=counter.c.pages + bindparam("by_pages"),
        size=counter.c.size + bindparam("by_size"),
        enqueued=counter.c.enqueued + bindparam("by_passed"),
    )
)


class StateTable:
    """A table of states: how messages of a queue in it are found, removed, and given another queue."""

    def __init__(self, table: Table, key: ColumnElement[Any], *, counts: bool) -> None:
        self.table = table
        self.counts = counts
        self.columns = (
            key,
            table.c.message_id,
            message.c.pages,
            message.c.size,
            message.c.expires_at,
            message.c.body_id,
            message.c.group_id,
        )
        found = (
            select(*self.columns)
            .join_from(table, message, elements.Named(message.c.id, table.c.message_id))
            .where(given(table.c.queue_id, "of_queue"))
        )
        self.first: Statement = found.order_by(key, table.c.message_id).limit(bindparam("most"))
        # From the messages of the group: there are few, and an index finds them.
        self.of_group: Statement = found.where(
            given(message.c.queue_id, "of_queue"), given(message.c.group_id, "of_group")
        )
        one = (given(table.c.queue_id, "of_queue"), given(key, "of_key"), given(table.c.message_id, "of_message"))
        self.remove: Statement = delete(table).where(*one)
        self.rehome: Statement = update(table).where(*one).values(queue_id=bindparam("to_queue"))


READY: Final = StateTable(ready, ready.c.order_key, counts=True)
DUE: Final = StateTable(due, due.c.available_at, counts=True)
_PAST = StateTable(history, history.c.consumed_at, counts=False)
_LEADS: Final = {READY: STANDS, DUE: elements.Named(due.c.message_id, message.c.id)}
STANDING: Final = {
    table: select(*table.columns, table.table.c.order_key, table.table.c.retries)
    .join_from(message, table.table, leads)
    .where(given(message.c.queue_id, "of_queue"))
    for table, leads in _LEADS.items()
}
"""The messages of a queue that are in a table, found by message: their order key and retries come last."""
_ONE_STANDING: Final = {
    table: statement.where(given(message.c.id, "of_message")) for table, statement in STANDING.items()
}

_ONE_EXPIRING = (
    given(expiring.c.queue_id, "of_queue"),
    given(expiring.c.expires_at, "of_key"),
    given(expiring.c.message_id, "of_message"),
)
_REMOVE_EXPIRING = delete(expiring).where(*_ONE_EXPIRING)
_REHOME_EXPIRING = update(expiring).where(*_ONE_EXPIRING).values(queue_id=bindparam("to_queue"))
_REHOME = update(message).where(given(message.c.id, "of_message")).values(queue_id=bindparam("to_queue"))
_REMOVE_BODY = delete(chunk).where(given(chunk.c.body_id, "of_body"))


class BulkLoad(StorePart):
    """Messages that are loaded and removed many at a time, in queues that are hidden."""

    def load(self, space_id: int, queue_id: int, state: State, rows: Sequence[bulk_rows.Row]) -> None:
        """Store messages from bulk rows in their states. Nobody is notified, and nothing is counted."""
        base = numbers.number(space_id, 0)
        self.put_rows(message, self._message_rows(base, queue_id, rows))
        if state is State.CONSUMED:
            past = [(queue_id, row[_CONSUMED], base + row[0], row[_CONSUMER], row[_TRANSACTION]) for row in rows]
            self.put_rows(history, past)
            return
        if state is State.DELAYED:
            waiting = [(queue_id, row[_UNTIL], base + row[0], row[_KEY], row[_RETRIES]) for row in rows]
            # What its sender did not ask for was a consumer's doing.
            asked = [row[_AVAILABLE] == row[_UNTIL] and not row[_RETRIES] for row in rows]
            self.put_rows(due, [(*its, int(not was)) for its, was in zip(waiting, asked, strict=True)])
        else:
            self.put_rows(ready, [(queue_id, row[_KEY], base + row[0], row[_RETRIES]) for row in rows])
        ending = [(queue_id, row[_EXPIRES], base + row[0]) for row in rows if row[_EXPIRES] is not None]
        if ending:
            self.put_rows(expiring, ending)

    def adjust(self, space_id: int, queue_id: int, use: Use, *, passed: int = 0) -> None:
        """Add to the counters of a queue alone: its use, and how many messages were enqueued."""
        self.run(
            _ADJUST,
            of_space=space_id,
            of_queue=queue_id,
            by_messages=use.messages,
            by_pages=use.pages,
            by_size=use.size,
            by_passed=passed,
        )

    def passed(self, space_id: int, queue_id: int) -> int:
        """Return how many messages of the queue were ever enqueued."""
        return sum(row[0] for row in self.all(_PASSED, of_space=space_id, of_queue=queue_id))

    def rehome(self, from_queue: int, to_queue: int, limit: int) -> tuple[int, Use]:
        """Move about `limit` messages of a hidden queue to another queue; groups stay together."""
        moved = 0
        charged = Use(0, 0, 0)
        for place in self._places():
            found = self._with_groups(from_queue, self._first(place, from_queue, limit - moved), place)
            for its_place, rows in found.items():
                own = {"of_queue": from_queue, "to_queue": to_queue}
                self.many(_REHOME, [{"of_message": row[1], "to_queue": to_queue} for row in rows])
                self.many(its_place.rehome, [{**own, "of_key": row[0], "of_message": row[1]} for row in rows])
                self.many(_REHOME_EXPIRING, [{**own, **expiry} for expiry in _expiries(its_place, rows)])
                moved += len(rows)
                charged = _more(charged, its_place, rows)
        return moved, charged

    def empty(self, queue_id: int, limit: int) -> tuple[int, Use]:
        """Delete at most `limit` messages of a hidden queue. Nothing is counted."""
        gone = 0
        charged = Use(0, 0, 0)
        for place in self._places():
            rows = self._first(place, queue_id, limit - gone)
            self._delete(place, queue_id, rows)
            gone += len(rows)
            charged = _more(charged, place, rows)
        return gone, charged

    def remove_unchanged(self, queue_id: int, places: Sequence[Place]) -> Use:
        """Delete those of these messages that are ready or delayed and whose key and retries are unchanged."""
        left = {place.message_id: place for place in places}
        charged = Use(0, 0, 0)
        for table in (READY, DUE):
            found = self.standing(table, queue_id, list(left)) if left else []
            were = {row[1]: left.pop(row[1]) for row in found}
            rows = [row for row in found if row[-2:] == (were[row[1]].order_key, were[row[1]].retries)]
            self._delete(table, queue_id, rows)
            charged = _more(charged, table, rows)
        return charged

    def standing(self, table: StateTable, queue_id: int, message_ids: Sequence[int]) -> list[Row]:
        """Return those of these messages of a queue that are in the table."""
        return [
            row
            for number in message_ids
            for row in self.all(_ONE_STANDING[table], of_queue=queue_id, of_message=number)
        ]

    def put_rows(self, table: Table, rows: Iterable[Row]) -> None:
        """Insert rows, whose values are in the order of the columns."""
        self.cursor.executemany(self.texts.in_order[(_PUT_IF_NEW if self.store.in_memory else _PUT)[table.name]], rows)

    def _message_rows(self, base: int, queue_id: int, rows: Sequence[bulk_rows.Row]) -> list[Row]:
        found: list[Row] = [
            (
                base + row[0],
                queue_id,
                *row[_KEY:_GROUP],
                None if row[_GROUP] is None else base + row[_GROUP],
                *row[_GROUP + 1 : _BODY],
                None,
                *row[_BODY:_RETRIES],
            )
            for row in rows
        ]
        for at, row in enumerate(rows):
            if row[bulk_rows.SIZE] > bodies.IN_ROW_MAX:
                number = base + row[0]
                if self.store.in_memory:
                    self.store.bodies.discard(number)
                self.store.bodies.put(number, row[_BODY])
                found[at] = (*found[at][:-4], number, None, *found[at][-2:])
        return found

    def _delete(self, table: StateTable, queue_id: int, rows: Sequence[Row]) -> None:
        own = {"of_queue": queue_id}
        self.many(_REMOVE_BODY, [{"of_body": row[5]} for row in rows if row[5] is not None])
        # In the order in which others take expired messages, to avoid deadlocks.
        ending = sorted(_expiries(table, rows), key=lambda expiry: (expiry["of_key"], expiry["of_message"]))
        self.many(_REMOVE_EXPIRING, [{**own, **expiry} for expiry in ending])
        self.many(table.remove, [{**own, "of_key": row[0], "of_message": row[1]} for row in rows])
        self.many(FORGET, [{"of_message": row[1]} for row in rows])

    def _places(self) -> tuple[StateTable, ...]:
        return (READY, DUE) if self.store.in_memory else (READY, DUE, _PAST)

    def _first(self, place: StateTable, queue_id: int, limit: int) -> list[Row]:
        return self.all(place.first, of_queue=queue_id, most=limit) if limit > 0 else []

    def _with_groups(self, queue_id: int, rows: list[Row], place: StateTable) -> dict[StateTable, list[Row]]:
        """Return the messages with all others of their groups, by the tables they are in."""
        found = {place: rows}
        if not place.counts:
            return found
        groups = {row[6] for row in rows if row[6] is not None}
        for other in (READY, DUE) if groups else ():
            known = {row[1] for row in found.get(other, [])}
            more = [row for group in groups for row in self.all(other.of_group, of_queue=queue_id, of_group=group)]
            found[other] = found.get(other, []) + [row for row in more if row[1] not in known]
        return found


def _expiries(place: StateTable, rows: Sequence[Row]) -> list[dict[str, Any]]:
    if not place.counts:
        return []
    return [{"of_key": row[4], "of_message": row[1]} for row in rows if row[4] is not None]


def _more(charged: Use, place: StateTable, rows: Sequence[Row]) -> Use:
    pages = charged.pages + sum(row[2] for row in rows)
    if not place.counts:
        return Use(charged.messages, pages, charged.size)
    return Use(charged.messages + len(rows), pages, charged.size + sum(row[3] for row in rows))
