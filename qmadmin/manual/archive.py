"""The columns of an archive, for qmadmin-archive(5)."""

from __future__ import annotations

from typing import Final

from qmadmin.archive.columns import COLUMNS, Column, Kind
from qmadmin.manual.roff import bold, escaped, terms

TYPES: Final = {
    Kind.TEXT: "string",
    Kind.BYTES: "binary",
    Kind.INT16: "int16",
    Kind.INT32: "int32",
    Kind.INT64: "int64",
    Kind.TIME: "timestamp, microseconds",
}


def columns() -> str:
    """Return the columns in their order: the type and the unit of each, whether each message has it, what it means."""
    return terms((_head(column), column.meaning) for column in COLUMNS)


def _head(column: Column) -> str:
    told = [TYPES[column.kind], column.unit, "" if column.required else "may be null"]
    return f"{bold(column.name)} ({escaped(', '.join(filter(None, told)))})"
