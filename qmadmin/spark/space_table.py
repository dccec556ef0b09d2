"""The queue spaces of a device as a table: their limits, and how much of them is in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.columns import Column, Kind
from qmadmin.opening import open_device
from qmadmin.spark.plain_tables import batch, number, text

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.transfer.selecting import Selection
    from qmcore.space import SpaceDefinition, SpaceUsage

SPACE_COLUMNS: Final = (
    text("space", "Queue space."),
    number("pages", "Pages that it has.", "pages"),
    number("queue_limit", "How many queues it can have."),
    number("transaction_limit", "How many transactions can be open at one time."),
    number("process_limit", "How many processes can have it open."),
    number("message_limit", "How many messages it can hold."),
    number("memory_limit", "Memory that it has for non-persistent messages.", "bytes"),
    text("error_queue", "Its error queue; empty: it has none."),
    number("queues", "Queues that it has."),
    number("messages", "Messages that it holds."),
    number("pages_used", "Pages that are in use.", "pages"),
    Column("memory_used", Kind.INT64, "Memory that is in use.", "bytes"),
    Column("transactions", Kind.INT64, "Transactions that are open."),
    Column("processes", Kind.INT64, "Processes that have it open."),
)


def space_batch(config: str, selection: Selection) -> RecordBatch:
    """Return the selected queue spaces of a device as one batch."""
    names = [column.name for column in SPACE_COLUMNS]
    return batch(SPACE_COLUMNS, [dict(zip(names, row, strict=True)) for row in _rows(config, selection)])


def _rows(config: str, selection: Selection) -> Iterator[tuple[Any, ...]]:
    with open_device(config) as device:
        names = [space.name for space in device.spaces()]
        for name in selection.chosen_spaces(names, f"device {device.path!r}"):
            usage = device.space_usage(name)
            yield (*defined(device.space(name).definition), *_used(usage))


def defined(of: SpaceDefinition) -> tuple[Any, ...]:
    """Return the values of the columns that a definition has."""
    limits = (of.pages, of.queues, of.transactions, of.processes, of.messages, of.memory)
    return (of.name, *limits, of.error_queue)


def _used(usage: SpaceUsage) -> tuple[int, ...]:
    return (usage.queues, usage.messages, usage.pages, usage.memory, usage.transactions, usage.processes)
