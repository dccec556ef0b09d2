"""The queues of a device as a table: their definitions, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.arrays import TYPES
from qmadmin.archive.arrow import pa
from qmadmin.archive.columns import Column, Kind
from qmadmin.opening import open_device

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.transfer.selecting import Selection
    from qmcore.queue import Queue, QueueUsage


def _text(name: str, meaning: str) -> Column:
    return Column(name, Kind.TEXT, meaning, required=True)


def _number(name: str, meaning: str, unit: str = "") -> Column:
    return Column(name, Kind.INT64, meaning, unit, required=True)


QUEUE_COLUMNS: Final = (
    _text("space", "Queue space."),
    _text("queue", "Queue."),
    _text("order", "Order of its messages."),
    _text("out_of_order", "Exceptions from the order that a sender may ask for."),
    _number("retry_limit", "How often a message may come back."),
    _number("retry_delay", "How long it then stays unavailable.", "seconds"),
    _text("delivery", "Where messages are kept by default."),
    Column("expiration", Kind.INT64, "How long messages live by default.", "seconds"),
    _text("error_queue", "Its own error queue; empty: that of the queue space."),
    _number("messages", "Messages that it holds."),
    _number("ready", "Those that can be dequeued."),
    _number("delayed", "Those that are not available yet."),
    _number("held", "Those that transactions have."),
    _number("pages", "Pages that they take.", "pages"),
    _number("bytes", "Length of their bodies.", "bytes"),
    _number("enqueued", "Messages that were ever enqueued."),
    _number("dequeued", "Messages that were dequeued."),
    _number("expired", "Messages that expired."),
    _number("discarded", "Messages that were given up."),
    _number("moved", "Messages that were moved elsewhere."),
    Column("first_at", Kind.TIME, "When the message was enqueued that is first in order.", "UTC"),
)


def queue_batch(config: str, selection: Selection) -> RecordBatch:
    """Return the selected queues of a device as one batch."""
    rows = list(_rows(config, selection))
    fields = [pa.field(column.name, TYPES[column.kind], nullable=not column.required) for column in QUEUE_COLUMNS]
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _rows(config: str, selection: Selection) -> Iterator[tuple[Any, ...]]:
    with open_device(config) as device:
        names = [space.name for space in device.spaces()]
        for name in selection.chosen_spaces(names, f"device {device.path!r}"):
            for queue, usage in device.queue_usages(name):
                if selection.has_queue(queue.name):
                    yield _row(name, queue, usage)


def _row(space: str, queue: Queue, usage: QueueUsage) -> tuple[Any, ...]:
    of = queue.definition
    return (
        space,
        queue.name,
        str(of.order),
        str(of.out_of_order),
        of.retries,
        of.retry_delay,
        of.delivery.value,
        of.expiration,
        of.error_queue,
        *(usage.messages, usage.ready, usage.delayed, usage.held, usage.pages, usage.size),
        *(usage.enqueued, usage.dequeued, usage.expired, usage.discarded, usage.moved),
        usage.first_us,
    )
