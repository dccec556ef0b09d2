"""Opening an archive, which checks its manifest and the names of its files; verifying and reading its parts."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from qmadmin.archive import Fault, manifest_file, refused, refused_part
from qmadmin.archive.columns import BY_NAME
from qmadmin.archive.file_systems import Files, Place, place_at
from qmadmin.archive.manifest import Manifest, PartEntry, check_part_name
from qmadmin.archive.part_validation import Groups, Orders, check_end, wrong_size
from qmadmin.archive.rows import (
    COMMON,
    COUNTED,
    Portions,
    Standing,
    count,
    in_order,
    pa,
    pq,
    runs,
    schema,
    sizes_of,
    slices,
    standing_of,
)
from qmadmin.archive.writing import MARK
from qmcore.values import dataclass

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification: numbers of parts, rows and bytes."""

    parts: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive with a checked manifest, and the files of its parts."""

    files: Files
    manifest: Manifest

    def verify(self, progress: Callable[[PartEntry], None] = lambda _entry: None) -> Verification:
        """Read all parts, and refuse the first that is not as the manifest says; `progress` is called for others."""
        for entry in self.manifest.parts:
            self.verify_part(entry)
            progress(entry)
        return Verification(len(self.manifest.parts), self.manifest.messages, self.manifest.size)

    def verify_part(self, entry: PartEntry) -> None:
        """Read one part, and refuse it if it is not as the manifest says."""
        with self.opened(entry) as file:
            verify_part(entry, file, self._orders())

    def _orders(self) -> Orders:
        return {
            (space.name, queue.name): queue.definition.order for space in self.manifest.spaces for queue in space.queues
        }

    def batches(self, entry: PartEntry) -> Iterator[tuple[int, RecordBatch]]:
        """Yield the slices of a verified part, each with the number of its first row, counted from 0."""
        with self.opened(entry) as file:
            yield from batches(entry, file)

    def places(self, entry: PartEntry, most_rows: int) -> Iterator[tuple[Standing, list[tuple[Any, ...]]]]:
        """Yield the places of the messages of a part: sequence number, order key and retries of each."""
        with self.opened(entry) as file:
            yield from places(entry, file, most_rows)

    @contextlib.contextmanager
    def opened(self, entry: PartEntry) -> Iterator[BinaryIO]:
        """Open the file of a part for the block."""
        with _opened(self.files, check_part_name(entry.name)) as file:
            size = file.seek(0, os.SEEK_END)
            if size != entry.size:
                raise wrong_size(entry, size)
            file.seek(0)
            yield file


def open_archive(where: Path | Place, key: bytes | None = None) -> Archive:
    """Return the archive in a directory; `key` are the bytes of the key that signs it.

    It checks manifest and seal, and that all parts exist and nothing else. `Archive.verify` reads the parts.
    """
    place = place_at(where)
    names = _names(place)
    if manifest_file.NAME not in names:
        raise _no_manifest(place, names)
    data = read_file(place, manifest_file.NAME)
    seals = {name: read_file(place, name) for name in manifest_file.SEALS if name in names}
    manifest = checked_manifest(data, seals, key)
    check_files(manifest, names)
    for entry in manifest.parts:
        _check_size(place, entry)
    return Archive(place, manifest)


def holds_archive(where: Path | Place) -> bool:
    """Return whether a directory has the manifest of an archive, which is written last."""
    try:
        return manifest_file.NAME in place_at(where).names()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unreadable(str(where), error) from None


def checked_manifest(data: bytes, seals: Mapping[str, bytes], key: bytes | None = None) -> Manifest:
    """Return the manifest in a file, if it matches its seal; `seals` are the files of seals, by their names."""
    manifest_file.check_seal(data, seals, key)
    return manifest_file.from_json(data)


def check_files(manifest: Manifest, names: Collection[str]) -> None:
    """Refuse a directory that lacks a part or has a foreign file; hidden files are ignored."""
    known = {entry.name for entry in manifest.parts}
    missing = sorted(known - set(names))
    if missing:
        raise refused_part(Fault.MISSING_PART, missing[0], "of the archive is missing")
    extra = sorted(
        name for name in names if not hidden(name) and name not in {*known, manifest_file.NAME, *manifest_file.SEALS}
    )
    if extra:
        raise refused(
            Fault.EXTRA_FILE, f"the directory has the file {extra[0]!r}, which does not belong to the archive"
        )


def hidden(name: str) -> bool:
    """Return whether a file is ignored, such as those that Spark leaves next to its own."""
    return name.startswith((".", "_"))


def read_file(files: Files, name: str) -> bytes:
    """Return the content of a small file of an archive."""
    with _opened(files, name) as file:
        return file.read()


def _names(place: Place) -> list[str]:
    try:
        return place.names()
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "not a directory" if isinstance(error, NotADirectoryError) else "not there"
        raise refused(Fault.NO_DIRECTORY, f"the archive {str(place)!r} is {what}", archive=str(place)) from None
    except OSError as error:
        raise unreadable(str(place), error) from None


def _no_manifest(place: Place, names: list[str]) -> Exception:
    where = f"the directory {str(place)!r}"
    if MARK in names or any(name.endswith(".parquet") for name in names):
        return refused(Fault.UNFINISHED, f"the archive in {where} is not finished: it has no {manifest_file.NAME}")
    if not names:
        return refused(Fault.EMPTY, f"{where} is empty")
    return refused(Fault.FORMAT, f"{where} holds no archive: it has no {manifest_file.NAME}")


def _check_size(place: Place, entry: PartEntry) -> None:
    try:
        size = place.size(entry.name)
    except OSError as error:
        raise unreadable(entry.name, error) from None
    if size != entry.size:
        raise wrong_size(entry, size)


@contextlib.contextmanager
def _opened(files: Files, name: str) -> Iterator[BinaryIO]:
    """Open a file for the block; an error of the operating system becomes a fault of the archive."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(files.opened(name))
        except OSError as error:
            raise unreadable(name, error) from None
        yield file


# ---- one part in a file ----------------------------------------------------------------------------------------------


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
