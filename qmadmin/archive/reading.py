"""Opening an archive: its manifest is checked, and the files that it names; verifying reads them all."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from qmadmin.archive import manifest_file, part_reading, sealing
from qmadmin.archive.columns import MINOR
from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.manifest import Manifest, PartEntry, check_part_name
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
    """An archive in a directory, whose manifest is checked."""

    directory: Path
    manifest: Manifest

    @property
    def newer(self) -> bool:
        """Tell whether it was written by a release that knows more columns and fields."""
        return self.manifest.minor > MINOR

    def verify(self, progress: Callable[[PartEntry], None] = lambda _entry: None) -> Report:
        """Read all parts, and refuse the first that is not what the manifest says; `progress` is told each other."""
        for entry in self.manifest.parts:
            self.verify_part(entry)
            progress(entry)
        return Report(len(self.manifest.parts), self.manifest.messages, self.manifest.size)

    def verify_part(self, entry: PartEntry) -> None:
        """Read one part, and refuse it if it is not what the manifest says."""
        with self.opened(entry) as file:
            part_reading.verify_part(entry, file, newer=self.newer)

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
        """Have the file of a part open."""
        with _opened(self.directory / check_part_name(entry.name)) as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.size:
                raise part_reading.wrong_size(entry, size)
            yield file


def open_archive(directory: Path, key: bytes | None = None) -> Archive:
    """Return the archive in a directory; `key` are the bytes of the key that it is signed with.

    Manifest and seal are checked, and that all parts are there and nothing else. `Archive.verify` reads the parts.
    """
    names = _names(directory)
    if manifest_file.NAME not in names:
        raise _no_manifest(directory, names)
    data = _read(directory / manifest_file.NAME)
    seals = {name: _read(directory / name) for name in sealing.SEALS if name in names}
    archive = Archive(directory, checked_manifest(data, seals, key))
    check_files(archive.manifest, names)
    for entry in archive.manifest.parts:
        with archive.opened(entry):
            pass
    return archive


def checked_manifest(data: bytes, seals: Mapping[str, bytes], key: bytes | None = None) -> Manifest:
    """Return the manifest of a file, if it is as it was sealed; `seals` are the files of seals, by their names."""
    sealing.check(data, seals, key)
    return manifest_file.from_json(data)


def check_files(manifest: Manifest, names: Collection[str]) -> None:
    """Refuse a directory that lacks a part or has a file that is not of the archive; hidden ones are left alone."""
    known = {entry.name for entry in manifest.parts}
    missing = sorted(known - set(names))
    if missing:
        raise refused(Fault.MISSING_PART, f"part {missing[0]!r} of the archive is missing", part=missing[0])
    extra = sorted(
        name for name in names if not hidden(name) and name not in {*known, manifest_file.NAME, *sealing.SEALS}
    )
    if extra:
        raise refused(Fault.EXTRA_FILE, f"the directory has the file {extra[0]!r}, which is not of the archive")


def hidden(name: str) -> bool:
    """Tell whether a file is nobody's business, such as those that Spark leaves beside its own."""
    return name.startswith((".", "_"))


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "no directory" if isinstance(error, NotADirectoryError) else "not there"
        raise refused(Fault.NO_DIRECTORY, f"the archive {str(directory)!r} is {what}", archive=str(directory)) from None
    except OSError as error:
        raise part_reading.unreadable(str(directory), error) from None


def _no_manifest(directory: Path, names: list[str]) -> Exception:
    where = f"the directory {str(directory)!r}"
    if MARK in names or any(name.endswith(".parquet") for name in names):
        return refused(Fault.UNFINISHED, f"the archive in {where} is not finished: it has no {manifest_file.NAME}")
    if not names:
        return refused(Fault.EMPTY, f"{where} is empty")
    return refused(Fault.FORMAT, f"{where} holds no archive: it has no {manifest_file.NAME}")


def _read(path: Path) -> bytes:
    with _opened(path) as file:
        return file.read()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Have a file of the directory open, and not what a symbolic link leads to."""
    try:
        # Without waiting for somebody at the other end of a named pipe.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refused(Fault.LINK, f"{path.name!r} of the archive is a symbolic link", part=path.name) from None
        raise part_reading.unreadable(path.name, error) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise refused(Fault.NO_FILE, f"{path.name!r} of the archive is no file", part=path.name)
    with os.fdopen(number, "rb") as file:
        yield file
