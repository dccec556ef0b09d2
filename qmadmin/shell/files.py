"""Files other than the device that commands read and write."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.console.render import fsync
from qmadmin.shell.notices import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qmadmin.shell.session import Session

_BESIDE = ("", "-wal", "-shm")
_DATABASE = b"SQLite format 3\0"


def for_us_only(path: str, flags: int) -> int:
    """Open a file that only its owner can read, whatever the umask: the device protects the same bodies."""
    return os.open(path, flags, 0o600)


def sync_directory(directory: Path) -> None:
    """Sync the name of a new file, so that messages that have left their queue are not lost with it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_the_device(session: Session, file: str) -> None:
    """Refuse a name that leads to a file of the device.

    Writing would destroy it; and when a process that uses the device closes the file, its locks are dropped.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - one call
    except OSError:
        return
    if any(os.path.samestat(found, own) for own in _own(session)):
        raise UsageError(f"File {file} belongs to the device {session.path}", hint="Name another file.")


def refuse_a_database(file: str) -> None:
    """Refuse to overwrite a database: a file of another device, a backup, or an unknown volume.

    Reading a file of the device of this session could drop its locks: that is refused before.
    """
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116 - one call
            return
        with Path(file).open("rb") as found:
            is_database = found.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return
    if is_database:
        raise UsageError(f"File {file} is a database", hint="Name another file.")


def _own(session: Session) -> Iterator[os.stat_result]:
    for volume in session.files():
        beside = Path(f"{volume}-run")
        for path in (*(Path(f"{volume}{end}") for end in _BESIDE), *(beside.rglob("*") if beside.is_dir() else ())):
            if path.exists():
                yield path.stat()
