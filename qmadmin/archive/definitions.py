"""Definitions of queue spaces and queues in the manifest, and back."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.fields import Fields
from qmcore.attributes import Attribute, Plain, Written, attributes_of, made
from qmcore.errors import InvalidArgumentError
from qmcore.queue import QueueDefinition
from qmcore.space import SpaceDefinition

_TEXTS: Final = ("name", "error_queue")
_NUMBERS: Final = tuple(field.name for field in dataclasses.fields(SpaceDefinition) if field.name not in _TEXTS)


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


def to_queue(fields: Fields) -> QueueDefinition:
    """Return the definition of a queue that a JSON object says: its values as texts of qcreate."""
    values = {known.name: _value(fields, known) for known in attributes_of(QueueDefinition)}
    fields.end()
    try:
        return made(QueueDefinition, values)
    except InvalidArgumentError as error:
        raise refused(Fault.MANIFEST, f"{fields.where}: {error.message}") from None


def _value(fields: Fields, known: Attribute) -> Plain:
    kind = known.kind
    if isinstance(kind, Written) and kind.words:
        return fields.word(known.name, kind.words)
    if kind.may_be_none and fields.given(known.name) is None:
        return None
    if kind.plain_type is int:
        return fields.number(known.name, min(0, kind.least))
    return fields.text(known.name) if kind.plain_type is str else fields.flag(known.name)
