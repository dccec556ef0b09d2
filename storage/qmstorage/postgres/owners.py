"""Waits for messages of queues on PostgreSQL, where a process listens to the channels of the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmstorage.owners import Waits

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresUnit


class SharedWaits(Waits):
    """Waits for messages of queues."""

    unit: PostgresUnit

    def add(self, queue_id: int, address: str, owner_id: int) -> None:
        """Record that a message of the queue is waited for, and listen to its channel."""
        super().add(queue_id, address, owner_id)
        liveness = self.unit.liveness
        if liveness is not None:
            # After the commit: the server may take its time. The waiter looks once more after that.
            self.unit.afterwards(lambda: liveness.listen(address, queue_id))

    def remove(self, queue_id: int, address: str) -> None:
        """Forget that a message of the queue is waited for."""
        super().remove(queue_id, address)
        if self.unit.liveness is not None:
            self.unit.liveness.unlisten(address, queue_id)

    def pass_on(self, space_id: int, queue_id: int) -> None:
        """Do nothing: all processes are told of each message, so that nobody waits in turn with those of others."""
