"""One SQLite file: how it is created, recognized as a device, and opened."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from qmcore.errors import BadResourceError, NotADeviceError, OperatingSystemError, ReleaseError, SystemFailureError
from qmstorage import schema, versions
from qmstorage.sqlite import adopting, translate
from qmstorage.sqlite.writer_gate import Surroundings
from qmstorage.texts import BODY_HOLDS, Dialect

if TYPE_CHECKING:
    from sqlalchemy.dialects.sqlite.base import SQLiteDialect

OLDEST_SQLITE: Final = (3, 35, 0)
"""The first release with RETURNING."""

PRIVATE_MODE: Final = 0o600
SHARED_MODE: Final = 0o660
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "afs", "ceph", "fuse.glusterfs", "lustre", "gpfs", "ocfs2")
)
MEMORY: Final = ":memory:"
"""The path that names a device in the memory of this process."""

_LOG_KEPT: Final = 16 * 1024 * 1024
"""Bytes of a log that stay allocated: rewriting them costs less than half of letting the log grow."""

RUN: Final = "-run"
"""The suffix of the directory beside a device."""

_OPTIONS: Final = {
    "rw": "mode=rw",
    "ro": "mode=ro",
    "guest": "mode=ro&readonly_shm=1",
    "immutable": "immutable=1",
}


@functools.cache
def _dialect() -> SQLiteDialect:
    from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

    return SQLiteDialect_pysqlite(paramstyle="named")


DIALECT: Final = Dialect("sqlite", "qmstorage.sqlite", _dialect)


def connect(path: str, mode: str) -> sqlite3.Connection:
    """Open the file `path` to read and write (`rw`), to read (`ro`), or to read while nobody has it open (`immutable`).

    `guest` reads without creating shared memory.
    """
    connection = bare_connection(path, mode)
    if mode == "rw":
        try:
            _prepare_to_write(connection)
        except translate.FAILURES:
            connection.close()
            raise
    return connection


def bare_connection(path: str, mode: str) -> sqlite3.Connection:
    """Open the file `path` without reading from it yet."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise ReleaseError(f"SQLite {sqlite3.sqlite_version} is too old: {wanted} or newer is needed")
    target = MEMORY if path == MEMORY else f"file:{quote(path)}?{_OPTIONS[mode]}"
    connection = sqlite3.connect(
        target,
        uri=path != MEMORY,
        timeout=translate.BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    give_functions(connection)
    return connection


def give_functions(connection: sqlite3.Connection) -> None:
    """Give a connection the function by which conditions test bodies; it must not have it already."""
    connection.create_function(BODY_HOLDS, 2, _body_holds, deterministic=True)


def _body_holds(body: bytes | None, condition: str) -> bool | None:
    # Most never ask for it.
    from qmstorage.sqlite.body_tests import holds

    return holds(body, condition)


def _prepare_to_write(connection: sqlite3.Connection) -> None:
    """Apply the settings of writers. For a reader this would touch the file already, which it may not be able to."""
    connection.execute("PRAGMA foreign_keys = ON")
    # Every commit that has to be on the disk is synced by us, after the writer's lock is released (see `wal`).
    connection.execute("PRAGMA synchronous = NORMAL")
    keep_log_short(connection, "main")


def keep_log_short(connection: sqlite3.Connection, schema: str) -> None:
    """Make the log of a database shrink again when it is written from its beginning."""
    connection.execute(f"PRAGMA {schema}.journal_size_limit = {_LOG_KEPT}")


def prepare_file(path: str, group_id: int | None) -> bool:
    """Create an empty file that only this user, or also a group, may use; return whether it is new.

    A file that exists already may be used if it is empty, or a database of an application, which keeps its rights: a
    group is added to them.
    """
    refuse_mount(path)
    mode = PRIVATE_MODE if group_id is None else SHARED_MODE
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_MODE)
    except FileExistsError:
        if _is_of_application(path):
            mode = stat.S_IMODE(Path(path).stat().st_mode) | (0 if group_id is None else SHARED_MODE)
        try:
            if group_id is not None:
                os.chown(path, -1, group_id)
            Path(path).chmod(mode)
        except OSError as error:
            raise translate.from_os(error, "setting the rights of device", path) from error
        return False
    except OSError as error:
        raise translate.from_os(error, "creating device", path) from error
    try:
        if group_id is not None:
            os.fchown(fd, -1, group_id)
        os.fchmod(fd, mode)
        os.fsync(fd)
    except OSError as error:
        Path(path).unlink()
        raise translate.from_os(error, "setting the group of device", path) from error
    finally:
        os.close(fd)
    sync_directory(path)
    return True


