"""The queues of a device as a table: their definitions, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.columns import Column, Kind
from qmadmin.opening import open_device
from qmadmin.spark.plain_tables import batch, number, text

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.transfer.selecting import Selection
    from qmcore.queue import Queue, QueueDefinition, QueueUsage


QUEUE_COLUMNS: Final = (
    text("space", "Queue space."),
    text("queue", "Queue."),
    text("order", "Order of its messages."),
    text("out_of_order", "Exceptions from the order that a sender may ask for."),
    number("retry_limit", "How often a message may come back."),
    number("retry_delay", "How long it then stays unavailable.", "seconds"),
    text("delivery", "Where messages are kept by default."),
    Column("expiration", Kind.INT64, "How long messages live by default.", "seconds"),
    text("error_queue", "Its own error queue; empty: that of the queue space."),
    number("messages", "Messages that it holds."),
    number("ready", "Those that can be dequeued."),
    number("delayed", "Those that are not available yet."),
    number("held", "Those that transactions have."),
    number("pages", "Pages that they take.", "pages"),
    number("bytes", "Length of their bodies.", "bytes"),
    number("enqueued", "Messages that were ever enqueued."),
    number("dequeued", "Messages that were dequeued."),
    number("expired", "Messages that expired."),
    number("discarded", "Messages that were given up."),
    number("moved", "Messages that were moved elsewhere."),
    Column("first_at", Kind.TIME, "When the message was enqueued that is first in order.", "UTC"),
    Column("oldest_at", Kind.TIME, "When the oldest ready one was, where the order does not go by times.", "UTC"),
)


def queue_batch(config: str, selection: Selection) -> RecordBatch:
    """Return the selected queues of a device as one batch."""
    return batch(QUEUE_COLUMNS, list(_rows(config, selection)))


def _rows(config: str, selection: Selection) -> Iterator[tuple[Any, ...]]:
    with open_device(config) as device:
        names = [space.name for space in device.spaces()]
        for name in selection.chosen_spaces(names, f"device {device.path!r}"):
            for queue, usage in device.queue_usages(name):
                if selection.has_queue(queue.name):
                    yield _row(name, queue, usage)


def _row(space: str, queue: Queue, usage: QueueUsage) -> tuple[Any, ...]:
    return (
        *defined(space, queue.definition),
        *(usage.messages, usage.ready, usage.delayed, usage.held, usage.pages, usage.size),
        *(usage.enqueued, usage.dequeued, usage.expired, usage.discarded, usage.moved),
        usage.first_us,
        usage.oldest_us,
    )


def defined(space: str, of: QueueDefinition) -> tuple[Any, ...]:
    """Return the values of the columns that a definition has."""
    return (
        *(space, of.name, str(of.order), str(of.out_of_order), of.retries, of.retry_delay),
        *(of.delivery.value, of.expiration, of.error_queue),
    )
