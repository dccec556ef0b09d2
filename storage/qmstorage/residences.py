"""The memory of queue spaces: where the non-persistent messages of a queue space live.

Each has an SQLite file of its own on a file system in memory, in a directory that only those who may use the device
can enter. A link beside the volume leads to it, so that processes with different settings find the same one. What an
earlier start of the machine has left in it is removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.schema import CreateIndex, CreateTable

from qmcore.errors import OperatingSystemError
from qmcore.queue import Queue
from qmcore.space import Space
from qmstorage import schema, sqlite, translate
from qmstorage.locks import this_boot
from qmstorage.runner import Texts
from qmstorage.unit import MemoryStore, roll_back

_DIRECTORY_VARIABLE = "QM_SHM_DIR"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a directory of our own is made in it, and looked at before it is used


class Residences:
    """The memories that are attached to a volume's connection, and how their tables are called there."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._incarnations: dict[int, str] = {}
        self.texts: dict[int, Texts] = {}

    def attach(self, space: Space, queues: Iterable[Queue]) -> None:
        """Attach the memory of a queue space, made if need be. The caller keeps other writers away."""
        if self._incarnations.get(space.id) == space.incarnation:
            return
        self.detach(space.id)
        name = f"memory_{space.incarnation}"
        try:
            self._connection.execute(f"ATTACH ? AS {name}", (self._address(space),))
        except sqlite3.Error as error:
            raise OperatingSystemError(
                f"the memory of queue space {space.name!r} cannot be opened: {error}",
                hint=f"Look at the directory that {_DIRECTORY_VARIABLE} names, or {_SHARED_MEMORY}.",
                space=space.name,
            ) from error
        try:
            self._prepare(name, space, queues)
        except BaseException:
            self._connection.execute(f"DETACH {name}")
            raise
        self._incarnations[space.id] = space.incarnation

    def detach(self, space_id: int) -> None:
        """Let go of the memory of a queue space, if it is attached."""
        incarnation = self._incarnations.pop(space_id, None)
        if incarnation is not None:
            del self.texts[space_id]
            self._connection.execute(f"DETACH memory_{incarnation}")

    def remove(self, space: Space) -> None:
        """Remove the memory of a queue space that nobody uses any more."""
        self.detach(space.id)
        if self._path == sqlite.MEMORY:
            return
        link = self._link(space)
        with contextlib.suppress(OSError):
            directory = link.readlink()
            link.unlink()
            shutil.rmtree(directory, ignore_errors=True)

    def _prepare(self, name: str, space: Space, queues: Iterable[Queue]) -> None:
        if self._path != sqlite.MEMORY:
            self._connection.execute(f"PRAGMA {name}.journal_mode = WAL")
        # A restart of the machine loses it all: there is nothing that a sync would save.
        self._connection.execute(f"PRAGMA {name}.synchronous = OFF")
        texts = Texts(sqlite.DIALECT, name)
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            device = cursor.execute("SELECT id FROM main.device").fetchone()[0]
            here = (device, space.incarnation, this_boot())
            found = _resident(cursor, name)
            if found is not None and found[:2] != here[:2]:
                raise OperatingSystemError(
                    f"the memory of queue space {space.name!r} is in use by another device", space=space.name
                )
            if found != here:
                for statement in _made_anew(name, found is not None):
                    cursor.execute(statement)
                store = MemoryStore(cursor, texts)
                for queue_id in (0, *(queue.id for queue in queues)):
                    store.add_counters(space.id, queue_id)
                cursor.execute(f"INSERT INTO {name}.residence VALUES (?, ?, ?)", here)  # noqa: S608 - hexadecimal
            cursor.execute("COMMIT")
        finally:
            roll_back(self._connection)
        self.texts[space.id] = texts

    def _address(self, space: Space) -> str:
        if self._path == sqlite.MEMORY:
            return sqlite.MEMORY
        directory = self._directory(space)
        return f"file:{quote(str(directory / 'memory'))}?mode=rwc&modeof={quote(self._path)}"

    def _directory(self, space: Space) -> Path:
        """Return the directory of a queue space's memory, made if need be."""
        link = self._link(space)
        with contextlib.suppress(OSError):
            found = link.readlink()
            if found.is_dir():
                self._refuse_stranger(found)
                return found
        made = _base() / f"qmadmin-{space.incarnation}-{hashlib.sha256(self._path.encode()).hexdigest()[:8]}"
        try:
            with contextlib.suppress(FileExistsError):
                made.mkdir(mode=0o700)
                around = sqlite.surroundings(self._path)
                around.share_directory(made)
            self._refuse_stranger(made)
            link.unlink(missing_ok=True)
            link.symlink_to(made)
        except OSError as error:
            raise translate.from_os(error, "making the memory of queue space", space.name) from error
        return made

    def _refuse_stranger(self, directory: Path) -> None:
        """Refuse a directory that somebody else has put where ours should be."""
        status, device = directory.lstat(), Path(self._path).stat()
        ours = status.st_uid in (0, os.geteuid(), device.st_uid)
        if not stat.S_ISDIR(status.st_mode) or not ours or status.st_mode & 0o007:
            raise OperatingSystemError(
                f"{str(directory)!r} is not a directory that only the users of device {self._path!r} can enter",
                hint="Remove it, or rename it.",
                path=str(directory),
            )

    def _link(self, space: Space) -> Path:
        return sqlite.run_directory(self._path) / f"memory-{space.incarnation}"


def _base() -> Path:
    for candidate in (os.environ.get(_DIRECTORY_VARIABLE), _SHARED_MEMORY, os.environ.get("XDG_RUNTIME_DIR")):
        if candidate and os.access(candidate, os.W_OK | os.X_OK):
            return Path(candidate)
    return Path(tempfile.gettempdir())


def _resident(cursor: sqlite3.Cursor, name: str) -> tuple[str, str, str] | None:
    found = cursor.execute(f"SELECT count(*) FROM {name}.sqlite_master WHERE name = 'residence'").fetchone()  # noqa: S608
    if found == (0,):
        return None
    row: tuple[str, str, str] | None = cursor.execute(f"SELECT * FROM {name}.residence").fetchone()  # noqa: S608
    return row


def _made_anew(name: str, exists: bool) -> Iterator[str]:
    """Yield the statements that give the memory its tables, or empty those of an earlier start of the machine."""
    tables = (*schema.IN_MEMORY, schema.residence)
    for table in tables:
        if exists:
            yield f"DELETE FROM {name}.{table.name}"  # noqa: S608 - names of ours
            continue
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements: list[CreateTable | CreateIndex] = [CreateTable(table), *map(CreateIndex, indexes)]
        for statement in statements:
            yield str(
                statement.compile(
                    dialect=sqlite.DIALECT, schema_translate_map={None: name}, render_schema_translate=True
                )
            )
