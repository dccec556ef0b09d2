"""The places of archives: a directory of this machine, or one that is reached through another program."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from qmadmin.archive import Fault, refused
from qmadmin.paths import absolute

_MODE: Final = 0o600

_LATE_FILES: Final = 1000
"""The most files of late attempts that keep a directory from being removed."""


class Files(Protocol):
    """Files of an archive that can be read."""

    def opened(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a seekable file for a block; OSError if that is not possible."""


class Place(Files, Protocol):
    """A directory of an archive that is read or written; as a text it is its name for the user.

    All methods raise OSError, whose `strerror` is a reason in words. Written files appear under their names only when
    they are complete and on the disk.
    """

    staged: bool
    """Whether parts are written into a directory of this machine first, where no other machine can write them."""

    def names(self) -> list[str]:
        """Return the names of the files; FileNotFoundError and NotADirectoryError if there is no directory."""

    def size(self, name: str) -> int:
        """Return the size of a file; QueueError for a symbolic link, or anything else that is not a file."""

    def make(self) -> None:
        """Create the directory, which only its owner may read, if it does not exist."""

    def staging(self) -> Path:
        """Return the directory of this machine that parts are written into; it exists after `make`."""

    def take(self, name: str) -> None:
        """Move a file of the staging directory to this directory, under the same name."""

    def write(self, name: str, data: bytes) -> None:
        """Write a new small file."""

    def rename(self, name: str, new: str) -> None:
        """Rename a file, and replace a file that has the new name."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def drop(self) -> None:
        """Remove the directory, which is empty."""

    def sync(self) -> None:
        """Sync the directory."""


class Directory:
    """A directory of this machine; a relative path is resolved when it is created."""

    staged = False

    def __init__(self, path: Path) -> None:
        self._named = path
        self.path = Path(absolute(path))

    def __str__(self) -> str:
        return str(self._named)

    def names(self) -> list[str]:
        """Return the names of all entries."""
        return [path.name for path in self.path.iterdir()]

    def size(self, name: str) -> int:
        """Return the size of a readable file."""
        with self.opened(name) as file:
            return os.fstat(file.fileno()).st_size

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """Open a file for the block; a symbolic link is not followed."""
        try:
            # Without waiting for the other end of a named pipe.
            number = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise symbolic_link(name) from None
            raise
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise no_file(name)
        with os.fdopen(number, "rb") as file:
            yield file

    def make(self) -> None:
        """Create it in an existing directory."""
        with contextlib.suppress(FileExistsError):
            self.path.mkdir(mode=0o700)

    def staging(self) -> Path:
        """Return this directory: parts are written in place."""
        return self.path

    def take(self, name: str) -> None:
        """Do nothing: the file is here."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file, and sync it."""
        with os.fdopen(os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, name: str, new: str) -> None:
        """Rename a file."""
        (self.path / name).rename(self.path / new)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self.path / name).unlink(missing_ok=True)

    def drop(self) -> None:
        """Remove the directory."""
        self.path.rmdir()

    def sync(self) -> None:
        """Sync the directory."""
        opened = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def despite_late_files(remove: Callable[[], None]) -> None:
    """Call a function that empties a directory and removes it, again if files have come between the two.

    Attempts of tasks that nobody waits for may each create one more file, before they see that they are late.
    """
    for left in reversed(range(_LATE_FILES)):
        try:
            remove()
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not left:
                raise
        else:
            return


def place_at(where: Path | Place) -> Place:
    """Return a place; a path is that of a directory of this machine."""
    return Directory(where) if isinstance(where, Path) else where


def symbolic_link(name: str) -> Exception:
    """Return the diagnostic for a symbolic link."""
    return refused(Fault.LINK, f"{name!r} of the archive is a symbolic link", part=name)


def no_file(name: str) -> Exception:
    """Return the diagnostic for an entry that is not a file."""
    return refused(Fault.NO_FILE, f"{name!r} of the archive is not a file", part=name)
