"""Opening an archive, which checks its manifest and the names of its files; verifying reads all files."""

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
class Verification:
    """The result of a verification: numbers of parts, rows and bytes."""

    parts: int
    rows: int
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
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
            part_reading.verify_part(entry, file, self._orders())

    def _orders(self) -> Orders:
        return {
            (space.name, queue.name): queue.definition.order for space in self.manifest.spaces for queue in space.queues
        }

    def batches(self, entry: PartEntry) -> Iterator[tuple[int, RecordBatch]]:
        """Yield the slices of a verified part, each with the number of its first row, counted from 0."""
        with self.opened(entry) as file:
            yield from part_reading.batches(entry, file)

    def places(self, entry: PartEntry, most_rows: int) -> Iterator[tuple[Standing, list[tuple[Any, ...]]]]:
        """Yield the places of the messages of a part: sequence number, order key and retries of each."""
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
        raise part_reading.unreadable(str(where), error) from None


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
