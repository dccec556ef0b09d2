"""A device that is replaced by another one: nobody may have it open, and a process that comes too late must notice."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from qmcore.errors import BadResourceError, InUseError, QueueError
from qmstorage.sqlite import attached_to, files, translate

_SECONDS = 1.0
"""How long to wait for processes that are just closing it."""


class Replaced:
    """The files of a device that is to be replaced, or of none."""

    def __init__(self, path: Path) -> None:
        self.exists = path.exists()
        self.incarnations: set[str] = set()
        self.owner: int | None = None
        """The owner of the device, to be kept where this user may set it."""
        self._path = path
        self._files: list[Path] = []
        self._held: dict[Path, sqlite3.Connection] = {}
        if self.exists:
            self.owner = path.stat().st_uid if os.geteuid() == 0 else None
            self._files = [*self._others(path), path]
            for file in self._files:
                self._refuse_attached(file)

    def close_to_all(self) -> None:
        """Lock everybody out, or refuse: the device is open somewhere."""
        for path in self._files:
            self._held[path] = files.connect(str(path), "rw")
            _take_alone(path, self._held[path])

    def remove(self) -> None:
        """Remove the files but the device itself, which is replaced; a process that waited for one finds no device."""
        for path, connection in self._held.items():
            with contextlib.suppress(sqlite3.Error):
                connection.execute("COMMIT")
            if path != self._path:
                path.unlink(missing_ok=True)
                shutil.rmtree(files.run_directory(str(path)), ignore_errors=True)

    def close(self) -> None:
        """Release the device, which is as it was if it is still there."""
        for connection in self._held.values():
            connection.close()

    def _refuse_attached(self, path: Path) -> None:
        for space, owners in attached_to.living(str(path)):
            self.incarnations.add(space.incarnation)
            if owners:
                who = ", ".join(map(str, owners[:5]))
                raise InUseError(
                    f"queue space {space.name!r} of device {str(path)!r} has processes attached: {who}",
                    hint="End them first.",
                    path=str(path),
                )

    def _others(self, path: Path) -> list[Path]:
        with files.reading(str(path)) as connection:
            rows = connection.execute("SELECT DISTINCT path FROM entry WHERE dlindex > 0 ORDER BY dlindex").fetchall()
        found = {Path(os.path.realpath(row[0])) for row in rows} - {path}
        return sorted(other for other in found if other.exists())


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Replaced]:
    """Hold the device at a path, or none, for as long as it is being replaced."""
    with contextlib.closing(_looked_at(path)) as old:
        yield old


def _looked_at(path: Path) -> Replaced:
    try:
        return Replaced(path)
    except QueueError as error:
        if isinstance(error, InUseError):
            raise
        raise BadResourceError(
            f"{str(path)!r} cannot be replaced: {error.message}",
            hint="Move it away and restore again.",
            path=str(path),
        ) from error


def _take_alone(path: Path, connection: sqlite3.Connection) -> None:
    """Lock a file for ourselves, and mark it, in a transaction that stays open, as not being a device any more."""
    try:
        connection.execute(f"PRAGMA busy_timeout = {round(_SECONDS * 1000)}")
        # This succeeds only where nobody else has the file open. From here on nothing is written beside the file, where
        # it would be taken for a part of the new one.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("BEGIN EXCLUSIVE")
        if connection.execute("PRAGMA journal_mode").fetchone() != ("memory",):
            raise _in_use(path)
        connection.execute("PRAGMA application_id = 0")
    except sqlite3.Error as error:
        if translate.is_blocked(error):
            raise _in_use(path) from error
        raise translate.from_sqlite(error, str(path)) from error


def _in_use(path: Path) -> QueueError:
    return InUseError(
        f"device {str(path)!r} is open in another program, or in this one",
        hint="Close it there first.",
        path=str(path),
    )
