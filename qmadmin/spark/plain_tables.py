"""What tables that are made of a few rows are declared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin.archive.arrays import TYPES
from qmadmin.archive.arrow import pa
from qmadmin.archive.columns import Column, Kind

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmcore.attributes import Attribute


def text(name: str, meaning: str) -> Column:
    """Return a column of texts, of which none is missing."""
    return Column(name, Kind.TEXT, meaning, required=True)


def number(name: str, meaning: str, unit: str = "") -> Column:
    """Return a column of whole numbers, of which none is missing."""
    return Column(name, Kind.INT64, meaning, unit, required=True)


_KINDS: Final = {str: Kind.TEXT, int: Kind.INT64, bool: Kind.FLAG}


def columns_of(attributes: Mapping[str, Attribute], names: Mapping[str, str]) -> dict[str, Column]:
    """Return the columns of attributes by their names; `names` has those of columns that are called otherwise."""
    return {
        name: Column(
            names.get(name, name),
            _KINDS[known.kind.plain_type],
            known.about,
            known.kind.unit,
            required=not known.kind.may_be_none,
        )
        for name, known in attributes.items()
    }


def batch(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> RecordBatch:
    """Return records, whose values are named as the columns, as one batch."""
    fields = [pa.field(column.name, TYPES[column.kind], nullable=not column.required) for column in columns]
    arrays = [pa.array([record[field.name] for record in records], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
