"""Definitions of queue spaces and queues in the manifest."""

from __future__ import annotations

from typing import TypeVar

from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.fields import Fields
from qmcore.attributes import Kind, Plain, Written, attributes_of, made
from qmcore.errors import InvalidArgumentError

R = TypeVar("R")


def definition_of(fields: Fields, record: type[R]) -> R:
    """Return the definition of a queue space or a queue that a JSON object says: its attributes in their plain form."""
    values = {name: _value(fields, name, known.kind) for name, known in attributes_of(record).items()}
    fields.end()
    try:
        return made(record, values)
    except InvalidArgumentError as error:
        raise refused(Fault.MANIFEST, f"{fields.where}: {error.message}") from None


def _value(fields: Fields, name: str, kind: Kind) -> Plain:
    if isinstance(kind, Written) and kind.words:
        return fields.word(name, kind.words)
    if kind.may_be_none and fields.given(name) is None:
        return None
    if kind.plain_type is int:
        return fields.number(name, min(0, kind.least))
    return fields.text(name) if kind.plain_type is str else fields.flag(name)
