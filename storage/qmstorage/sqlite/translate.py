"""Errors of the driver as diagnostics of the queue manager. No other module examines driver errors."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from qmcore.damage import DAMAGE_HINT
from qmcore.errors import (
    BadResourceError,
    NotADeviceError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    SystemFailureError,
)

_PRIMARY = 0xFF
"""An extended SQLite result code carries the primary one in its low byte."""


BUSY_SECONDS = 30
"""How long a write waits for another program that has the file locked."""

NOT_A_DEVICE = "{path!r} is not a qmadmin device"
NAME_ANOTHER = "Name another file, or create a device with crdl, which takes an SQLite database too."
READ_ONLY = "device {path!r} cannot be written by this user; it is open for reading only"

IF_LOST = "Put it back, or set its new path with chdl: the next call opens it again."
"""What to do about what was removed or replaced while it was open."""

_DESCRIPTORS = "Close some, or raise the limit of open files (ulimit -n)."

_OTHERWISE = SystemFailureError, "the store of device {path!r} failed: {error}", ""
_DAMAGED = "device {path!r} is damaged: {error}"
_FROM_A_BACKUP = "Restore it from a backup."
_UNDECODABLE = "Could not decode to UTF-8"
"""How the message of Python's driver begins for a text that is not UTF-8."""

_READ_ONLY = OperatingSystemError, READ_ONLY, ""
_LOCKED = (
    SystemFailureError,
    "device {path!r} stayed locked by another program for {seconds} seconds",
    "Look for a program that has the file open in a transaction, such as an SQLite shell.",
)
_BY_CODE: dict[int, tuple[type[QueueError], str, str]] = {
    sqlite3.SQLITE_FULL: (
        OperatingSystemError,
        "there is no room left on the disk for device {path!r}; the operation was undone",
        "Free disk space; nothing that was accepted before is lost.",
    ),
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: (
        OperatingSystemError,
        "device {path!r} or a file next to it cannot be opened",
        "Check the permissions of the file and of its directory.",
    ),
    sqlite3.SQLITE_IOERR: (OperatingSystemError, "reading or writing device {path!r} failed: {error}", ""),
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_NOTADB: (NotADeviceError, NOT_A_DEVICE, NAME_ANOTHER),
    sqlite3.SQLITE_CORRUPT: (SystemFailureError, _DAMAGED, _FROM_A_BACKUP),
}


FAILURES: Final = (sqlite3.Error, UnicodeDecodeError)
"""What the driver raises. It cannot decode a message of SQLite that quotes a name which is not UTF-8."""


def from_sqlite(error: sqlite3.Error | UnicodeDecodeError, path: str, full_memory: Path | None = None) -> QueueError:
    """Return the diagnostic for an error of SQLite on the file `path`, or on a memory whose file system is full."""
    if isinstance(error, UnicodeDecodeError):
        return SystemFailureError(
            _DAMAGED.format(path=path, error="a name in it is not UTF-8"), hint=_FROM_A_BACKUP, path=path
        )
    if is_undecodable(error):
        # The text itself is not shown.
        column = str(error).partition("column '")[2].partition("'")[0]
        what = f"the {column or 'text'} of a message on device {path!r} is not UTF-8, so that it cannot be read"
        return SystemFailureError(what, hint=DAMAGE_HINT, path=path, is_damage=True, damaged=0)
    code = _code(error)
    if full_memory is not None and code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) and not _is_full(path):
        return OperatingSystemError(
            f"there is no room left in {str(full_memory)!r} for non-persistent messages; the operation was undone",
            hint="Free memory there; persistent messages need none of it.",
            path=str(full_memory),
        )
    if code == sqlite3.SQLITE_IOERR and _is_full(path):
        # SQLite says so where the shared memory or the log could not grow.
        code = sqlite3.SQLITE_FULL
    kind, message, hint = _BY_CODE.get(code, _OTHERWISE)
    text = message.format(path=path, error=error, seconds=BUSY_SECONDS)
    return kind(text, hint=hint, path=path, blocked=is_blocked(error))


def is_blocked(error: sqlite3.Error) -> bool:
    """Return whether another program has the file locked."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_of_the_store(error: sqlite3.Error) -> bool:
    """Return whether it is the store that is damaged, or lacks a table or a column."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & _PRIMARY


