"""The queues and the queue spaces of a device as tables: their attributes, and their use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.columns import ArchiveColumn, ColumnType
from qmadmin.archive.rows import TYPES, pa
from qmadmin.opening import open_device
from qmcore import queue, space

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.transfer.selecting import ArchiveSelection
    from qmcore.attributes import Attribute, Plain

_KINDS: Final = {
    str: ColumnType.TEXT, int: ColumnType.INT64, bool: ColumnType.FLAG, float: ColumnType.REAL
}  # fmt: skip


def _columns_of(attributes: Mapping[str, Attribute], names: Mapping[str, str]) -> dict[str, ArchiveColumn]:
    """Return the columns of attributes by their names; `names` has the columns with other names."""
    return {
        name: ArchiveColumn(
            names.get(name, name),
            _KINDS[known.kind.plain_type],
            known.about,
            known.kind.unit,
            required=not known.kind.may_be_none,
        )
        for name, known in attributes.items()
    }


# ---- queues ----------------------------------------------------------------------------------------------------------

_QUEUE: Final = _columns_of(queue.ATTRIBUTES, {"name": "queue", "retries": "retry_limit"})
_QUEUE_FIRST: Final = (
    "name", "order", "out_of_order", "retries", "retry_delay", "delivery", "expiration", "error_queue",
)  # fmt: skip
"""The attributes before the counts. Others follow the counts, so that no column of an earlier release moves."""

_FIGURES: Final = _columns_of(queue.FIGURES, {"size": "bytes"})
_NEW_FIGURES: Final = ("nonpersistent", "memory_pages", "parked")

QUEUE_COLUMNS: Final = (
    ArchiveColumn("space", ColumnType.TEXT, "Queue space.", required=True),
    *(_QUEUE[name] for name in _QUEUE_FIRST),
    *(column for name, column in _FIGURES.items() if name not in _NEW_FIGURES),
    ArchiveColumn("first_at", ColumnType.TIME, "When the first message in order was enqueued.", "UTC"),
    ArchiveColumn(
        "oldest_at",
        ColumnType.TIME,
        "When the oldest ready message was enqueued, if the order does not depend on times.",
        "UTC",
    ),
    *(column for name, column in _QUEUE.items() if name not in _QUEUE_FIRST),
    *(_FIGURES[name] for name in _NEW_FIGURES),
)


def queue_row(space_name: str, attributes: Mapping[str, Plain]) -> dict[str, Any]:
    """Return the attributes of a queue by the names of the columns."""
    return {"space": space_name} | {_QUEUE[name].name: value for name, value in attributes.items()}


def queue_batch(config: str, selection: ArchiveSelection) -> RecordBatch:
    """Return the selected queues of a device as one batch."""
    return _batch(QUEUE_COLUMNS, list(_queue_rows(config, selection)))


def _queue_rows(config: str, selection: ArchiveSelection) -> Iterator[dict[str, Any]]:
    with open_device(config) as device:
        for name in selection.spaces_of(device):
            for found, usage in device.queue_usages(name):
                if selection.has_queue(found.name):
                    figures = {"bytes": usage.size, "first_at": usage.first_us, "oldest_at": usage.oldest_us}
                    yield queue_row(name, found.attributes) | dataclasses.asdict(usage) | figures


# ---- queue spaces ----------------------------------------------------------------------------------------------------

_SPACE: Final = _columns_of(
    space.ATTRIBUTES,
    {
        "name": "space",
        "queues": "queue_limit",
        "transactions": "transaction_limit",
        "processes": "process_limit",
        "messages": "message_limit",
        "memory": "memory_limit",
        "actions": "action_limit",
    },
)
_SPACE_FIRST: Final = ("name", "pages", "queues", "transactions", "processes", "messages", "memory", "error_queue")

SPACE_COLUMNS: Final = (
    *(_SPACE[name] for name in _SPACE_FIRST),
    ArchiveColumn("queues", ColumnType.INT64, "Queues that it has.", required=True),
    ArchiveColumn("messages", ColumnType.INT64, "Messages that it holds.", required=True),
    ArchiveColumn("pages_used", ColumnType.INT64, "Pages that are in use.", "pages", required=True),
    ArchiveColumn("memory_used", ColumnType.INT64, "Memory that is in use.", "bytes"),
    ArchiveColumn("transactions", ColumnType.INT64, "Transactions that are open."),
    ArchiveColumn("processes", ColumnType.INT64, "Processes that have it open."),
    *(column for name, column in _SPACE.items() if name not in _SPACE_FIRST),
    ArchiveColumn("actions", ColumnType.INT64, "Actions that are in use."),
    ArchiveColumn("created_at", ColumnType.TIME, "When it was created.", "UTC"),
)


def space_row(attributes: Mapping[str, Plain]) -> dict[str, Any]:
    """Return the attributes of a queue space by the names of the columns."""
    return {_SPACE[name].name: value for name, value in attributes.items()}


def space_batch(config: str, selection: ArchiveSelection) -> RecordBatch:
    """Return the selected queue spaces of a device as one batch."""
    return _batch(SPACE_COLUMNS, list(_space_rows(config, selection)))


def _space_rows(config: str, selection: ArchiveSelection) -> Iterator[dict[str, Any]]:
    with open_device(config) as device:
        for name in selection.spaces_of(device):
            used = dataclasses.asdict(device.space_usage(name))
            found = device.space(name)
            more = {"pages_used": used.pop("pages"), "memory_used": used.pop("memory"), "created_at": found.created_at}
            yield space_row(found.attributes) | used | more


def _batch(columns: Sequence[ArchiveColumn], rows: Sequence[Mapping[str, Any]]) -> RecordBatch:
    """Return rows, whose values are named as the columns, as one batch."""
    fields = [pa.field(column.name, TYPES[column.kind], nullable=not column.required) for column in columns]
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
