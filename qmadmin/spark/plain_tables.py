"""What tables that are made of a few rows are declared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qmadmin.archive.arrays import TYPES
from qmadmin.archive.arrow import pa
from qmadmin.archive.columns import Column, Kind

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def text(name: str, meaning: str) -> Column:
    """Return a column of texts, of which none is missing."""
    return Column(name, Kind.TEXT, meaning, required=True)


def number(name: str, meaning: str, unit: str = "") -> Column:
    """Return a column of whole numbers, of which none is missing."""
    return Column(name, Kind.INT64, meaning, unit, required=True)


def batch(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> RecordBatch:
    """Return rows as one batch."""
    fields = [pa.field(column.name, TYPES[column.kind], nullable=not column.required) for column in columns]
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(fields)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
