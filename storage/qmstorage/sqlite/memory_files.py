"""Memory of queue spaces: the files of their non-persistent messages.

Each queue space has an SQLite file of its own on a file system in memory, in a directory that only those who may use
the device can enter. A link beside the volume leads to it, so that processes with different settings find the same one.
What an earlier start of the machine has left in it is removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from qmcore.errors import OperatingSystemError, SystemFailureError
from qmcore.queue import Queue
from qmcore.space import Space
from qmstorage import schema
from qmstorage.sql import made
from qmstorage.sqlite import files, translate
from qmstorage.sqlite.owner_files import this_boot
from qmstorage.sqlite.unit import SqliteMemoryStore, roll_back
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from sqlalchemy.schema import CreateIndex, CreateTable

_DIRECTORY_VARIABLE = "QM_SHM_DIR"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a directory of our own is made in it, and looked at before it is used


class MemoryFiles:
    """The memories that are attached to a volume's connection, and the names of their tables there."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._attached: dict[int, _Attached] = {}
        self.texts: dict[int, Texts] = {}
        self._is_ours_alone = path == files.MEMORY

    def schemas(self) -> list[str]:
        """Return the names of the attached databases: the volume itself, and each memory."""
        return ["main", *(_name(there.incarnation) for there in self._attached.values())]

    def attach(self, space: Space, queues: Iterable[Queue]) -> bool:
        """Attach the memory of a queue space, created if need be; return whether it was, and so is empty.

        The caller keeps other writers out, and detaches it as often as it has attached it.
        """
        there = self._attached.get(space.id)
        if there is not None and there.incarnation == space.incarnation and (there.users or self._is_ours_alone):
            there.users += 1
            return False
        if there is not None:
            self._detach(space.id)
        self._refuse_too_many(space)
        address, name = self._address(space), _name(space.incarnation)
        try:
            self._connection.execute(f"ATTACH ? AS {name}", (address,))
            try:
                made = self._prepare(name, space, queues)
            except BaseException:
                self._connection.execute(f"DETACH {name}")
                raise
        except sqlite3.Error as error:
            raise OperatingSystemError(
                f"the memory of queue space {space.name!r} cannot be opened: {error}",
                hint=f"Check the directory that {_DIRECTORY_VARIABLE} names, or {_SHARED_MEMORY}.",
                space=space.name,
            ) from error
        directory = None if self._is_ours_alone else self._link(space).readlink()
        self._attached[space.id] = _Attached(space.name, space.incarnation, directory)
        self._attached[space.id].found = self._belongings(space, directory)
        if made and directory is not None:
            self._share(directory)
        return made

    def attach_to_read(self, spaces: Iterable[Space]) -> None:
        """Attach the existing memories of queue spaces for reading only. Nothing is created or changed."""
        for space in spaces:
            directory = self._found(space, self._link(space))
            if directory is None or not (directory / _MEMORY_FILES[0]).exists():
                continue
            try:
                self._refuse_stranger(directory)
            except OSError as error:
                raise translate.from_os(error, "looking at the memory of queue space", space.name) from error
            self._refuse_too_many(space)
            address = f"file:{quote(str(directory / _MEMORY_FILES[0]))}?mode=ro"
            self._connection.execute(f"ATTACH ? AS {_name(space.incarnation)}", (address,))
            self._attached[space.id] = _Attached(space.name, space.incarnation, directory)

    def look(self) -> None:
        """Make the transaction see the memories that are attached for reading as they are now.

        One that an earlier start of the machine has left is lost and passed over.
        """
        cursor = self._connection.cursor()
        (device,) = cursor.execute("SELECT id FROM main.device").fetchone()
        for space_id, there in self._attached.items():
            name = _name(there.incarnation)
            found = _recorded_owner(cursor, name)
            if found is not None and found[:2] != (device, there.incarnation):
                raise _in_use(there.space)
            if found is not None and found[2] == this_boot():
                self.texts[space_id] = Texts(files.DIALECT, name)

    def detach(self, space: Space) -> None:
        """Detach the memory of a queue space, once its last user does so."""
        there = self._attached.get(space.id)
        if there is None or there.incarnation != space.incarnation:
            return
        there.users -= 1
        # One in the memory of this process lives as long as the connection does.
        if there.users == 0 and not self._is_ours_alone:
            # Where a statement still reads from it, the next attachment detaches it first.
            with contextlib.suppress(sqlite3.Error):
                self._detach(space.id)

    def remove(self, space: Space) -> None:
        """Remove the memory of a queue space that is no longer in use."""
        there = self._attached.get(space.id)
        if there is not None and there.incarnation == space.incarnation:
            self._detach(space.id)
        if self._is_ours_alone:
            return
        link = self._link(space)
        with contextlib.suppress(OSError):
            directory = link.readlink()
            link.unlink()
            self._refuse_stranger(directory)
            _remove_directory(directory)

    def full(self) -> Path | None:
        """Return the directory of a memory whose file system is full, if there is one."""
        for there in self._attached.values():
            with contextlib.suppress(OSError):
                if there.directory is not None and os.statvfs(there.directory).f_bavail == 0:
                    return there.directory
        return None

    def lost(self) -> Iterator[tuple[str, str, str]]:
        """Yield each file removed or replaced of a memory in use, with the name and incarnation of its queue space."""
        for there in list(self._attached.values()):
            for path, found in there.found.items() if there.users else ():
                if files.identity(path) != found:
                    yield path, there.space, there.incarnation

    def _belongings(self, space: Space, directory: Path | None) -> dict[str, tuple[int, int] | None]:
        """Return the files that the processes using a memory share, and the identity of each.

        The link to the directory stands for its target: others find the memory by it.
        """
        if directory is None:
            return {}
        paths = [str(self._link(space)), *(str(directory / name) for name in _MEMORY_FILES)]
        return {path: files.identity(path) for path in paths}

    def _detach(self, space_id: int) -> None:
        self._connection.execute(f"DETACH {_name(self._attached[space_id].incarnation)}")
        del self._attached[space_id]
        self.texts.pop(space_id, None)

    def _refuse_too_many(self, space: Space) -> None:
        unused = [space_id for space_id, there in self._attached.items() if not there.users]
        for space_id in [] if self._is_ours_alone else unused:
            with contextlib.suppress(sqlite3.Error):
                self._detach(space_id)
        limit = self._connection.getlimit(sqlite3.SQLITE_LIMIT_ATTACHED)
        if len(self._attached) >= limit:
            raise SystemFailureError(
                f"{len(self._attached)} queue spaces of {self._path!r} that have memory for non-persistent messages are"
                f" open in this process, and it cannot open queue space {space.name!r} too: {limit} is the most",
                hint="Close one of them, or open it in another process.",
                space=space.name,
                used=len(self._attached),
                limit=limit,
            )

    def _share(self, directory: Path) -> None:
        """Share files that we created with those who may use the volume: only root can, and has to."""
        around = files.surroundings(self._path)
        for name in _FILES:
            with contextlib.suppress(FileNotFoundError):
                around.share(str(directory / name))

    def _prepare(self, name: str, space: Space, queues: Iterable[Queue]) -> bool:
        if not self._is_ours_alone:
            self._connection.execute(f"PRAGMA {name}.journal_mode = WAL")
        # A restart of the machine loses it all: a sync would save nothing.
        self._connection.execute(f"PRAGMA {name}.synchronous = OFF")
        files.keep_log_short(self._connection, name)
        texts = Texts(files.DIALECT, name)
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            device = cursor.execute("SELECT id FROM main.device").fetchone()[0]
            here = (device, space.incarnation, this_boot())
            found = _recorded_owner(cursor, name)
            if found is not None and found[:2] != here[:2]:
                raise _in_use(space.name)
            if found is not None:
                _add_columns(cursor, name)
            if found != here:
                for statement in _statements_to_make(name, found is not None):
                    cursor.execute(statement)
                store = SqliteMemoryStore(cursor, texts)
                for queue_id in (0, *(queue.id for queue in queues)):
                    store.counters.add(space.id, queue_id)
                cursor.execute(f"INSERT INTO {name}.residence VALUES (?, ?, ?)", here)  # noqa: S608 - hexadecimal
            cursor.execute("COMMIT")
        finally:
            roll_back(self._connection)
        self.texts[space.id] = texts
        return found != here

    def _address(self, space: Space) -> str:
        if self._is_ours_alone:
            return files.MEMORY
        directory = self._directory(space)
        return f"file:{quote(str(directory / 'memory'))}?mode=rwc&modeof={quote(self._path)}"

    def _directory(self, space: Space) -> Path:
        """Return the directory of a queue space's memory, created if need be."""
        files.surroundings(self._path)
        link = self._link(space)
        try:
            found = self._found(space, link)
            if found is None:
                found = self._made(space)
            self._refuse_stranger(found)
            _point(link, found)
            _point(found / _VOLUME_LINK, self._path)
        except OSError as error:
            raise translate.from_os(error, "making the memory of queue space", space.name) from error
        return found

    def _found(self, space: Space, link: Path) -> Path | None:
        """Return the existing directory: the target of the link, or that of a moved volume."""
        with contextlib.suppress(OSError):
            directory = link.readlink()
            if directory.is_absolute() and directory.is_dir() and self._belongs_here(directory):
                return directory
        for directory in _base().glob(f"qmadmin-{space.incarnation}-*"):
            with contextlib.suppress(OSError, OperatingSystemError):
                self._refuse_stranger(directory)
                if self._belongs_here(directory):
                    return directory
        return None

    def _belongs_here(self, directory: Path) -> bool:
        """Return whether a directory belongs to this volume, and not to one that this is a copy of."""
        try:
            volume = (directory / _VOLUME_LINK).readlink()
        except FileNotFoundError:
            return True
        return str(volume) == self._path or not volume.exists()

    def _made(self, space: Space) -> Path:
        """Return a directory for the memory, created if need be."""
        import hashlib

        made = _base() / f"qmadmin-{space.incarnation}-{hashlib.sha256(self._path.encode()).hexdigest()[:8]}"
        with contextlib.suppress(FileExistsError):
            made.mkdir(mode=0o700)
            files.surroundings(self._path).share_directory(made)
        return made

    def _refuse_stranger(self, directory: Path) -> None:
        """Refuse a directory of another user in place of ours, or one that others can enter."""
        status, device = directory.lstat(), Path(self._path).stat()
        shared = bool(device.st_mode & 0o060) and status.st_gid == device.st_gid
        # Only a member of the group can have set the group.
        ours = shared or status.st_uid in (0, os.geteuid(), device.st_uid)
        others = status.st_mode & (0o007 if shared else 0o077)
        if not stat.S_ISDIR(status.st_mode) or not ours or others:
            raise OperatingSystemError(
                f"{str(directory)!r} is not a directory that only the users of device {self._path!r} can enter",
                hint="Remove it, or rename it.",
                path=str(directory),
            )

    def _link(self, space: Space) -> Path:
        return _link(self._path, space)


