"""The queues of a device as a table: their attributes, and what they hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.columns import Column, Kind
from qmadmin.opening import open_device
from qmadmin.spark.plain_tables import batch, columns_of, text
from qmcore.queue import ATTRIBUTES, FIGURES

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.transfer.selecting import Selection
    from qmcore.attributes import Plain
    from qmcore.queue import QueueUsage

_DEFINED: Final = columns_of(ATTRIBUTES, {"name": "queue", "retries": "retry_limit"})
_FIGURES: Final = columns_of(FIGURES, {"size": "bytes"})
_NEW: Final = ("nonpersistent", "memory_pages")
_FIRST: Final = ("name", "order", "out_of_order", "retries", "retry_delay", "delivery", "expiration", "error_queue")
"""The attributes in front of the figures. Others stand behind them, so that no column of an earlier release moves."""

QUEUE_COLUMNS: Final = (
    text("space", "Queue space."),
    *(_DEFINED[name] for name in _FIRST),
    *(column for name, column in _FIGURES.items() if name not in _NEW),
    Column("first_at", Kind.TIME, "When the message was enqueued that is first in order.", "UTC"),
    Column("oldest_at", Kind.TIME, "When the oldest ready one was, where the order does not go by times.", "UTC"),
    *(column for name, column in _DEFINED.items() if name not in _FIRST),
    *(_FIGURES[name] for name in _NEW),
)


def queue_batch(config: str, selection: Selection) -> RecordBatch:
    """Return the selected queues of a device as one batch."""
    return batch(QUEUE_COLUMNS, list(_records(config, selection)))


def _records(config: str, selection: Selection) -> Iterator[dict[str, Any]]:
    with open_device(config) as device:
        names = [space.name for space in device.spaces()]
        for name in selection.chosen_spaces(names, f"device {device.path!r}"):
            for queue, usage in device.queue_usages(name):
                if selection.has_queue(queue.name):
                    yield defined(name, queue.attributes) | _held(usage)


def _held(usage: QueueUsage) -> dict[str, Any]:
    figures = dataclasses.asdict(usage)
    return {**figures, "bytes": usage.size, "first_at": usage.first_us, "oldest_at": usage.oldest_us}


def defined(space: str, attributes: Mapping[str, Plain]) -> dict[str, Any]:
    """Return what a queue is, by the names of the columns."""
    return {"space": space} | {_DEFINED[name].name: value for name, value in attributes.items()}
