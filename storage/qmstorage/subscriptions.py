"""Consumers of queues for several, in SQL: rows of the table of queues, whose numbers are theirs."""

from __future__ import annotations

from qmcore.numbers import random_number
from qmcore.queue import ConsumerRecord, Queue
from qmstorage.queues import REMOVE, queue_values
from qmstorage.schema import queue
from qmstorage.sql import bindparam, literal, select, true, update
from qmstorage.statements import given
from qmstorage.unit_part import UnitPart

_OF_SPACE = (
    select(queue.c.id, queue.c.parent_id, queue.c.name, queue.c.created_at, queue.c.going)
    .where(given(queue.c.space_id, "space_id"), queue.c.parent_id > literal(0))
    .order_by(queue.c.id)
)
_END = (
    update(queue)
    .where(given(queue.c.id, "of_queue"))
    .values(name=bindparam("new_name"), going=true(), version=bindparam("new_version"))
)


class Subscriptions(UnitPart):
    """Consumers of queues for several."""

    def of_space(self, space_id: int) -> list[ConsumerRecord]:
        """Return the subscriptions of a queue space, those which have ended too until nothing is left of them."""
        return [
            ConsumerRecord(number, parent, name, since, bool(going))
            for number, parent, name, since, going in self.all(_OF_SPACE, space_id=space_id)
        ]

    def add(self, queue: Queue, full_name: str, now_us: int) -> ConsumerRecord:
        """Record a consumer of a queue, its counters at zero, and change the generation."""
        # Its definition is that of the queue, whenever it is read.
        values = queue_values(queue) | {"name": full_name, "multiple_consumers": False, "parent_id": queue.id}
        number = self.unit.queues.add_row(queue.space_id, values, now_us)
        self.unit.change_generation(queue.space_id)
        return ConsumerRecord(number, queue.id, full_name, now_us)

    def end(self, consumer: Queue) -> None:
        """Record that a consumer has unsubscribed, whose name is free then, and change the generation."""
        # No consumer has a name that begins so, and no queue may have it meanwhile.
        self.run(_END, of_queue=consumer.id, new_name=f":{consumer.id}", new_version=random_number())
        self.unit.change_generation(consumer.space_id)

    def remove(self, consumer: Queue) -> None:
        """Remove a consumer with what stands there and its counters, and change the generation."""
        self.unit.queues.empty(consumer.id)
        self.unit.counters.forget(consumer.space_id, consumer.id)
        self.run(REMOVE, queue_id=consumer.id)
        self.unit.change_generation(consumer.space_id)
