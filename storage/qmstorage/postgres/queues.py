"""Queues on PostgreSQL, where transactions of applications are open beside what changes a queue."""

from __future__ import annotations

from qmcore.queue import Queue
from qmstorage.queues import Queues, Subscriptions
from qmstorage.schema import queue
from qmstorage.sql import BigInteger, Text, cast, func, select, update
from qmstorage.statements import given

_SNAPSHOT = func.pg_current_snapshot()


def _number(of: object) -> object:
    """Return the number of a transaction as a number, which it is to no other function of the server."""
    return cast(cast(of, Text), BigInteger)


_OF_CONSUMER = given(queue.c.id, "of_queue")
_NOTE_END = update(queue).where(_OF_CONSUMER).values(ended_in=_number(func.pg_current_xact_id()))
# A copy of the database may count its transactions anew.
_IS_OVER = select(queue.c.id).where(
    _OF_CONSUMER,
    (_number(func.pg_snapshot_xmin(_SNAPSHOT)) > queue.c.ended_in)
    | (_number(func.pg_snapshot_xmax(_SNAPSHOT)) <= queue.c.ended_in),
)


class SharedQueues(Queues):
    """Queues as administrators define them."""

    @property
    def subscriptions(self) -> Subscriptions:
        """Consumers of queues for several."""
        return SharedSubscriptions(self.unit)


class SharedSubscriptions(Subscriptions):
    """Consumers of queues for several. An application may have sent something for one, and not have committed yet."""

    def end(self, consumer: Queue) -> None:
        """Record that a consumer has unsubscribed, and when, by the transactions that are open now."""
        super().end(consumer)
        self.run(_NOTE_END, of_queue=consumer.id)

    def is_over(self, consumer: Queue) -> bool:
        """Return whether nothing stands for a consumer that has unsubscribed, and older transactions have ended."""
        # In this order: what they have brought is seen by then.
        return self.one(_IS_OVER, of_queue=consumer.id) is not None and super().is_over(consumer)
