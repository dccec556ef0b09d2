"""The queue spaces of a device as a table: their limits, and how much of them is in use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.columns import Column, Kind
from qmadmin.opening import open_device
from qmadmin.spark.plain_tables import batch, columns_of, number
from qmcore.space import ATTRIBUTES

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.transfer.selecting import Selection
    from qmcore.attributes import Plain

_NAMES: Final = {
    "name": "space",
    "queues": "queue_limit",
    "transactions": "transaction_limit",
    "processes": "process_limit",
    "messages": "message_limit",
    "memory": "memory_limit",
    "actions": "action_limit",
}
_DEFINED: Final = columns_of(ATTRIBUTES, _NAMES)
_FIRST: Final = ("name", "pages", "queues", "transactions", "processes", "messages", "memory", "error_queue")
"""The attributes in front of the figures. Others stand behind them, so that no column of an earlier release moves."""

SPACE_COLUMNS: Final = (
    *(_DEFINED[name] for name in _FIRST),
    number("queues", "Queues that it has."),
    number("messages", "Messages that it holds."),
    number("pages_used", "Pages that are in use.", "pages"),
    Column("memory_used", Kind.INT64, "Memory that is in use.", "bytes"),
    Column("transactions", Kind.INT64, "Transactions that are open."),
    Column("processes", Kind.INT64, "Processes that have it open."),
    *(column for name, column in _DEFINED.items() if name not in _FIRST),
    Column("actions", Kind.INT64, "Actions that are in use."),
    Column("created_at", Kind.TIME, "When it was created.", "UTC"),
)


def space_batch(config: str, selection: Selection) -> RecordBatch:
    """Return the selected queue spaces of a device as one batch."""
    return batch(SPACE_COLUMNS, list(_records(config, selection)))


def _records(config: str, selection: Selection) -> Iterator[dict[str, Any]]:
    with open_device(config) as device:
        names = [space.name for space in device.spaces()]
        for name in selection.chosen_spaces(names, f"device {device.path!r}"):
            used = dataclasses.asdict(device.space_usage(name))
            space = device.space(name)
            more = {"pages_used": used.pop("pages"), "memory_used": used.pop("memory"), "created_at": space.created_at}
            yield defined(space.attributes) | used | more


def defined(attributes: Mapping[str, Plain]) -> dict[str, Any]:
    """Return what a queue space is, by the names of the columns."""
    return {_DEFINED[name].name: value for name, value in attributes.items()}
