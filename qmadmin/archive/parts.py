"""One part: writing it, verifying it, and reading it in slices. All that is needed of its file is that it is open."""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, Self, TypeAlias

from qmadmin.archive.arrays import lengths, numbers
from qmadmin.archive.arrow import pa, pq
from qmadmin.archive.columns import BY_NAME, COLUMNS, DELIVERIES, STATES
from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.manifest import PartEntry, Portion, check_part_name
from qmadmin.archive.rows import COMMON, Standing, runs, schema, standing_of
from qmcore.message import State

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, RecordBatch, Table
    from pyarrow.parquet import ParquetFile

GROUP_ROWS: Final = 16_384
GROUP_BYTES: Final = 16 * 2**20
"""A row group has at most so many rows, and so many bytes of bodies and headers or one row."""

SLICE_ROWS: Final = 2_000
SLICE_BYTES: Final = 4 * 2**20
"""A slice, likewise. They never change: an import that goes on after a failure knows slices by their first rows."""

_PLACE: Final = ("sequence", "order_key", "retries")
_CHUNK: Final = 2**20
_UNLIKE: Final = ("msgid", "sequence", "order_key", "group_msgid", "group_sequence", "headers", "body")
"""Columns whose values differ from row to row, so that a dictionary of them saves nothing."""

_COUNTED: Final = ("space", "queue", "state", "delivery", "sequence", "group_sequence", "pages", "size")
_STATES: Final = {state.value: state for state in STATES}
_MEMORY: Final = {delivery: memory for memory, delivery in DELIVERIES.items()}


Portions: TypeAlias = dict[tuple[str, str, State, bool], Portion]
"""What a part has, by what messages have in common."""


class Sink(Protocol):
    """Where a part is written to."""

    def write(self, data: bytes, /) -> object:
        """Take all of some bytes."""


class PartWriter:
    """Writes a part into a file that is open for writing; `close` says what the manifest says of it.

    `settle` is called when all is written: it brings the file to the disk and closes it. `staged` is the name that the
    file has until the archive is finished.
    """

    def __init__(self, name: str, sink: Sink, settle: Callable[[], None] = lambda: None, *, staged: str = "") -> None:
        self.name = check_part_name(name)
        self._staged = staged
        self._sink = _Hashing(sink)
        self._settle = settle
        self._pending: list[RecordBatch] = []
        self._rows = self._bytes = self._written = 0
        self._portions: Portions = {}
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            schema(),
            compression="zstd",
            compression_level=1,
            use_dictionary=[column.name for column in COLUMNS if column.name not in _UNLIKE],
            write_statistics=[column.name for column in COLUMNS if column.name not in ("headers", "body")],
            # What Arrow adds for itself would make files differ that say the same.
            store_schema=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._settle()

    def write(self, batch: RecordBatch) -> None:
        """Write a batch of `rows.schema`, of any length."""
        if not batch.num_rows:
            return
        _check_nulls(self.name, batch)
        _refuse_wrong_sizes(batch, self.name)
        _count(batch, self.name, self._portions)
        sizes = _sizes(batch)
        total = sum(sizes)
        if self._rows + batch.num_rows > GROUP_ROWS or self._bytes + total > GROUP_BYTES:
            self._flush()
        if batch.num_rows <= GROUP_ROWS and (total <= GROUP_BYTES or batch.num_rows == 1):
            self._add(batch, total)
            return
        for first, count in slices(sizes, GROUP_ROWS, GROUP_BYTES):
            self._add(batch.slice(first, count), sum(sizes[first : first + count]))
            self._flush()

    def close(self) -> PartEntry:
        """Write what is left, and return what the manifest says of the part."""
        self._flush()
        self._writer.close()
        self._settle()
        return PartEntry(
            name=self.name,
            rows=self._written,
            size=self._sink.size,
            sha256=self._sink.digest.hexdigest(),
            portions=tuple(self._portions[key] for key in sorted(self._portions, key=_in_order)),
            staged=self._staged,
        )

    def _add(self, batch: RecordBatch, total: int) -> None:
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += total

    def _flush(self) -> None:
        if not self._pending:
            return
        self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=self._rows)
        self._pending = []
        self._written += self._rows
        self._rows = self._bytes = 0


