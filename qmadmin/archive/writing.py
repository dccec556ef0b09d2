"""Writing an archive into a directory: parts first, by any number of processes, the manifest last."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from qmadmin.archive import manifest_file, sealing
from qmadmin.archive.faults import Fault, refused
from qmadmin.archive.manifest import Manifest, PartEntry, check_part_name
from qmadmin.archive.part_reading import wrong_size
from qmadmin.archive.part_writing import PartWriter

MARK: Final = ".unfinished"
"""A file of a directory that an archive is being written into."""

_MODE: Final = 0o600
_LEFT_OVER: Final = re.compile(r"\.manifest\.[a-z0-9]+|\.?[a-z0-9][a-z0-9_.-]*\.parquet(\.[0-9a-f]{8})?")


class ArchiveWriter:
    """Writes an archive into a directory of its own, which only its owner may read.

    Nobody takes the directory for an archive before `finish` has come to its end.
    """

    def __init__(self, directory: Path, key: bytes | None = None) -> None:
        self.directory = directory
        self._key = None if key is None else sealing.checked_key(key)

    @classmethod
    def create(cls, directory: Path, key: bytes | None = None, *, again: bool = False) -> ArchiveWriter:
        """Begin an archive in a directory that is made, or is empty; the bytes of a key sign it.

        With `again` it may also hold what an export left that did not come to its end, which is removed.
        """
        writer = cls(directory, key)
        with _writing(directory):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            names = [path.name for path in directory.iterdir()]
            if names and not (again and MARK in names and all(map(_is_left_over, names))):
                raise _not_empty(directory, names)
            for name in names:
                (directory / name).unlink()
            _write(directory / MARK, b"")
            _sync(directory)
        return writer

    def part(self, name: str) -> PartWriter:
        """Begin a part. Other processes do so with `part_in`."""
        return part_in(self.directory, name)

    def finish(self, manifest: Manifest) -> None:
        """Make the parts of the manifest, which may have been written elsewhere, an archive.

        Parts that the manifest does not name, such as those of attempts that were given up, are removed.
        """
        data = manifest_file.to_json(manifest)
        seal, sealed = sealing.seal(data, self._key)
        with _writing(self.directory):
            self._refuse_finished()
            for entry in manifest.parts:
                _put_in_place(self.directory, entry)
            self._remove_others({entry.name for entry in manifest.parts})
            _replace(self.directory / seal, sealed)
            _sync(self.directory)
            _replace(self.directory / manifest_file.NAME, data)
            _sync(self.directory)
            (self.directory / MARK).unlink(missing_ok=True)
            # What began after the others were removed; from now on nothing begins.
            self._remove_others({seal, *(entry.name for entry in manifest.parts)})
            _sync(self.directory)

    def discard(self) -> None:
        """Remove what was written of an archive that is not to be finished; one that is finished stays."""
        if (self.directory / manifest_file.NAME).exists():
            return
        with _writing(self.directory):
            self._remove_others(set())
            (self.directory / MARK).unlink(missing_ok=True)
            # Something else may stand in it.
            with contextlib.suppress(OSError):
                self.directory.rmdir()

    def _refuse_finished(self) -> None:
        if (self.directory / manifest_file.NAME).exists():
            raise _not_empty(self.directory, [manifest_file.NAME])

    def _remove_others(self, names: set[str]) -> None:
        for path in list(self.directory.iterdir()):
            if path.name not in names and path.name != MARK and _is_left_over(path.name):
                path.unlink(missing_ok=True)


def part_in(directory: Path, name: str) -> PartWriter:
    """Begin a part of an archive that is being written into a directory.

    It stands under a name of its own until the archive is finished, so that two attempts at the same part do not meet.
    An attempt that begins after that is refused.
    """
    staged = f".{check_part_name(name)}.{secrets.token_hex(4)}"
    with _writing(directory):
        file = os.fdopen(os.open(directory / staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb")
        # Now that there is a file, it is seen by whoever takes the mark away.
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
    )


def _is_left_over(name: str) -> bool:
    """Tell whether a file can be of an archive that is not finished."""
    return name == MARK or name in sealing.SEALS or _LEFT_OVER.fullmatch(name) is not None


def _settle(file: BinaryIO) -> None:
    with file:
        file.flush()
        os.fsync(file.fileno())


def _dispose(file: BinaryIO, path: Path) -> None:
    path.unlink(missing_ok=True)
    # What it still has in its buffer finds no room where the disk is full.
    with contextlib.suppress(OSError):
        file.close()


def _put_in_place(directory: Path, entry: PartEntry) -> None:
    path = directory / entry.name
    # It stands there already where an earlier attempt to finish failed behind it.
    if entry.staged and (directory / entry.staged).exists():
        (directory / entry.staged).rename(path)
    if not path.exists():
        raise refused(Fault.MISSING_PART, f"part {entry.name!r} of the archive is missing", part=entry.name)
    if path.stat().st_size != entry.size:
        raise wrong_size(entry, path.stat().st_size)


def _replace(path: Path, data: bytes) -> None:
    """Make a file appear with all that is in it."""
    beside = path.with_name(f".{path.name}")
    beside.unlink(missing_ok=True)
    _write(beside, data)
    beside.rename(path)


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """What goes wrong while an archive is written is told as its fault."""
    try:
        yield
    except OSError as error:
        raise refused(
            Fault.UNWRITABLE,
            f"the archive {str(directory)!r} cannot be written: {error.strerror}",
            archive=str(directory),
        ) from None


def _not_empty(directory: Path, names: list[str]) -> Exception:
    where = f"the directory {str(directory)!r}"
    what = "is not empty"
    if manifest_file.NAME in names:
        what = "holds an archive already"
    elif MARK in names:
        what = "holds an archive that is being written, or whose export did not come to its end"
    return refused(Fault.NOT_EMPTY, f"{where} {what}", archive=str(directory))
