"""What archives and tables of Spark have of messages, queues and queue spaces, for the pages that describe them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from qmadmin.archive.columns import COLUMNS, Column, Kind
from qmadmin.manual.roff import bold, escaped, terms
from qmcore.attributes import attributes_of

_JSON: Final = {str: "string", int: "number", bool: "boolean"}


def columns(declared: Iterable[Column] = COLUMNS) -> str:
    """Return columns in their order: the type and the unit of each, whether each row has it, what it means."""
    return terms(
        (_head(known.name, type_of(known.kind), known.unit, required=known.required), known.meaning)
        for known in declared
    )


def type_of(kind: Kind) -> str:
    """Return what a page calls the type of a column."""
    return "timestamp, microseconds" if kind is Kind.TIME else kind.value


def attributes(record: type) -> str:
    """Return the attributes of a data class, as JSON has them."""
    return terms(
        (_head(name, _JSON[known.kind.plain_type], known.kind.unit, required=not known.kind.may_be_none), known.about)
        for name, known in attributes_of(record).items()
    )


def _head(name: str, kind: str, unit: str, *, required: bool) -> str:
    told = [kind, unit, "" if required else "may be null"]
    return f"{bold(name)} ({escaped(', '.join(filter(None, told)))})"
