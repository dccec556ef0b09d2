"""What transactions hold, in SQL."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from qmcore.condition import Condition
from qmcore.order import rank
from qmcore.records import Holding, Place, Role, Spilled, Use
from qmcore.selection import Choice
from qmcore.space import Space
from qmcore.transitions import Arrival, Route
from qmstorage import conditions, rows, selection
from qmstorage.bodies import IN_ROW_MAX
from qmstorage.dialect import says
from qmstorage.schema import IS_LOCKED, chunk, held, message
from qmstorage.sql import (
    ColumnElement,
    Select,
    bindparam,
    delete,
    elements,
    func,
    literal,
    select,
    update,
)
from qmstorage.statements import Row, Statement, given, insert_into, written
from qmstorage.unit_part import StorePart

_HOLD = insert_into(held)
_OF_QUEUE = (given(held.c.queue_id, "of_queue"), given(held.c.trans_id, "of_trans"))
_LOCKED_OF_QUEUE = (*_OF_QUEUE, IS_LOCKED)
_HOLDING = (
    held.c.message_id,
    held.c.queue_id,
    held.c.order_key,
    held.c.retries,
    held.c.pages,
    held.c.size,
    held.c.expires_at,
)


def for_each_role(build: Callable[[Sequence[ColumnElement[bool]]], Statement]) -> dict[Role, Statement]:
    """Return the statements about what a transaction has of a queue, built from the conditions of each role."""
    return {role: build((*_OF_QUEUE, written(held.c.role, role))) for role in Role}


_GIVE_BACK_LOCKED = delete(held).where(*_LOCKED_OF_QUEUE).returning(*_HOLDING)
_HELD = select(*_HOLDING, held.c.role).where(*_OF_QUEUE, held.c.role != int(Role.ENQUEUED))
_DEQUEUED = select(*_HOLDING).where(
    *_OF_QUEUE, written(held.c.role, Role.DEQUEUED), given(held.c.message_id, "of_message")
)
_LET_GO = delete(held).where(*_OF_QUEUE, given(held.c.message_id, "of_message"))
_LOCKED_IN_ORDER = (
    select(held.c.message_id, held.c.order_key, held.c.retries)
    .where(*_LOCKED_OF_QUEUE)
    .order_by(held.c.order_key)
    .limit(bindparam("most"))
)
_LOCKED = select(held.c.message_id, held.c.order_key, held.c.retries).where(
    *_LOCKED_OF_QUEUE, given(held.c.message_id, "of_message")
)
_LOCKED_BY_CORRID = _LOCKED_IN_ORDER.where(says(held.c.message_id, given(message.c.corrid, "corrid")))
_DEQUEUE_LOCKED = (
    update(held)
    .where(*_LOCKED_OF_QUEUE, given(held.c.message_id, "of_message"))
    .values(role=literal(int(Role.DEQUEUED)))
)
_SUMS = for_each_role(
    lambda its: select(func.count(), func.sum(held.c.pages), func.sum(held.c.size), func.max(held.c.size)).where(*its)
)
_DELETE_BODIES = for_each_role(
    lambda its: delete(chunk).where(
        elements.Among(
            chunk.c.body_id,
            select(message.c.body_id).where(elements.Among(message.c.id, select(held.c.message_id).where(*its))),
        )
    )
)
_DELETE_MESSAGES = for_each_role(
    lambda its: rows.forgetting(elements.Among(message.c.id, select(held.c.message_id).where(*its)))
)
_RELEASE = for_each_role(lambda its: delete(held).where(*its))
_SPILLED = (
    select(
        held.c.message_id,
        held.c.pages,
        held.c.size,
        message.c.priority,
        message.c.available_at,
        message.c.expires_at,
        held.c.delay,
        held.c.lifetime,
        held.c.order_key,
        held.c.consumers,
    )
    .join_from(held, message, elements.Named(message.c.id, held.c.message_id))
    .where(*_OF_QUEUE, written(held.c.role, Role.ENQUEUED), held.c.message_id > bindparam("after"))
    .order_by(held.c.message_id)
    .limit(bindparam("most"))
)
_BROUGHT = (
    select(held.c.message_id)
    .where(*_OF_QUEUE, written(held.c.role, Role.ENQUEUED), held.c.message_id > bindparam("after"))
    .order_by(held.c.message_id)
    .limit(bindparam("most"))
)
_BRING_TO = (
    update(held)
    .where(*_OF_QUEUE, given(held.c.message_id, "of_message"), written(held.c.role, Role.ENQUEUED))
    .values(consumers=bindparam("new_consumers"))
)
_HELD_IN = select(held.c.message_id).where(given(held.c.queue_id, "of_queue")).limit(1)
_TAKEN_FROM = _HELD_IN.where(held.c.role != int(Role.ENQUEUED))
_COUNT_HELD = select(held.c.trans_id, held.c.role, func.count()).group_by(held.c.trans_id, held.c.role)
_COUNTS = select(held.c.role, func.count()).where(*_OF_QUEUE).group_by(held.c.role)
_HOLDERS = select(held.c.trans_id).distinct()


class Holdings(StorePart):
    """What transactions hold: messages that they took, and ones that they bring and do not keep themselves."""

    def locked(self, transaction_id: int, queue_id: int, choice: Choice, limit: int) -> list[Row]:
        """Return the first `limit` messages that are chosen of those that the transaction has locked.

        Of each its number, its key and its retries.
        """
        values: dict[str, Any] = {"of_trans": transaction_id, "of_queue": queue_id}
        if choice.message_id is not None:
            rows = self.all(_LOCKED, of_message=choice.message_id, **values)
        elif choice.corrid is not None:
            rows = self.all(_LOCKED_BY_CORRID, corrid=choice.corrid, most=limit, **values)
        elif (condition := selection.condition_of(choice)) is not None:
            assert choice.space is not None  # noqa: S101 - it comes with its queue space
            rows = self.built(_locked_by(condition, choice.space), most=limit, **values)
        else:
            rows = self.all(_LOCKED_IN_ORDER, most=limit, **values)
        return rows

    def dequeue_locked(self, transaction_id: int, queue_id: int, message_id: int) -> None:
        """Let the transaction consume, when it commits, a message that it has locked."""
        self.run(_DEQUEUE_LOCKED, of_trans=transaction_id, of_queue=queue_id, of_message=message_id)

    def held(self, transaction_id: int, queue_id: int) -> tuple[list[Holding], list[Holding]]:
        """Return what the transaction has dequeued from the queue, and what it has locked, in the order of the keys."""
        rows = self.all(_HELD, of_trans=transaction_id, of_queue=queue_id)
        dequeued, locked = ([row[:-1] for row in rows if row[-1] == role] for role in (Role.DEQUEUED, Role.LOCKED))
        return _in_order(dequeued), _in_order(locked)

    def dequeued(self, transaction_id: int, queue_id: int, message_ids: Sequence[int]) -> list[Holding]:
        """Return those of these messages that the transaction has dequeued from the queue, in the order of the keys."""
        its = {"of_trans": transaction_id, "of_queue": queue_id}
        # One may be named twice.
        numbers = dict.fromkeys(message_ids)
        return _in_order(row for number in numbers for row in self.all(_DEQUEUED, of_message=number, **its))

    def let_go(self, transaction_id: int, queue_id: int, its: Sequence[Holding]) -> bool:
        """Let the transaction no longer hold messages of the queue; False where it does not hold one of them."""
        own = {"of_trans": transaction_id, "of_queue": queue_id}
        return self.many(_LET_GO, [{**own, "of_message": each.place.message_id} for each in its]) == len(its)

    def give_back_locked(self, transaction_id: int, queue_id: int) -> list[Holding]:
        """Let the transaction no longer hold what it has locked of the queue; return that in the order of the keys."""
        return _in_order(self.all(_GIVE_BACK_LOCKED, of_trans=transaction_id, of_queue=queue_id))

    def consume(self, transaction_id: int, queue_id: int) -> Use:
        """Delete all messages that the transaction dequeued from the queue; return how much that was."""
        return self.delete(transaction_id, queue_id, Role.DEQUEUED)

    def spill(
        self,
        transaction_id: int,
        number: int,
        route: Route,
        arrival: Arrival,
        place: bytes,
        *,
        lifetime: int | None,
    ) -> None:
        """Store a message that the transaction enqueues when it commits; nobody sees it until then."""
        queue_id = route.queue_id
        self.store.messages.put(number, queue_id, arrival)
        self.run(
            _HOLD,
            trans_id=transaction_id,
            message_id=number,
            queue_id=queue_id,
            order_key=place,
            retries=0,
            pages=arrival.pages,
            size=arrival.size,
            expires_at=None,
            role=int(Role.ENQUEUED),
            delay=arrival.terms.times and arrival.terms.times.delay,
            lifetime=lifetime,
            consumers=_packed(route.consumers) if route.consumers else None,
        )

    def brought(self, transaction_id: int, queue_id: int, after: int, limit: int) -> list[int]:
        """Return at most `limit` messages, numbered above `after`, that the transaction has spilled for the queue."""
        its = {"of_trans": transaction_id, "of_queue": queue_id, "after": after, "most": limit}
        return [row[0] for row in self.all(_BROUGHT, **its)]

    def bring_to(self, transaction_id: int, queue_id: int, message_id: int, consumers: Sequence[int]) -> None:
        """Let a message that was spilled for a queue for several be for these consumers, when the commit brings it."""
        its = {"of_trans": transaction_id, "of_queue": queue_id, "of_message": message_id}
        self.run(_BRING_TO, new_consumers=_packed(consumers), **its)

    def spilled(self, transaction_id: int, queue_id: int, after: int, limit: int) -> list[Spilled]:
        """Return at most `limit` messages that the transaction has spilled for the queue, numbered above `after`."""
        return [
            Spilled(
                message_id=row[0],
                pages=row[1],
                size=row[2],
                priority=row[3],
                available_us=row[4],
                expires_us=row[5],
                delay=row[6],
                lifetime=row[7],
                place=row[8],
                consumers=None if row[9] is None else _unpacked(row[9]),
            )
            for row in self.all(_SPILLED, of_trans=transaction_id, of_queue=queue_id, after=after, most=limit)
        ]

    def spilled_use(self, transaction_id: int, queue_id: int) -> Use:
        """Return how much the transaction has spilled for the queue."""
        return self.use_held(transaction_id, queue_id, Role.ENQUEUED)[0]

    def forget_spilled(self, transaction_id: int, queue_id: int) -> None:
        """Let the transaction no longer hold what it has spilled for the queue, which stays stored."""
        self.release_held(transaction_id, queue_id, Role.ENQUEUED)

    def discard_spilled(self, transaction_id: int, queue_id: int) -> Use:
        """Delete what the transaction has spilled for the queue; return how much that was."""
        return self.delete(transaction_id, queue_id, Role.ENQUEUED)

    def held_in(self, queue_id: int) -> bool:
        """Return whether a transaction holds a message of the queue, be it one that it enqueues."""
        return self.one(_HELD_IN, of_queue=queue_id) is not None

    def taken_from(self, queue_id: int) -> bool:
        """Return whether a transaction has dequeued or locked a message of the queue."""
        return self.one(_TAKEN_FROM, of_queue=queue_id) is not None

    def holders(self) -> list[int]:
        """Return the transactions that hold something."""
        return [row[0] for row in self.all(_HOLDERS)]

    def count_held(self) -> dict[tuple[int, Role], int]:
        """Return how many messages each transaction has, and for what."""
        return {(number, Role(role)): count for number, role, count in self.all(_COUNT_HELD)}

    def counts(self, transaction_id: int, queue_id: int) -> dict[int, int]:
        """Return how many messages of the queue the transaction has, and for what."""
        return dict(self.all(_COUNTS, of_trans=transaction_id, of_queue=queue_id))

    def use_held(self, transaction_id: int, queue_id: int, role: Role) -> tuple[Use, int]:
        """Return how much the transaction has of the queue for this, and the size of the largest body."""
        count, pages, size, largest = self.all(_SUMS[role], of_trans=transaction_id, of_queue=queue_id)[0]
        return Use(count, pages or 0, size or 0), largest or 0

    def release_held(self, transaction_id: int, queue_id: int, role: Role) -> None:
        """Let the transaction no longer hold what it has of the queue for this."""
        self.run(_RELEASE[role], of_trans=transaction_id, of_queue=queue_id)

    def delete(self, transaction_id: int, queue_id: int, role: Role) -> Use:
        """Delete what the transaction has of the queue for this; return how much that was."""
        use, largest = self.use_held(transaction_id, queue_id, role)
        which = {"of_trans": transaction_id, "of_queue": queue_id}
        if largest > IN_ROW_MAX:
            self.run(_DELETE_BODIES[role], **which)
        if use.messages:
            self.run(_DELETE_MESSAGES[role], **which)
            self.run(_RELEASE[role], **which)
        return use


@functools.lru_cache(maxsize=64)
def _locked_by(condition: Condition, space: Space) -> Select[Any]:
    return _LOCKED_IN_ORDER.where(
        says(held.c.message_id, conditions.where(condition, retries=held.c.retries, space=space))
    )


def _packed(consumers: Sequence[int]) -> bytes:
    return struct.pack(f"!{len(consumers)}I", *consumers)


def _unpacked(consumers: bytes) -> Sequence[int]:
    return struct.unpack(f"!{len(consumers) // 4}I", consumers)


def _in_order(rows: Iterable[Row]) -> list[Holding]:
    its = [Holding(Place(*place), pages, size, expires) for *place, pages, size, expires in rows]
    return sorted(its, key=lambda holding: rank(holding.place.order_key))
