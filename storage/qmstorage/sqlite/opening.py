"""Creating and opening volumes."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qmcore.device import RELAXED, DeviceEntry, DeviceInfo
from qmcore.errors import InvalidArgumentError
from qmcore.probe import Probe
from qmcore.volume_record import Accept, VolumeRecord
from qmstorage import schema
from qmstorage.sql import made
from qmstorage.sqlite import adopting, aliases, files, translate
from qmstorage.sqlite.readonly import ReadOnlyVolume
from qmstorage.sqlite.unit import SqliteUnit, roll_back
from qmstorage.sqlite.volume import SqliteVolume
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmcore.port import Volume
    from qmcore.times import Clock


def open_volume(
    path: str,
    probe: Probe,
    clock: Clock,
    accept: Accept | None = None,
    *,
    readonly: bool = False,
    patience: float = aliases.PATIENCE_SECONDS,
) -> Volume:
    """Open the device or volume in an SQLite file; for reading only where this user may not write it, or asks for it.

    What the volume says of itself is given to `accept`, which may refuse it; nothing is written to it before. For
    `patience` seconds others are waited for that are just opening or closing it.

    Raises BadResourceError where there is none, or the device has another name, InUseError where others have the file
    open with another log, or another file by this name, ReleaseError for a newer one, OperatingSystemError where it
    cannot be read.
    """
    files.refuse_unusable(path)
    # SQLite puts its files beside the target of a link; so do we, or two names would have two sets of locks.
    path = os.path.realpath(path)
    if not readonly and os.access(path, os.W_OK):
        aliases.refuse_others(path, patience)
        durable: list[bool] = []
        connection = files.open_for_writing(path, lambda connection: durable.append(_look(connection, path, accept)))
        return SqliteVolume(path, connection, probe, clock, durable=durable[0])
    volume = ReadOnlyVolume(path, probe)
    record = volume.read(lambda unit: unit.device.volume())
    if accept is not None:
        accept(record)
    return volume


def create_volume(
    path: str, info: DeviceInfo, probe: Probe, clock: Clock, *, first: DeviceEntry | None, group_id: int | None
) -> Volume:
    """Make a file a volume of the device `info`: the one that QMCONFIG names, with the `first` entry of its list.

    A database of an application becomes one beside its tables. Raises BadResourceError where something else is there,
    OperatingSystemError where the file cannot be created, InvalidArgumentError for partitions. A new file that could
    not be finished is removed.
    """
    if info.partitions:
        raise InvalidArgumentError(
            "partitions are possible only on PostgreSQL, not in a file",
            hint="Leave them out, or create the device in a PostgreSQL database.",
        )
    if path == files.MEMORY:
        connection = files.connect(path, "rw")
        _create_tables(connection, info, first=first)
        return SqliteVolume(path, connection, probe, clock, durable=info.durability != RELAXED)
    path = os.path.realpath(path)
    with _creation_lock(path):
        aliases.refuse_others(path)
        is_new = files.prepare_file(path, group_id)
        try:
            connection = files.connect(path, "rw")
            try:
                # A database that has tables keeps the size it has; ours is only counted in.
                connection.execute(f"PRAGMA page_size = {info.page_size}")
                with adopting.journal_mode_kept(connection):
                    connection.execute("PRAGMA journal_mode = WAL")
                    _create_tables(connection, info, first=first)
                files.share_beside(path)
                volume = SqliteVolume(path, connection, probe, clock, durable=info.durability != RELAXED)
                volume.sync(others=True)
            except BaseException:
                connection.close()
                raise
        except BaseException as error:
            if is_new:
                files.remove_files(path)
            if isinstance(error, sqlite3.Error):
                raise translate.from_sqlite(error, path) from error
            raise
    return volume


@contextlib.contextmanager
def _creation_lock(path: str) -> Iterator[None]:
    """Let one process or thread at a time create volumes in a directory.

    Otherwise a second one finds the empty file of the first, makes the tables in it and acknowledges messages, and the
    first, which is too late, removes it.
    """
    try:
        directory = os.open(Path(path).parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        # Creating the file says what is wrong with the directory.
        yield
        return
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        # A process that was forked meanwhile shares the lock, and may live on.
        fcntl.flock(directory, fcntl.LOCK_UN)
        os.close(directory)


def _create_tables(connection: sqlite3.Connection, info: DeviceInfo, *, first: DeviceEntry | None) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        for statement in _ddl():
            connection.execute(statement)
        connection.execute("INSERT INTO alembic_version VALUES (?)", (schema.REVISION,))
        SqliteUnit(connection.cursor(), Texts(files.DIALECT)).device.record(info, first=first)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise


@functools.cache
def _ddl() -> tuple[str, ...]:
    """Return the statements that create the tables; compiling them takes longer than running them."""
    return tuple(_statements())


def _statements() -> Iterator[str]:
    from sqlalchemy.schema import CreateIndex, CreateTable

    dialect = files.DIALECT.loaded()
    for table in made(schema.metadata).sorted_tables:
        yield str(CreateTable(table).compile(dialect=dialect))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            yield str(CreateIndex(index).compile(dialect=dialect))


def _look(connection: sqlite3.Connection, path: str, accept: Accept | None) -> bool:
    """Have a volume accepted that nothing was written to yet; return whether it is durable."""
    row = connection.execute("SELECT durability, id, volume, main, opened FROM device").fetchone()
    if row is None:
        raise translate.not_a_device(path)
    if accept is not None:
        accept(VolumeRecord(device=row[1], volume=row[2], main=bool(row[3]), opened=row[4]))
    return bool(row[0] != RELAXED)
