"""Writing an archive into a directory: parts first, by any number of processes, and the manifest last."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, Self

from qmadmin.archive import Fault, manifest_file, refused, refused_part
from qmadmin.archive.columns import COLUMNS
from qmadmin.archive.file_systems import Place, despite_late_files, place_at
from qmadmin.archive.manifest import Manifest, PartEntry, check_part_name
from qmadmin.archive.part_validation import wrong_size
from qmadmin.archive.rows import (
    GROUP_BYTES,
    GROUP_ROWS,
    Portions,
    check_nulls,
    count,
    in_order,
    lengths,
    numbers,
    pa,
    pq,
    schema,
    sizes_of,
    slices,
)
from qmcore.errors import Alternative, QueueError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetWriter

MARK: Final = ".unfinished"
"""The mark of a directory into which an archive is being written."""

_MODE: Final = 0o600
_LEFT_OVER: Final = re.compile(r"\.manifest\.[a-z0-9]+|\.?[a-z0-9][a-z0-9_.-]*\.parquet(\.[0-9a-f]{8})?")


class ArchiveWriter:
    """Writes an archive into a directory of its own, which only its owner may read.

    The directory is not an archive before `finish` has returned.
    """

    def __init__(self, where: Path | Place, key: bytes | None = None) -> None:
        self.place = place_at(where)
        self._key = None if key is None else manifest_file.checked_key(key)

    @classmethod
    def create(cls, where: Path | Place, key: bytes | None = None, *, again: bool = False) -> ArchiveWriter:
        """Begin an archive in a directory that is created, or is empty; the bytes of a key sign it.

        With `again` it may also contain files of an interrupted export, which are removed.
        """
        writer = cls(where, key)
        place = writer.place
        with _writing(place):
            place.make()
            names = _names_in(place)
            _refuse_names(place, names, again=again)
            for name in names:
                place.remove(name)
            place.write(MARK, b"")
            if place.staged:
                (place.staging() / MARK).touch()
            place.sync()
        return writer

    @property
    def staging(self) -> Path:
        """The directory of this machine that parts are written into with `part_in`, also by other processes."""
        return self.place.staging()

    def part(self, name: str) -> PartWriter:
        """Begin a part."""
        return part_in(self.staging, name)

    def taken(self, entry: PartEntry) -> PartEntry:
        """Move a part from the staging directory to the archive, and return it."""
        with _writing(self.place):
            self.place.take(entry.staged)
        return entry

    def finish(self, manifest: Manifest) -> None:
        """Make the parts of the manifest, which may have been written elsewhere, an archive.

        Parts that the manifest does not name, such as those of attempts that were given up, are removed.
        """
        data = manifest_file.to_json(manifest)
        seal, sealed = manifest_file.seal(data, self._key)
        place = self.place
        with _writing(place):
            names = place.names()
            if manifest_file.NAME in names:
                raise _not_empty(place, names)
            for entry in manifest.parts:
                _put_in_place(place, entry, names)
            self._remove_others({entry.name for entry in manifest.parts})
            _replace(place, seal, sealed)
            place.sync()
            _replace(place, manifest_file.NAME, data)
            place.sync()
            place.remove(MARK)
            # Parts that were begun after the others were removed; from now on none can begin.
            self._remove_others({seal, *(entry.name for entry in manifest.parts)})
            place.sync()

    def discard(self) -> None:
        """Remove the files of an unfinished archive; a finished one stays."""
        with _writing(self.place):
            if manifest_file.NAME in self.place.names():
                return
            self._remove_others(set())
            self.place.remove(MARK)
            with contextlib.suppress(OSError):
                despite_late_files(self._drop)

    def _drop(self) -> None:
        """Remove what is left in the directory, and the directory if it contains no other files."""
        names = self.place.names()
        for name in filter(_is_left_over, names):
            self.place.remove(name)
        if all(map(_is_left_over, names)):
            self.place.drop()

    def _remove_others(self, names: set[str]) -> None:
        for name in self.place.names():
            if name not in names and name != MARK and _is_left_over(name):
                self.place.remove(name)


def part_in(directory: Path, name: str) -> PartWriter:
    """Begin a part of an archive that is being written into a directory.

    It has a name of its own until the archive is finished, so that two attempts at the same part do not collide. An
    attempt that begins after that is refused.
    """
    staged = f".{check_part_name(name)}.{secrets.token_hex(4)}"
    with _writing(directory):
        file = os.fdopen(os.open(directory / staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb")
        # From now on the process that removes the mark sees the file.
        if not (directory / MARK).exists():
            _dispose(file, directory / staged)
            raise refused(
                Fault.UNWRITABLE,
                f"the archive {str(directory)!r} cannot be written: it was finished or given up meanwhile",
                archive=str(directory),
            )
    return PartWriter(
        name,
        file,
        functools.partial(_settle, file),
        functools.partial(_dispose, file, directory / staged),
        staged=staged,
        directory=str(directory),
    )


def _is_left_over(name: str) -> bool:
    """Return whether a file can belong to an unfinished archive."""
    return name == MARK or name in manifest_file.SEALS or _LEFT_OVER.fullmatch(name) is not None


def _settle(file: BinaryIO) -> None:
    with file:
        file.flush()
        os.fsync(file.fileno())


def _dispose(file: BinaryIO, path: Path) -> None:
    path.unlink(missing_ok=True)
    # On a full disk its buffer cannot be flushed.
    with contextlib.suppress(OSError):
        file.close()


def _put_in_place(place: Place, entry: PartEntry, names: Collection[str]) -> None:
    # It exists already if an earlier attempt to finish failed after it.
    if entry.staged and entry.staged in names:
        place.rename(entry.staged, entry.name)
    elif entry.name not in names:
        raise refused_part(Fault.MISSING_PART, entry.name, "of the archive is missing")
    size = place.size(entry.name)
    if size != entry.size:
        raise wrong_size(entry, size)


def _replace(place: Place, name: str, data: bytes) -> None:
    """Write a file that appears only when it is complete."""
    beside = f".{name}"
    place.remove(beside)
    place.write(beside, data)
    place.rename(beside, name)


@contextlib.contextmanager
def _writing(where: Path | Place) -> Iterator[None]:
    """Raise an error of writing as a fault of the archive."""
    try:
        yield
    except OSError as error:
        raise refused(
            Fault.UNWRITABLE,
            f"the archive {str(where)!r} cannot be written: {error.strerror}",
            hint="Create the directory that is to contain it." if isinstance(error, FileNotFoundError) else "",
            archive=str(where),
        ) from None


def refuse_occupied(where: Path | Place, *, again: bool = False) -> None:
    """Refuse a directory as `ArchiveWriter.create` does, without changing anything; a missing one is fine."""
    place = place_at(where)
    with _writing(place), contextlib.suppress(FileNotFoundError):
        _refuse_names(place, _names_in(place), again=again)


def _refuse_names(place: Place, names: list[str], *, again: bool) -> None:
    if names and not (again and MARK in names and all(map(_is_left_over, names))):
        raise _not_empty(place, names)


def _names_in(place: Place) -> list[str]:
    try:
        return place.names()
    except NotADirectoryError:
        raise refused(Fault.NOT_EMPTY, f"{str(place)!r} is not a directory", archive=str(place)) from None


def _not_empty(place: Place, names: list[str]) -> Exception:
    where = f"the directory {str(place)!r}"
    what, alternative = "is not empty", None
    if manifest_file.NAME in names:
        what = "holds an archive already"
    elif MARK in names:
        what, alternative = (
            "holds an archive that is being written, or whose export was not finished",
            Alternative.RESUME,
        )
    return refused(Fault.NOT_EMPTY, f"{where} {what}", alternative=alternative, archive=str(place))


# ---- one part in a file ----------------------------------------------------------------------------------------------


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