def memory_files(path: str, space: Space) -> list[tuple[str, int]]:
    """Return the files of the memory of a queue space on the volume `path`, and their sizes in bytes."""
    found = []
    with contextlib.suppress(OSError):
        directory = _link(path, space).readlink()
        for name in _MEMORY_FILES:
            # Only stat: to open and close them would drop SQLite's locks on them.
            with contextlib.suppress(FileNotFoundError):
                found.append((str(directory / name), (directory / name).lstat().st_size))
    return found


def remove_memories(path: str, incarnations: Iterable[str]) -> None:
    """Remove the memories of queue spaces on a volume that nobody has open, also where the volume itself is gone."""
    for incarnation in incarnations:
        link = files.run_directory(path) / f"memory-{incarnation}"
        found = set(_base().glob(f"qmadmin-{incarnation}-*"))
        with contextlib.suppress(OSError):
            found.add(link.readlink())
        for directory in found:
            with contextlib.suppress(OSError):
                if str((directory / _VOLUME_LINK).readlink()) == path:
                    _remove_directory(directory)
        link.unlink(missing_ok=True)


def _remove_directory(directory: Path) -> None:
    # By name: a user who may change a link to it must not make us remove anything else.
    for name in _FILES:
        (directory / name).unlink(missing_ok=True)
    directory.rmdir()


