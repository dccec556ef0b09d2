"""Where messages stand while no transaction holds them, in SQL: ready, due at a time, expiring at a time."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Final

from qmcore import times
from qmcore.condition import Condition
from qmcore.damage import NO_RECORD, damaged
from qmcore.message import PARKED_UNTIL
from qmcore.order import rank
from qmcore.queue import Queue
from qmcore.records import Changeable, Edge, Holding, Place
from qmcore.selection import Choice
from qmcore.space import Space
from qmstorage import conditions, selection
from qmstorage.dialect import OF_QUEUES, first_of_each, these
from qmstorage.schema import IS_GIVEN_BACK, counter, due, expiring, message, ready
from qmstorage.sql import (
    and_,
    bindparam,
    delete,
    elements,
    exists,
    literal_column,
    select,
    tuple_,
    union_all,
)
from qmstorage.statements import Row, Statement, given, insert_into
from qmstorage.unit_part import StorePart

# Nothing is later; an equality would make SQLite sort what it finds behind a cursor.
PARKED = due.c.available_at >= literal_column(str(PARKED_UNTIL))
"""The condition that a message is kept back without a time."""
NOT_PARKED = due.c.available_at < literal_column(str(PARKED_UNTIL))
"""The condition that it is kept back for a time."""
_MAKE_READY = insert_into(ready)
_MAKE_DUE = insert_into(due)
_MAKE_EXPIRING = insert_into(expiring)
_UNMAKE_EXPIRING = delete(expiring).where(
    given(expiring.c.queue_id, "of_queue"),
    given(expiring.c.expires_at, "at"),
    given(expiring.c.message_id, "of_message"),
)
_NEXT_DUE = select(due.c.available_at).where(given(due.c.queue_id, "of_queue")).order_by(due.c.available_at).limit(1)
_HAS_DUE = exists().where(given(due.c.queue_id, "of_queue"), due.c.available_at <= bindparam("now"))
_HAS_EXPIRED = exists().where(given(expiring.c.queue_id, "of_messages"), expiring.c.expires_at <= bindparam("now"))
PENDING_WORK = select(_HAS_DUE, _HAS_EXPIRED)
_FIRST_MOMENTS = union_all(first_of_each(due, due.c.available_at), first_of_each(expiring, expiring.c.expires_at))
_RELEASE = (
    delete(due)
    .where(
        tuple_(due.c.queue_id, due.c.available_at, due.c.message_id).in_(
            select(due.c.queue_id, due.c.available_at, due.c.message_id)
            .where(given(due.c.queue_id, "of_queue"), due.c.available_at <= bindparam("now"))
            .order_by(due.c.available_at, due.c.message_id)
            .limit(bindparam("most"))
        )
    )
    .returning(due.c.message_id, due.c.order_key, due.c.retries)
)
_READY_OF_IT = and_(
    given(ready.c.queue_id, "of_queue"), ready.c.order_key == message.c.order_key, ready.c.message_id == message.c.id
)
_DUE_OF_IT = and_(elements.Named(due.c.message_id, message.c.id), given(due.c.queue_id, "of_queue"))
_WHERE_IT_STANDS: Final = (
    ready.c.order_key,
    ready.c.retries,
    due.c.order_key,
    due.c.retries,
    due.c.available_at,
    message.c.pages,
    message.c.size,
)
_EXPIRED = (
    select(expiring.c.message_id, expiring.c.expires_at, *_WHERE_IT_STANDS)
    .join_from(expiring, message, elements.Named(message.c.id, expiring.c.message_id), isouter=True)
    .join(ready, _READY_OF_IT, isouter=True)
    .join(due, _DUE_OF_IT, isouter=True)
    .where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
    .order_by(expiring.c.expires_at, expiring.c.message_id)
    .limit(bindparam("most"))
)
_BY_KEY = {False: ready.c.order_key, True: ready.c.order_key.desc()}
"""The order in which the first is found, and the last."""
_EDGE = (
    select(ready.c.order_key, message.c.enqueued_at)
    .join_from(ready, message, elements.Named(message.c.id, ready.c.message_id))
    .limit(1)
)
_IN_RANGE = _EDGE.where(
    given(ready.c.queue_id, "of_queue"),
    ready.c.order_key >= bindparam("start", type_=ready.c.order_key.type),
    ready.c.order_key < bindparam("end", type_=ready.c.order_key.type),
)
_EDGE_OF_RANGE = {last: _IN_RANGE.order_by(by) for last, by in _BY_KEY.items()}


def _edges_of_levels(*, last: bool) -> Statement:
    """Return the statement that goes from each level of the keys of each queue to the next, whatever is in them."""
    first = _EDGE.with_only_columns(ready.c.order_key).order_by(ready.c.order_key)
    of_queue = first.where(ready.c.queue_id == counter.c.queue_id).scalar_subquery()
    start = select(counter.c.queue_id, of_queue.label("order_key")).where(*OF_QUEUES).group_by(counter.c.queue_id)
    level = start.cte("level", recursive=True)
    behind = elements.BehindLevel(level.c.order_key)
    following = first.where(ready.c.queue_id == level.c.queue_id, ready.c.order_key > behind).scalar_subquery()
    level = level.union_all(select(level.c.queue_id, following).where(level.c.order_key.is_not(None)))
    in_level = _EDGE.where(
        ready.c.queue_id == level.c.queue_id,
        ready.c.order_key >= level.c.order_key,
        ready.c.order_key <= elements.BehindLevel(level.c.order_key),
    ).order_by(_BY_KEY[last])
    its = [
        in_level.with_only_columns(column).scalar_subquery() for column in (ready.c.order_key, message.c.enqueued_at)
    ]
    return select(level.c.queue_id, *its).where(level.c.order_key.is_not(None))


_EDGES_OF_LEVELS = {last: _edges_of_levels(last=last) for last in _BY_KEY}
_CHANGEABLE = (
    select(
        message.c.id,
        message.c.expires_at,
        *_WHERE_IT_STANDS,
        message.c.priority,
        message.c.enqueued_at,
        message.c.available_at,
        message.c.expires_before,
        message.c.origin_queue,
        message.c.origin_error,
    )
    .join_from(message, ready, _READY_OF_IT, isouter=True)
    .join(due, _DUE_OF_IT, isouter=True)
    .where(given(message.c.id, "of_message"))
)
_OF_GROUP = (
    select(ready.c.message_id, ready.c.order_key, ready.c.retries)
    .join_from(message, ready, selection.STANDS)
    .where(given(message.c.queue_id, "of_queue"), given(message.c.group_id, "of_group"))
    # What somebody else takes out at the same time, because it has expired, is passed over.
    .with_for_update(skip_locked=True, of=ready)
)
_GIVEN_BACK_UNTIL = (
    select(due.c.available_at)
    .where(given(due.c.queue_id, "of_queue"), due.c.available_at > bindparam("now"), NOT_PARKED, IS_GIVEN_BACK)
    .order_by(due.c.available_at.desc())
    .limit(1)
)
_TAKE_OUT = delete(ready).where(given(ready.c.queue_id, "of_queue"), given(ready.c.order_key, "of_key"))
_TAKE_OUT_OF_DUE = delete(due).where(
    given(due.c.queue_id, "of_queue"),
    given(due.c.available_at, "until"),
    given(due.c.message_id, "of_message"),
)
_KEPT_BACK = (
    select(due.c.message_id, due.c.order_key, due.c.retries, due.c.available_at)
    .where(given(due.c.queue_id, "of_queue"))
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True, of=due)
)


class States(StorePart):
    """Where messages stand while no transaction holds them."""

    def make_due(self, place: Place, available_us: int, *, given_back: bool) -> None:
        """Keep the message back until a time; those who wait for the queue are told.

        `given_back`: it is a consumer that does so, not its sender or an administrator.
        """
        self.run(
            _MAKE_DUE,
            queue_id=place.queue_id,
            available_at=available_us,
            message_id=place.message_id,
            order_key=place.order_key,
            retries=place.retries,
            given_back=int(given_back),
        )
        # Each sleeps until the next is due.
        self.notifications.changed(place.queue_id)

    def make_expiring(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Note when a message that no transaction holds expires."""
        self.run(_MAKE_EXPIRING, queue_id=queue_id, message_id=message_id, expires_at=expires_us)

    def unmake_expiring(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Forget when the message expires."""
        self.run(_UNMAKE_EXPIRING, of_queue=queue_id, of_message=message_id, at=expires_us)

    def ready_edge(self, queue_id: int, start: bytes, end: bytes, *, last: bool) -> Edge | None:
        """Return the first or last ready message from one key on and before another.

        That of a damaged one, which says no time, is the last time that there is, here and in `level_edges`.
        """
        row = self.one(_EDGE_OF_RANGE[last], of_queue=queue_id, start=start, end=end)
        return None if row is None else _edge(*row)

    def level_edges(self, queues: Sequence[Queue], *, last: bool) -> dict[int, list[Edge]]:
        """Return the first or last ready message of each level of the keys, by the numbers of the queues."""
        found: dict[int, list[Edge]] = {queue.id: [] for queue in queues}
        for queue_id, *its in self.all(_EDGES_OF_LEVELS[last], **these(queues)) if queues else ():
            if queue_id in found:
                found[queue_id].append(_edge(*its))
        return found

    def next_due(self, queue_id: int) -> int | None:
        """Return when the next message of the queue that is kept back becomes available."""
        row = self.one(_NEXT_DUE, of_queue=queue_id)
        return None if row is None else int(row[0])

    def pending_work(self, queue_id: int, messages_of: int, now_us: int) -> tuple[bool, bool]:
        """Return whether the queue has messages that became available, and ones that expired."""
        available, expired = self.all(PENDING_WORK, of_queue=queue_id, of_messages=messages_of, now=now_us)[0]
        return bool(available), bool(expired)

    def first_moments(self) -> list[tuple[int, int]]:
        """Return when the next messages of each queue become available and expire, of all queues that have any."""
        return [(queue_id, moment) for queue_id, moment in self.all(_FIRST_MOMENTS)]

    def release_due(self, queue_id: int, now_us: int, limit: int) -> int:
        """Make at most `limit` messages ready that have become available, and return how many."""
        released = self.all(_RELEASE, of_queue=queue_id, now=now_us, most=limit)
        self.make_ready(queue_id, released)
        return len(released)

    def make_ready(self, queue_id: int, its: Sequence[Row]) -> None:
        """Let messages of a queue be dequeued, of each its number, its key and its retries; who waits there is told."""
        self.many(
            _MAKE_READY,
            [
                {"queue_id": queue_id, "order_key": key, "message_id": number, "retries": retries}
                for number, key, retries in its
            ],
        )
        if its:
            self.notifications.came(queue_id, len(its))

    def expired(self, queue_id: int, now_us: int, limit: int) -> list[Holding]:
        """Return at most `limit` messages that have expired; damaged ones are left out, and do not expire any more."""
        found = self.all(_EXPIRED, of_queue=queue_id, now=now_us, most=limit)
        its = {row[0]: _as_it_stands(queue_id, row) for row in found}
        for number, expires, *_ in found:
            if its[number] is None:
                self.unmake_expiring(queue_id, number, expires)
        return [holding for holding in its.values() if holding is not None]

    def standing(self, queue_id: int, messages_of: int, choice: Choice, limit: int) -> list[Holding]:
        """Return at most `limit` ready messages that are chosen, and as many that are kept back.

        Nobody else is taking them, or takes them before the end. Where one is damaged, a SystemFailureError says so.
        """
        rows = [(*row, None) for row in self.choose(queue_id, messages_of, choice, limit)]
        if choice.condition is None:
            rows += self.all(_KEPT_BACK, of_queue=queue_id, most=limit)
        else:
            assert choice.space is not None  # noqa: S101 - it comes with its queue space
            rows += self.built(_kept_back_by(choice.condition, choice.space), of_queue=queue_id, most=limit)
        charged = {row[0]: row for row in self.store.messages.charged([row[0] for row in rows])}
        its = []
        for number, key, retries, until in rows:
            _, pages, size, expires = charged.get(number, (number, None, None, None))
            if not _are_numbers((pages, size)):
                raise damaged(number, NO_RECORD)
            its.append(Holding(Place(number, queue_id, key, retries), pages, size, expires, until))
        return its

    def changeable(self, queue_id: int, message_id: int) -> Changeable | None:
        """Return a message that no transaction holds, and its terms; None where it is not there, or damaged."""
        row = self.one(_CHANGEABLE, of_queue=queue_id, of_message=message_id)
        holding = None if row is None else _as_it_stands(queue_id, row[:9])
        if row is None or holding is None:
            return None
        priority, enqueued, available, expires_before, origin, error = row[9:]
        moments = (available, holding.expires_us, expires_before)
        if not _are_numbers((priority, enqueued, *(moment for moment in moments if moment is not None))):
            return None
        return Changeable(
            holding=holding,
            priority=priority,
            enqueued_us=enqueued,
            available_us=available,
            expires_us=holding.expires_us,
            until_us=holding.until_us,
            origin_queue=origin,
            expires_before_us=expires_before,
            last_error=error or "",
        )

    def given_back_until(self, queue_id: int, now_us: int) -> int | None:
        """Return when the last message is available that a rollback keeps back for a time, not its sender."""
        row = self.one(_GIVEN_BACK_UNTIL, of_queue=queue_id, now=now_us)
        return None if row is None else int(row[0])

    def take(self, queue_id: int, its: Sequence[Holding], *, expires: bool = True) -> bool:
        """Take messages out of `ready` or `due`; False where one of them is in neither.

        Also out of what `expires`, but for the places of consumers: others may have a message too.
        """
        ready_ones = [{"of_queue": queue_id, "of_key": each.place.order_key} for each in its if each.until_us is None]
        due_ones = [
            {"of_queue": queue_id, "until": each.until_us, "of_message": each.place.message_id}
            for each in its
            if each.until_us is not None
        ]
        expiring_ones = [
            {"of_queue": queue_id, "at": each.expires_us, "of_message": each.place.message_id}
            for each in its
            if expires and each.expires_us is not None
        ]
        self.many(_UNMAKE_EXPIRING, expiring_ones)
        return self.many(_TAKE_OUT, ready_ones) + self.many(_TAKE_OUT_OF_DUE, due_ones) == len(its)

    def find(self, queue_id: int, messages_of: int, choice: Choice) -> bytes | None:
        """Return the order key of the first ready message that is chosen."""
        statement, values, constant = selection.finding(choice, queue_id, messages_of)
        rows = (self.all if constant else self.built)(statement, **values)
        return rows[0][0] if rows else None

    def choose(self, queue_id: int, messages_of: int, choice: Choice, limit: int, *, locks: bool = True) -> list[Row]:
        """Return the first `limit` ready messages that are chosen, of each its number, its key and its retries.

        They are messages of the queue `messages_of`, which is another one where those of a consumer are chosen.
        Where it `locks` them, nobody else takes them before the end.
        """
        statement, values, constant = selection.choosing(choice, queue_id, messages_of, locks=locks)
        return (self.all if constant else self.built)(statement, most=limit, **values)

    def locked_ready(self, queue_id: int, found: Sequence[Row]) -> Sequence[Row]:
        """Return those of these ready messages that nobody else is taking, or takes before the end."""
        del queue_id  # A store with one writer at a time needs no more.
        return found

    def ready_of_group(self, queue_id: int, group_id: int) -> list[Row]:
        """Return the ready messages of a group in their order, as `choose` does."""
        return sorted(self.all(_OF_GROUP, of_queue=queue_id, of_group=group_id), key=_rank)

    def take_alone(self, queue_id: int) -> None:
        """Do nothing: a store with one writer at a time needs no more."""


def _edge(key: Any, enqueued: Any) -> Edge:
    return Edge(rank(key), enqueued if isinstance(enqueued, int) else times.LATEST)


def _as_it_stands(queue_id: int, row: Row) -> Holding | None:
    """Return a message in its state, by its number, its expiry and `_WHERE_IT_STANDS`; None where that is damaged."""
    number, expires, key, retries, due_key, due_retries, until, pages, size = row
    if not _are_numbers((pages, size)):
        return None
    if key is not None:
        return Holding(Place(number, queue_id, key, retries), pages, size, expires)
    return (
        None if until is None else Holding(Place(number, queue_id, due_key, due_retries), pages, size, expires, until)
    )


def _are_numbers(values: Iterable[Any]) -> bool:
    """Return whether values of a record are what they have to be: SQLite keeps whatever stands in a damaged file."""
    return all(isinstance(value, int) for value in values)


def _rank(row: Row) -> bytes:
    return rank(row[1])


@functools.lru_cache(maxsize=64)
def _kept_back_by(condition: Condition, space: Space) -> Any:
    where = conditions.where(condition, retries=due.c.retries, space=space, available_at=due.c.available_at)
    return _KEPT_BACK.join_from(due, message, elements.Named(message.c.id, due.c.message_id)).where(where)