def remove_files(path: str) -> None:
    """Remove a file that could not be made a device, and what SQLite put beside it."""
    for suffix in ("", "-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)
    shutil.rmtree(run_directory(path), ignore_errors=True)


def checked(connection: sqlite3.Connection, path: str, *, older: bool = False) -> sqlite3.Connection:
    """Return the connection if it leads to a device that this release can read and write, or to an `older` one."""
    found = version_of(connection, path)
    if not (older and versions.reached(found) < schema.VERSION):
        versions.refuse_other(found, path)
    return connection


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """Return the schema version of a device; refuse what is not a device."""
    if not _is_marked(connection):
        raise translate.not_a_device(path)
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if row is None or not str(row[0]).isdecimal():
        raise SystemFailureError(
            f"device {path!r} does not say its schema version", hint="Restore it from a backup.", path=path
        )
    return int(row[0])


def refuse_unusable(path: str) -> None:
    """Refuse a path that cannot be a device, before SQLite gives a vaguer reason."""
    try:
        status = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # A ValueError is a name that no file can have.
        status = None
    except OSError as error:
        raise translate.from_os(error, "opening device", path) from error
    if status is None:
        raise BadResourceError(
            f"there is no device {path!r}", hint="Create it with crdl, offset 0, or name another.", path=path
        )
    if stat.S_ISDIR(status.st_mode):
        raise NotADeviceError(f"{path!r} is a directory, not a qmadmin device", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise translate.not_a_device(path)
    if not os.access(path, os.R_OK):
        raise OperatingSystemError(f"device {path!r} cannot be read by this user", path=path)
    refuse_mount(path)


def refuse_mount(path: str) -> None:
    """Refuse a network file system, which cannot share the memory that the log needs, and a file mounted alone."""
    point, kind = _mount(path)
    if point == os.path.realpath(path) and not Path(path).is_dir():
        raise BadResourceError(
            f"device {path!r} is mounted as a single file, and the files that belong next to it would not be there",
            hint="Mount its directory instead, for example as the volume of a container.",
            path=path,
        )
    if kind in _NETWORK_FILE_SYSTEMS:
        raise BadResourceError(
            f"device {path!r} is on a network file system ({kind}), on which processes cannot share memory",
            hint="Put it on a local disk; use PostgreSQL if several machines share a queue space.",
            path=path,
        )


def open_for_writing(path: str, look: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Return a connection to an existing device, which `look` may refuse before anything is written to it."""
    try:
        connection = connect(path, "rw")
    except translate.FAILURES as error:
        raise translate.from_sqlite(error, path) from error
    try:
        look(checked(connection, path))
        connection.execute("PRAGMA journal_mode = WAL")
        if not os.path.exists(f"{path}-wal"):  # noqa: PTH110 - one look
            # What has left another mode makes its log with the next statement.
            version_of(connection, path)
        share_beside(path)
    except translate.FAILURES as error:
        connection.close()
        raise translate.from_sqlite(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def can_begin(connection: sqlite3.Connection, seconds: float) -> bool:
    """Return whether a write transaction can begin within the seconds, whoever else has the file open."""
    if not begin_within(connection, seconds):
        return False
    connection.execute("ROLLBACK")
    return True


def begin_within(connection: sqlite3.Connection, seconds: float) -> bool:
    """Begin a write transaction if the file becomes free within the seconds; return whether it did."""
    with patience(connection, seconds):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not translate.is_blocked(error):
                raise
            return False
    return True


@contextlib.contextmanager
def patience(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Limit how long the connection waits for others."""
    connection.execute(f"PRAGMA busy_timeout = {max(round(seconds * 1000), 0)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(translate.BUSY_SECONDS * 1000)}")


@contextlib.contextmanager
def reading(path: str, *, older: bool = False) -> Iterator[sqlite3.Connection]:
    """Connect to an existing device, also an `older` one, for reading only, without creating files beside it.

    Raises ChangedError where the device was not open at first and was written meanwhile.
    """
    mode = _mode_to_read(path)
    before = _contents(path)
    try:
        with contextlib.closing(connect(path, mode)) as connection:
            yield checked(connection, path, older=older)
    except translate.FAILURES as error:
        _refuse_changed(path, mode, before)
        raise translate.from_sqlite(error, path) from error
    _refuse_changed(path, mode, before)
    share_beside(path)


def _mode_to_read(path: str) -> str:
    # A killed upgrade leaves a journal, with which the next process that may write the file undoes it first.
    if not any(Path(path + end).exists() for end in ("-wal", "-journal")):
        # While nobody has the device open it does not change, and SQLite would create files to share it.
        return "immutable"
    # Files that root creates get the owner of the device, those of others do not.
    is_ours = os.geteuid() in (0, Path(path).stat().st_uid)
    return "ro" if is_ours or Path(f"{path}-shm").exists() else "guest"


def _contents(path: str) -> tuple[int, int]:
    """Return what differs after the file was written."""
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns


def _refuse_changed(path: str, mode: str, before: tuple[int, int]) -> None:
    """Refuse what was read from a file that was written although nobody seemed to have it open."""
    if mode == "immutable" and _contents(path) != before:
        raise translate.ChangedError(path)


def run_directory(path: str) -> Path:
    """Return the directory beside the file that holds locks and the sockets of wake-ups."""
    return Path(path + RUN)


def surroundings(path: str) -> Surroundings:
    """Return the directory for locks and wake-ups, created if need be for those who may use the device."""
    directory = run_directory(path)
    status = Path(path).stat()
    found = Surroundings(directory, stat.S_IMODE(status.st_mode) & SHARED_MODE, status.st_uid, status.st_gid)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        found.share_directory(directory)
    return found


def sync_directory(path: str) -> None:
    """Bring the names in the directory of `path` to the disk."""
    fd = os.open(Path(path).resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_beside(path: str) -> None:
    """Bring a log or a journal to the disk, if there is one; neither has any of SQLite's locks."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def share_beside(path: str) -> None:
    """Set the group of the files that SQLite created beside the device, which it does by itself only for root."""
    group = Path(path).stat().st_gid
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(OSError):
            if Path(path + suffix).stat().st_gid != group:
                os.chown(path + suffix, -1, group)


def _is_marked(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID)


def _is_of_application(path: str) -> bool:
    """Return whether a file is a database of an application, and not empty; refuse what cannot be a device."""
    if Path(path).is_dir():
        raise BadResourceError(f"{path!r} is a directory, not a qmadmin device", path=path)
    if Path(path).stat().st_size == 0:
        return False
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(path, "rw")) as connection:
        # A crash in the middle of a creation leaves an SQLite file without tables.
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            return False
        if _is_marked(connection):
            raise translate.exists_already(path)
        adopting.refuse_unfit(connection, path)
        return True
    raise BadResourceError(
        f"{path!r} exists and is not a qmadmin device",
        hint="Name a file that does not exist yet, or an SQLite database; this one is left alone.",
        path=path,
    )


def can_become_device(path: str) -> bool:
    """Return whether a file is a database of SQLite that is no device yet; others may say why it cannot become one."""
    if not adopting.may_be_database(path):
        return False
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(bare_connection(path, _mode_to_read(path))) as connection,
    ):
        return not _is_marked(connection)
    return False


def _mount(path: str) -> tuple[str, str]:
    """Return the mount point of the file system of a path, and its kind; "" and "" where that is unknown."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return "", ""
    # As text: each device that is created or opened looks at every mount of the machine.
    target = f"{os.path.realpath(path)}/"
    best, kind = "/", ""
    for point, found in _mounts(lines):
        if target.startswith(f"{point.rstrip('/')}/") and len(point) >= len(best):
            best, kind = point, found
    return best, kind


def _mounts(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        before, _, after = line.partition(" - ")
        yield before.split()[4].replace("\\040", " "), after.split()[0]


def version(connection: sqlite3.Connection, schema: str) -> int:
    """Return a number that differs after each commit of another connection."""
    (number,) = connection.execute(f'PRAGMA "{schema}".data_version').fetchone()
    return int(number)


def instance(path: str, volume: str) -> str:
    """Return what no copy of the file of a volume has, which has that identifier."""
    found = identity(path)
    return volume if found is None else f"{volume}.{found[1]}"


def identity(path: str) -> tuple[int, int] | None:
    """Return what identifies a file; None where there is none, as for a device in memory."""
    try:
        found = os.stat(path)  # noqa: PTH116 - :memory: is no path
    except OSError:
        return None
    return found.st_dev, found.st_ino
