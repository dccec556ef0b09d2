"""Writing one part into an open file."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, Self

from qmadmin.archive.arrays import lengths, numbers, pa, pq
from qmadmin.archive.columns import COLUMNS
from qmadmin.archive.faults import Fault, refused, refused_part
from qmadmin.archive.manifest import PartEntry, check_part_name
from qmadmin.archive.rows import Portions, check_nulls, count, in_order, schema, sizes_of, slices
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetWriter

GROUP_ROWS: Final = 16_384
GROUP_BYTES: Final = 16 * 2**20
"""The maximum rows of a row group, and the maximum bytes of bodies and headers, unless it has one row."""

_UNLIKE: Final = ("msgid", "sequence", "order_key", "group_msgid", "group_sequence", "headers", "body")
"""Columns whose values differ from row to row, so that a dictionary of them saves nothing."""


class Sink(Protocol):
    """The target of a part."""

    def write(self, data: bytes, /) -> object:
        """Write all of these bytes."""


class PartWriter:
    """Writes a part into a file that is open for writing; `close` returns its entry for the manifest.

    `settle` syncs and closes the file; `dispose` removes the file of an abandoned part. `staged` is the name of the
    file until the archive is finished, `directory` its directory. As a context manager a writer abandons a part that
    was not closed.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        settle: Callable[[], None] = lambda: None,
        dispose: Callable[[], None] = lambda: None,
        *,
        staged: str = "",
        directory: str = "",
    ) -> None:
        self.name = check_part_name(name)
        self._directory = directory
        self._staged = staged
        self._sink = _Hashing(sink)
        self._settle, self._dispose = settle, dispose
        self._pending: list[RecordBatch] = []
        self._rows = self._bytes = self._written = 0
        self._portions: Portions = {}
        self._ended = False
        try:
            with self._writing():
                self._writer = _parquet(self._sink)
        except QueueError:
            dispose()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self.abandon()

    def write(self, batch: RecordBatch) -> None:
        """Write a batch of `rows.schema`, of any length."""
        if not batch.num_rows:
            return
        check_nulls(self.name, batch)
        _refuse_wrong_sizes(batch, self.name)
        count(batch, self.name, self._portions)
        sizes = sizes_of(batch)
        total = sum(sizes)
        if self._rows + batch.num_rows > GROUP_ROWS or self._bytes + total > GROUP_BYTES:
            self._flush()
        if batch.num_rows <= GROUP_ROWS and (total <= GROUP_BYTES or batch.num_rows == 1):
            self._add(batch, total)
            return
        for first, many in slices(sizes, GROUP_ROWS, GROUP_BYTES):
            self._add(batch.slice(first, many), sum(sizes[first : first + many]))
            self._flush()

    def close(self) -> PartEntry:
        """Write the rest, and return the entry of the part for the manifest."""
        self._flush()
        with self._writing():
            self._writer.close()
            self._settle()
        self._ended = True
        return PartEntry(
            name=self.name,
            rows=self._written,
            size=self._sink.size,
            sha256=self._sink.digest.hexdigest(),
            portions=in_order(self._portions),
            staged=self._staged,
        )

    def abandon(self) -> None:
        """Discard the part."""
        self._ended = True
        self._pending = []
        self._sink.forget()
        self._writer.close()
        self._dispose()

    def _add(self, batch: RecordBatch, total: int) -> None:
        self._pending.append(batch)
        self._rows += batch.num_rows
        self._bytes += total

    def _flush(self) -> None:
        if not self._pending:
            return
        with self._writing():
            self._writer.write_table(pa.Table.from_batches(self._pending), row_group_size=self._rows)
        self._pending = []
        self._written += self._rows
        self._rows = self._bytes = 0

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise an error of writing the part as a fault of the archive."""
        try:
            yield
        except OSError as error:
            where = f" into {self._directory!r}" if self._directory else ""
            raise refused_part(
                Fault.UNWRITABLE, self.name, f"of the archive cannot be written{where}: {error.strerror or error}"
            ) from None


def _parquet(sink: _Hashing) -> ParquetWriter:
    return pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema(),
        compression="zstd",
        compression_level=1,
        use_dictionary=[column.name for column in COLUMNS if column.name not in _UNLIKE],
        write_statistics=[column.name for column in COLUMNS if column.name not in ("headers", "body")],
        # Arrow's own metadata would make equal parts differ.
        store_schema=False,
    )


class _Hashing:
    """A file that computes the digest and the length of its content."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink: Sink | None = sink
        self.digest = hashlib.sha256()
        self.size = 0

    def forget(self) -> None:
        """Drop everything that Arrow still writes to the file."""
        self._sink = None

    def write(self, data: bytes) -> int:
        if self._sink is not None:
            self._sink.write(data)
            self.digest.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the file is synced as a whole."""

    def close(self) -> None:
        """Do nothing: the caller that opened the file closes it."""


def _refuse_wrong_sizes(batch: RecordBatch, name: str) -> None:
    """Refuse messages whose body does not have their recorded size."""
    if lengths(batch.column("body")) != list(numbers(batch.column("size"))):
        raise refused(Fault.CONTENTS, f"a message for part {name!r} has a body of another size than it says", part=name)
