"""Opening an archive: its manifest is checked, and the files that it names; verifying reads them all."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from qmadmin.archive import manifest_file, part_reading
from qmadmin.archive.faults import Fault, refused, refused_part
from qmadmin.archive.file_systems import Files, Place, place_at
from qmadmin.archive.manifest import Manifest, PartEntry, check_part_name
from qmadmin.archive.part_validation import Orders
from qmadmin.archive.rows import Standing
from qmadmin.archive.writing import MARK

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What was verified: how many parts, rows and bytes of parts."""

    parts: int
    rows: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose manifest is checked, and the files that its parts are."""

    files: Files
    manifest: Manifest

    def verify(self, progress: Callable[[PartEntry], None] = lambda _entry: None) -> Report:
        """Read all parts, and refuse the first that is not what the manifest says; `progress` is told each other."""
        for entry in self.manifest.parts:
            self.verify_part(entry)
            progress(entry)
        return Report(len(self.manifest.parts), self.manifest.messages, self.manifest.size)

    def verify_part(self, entry: PartEntry) -> None:
        """Read one part, and refuse it if it is not what the manifest says."""
        with self.opened(entry) as file:
            part_reading.verify_part(entry, file, self._orders())

    def _orders(self) -> Orders:
        return {
            (space.name, queue.name): queue.definition.order for space in self.manifest.spaces for queue in space.queues
        }

    def batches(self, entry: PartEntry) -> Iterator[tuple[int, RecordBatch]]:
        """Yield the slices of a part that was verified, each with the number of its first row, counted from 0."""
        with self.opened(entry) as file:
            yield from part_reading.batches(entry, file)

    def places(self, entry: PartEntry, most_rows: int) -> Iterator[tuple[Standing, list[tuple[Any, ...]]]]:
        """Yield where the messages of a part stood: of each its sequence number, its order key and its retries."""
        with self.opened(entry) as file:
            yield from part_reading.places(entry, file, most_rows)

    @contextlib.contextmanager
    def opened(self, entry: PartEntry) -> Iterator[BinaryIO]:
        """Open the file of a part for the block."""
        with _opened(self.files, check_part_name(entry.name)) as file:
            size = file.seek(0, os.SEEK_END)
            if size != entry.size:
                raise part_reading.wrong_size(entry, size)
            file.seek(0)
            yield file


def open_archive(where: Path | Place, key: bytes | None = None) -> Archive:
    """Return the archive in a directory; `key` are the bytes of the key that it is signed with.

    Manifest and seal are checked, and that all parts are there and nothing else. `Archive.verify` reads the parts.
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
    """Return whether a directory has the manifest of an archive, which is there when the archive is complete."""
    try:
        return manifest_file.NAME in place_at(where).names()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise part_reading.unreadable(str(where), error) from None


def checked_manifest(data: bytes, seals: Mapping[str, bytes], key: bytes | None = None) -> Manifest:
    """Return the manifest of a file, if it is as it was sealed; `seals` are the files of seals, by their names."""
    manifest_file.check_seal(data, seals, key)
    return manifest_file.from_json(data)


def check_files(manifest: Manifest, names: Collection[str]) -> None:
    """Refuse a directory that lacks a part or has a file that is not of the archive; hidden ones are left alone."""
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
    """Return whether a file is nobody's business, such as those that Spark leaves beside its own."""
    return name.startswith((".", "_"))


def read_file(files: Files, name: str) -> bytes:
    """Return what a small file of an archive has."""
    with _opened(files, name) as file:
        return file.read()


def _names(place: Place) -> list[str]:
    try:
        return place.names()
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "not a directory" if isinstance(error, NotADirectoryError) else "not there"
        raise refused(Fault.NO_DIRECTORY, f"the archive {str(place)!r} is {what}", archive=str(place)) from None
    except OSError as error:
        raise part_reading.unreadable(str(place), error) from None


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
        raise part_reading.unreadable(entry.name, error) from None
    if size != entry.size:
        raise part_reading.wrong_size(entry, size)


@contextlib.contextmanager
def _opened(files: Files, name: str) -> Iterator[BinaryIO]:
    """Open a file for the block; an error of the operating system becomes a fault of the archive."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(files.opened(name))
        except OSError as error:
            raise part_reading.unreadable(name, error) from None
        yield file