def _link(path: str, space: Space) -> Path:
    return files.run_directory(path) / f"memory-{space.incarnation}"


@dataclasses.dataclass(slots=True)
class _Attached:
    """A memory that is attached, and how many use it."""

    space: str
    incarnation: str
    directory: Path | None
    users: int = 1
    found: dict[str, tuple[int, int] | None] = dataclasses.field(default_factory=dict)
    """The files that belong to it, and the identity of each when it was attached."""


_VOLUME_LINK = "device"
"""The link in a directory of memory that leads back to the volume."""

_MEMORY_FILES = ("memory", "memory-wal", "memory-shm")
_FILES = (*_MEMORY_FILES, _VOLUME_LINK)


def _name(incarnation: str) -> str:
    return f"memory_{incarnation}"


def _point(link: Path, target: Path | str) -> None:
    """Point a link to a target, unless it does so already."""
    with contextlib.suppress(OSError):
        if str(link.readlink()) == str(target):
            return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _base() -> Path:
    for candidate in (os.environ.get(_DIRECTORY_VARIABLE), _SHARED_MEMORY, os.environ.get("XDG_RUNTIME_DIR")):
        if candidate and os.access(candidate, os.W_OK | os.X_OK):
            return Path(candidate)
    import tempfile

    return Path(tempfile.gettempdir())