class _Hashing:
    """A file that knows the digest and the length of what is written to it."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._sink.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the file is brought to the disk as a whole."""

    def close(self) -> None:
        """Do nothing: whoever opened the file closes it."""


def verify_part(entry: PartEntry, opened: BinaryIO, *, newer: bool = False) -> None:
    """Refuse a part that is not what the manifest says of it; its file is open for reading, and can be sought.

    With `newer` columns that this release does not know are left alone, for they are of a later minor version.
    """
    _check_digest(entry, opened)
    opened.seek(0)
    portions: Portions = {}
    with _reading(entry):
        file = pq.ParquetFile(opened)
        _check_schema(entry, file, newer=newer)
        if file.metadata.num_rows != entry.rows:
            raise refused(
                Fault.ROWS,
                f"part {entry.name!r} has {file.metadata.num_rows} rows, its manifest says {entry.rows}",
                part=entry.name,
            )
        wanted = [*_COUNTED, *_to_check_for_nulls(file)]
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=wanted, use_threads=False)
            for batch in table.combine_chunks().to_batches():
                _check_nulls(entry.name, batch)
                _count(batch, entry.name, portions)
    if tuple(portions[key] for key in sorted(portions, key=_in_order)) != entry.portions:
        raise refused(
            Fault.CONTENTS,
            f"part {entry.name!r} does not have the messages of each queue that its manifest counts",
            part=entry.name,
        )


def batches(entry: PartEntry, opened: BinaryIO) -> Iterator[tuple[int, RecordBatch]]:
    """Yield the slices of a part that was verified, each with the number of its first row, counted from 0.

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
            for first, count in slices(_sizes(table), SLICE_ROWS, SLICE_BYTES):
                yield at + first, table.slice(first, count).combine_chunks().to_batches()[0]
            at += table.num_rows


def places(entry: PartEntry, opened: BinaryIO, most_rows: int) -> Iterator[tuple[Standing, list[tuple[Any, ...]]]]:
    """Yield where the messages of a part stood, at most so many of one queue in one state at a time.

    Of each its sequence number, its order key and its retries. Nothing else of the part is read.
    """
    opened.seek(0)
    with _reading(entry):
        for batch in pq.ParquetFile(opened).iter_batches(most_rows, columns=[*COMMON, *_PLACE], use_threads=False):
            for first, count in runs(batch):
                run = batch.slice(first, count)
                yield standing_of(run), list(zip(*(run.column(name).to_pylist() for name in _PLACE), strict=True))


def slices(sizes: Sequence[int], most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield runs of rows of such sizes, as first row and how many: bounded by both limits, but one row at least."""
    first = total = 0
    for at, size in enumerate(sizes):
        if at > first and (at - first >= most_rows or total + size > most_bytes):
            yield first, at - first
            first, total = at, 0
        total += size
    if len(sizes) > first:
        yield first, len(sizes) - first


class _reading:  # noqa: N801 - it is used as a function is
    """What goes wrong while a part is read is told as its fault."""

    def __init__(self, entry: PartEntry) -> None:
        self._entry = entry

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        name = self._entry.name
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(name, error) from None
        if isinstance(error, (pa.ArrowException, OSError)):
            raise refused(
                Fault.PARQUET, f"part {name!r} is no Parquet file that can be read: {_line(error)}", part=name
            ) from None


def unreadable(name: str, error: OSError) -> Exception:
    """Return the diagnostic for a file of an archive that the operating system does not let us read."""
    return refused(Fault.UNREADABLE, f"{name!r} of the archive cannot be read: {error.strerror}", part=name)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


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
        raise refused(Fault.DIGEST, f"part {entry.name!r} was altered: it has another digest", part=entry.name)


