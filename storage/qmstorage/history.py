"""Messages that are kept after they were consumed, in SQL."""

from __future__ import annotations

import functools
from typing import Any

from qmcore.condition import Condition
from qmcore.message import ConsumedMessage, Message, State
from qmcore.queue import Queue
from qmcore.records import Cursor, Part, Place
from qmcore.space import Space
from qmstorage import conditions, rows
from qmstorage.dialect import first_of_each
from qmstorage.schema import history, message
from qmstorage.sql import Select, bindparam, delete, elements, literal, or_, select, tuple_
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart

_RETAIN = insert_into(history)
_OF_QUEUE = given(history.c.queue_id, "of_queue")
_AFTER = tuple_(history.c.consumed_at, history.c.message_id) > tuple_(
    bindparam("first", type_=history.c.consumed_at.type), bindparam("second", type_=history.c.message_id.type)
)
_LIST = (
    select(
        history.c.consumed_at,
        history.c.message_id,
        history.c.consumer,
        history.c.trans_id,
        *rows.FACTS,
    )
    .join_from(history, message, elements.Named(message.c.id, history.c.message_id), isouter=True)
    .where(_OF_QUEUE, _AFTER)
    .order_by(history.c.consumed_at, history.c.message_id)
    .limit(bindparam("most"))
)
_IS_RETAINED = select(history.c.message_id).where(
    _OF_QUEUE, given(history.c.message_id, "of_message"), history.c.consumed_at >= bindparam("since")
)
_OUTLIVED = (_OF_QUEUE, history.c.consumed_at < bindparam("before"))
_FIRST_CONSUMED = first_of_each(history, history.c.consumed_at)
_HAS_OUTLIVED = select(history.c.message_id).where(*_OUTLIVED).limit(1)
_FORGET = (
    delete(history)
    .where(
        tuple_(history.c.queue_id, history.c.consumed_at, history.c.message_id).in_(
            select(history.c.queue_id, history.c.consumed_at, history.c.message_id)
            .where(*_OUTLIVED)
            .order_by(history.c.consumed_at, history.c.message_id)
            .limit(bindparam("most"))
        )
    )
    .returning(history.c.message_id)
)


class History(UnitPart):
    """Messages that are kept after they were consumed."""

    def retain(self, place: Place, consumed_us: int, consumer: str) -> None:
        """Keep a message that was taken out of its states."""
        self.run(
            _RETAIN,
            queue_id=place.queue_id,
            consumed_at=consumed_us,
            message_id=place.message_id,
            consumer=consumer,
            trans_id=None,
        )

    def of_queue(
        self, space: Space, of: Queue, after: Cursor | None, limit: int, condition: Condition | None = None
    ) -> Part[ConsumedMessage]:
        """Return at most `limit` retained messages of the queue in the order of their consumption."""
        first, second = after or (-(2**63), 0)
        values = {"of_queue": of.id, "first": first, "second": second, "most": limit}
        plain = condition is None
        listed: Part[ConsumedMessage] = Part()
        while True:
            found = self.all(_LIST, **values) if plain else self.built(_restricted(condition, space), **values)
            listed += [
                (
                    (consumed, number),
                    ConsumedMessage(info=info, consumed_us=consumed, consumer=consumer, transaction=transaction),
                )
                for consumed, number, consumer, transaction, *row in found
                if (
                    info := self.unit.messages.info(
                        row, space, of.name, number=number, retries=0, state=State.CONSUMED, until=None
                    )
                )
            ]
            listed.left_out += len(found) - len(listed)
            if listed or not found:
                return listed
            # None of them can be read; an empty part would be the end.
            values["first"], values["second"] = found[-1][:2]

    def recall(self, space: Space, of: Queue, message_id: int, since_us: int) -> Message | None:
        """Return a retained message with its body, if it was consumed since a time."""
        if self.one(_IS_RETAINED, of_queue=of.id, of_message=message_id, since=since_us) is None:
            return None
        return self.unit.messages.stored(space, of.name, message_id, State.CONSUMED)

    def first_consumed(self) -> list[tuple[int, int]]:
        """Return when the first retained message of each queue was consumed, for all queues that have any."""
        return [(queue_id, consumed) for queue_id, consumed in self.all(_FIRST_CONSUMED)]

    def has_outlived(self, queue_id: int, before_us: int) -> bool:
        """Return whether the queue has retained messages that were consumed before a time."""
        return self.one(_HAS_OUTLIVED, of_queue=queue_id, before=before_us) is not None

    def forget(self, queue_id: int, before_us: int, limit: int) -> tuple[int, int]:
        """Delete at most `limit` messages that were consumed before a time; return how many, and their pages."""
        forgotten = self.all(_FORGET, of_queue=queue_id, before=before_us, most=limit)
        return len(forgotten), self.unit.messages.discard_all([number for (number,) in forgotten])


@functools.lru_cache(maxsize=64)
def _restricted(condition: Condition, space: Space) -> Select[Any]:
    # The number of tries of a consumed message is not kept.
    holds = conditions.where(condition, retries=literal(0), space=space)
    # For one without a record it is unknown whether it holds.
    return _LIST.where(holds if conditions.is_of_few(condition) else or_(holds, message.c.id.is_(None)))