def _in_use(space: str) -> OperatingSystemError:
    return OperatingSystemError(f"the memory of queue space {space!r} is in use by another device", space=space)


def _recorded_owner(cursor: sqlite3.Cursor, name: str) -> tuple[str, str, str] | None:
    found = cursor.execute(f"SELECT count(*) FROM {name}.sqlite_master WHERE name = 'residence'").fetchone()  # noqa: S608
    if found == (0,):
        return None
    row: tuple[str, str, str] | None = cursor.execute(f"SELECT * FROM {name}.residence").fetchone()  # noqa: S608
    return row


def _add_columns(cursor: sqlite3.Cursor, name: str) -> None:
    """Add the columns and indexes that the tables of an earlier release lack: --upgrade cannot find every memory."""
    (version,) = cursor.execute(f"PRAGMA {name}.user_version").fetchone()
    if version >= schema.VERSION:
        return
    from sqlalchemy.schema import CreateColumn, CreateIndex

    for table in made(schema.IN_MEMORY):
        present = {row[1] for row in cursor.execute(f"PRAGMA {name}.table_info({table.name})")}
        for column in table.columns:
            if column.name not in present:
                text = CreateColumn(column).compile(dialect=files.DIALECT.loaded())
                cursor.execute(f"ALTER TABLE {name}.{table.name} ADD COLUMN {text}")
        indexed = {row[1] for row in cursor.execute(f"PRAGMA {name}.index_list({table.name})")}
        for index in table.indexes:
            if index.name not in indexed:
                cursor.execute(_rendered(CreateIndex(index), name))
    cursor.execute(f"PRAGMA {name}.user_version = {schema.VERSION}")


_TABLES: Final = (*schema.IN_MEMORY, schema.residence)
_SOME_MEMORY: Final = "memory_of_a_space"
"""What stands in the statements for the name of a memory."""


def _statements_to_make(name: str, exists: bool) -> Iterator[str]:
    """Yield the statements that create the tables of a memory, or empty those of an earlier start of the machine."""
    if exists:
        yield from (f"DELETE FROM {name}.{table.name}" for table in _TABLES)  # noqa: S608 - names of ours
    else:
        yield from (statement.replace(_SOME_MEMORY, name) for statement in _ddl())
    yield f"PRAGMA {name}.user_version = {schema.VERSION}"


@functools.cache
def _ddl() -> tuple[str, ...]:
    """Return the statements that create the tables of some memory; compiling them takes longer than running them."""
    from sqlalchemy.schema import CreateIndex, CreateTable

    statements: list[CreateTable | CreateIndex] = []
    for table in map(made, _TABLES):
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += CreateTable(table), *map(CreateIndex, indexes)
    return tuple(_rendered(statement, _SOME_MEMORY) for statement in statements)


def _rendered(statement: CreateTable | CreateIndex, name: str) -> str:
    return str(
        statement.compile(
            dialect=files.DIALECT.loaded(), schema_translate_map={None: name}, render_schema_translate=True
        )
    )