def wrong_size(entry: PartEntry, size: int) -> Exception:
    """Return the diagnostic for a part that is longer or shorter than it was."""
    return refused(Fault.SIZE, f"part {entry.name!r} has {size} bytes, its manifest says {entry.size}", part=entry.name)


def _check_schema(entry: PartEntry, file: ParquetFile, *, newer: bool) -> None:
    found = {}
    for field in file.schema_arrow:
        if field.name in found or (field.name not in BY_NAME and not newer):
            raise _wrong_schema(entry, f"a column {field.name!r} that is not of the format")
        found[field.name] = field.type
    for field in schema():
        if field.name not in found and (BY_NAME[field.name].required or not BY_NAME[field.name].since):
            raise _wrong_schema(entry, f"no column {field.name!r}")
        if found.get(field.name, field.type) != field.type:
            raise _wrong_schema(entry, f"a column {field.name!r} of type {found[field.name]}, not {field.type}")


def _wrong_schema(entry: PartEntry, what: str) -> Exception:
    return refused(Fault.SCHEMA, f"part {entry.name!r} has {what}", part=entry.name)


def _to_check_for_nulls(file: ParquetFile) -> list[str]:
    """Return the columns that must have values, and of which the file itself does not say so."""
    return [
        field.name
        for field in file.schema_arrow
        if field.nullable and field.name in BY_NAME and BY_NAME[field.name].required and field.name not in _COUNTED
    ]


def _check_nulls(part: str, batch: RecordBatch) -> None:
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if array.null_count and BY_NAME[name].required:
            raise refused(Fault.CONTENTS, f"part {part!r} has a message without {name!r}", part=part)


def _sizes(rows: RecordBatch | Table) -> list[int]:
    """Return the bytes of body and headers of each row."""
    return list(map(operator.add, _lengths(rows, "body"), _lengths(rows, "headers")))


def _lengths(rows: RecordBatch | Table, name: str) -> Iterator[int]:
    return itertools.chain.from_iterable(map(lengths, _chunks(rows.column(name))))


def _chunks(column: Array | ChunkedArray) -> list[Array]:
    chunks: list[Array] = getattr(column, "chunks", None) or [column]
    return chunks


def _refuse_wrong_sizes(batch: RecordBatch, name: str) -> None:
    """Refuse messages whose body does not have the size that they say."""
    if lengths(batch.column("body")) != list(numbers(batch.column("size"))):
        raise refused(Fault.CONTENTS, f"a message for part {name!r} has a body of another size than it says", part=name)


def _count(batch: RecordBatch, name: str, portions: Portions) -> None:
    """Add to what a part has of each queue."""
    for first, count in runs(batch):
        run = batch.slice(first, count)
        space, queue, state, delivery = (run.column(column)[0].as_py() for column in COMMON)
        if state not in _STATES or delivery not in _MEMORY:
            raise refused(
                Fault.CONTENTS,
                f"part {name!r} has a message of the state {state!r} and the delivery {delivery!r}",
                part=name,
            )
        sequences = [*numbers(run.column("sequence")), *numbers(run.column("group_sequence"))]
        new = Portion(
            *(space, queue, _STATES[state], _MEMORY[delivery]),
            messages=count,
            pages=sum(numbers(run.column("pages"))),
            size=sum(numbers(run.column("size"))),
            first=min(sequences),
            last=max(sequences),
        )
        key = (new.space, new.queue, new.state, new.memory)
        portions[key] = _together(portions[key], new) if key in portions else new


def _together(one: Portion, other: Portion) -> Portion:
    return Portion(
        *(one.space, one.queue, one.state, one.memory),
        messages=one.messages + other.messages,
        pages=one.pages + other.pages,
        size=one.size + other.size,
        first=min(one.first, other.first),
        last=max(one.last, other.last),
    )


def _in_order(key: tuple[str, str, State, bool]) -> tuple[str, str, int, bool]:
    space, queue, state, memory = key
    return space, queue, STATES.index(state), memory
