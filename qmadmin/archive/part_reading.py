"""Verifying one part, and reading it in slices, from an open file."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from qmadmin.archive.arrays import pa, pq
from qmadmin.archive.columns import BY_NAME
from qmadmin.archive.faults import Fault, refused, refused_part
from qmadmin.archive.manifest import PartEntry
from qmadmin.archive.part_validation import Groups, Orders, check_end
from qmadmin.archive.rows import (
    COMMON,
    COUNTED,
    Portions,
    Standing,
    count,
    in_order,
    runs,
    schema,
    sizes_of,
    slices,
    standing_of,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

SLICE_ROWS: Final = 1_000
SLICE_BYTES: Final = 4 * 2**20
"""The maximum rows of a slice, and the maximum bytes of bodies and headers, unless it has one row.

This never changes: an import that is resumed identifies slices by their first rows.
"""

_PLACE: Final = ("sequence", "order_key", "retries")
_CHUNK: Final = 2**20


def verify_part(entry: PartEntry, opened: BinaryIO, orders: Orders = MappingProxyType({})) -> None:
    """Refuse a part that is not as the manifest says; its file is open for reading, and seekable.

    A part with a value that no sender could have given is refused too. `orders` are those of the queues. Whatever the
    file claims, this takes less than 256 MiB of memory.
    """
    _check_digest(entry, opened)
    opened.seek(0)
    portions: Portions = {}
    with _reading(entry):
        check_end(entry.name, opened, entry.size)
        groups = Groups(entry.name, opened, orders)
        file = groups.file
        _check_schema(entry, file)
        if file.metadata.num_rows != entry.rows:
            raise refused_part(
                Fault.ROWS, entry.name, f"has {file.metadata.num_rows} rows, its manifest says {entry.rows}"
            )
        for group in groups.check():
            table = file.read_row_group(group, columns=[*COUNTED], use_threads=False)
            for batch in table.combine_chunks().to_batches():
                count(batch, entry.name, portions)
    if in_order(portions) != entry.portions:
        raise refused_part(
            Fault.CONTENTS, entry.name, "does not have the messages of each queue that its manifest counts"
        )


def batches(entry: PartEntry, opened: BinaryIO) -> Iterator[tuple[int, RecordBatch]]:
    """Yield the slices of a verified part, each with the number of its first row, counted from 0.

    They are the same each time. A slice has at most SLICE_ROWS rows, and SLICE_BYTES bytes of bodies and headers or one
    row. Not more than one row group is in memory.
    """
    opened.seek(0)
    at = 0
    with _reading(entry):
        file = pq.ParquetFile(opened)
        known = [name for name in file.schema_arrow.names if name in BY_NAME]
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=known, use_threads=False)
            for first, many in slices(sizes_of(table), SLICE_ROWS, SLICE_BYTES):
                yield at + first, table.slice(first, many).combine_chunks().to_batches()[0]
            at += table.num_rows


def places(entry: PartEntry, opened: BinaryIO, most_rows: int) -> Iterator[tuple[Standing, list[tuple[Any, ...]]]]:
    """Yield the places of the messages of a part, at most this number of one queue in one state at a time.

    A place is the sequence number, the order key and the retries. Nothing else of the part is read.
    """
    opened.seek(0)
    with _reading(entry):
        for batch in pq.ParquetFile(opened).iter_batches(most_rows, columns=[*COMMON, *_PLACE], use_threads=False):
            for first, many in runs(batch):
                run = batch.slice(first, many)
                yield standing_of(run), list(zip(*(run.column(name).to_pylist() for name in _PLACE), strict=True))


@contextlib.contextmanager
def _reading(entry: PartEntry) -> Iterator[None]:
    """Raise an error of reading the part as a fault of the archive."""
    try:
        yield
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        # Arrow raises OSError, without a number, for data that it cannot decode.
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(entry.name, error) from None
        raise refused_part(
            Fault.PARQUET, entry.name, f"is not a Parquet file that can be read: {' '.join(str(error).split())}"
        ) from None


def unreadable(name: str, error: OSError) -> Exception:
    """Return the diagnostic for a file of an archive that the operating system refuses to read."""
    return refused(Fault.UNREADABLE, f"{name!r} of the archive cannot be read: {error.strerror}", part=name)


def _check_digest(entry: PartEntry, opened: BinaryIO) -> None:
    digest = hashlib.sha256()
    size = 0
    opened.seek(0)
    try:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    except OSError as error:
        raise unreadable(entry.name, error) from None
    if size != entry.size:
        raise wrong_size(entry, size)
    if digest.hexdigest() != entry.sha256:
        raise refused_part(Fault.DIGEST, entry.name, "was altered: it has another digest")


def wrong_size(entry: PartEntry, size: int) -> Exception:
    """Return the diagnostic for a part that is longer or shorter than it was."""
    return refused_part(Fault.SIZE, entry.name, f"has {size} bytes, its manifest says {entry.size}")


def _check_schema(entry: PartEntry, file: ParquetFile) -> None:
    found = {}
    for field in file.schema_arrow:
        if field.name in found or field.name not in BY_NAME:
            raise _wrong_schema(entry, f"a column {field.name!r} that does not belong to the format")
        found[field.name] = field.type
    for field in schema():
        if field.name not in found and (BY_NAME[field.name].required or not BY_NAME[field.name].since):
            raise _wrong_schema(entry, f"no column {field.name!r}")
        if found.get(field.name, field.type) != field.type:
            raise _wrong_schema(entry, f"a column {field.name!r} of type {found[field.name]}, not {field.type}")


def _wrong_schema(entry: PartEntry, what: str) -> Exception:
    return refused_part(Fault.SCHEMA, entry.name, f"has {what}")
