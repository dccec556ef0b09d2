"""Definitions of queue spaces and queues in the manifest, and back."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.fields import INT64_MAX, Fields
from qmcore import limits
from qmcore.errors import InvalidArgumentError
from qmcore.limits import Threshold
from qmcore.order import OutOfOrder, QueueOrder
from qmcore.queue import KEPT, Delivery, QueueDefinition
from qmcore.space import SpaceDefinition

_TEXTS: Final = ("name", "error_queue")
_NUMBERS: Final = tuple(field.name for field in dataclasses.fields(SpaceDefinition) if field.name not in _TEXTS)
_DELIVERIES: Final = tuple(delivery.value for delivery in KEPT)


def of_space(definition: SpaceDefinition) -> dict[str, Any]:
    """Return the definition of a queue space as a JSON object."""
    return dataclasses.asdict(definition)


def to_space(fields: Fields) -> SpaceDefinition:
    """Return the definition of a queue space that a JSON object says."""
    texts = {name: fields.text(name) for name in _TEXTS}
    numbers = {name: fields.number(name) for name in _NUMBERS}
    fields.end()
    try:
        return SpaceDefinition(**texts, **numbers)  # type: ignore[arg-type]
    except InvalidArgumentError as error:
        raise refused(Fault.MANIFEST, f"{fields.where}: {error.message}") from None


def of_queue(definition: QueueDefinition) -> dict[str, Any]:
    """Return the definition of a queue as a JSON object: its values as texts of qcreate."""
    threshold, memory = definition.threshold, definition.memory_threshold
    return {
        "name": definition.name,
        "order": str(definition.order),
        "out_of_order": str(definition.out_of_order),
        "retries": definition.retries,
        "retry_delay": definition.retry_delay,
        "high": str(threshold.high),
        "low": str(threshold.low),
        "command": threshold.command,
        "memory_high": str(memory.high),
        "memory_low": str(memory.low),
        "memory_command": memory.command,
        "delivery": definition.delivery.value,
        "expiration": definition.expiration,
        "error_queue": definition.error_queue,
        "keep_expired": definition.keep_expired,
        "grouping": definition.grouping,
        "retention": definition.retention,
    }


def to_queue(fields: Fields) -> QueueDefinition:
    """Return the definition of a queue that a JSON object says."""
    try:
        definition = QueueDefinition(
            name=fields.text("name"),
            order=QueueOrder.parse(fields.text("order")),
            out_of_order=OutOfOrder.parse(fields.text("out_of_order")),
            retries=fields.number("retries"),
            retry_delay=fields.number("retry_delay"),
            threshold=_threshold(fields, ""),
            memory_threshold=_threshold(fields, "memory_"),
            delivery=Delivery(fields.word("delivery", _DELIVERIES)),
            expiration=fields.number_or_none("expiration"),
            error_queue=fields.text("error_queue"),
            keep_expired=fields.flag("keep_expired"),
            grouping=fields.flag("grouping"),
            retention=fields.number("retention", -1, INT64_MAX),
        )
    except InvalidArgumentError as error:
        raise refused(Fault.MANIFEST, f"{fields.where}: {error.message}") from None
    fields.end()
    return definition


def _threshold(fields: Fields, prefix: str) -> Threshold:
    high = limits.parse_high(fields.text(f"{prefix}high"))
    low = limits.parse_low(fields.text(f"{prefix}low"), high)
    return Threshold(high, low, fields.text(f"{prefix}command"))
