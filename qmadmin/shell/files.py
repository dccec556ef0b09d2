"""Files that commands read and write beside the device."""

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
    """Open a file that only its user can read, whatever the umask says: the device has the same bodies so."""
    return os.open(path, flags, 0o600)


def sync_directory(directory: Path) -> None:
    """Bring the name of a new file to the disk, lest messages be lost with it that have left their queue."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_the_device(session: Session, file: str) -> None:
    """Refuse a name that leads to a file of the device.

    Written to, it would be destroyed; and once a process that works on it closes it, its locks are gone.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - one look
    except OSError:
        return
    if any(os.path.samestat(found, own) for own in _own(session)):
        raise UsageError(f"File {file} belongs to the device {session.path}", hint="Name another file.")


def refuse_a_database(file: str) -> None:
    """Refuse to write over a database: a file of another device, a backup, or a volume that is not known yet.

    To look into a file of the device of this session could drop its locks: that is refused before.
    """
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116 - one look
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