def _is_full(path: str) -> bool:
    try:
        return os.statvfs(Path(path).parent).f_bavail == 0
    except OSError:
        return False


def is_undecodable(error: sqlite3.Error) -> bool:
    """Return whether a text of a row is not UTF-8."""
    return str(error).startswith(_UNDECODABLE)


def not_a_device(path: str) -> QueueError:
    """Return the diagnostic for a file that holds something else."""
    return NotADeviceError(NOT_A_DEVICE.format(path=path), hint=NAME_ANOTHER, path=path)


def exists_already(path: str) -> QueueError:
    """Return the diagnostic for a device that is to be created and exists."""
    return BadResourceError(
        f"{path!r} is a qmadmin device already",
        hint="Open it, or name a file that does not exist yet; this one is left alone.",
        path=path,
    )


def read_only(path: str) -> QueueError:
    """Return the diagnostic for a write to a device that is open for reading only."""
    owner = other_owner(path)
    if owner:
        return OperatingSystemError(
            f"device {path!r} belongs to {owner}; it is open for reading only", hint="Do it as that user.", path=path
        )
    return OperatingSystemError(READ_ONLY.format(path=path), path=path)


def other_owner(path: str) -> str:
    """Return the owner of a file as shown to people; empty where that is this user, or unknown."""
    try:
        uid = Path(path).stat().st_uid
    except OSError:
        return ""
    if uid == os.geteuid():
        return ""
    try:
        return f"user {pwd.getpwuid(uid).pw_name!r}"
    except KeyError:
        return f"user {uid}"


class ChangedError(SystemFailureError):
    """A device was opened and written by another while it was read as one that nobody has open."""

    def __init__(self, path: str) -> None:
        message = f"device {path!r} was written while it was read as one that nobody has open"
        super().__init__(message, hint="Do it again.", path=path)


def gate_closed(path: str, holder: int | None) -> QueueError:
    """Return the diagnostic for a writer that does not finish."""
    who = "another process" if holder is None else f"process {holder}"
    return SystemFailureError(
        f"{who} has been writing to device {path!r} for {BUSY_SECONDS} seconds",
        hint="If it is stopped, resume or end it; nothing is lost by that.",
        path=path,
        pid=holder,
        blocked=True,
    )


def left_unknown(path: str, holder: int | None) -> QueueError:
    """Return the diagnostic for a work that another process has begun and does not finish."""
    who = "another process" if holder is None else f"process {holder}"
    return OutcomeUnknownError(
        f"{who} has been writing to device {path!r} for {BUSY_SECONDS} seconds, and had begun this operation too;"
        " its outcome is unknown",
        path=path,
        pid=holder,
    )


def answer_lost(path: str) -> QueueError:
    """Return the diagnostic for a work that another process has done and whose answer cannot be read."""
    return OutcomeUnknownError(
        f"the answer of the process that did this operation on device {path!r} is damaged; its outcome is unknown",
        path=path,
    )


def from_copying(error: sqlite3.Error, path: str) -> QueueError:
    """Return the diagnostic for an error of SQLite while a copy is written to the file `path`."""
    if _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return OperatingSystemError(
            f"there is no room left on the disk for {path!r}, or it cannot be written: {error}",
            hint="Free disk space, or name a place on another disk.",
            path=path,
        )
    return from_sqlite(error, path)


def not_still(path: str) -> QueueError:
    """Return the diagnostic for a volume that its writers did not leave alone for long enough."""
    return SystemFailureError(
        f"device {path!r} is being written all the time",
        hint="Look for a program that has a transaction open on the file; try again.",
        path=path,
        blocked=True,
    )


def from_os(error: OSError, doing: str, path: str) -> QueueError:
    """Return the diagnostic for an error of the operating system while `doing` something with `path`."""
    reason = error.strerror or str(error)
    advice = _DESCRIPTORS if error.errno in (errno.EMFILE, errno.ENFILE) else ""
    return OperatingSystemError(f"{doing} {path!r} failed: {reason}", hint=advice, path=path)


@contextlib.contextmanager
def os_errors(doing: str, path: str) -> Iterator[None]:
    """Raise errors of the operating system as diagnostics."""
    try:
        yield
    except OSError as error:
        raise from_os(error, doing, path) from error
