"""Waits for messages of queues, in SQL."""

from __future__ import annotations

from qmstorage.schema import owner, waiter
from qmstorage.sql import delete, distinct, func, select
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import UnitPart

_ADD = insert_into(waiter)
_REMOVE = delete(waiter).where(given(waiter.c.queue_id, "of_queue"), given(waiter.c.address, "at_address"))
_OF_SPACE = (
    select(waiter.c.owner_id, func.count(distinct(waiter.c.address)))
    .join_from(waiter, owner, waiter.c.owner_id == owner.c.id)
    .where(given(owner.c.space_id, "of_space"))
    .group_by(waiter.c.owner_id)
)


class Waits(UnitPart):
    """Waits for messages of queues."""

    def add(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and the address of the wake-up."""
        self.run(_ADD, queue_id=queue_id, address=address, owner_id=owner_id)

    def remove(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""
        self.run(_REMOVE, of_queue=queue_id, at_address=address)

    def of_space(self, space_id: int) -> dict[int, int]:
        """Return who waits for messages of the queue space, and how many waits each has."""
        return {row[0]: row[1] for row in self.all(_OF_SPACE, of_space=space_id)}

    def pass_on(self, space_id: int, queue_id: int) -> None:
        """Have another of those told who wait in turn for the queue, where it has a message for them."""
        memory = self.unit.memory(space_id)
        if self.unit.states.has_ready(queue_id) or (memory is not None and memory.states.has_ready(queue_id)):
            self.notifications.passed_on(queue_id)

    def notify(self, queue_id: int) -> None:
        """Have all told, once the unit is committed, who wait for the queue."""
        self.notifications.changed(queue_id)
