"""One device under two names: SQLite keeps its log and its locks beside the name of a file, not with the file.

A file that is opened under another name, or after its log was removed, gets a second log beside it. Both sides then
acknowledge what the other never sees, and the log that is checkpointed last wins.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qmcore.errors import BadResourceError, InUseError
from qmcore.numbers import random_number
from qmstorage.sqlite import files, translate
from qmstorage.sqlite.writer_gate import is_open_on_another_file

if TYPE_CHECKING:
    from qmstorage.sqlite.wal import Log

_FILE: Final = ""
_LOG: Final = "-wal"
_BELONGINGS: Final = (_FILE, _LOG, "-shm", files.RUN)
"""Suffixes of the names of what belongs to a device; processes share all of it, or none."""

PATIENCE_SECONDS: Final = 15.0
"""How long to wait for others that are just opening or closing the file, or have not noticed yet that it is lost."""

_PAUSE, _PAUSES = 0.002, 16
"""Seconds between two checks, at least, and how many times as long at most."""


def refuse_others(path: str, patience: float = PATIENCE_SECONDS) -> None:
    """Refuse a file if others have another one open under this name, or have it open with a log that is not beside it.

    They close it once they notice, so that a moment's patience, in seconds, mostly helps.
    """
    directory = files.run_directory(path)
    if not _becomes_true(lambda: not is_open_on_another_file(directory, path), patience):
        raise InUseError(
            f"device {path!r} is open in a program, and its file was removed or replaced meanwhile",
            hint="End that program first: what it has written is in the old file then. lsof or fuser shows it.",
            path=path,
        )
    if not _becomes_true(lambda: _has_log(path) or _is_alone(path), patience):
        raise InUseError(
            f"device {path!r} is open in a program whose {path + _LOG!r} or -shm was removed, or that has the file"
            " under another name",
            hint="End that program: what it has written is in the file then. lsof or fuser shows it.",
            path=path,
        )


def _becomes_true(question: Callable[[], bool], seconds: float) -> bool:
    """Return whether a check succeeds within the seconds."""
    end = time.monotonic() + seconds
    while not question():
        if time.monotonic() > end:
            return False
        # Those that check at the same moment are in each other's way, so that they must not repeat it together.
        time.sleep(_PAUSE * (1 + random_number() % _PAUSES))
    return True


def _has_log(path: str) -> bool:
    return os.path.exists(path + _LOG) and os.path.exists(f"{path}-shm")  # noqa: PTH110 - one look each


def _is_alone(path: str) -> bool:
    """Return whether nobody else has the file open, under any name, in this process or another."""
    try:
        with contextlib.closing(files.bare_connection(path, "rw")) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            # With the first query SQLite then locks the file as a whole, before it creates a log.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA application_id").fetchone()
            if Path(path).stat().st_nlink > 1:
                _refuse_second_name(path, connection)
    except sqlite3.Error as error:
        # What else is wrong is told when the device is opened.
        return not translate.is_blocked(error)
    return True


def _refuse_second_name(path: str, connection: sqlite3.Connection) -> None:
    """Refuse a name other than the one in the device list: what a crash has left beside that one would be lost."""
    for (listed,) in connection.execute("SELECT path FROM entry WHERE dlindex = 0"):
        if os.path.realpath(listed) != path:
            raise BadResourceError(
                f"{path!r} is a hard link, one of several names of a file that the device list calls {listed!r}",
                hint="Use that name, or a symbolic link; or remove the other names, which find -samefile shows.",
                path=path,
            )


class Belongings:
    """The files of an open device, and whether their names still lead to them."""

    def __init__(self, path: str) -> None:
        self._path = path
        belongings = () if path == files.MEMORY else _BELONGINGS
        self._found = {suffix: files.identity(path + suffix) for suffix in belongings}

    def lost(self) -> str:
        """Return a sentence that says what was removed or replaced; "" where nothing was."""
        for suffix, found in self._found.items():
            if files.identity(self._path + suffix) != found:
                what = f"{self._path + suffix!r} of" if suffix else "the file of"
                return f"{what} device {self._path!r} was removed or replaced while it was open"
        return ""

    def leave(self, log: Log, connection: sqlite3.Connection) -> None:
        """Checkpoint a log that nobody will find any more, unless others have gone on without it."""
        if self._has_second_log():
            log.discard(connection)
        elif self.lost():
            log.checkpoint_orphaned(connection)

    def _has_second_log(self) -> bool:
        """Return whether others have written to another log of the file."""
        with contextlib.suppress(OSError):
            other = Path(self._path + _LOG).stat()
            return (other.st_dev, other.st_ino) != self._found[_LOG] and other.st_size > 0
        return False
