"""Restoring a device from a backup: the whole of it, or nothing.

All files are copied, changed and checked under hidden names beside their places. Then those but the device itself get
names that are free, and at last the device gets its own: before that moment the device is what it was before, or
absent; after it, what was restored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from qmcore import numbers
from qmcore.audit import AuditEntry
from qmcore.backup import BackupReport, BackupVolume
from qmcore.errors import BadResourceError, InUseError, QueueError, SystemFailureError
from qmstorage.auditing import COLUMNS, values_of
from qmstorage.device import new_volume_id
from qmstorage.sqlite import files, parts, translate
from qmstorage.sqlite.backups import Contents, contents_of, read_list
from qmstorage.sqlite.memory_files import remove_memories
from qmstorage.sqlite.replaced import Replaced, replaced
from qmstorage.sqlite.upgrading import upgrade_copy

_LEAP = 2**32
"""Sequence numbers that are skipped, so that none is reused which was given out after the backup was made."""

_LEAPS = 64
"""How many such leaps there may be: by chance, because one backup may be restored twice."""

_ELSEWHERE = "restored"
"""The start of a machine that attached processes are said to have seen: none of them is alive, and dying so does not
count as a try of the messages that they held."""

_UNRECORDED = "its record of destructive acts is missing or damaged, so that this restore is not recorded"


@dataclasses.dataclass(slots=True)
class _Copy:
    """A file that is restored: its entry in the backup, where it is written, and where it goes."""

    source: BackupVolume
    made: Path
    place: Path


def restore(
    source: Path,
    target: Path,
    group_id: Callable[[str], int | None],
    progress: Callable[[int], None],
    record: AuditEntry,
    *,
    force: bool,
) -> tuple[BackupReport, AuditEntry]:
    """Restore a backup as the device `target`. An existing one is replaced with `force`, if nobody has it open.

    `group_id` finds the group that a device is for, by its name. The device has the `record` of this when it is put in
    place; it is returned with its number, which is 0 where the backup has no table for it.
    """
    listed = read_list(source)
    files.refuse_mount(str(target))
    target = Path(os.path.realpath(target))
    try:
        with contextlib.ExitStack() as stack:
            old = stack.enter_context(_made_way_for(target, force=force))
            copies = [
                _Copy(volume, stack.enter_context(parts.part_beside(place)) / "made", place)
                for volume, place in _placed(listed, target)
            ]
            incarnations, record = _made(source, listed, copies, group_id, progress, record)
            old.close_to_all()
            for copy in copies:
                remove_memories(str(copy.place), incarnations | old.incarnations)
            if old.owner is not None:
                for copy in copies:
                    os.chown(copy.made, old.owner, -1)
            _put_in_place(copies, replaces=old.exists)
            old.remove()
    except OSError as error:
        raise translate.from_os(error, "restoring device", str(target)) from error
    except sqlite3.Error as error:
        raise translate.from_copying(error, str(target)) from error
    progress(100)
    volumes = tuple(dataclasses.replace(copy.source, path=str(copy.place)) for copy in copies)
    faults = listed.faults if record.id else (*listed.faults, _UNRECORDED)
    return dataclasses.replace(listed, path=str(target), volumes=volumes, faults=faults), record


@contextlib.contextmanager
def _made_way_for(target: Path, *, force: bool) -> Iterator[Replaced]:
    """Hold what the device replaces, or refuse."""
    beside = [Path(f"{target}{suffix}") for suffix in ("-wal", "-shm", "-journal")]
    if not force and (target.exists() or target.is_symlink()):
        raise BadResourceError(
            f"{str(target)!r} exists already", hint="Name another path, or force it with -f.", path=str(target)
        )
    left = [path for path in beside if path.exists()]
    if left and not target.exists():
        # SQLite would take the log for that of the restored device.
        raise BadResourceError(
            f"{str(left[0])!r} is left of another device", hint="Move it away, or name another path.", path=str(left[0])
        )
    with replaced(target) as old:
        yield old


def _placed(listed: BackupReport, target: Path) -> Iterator[tuple[BackupVolume, Path]]:
    """Yield each file with its new place, which is relative to the device as it was before."""
    taken = {target}
    yield listed.volumes[0], target
    for volume in listed.volumes[1:]:
        wanted = _around(listed, target, Path(volume.path))
        place, number = wanted, 1
        while place in taken or any(os.path.lexists(f"{place}{end}") for end in ("", "-wal", "-shm", "-journal")):
            number += 1
            place = wanted.with_name(f"{wanted.name}-{number}")
        taken.add(place)
        if not place.parent.is_dir():
            raise BadResourceError(
                f"there is no directory {str(place.parent)!r} for {place.name!r}, a file of the device",
                hint="Create the directory first.",
                path=str(place),
            )
        yield volume, place


def _around(listed: BackupReport, target: Path, was: Path) -> Path:
    """Return the path of a file relative to the new device as it was relative to the old one."""
    directory = Path(listed.device).parent
    if Path(listed.device) == target:
        return was
    return target.parent / (was.relative_to(directory) if was.is_relative_to(directory) else was.name)


def _made(
    source: Path,
    listed: BackupReport,
    copies: list[_Copy],
    group_id: Callable[[str], int | None],
    progress: Callable[[int], None],
    record: AuditEntry,
) -> tuple[set[str], AuditEntry]:
    """Write all files under hidden names and check them; return the incarnations of the queue spaces in them.

    The first file, which is the device, keeps the record, which is returned too.
    """
    leap = _LEAP * (1 + secrets.randbelow(_LEAPS))
    places = {copy.source.path: str(copy.place) for copy in copies}

    def place(path: str) -> str:
        # A file that was missing when the backup was made is missing again, unless it is put back there.
        return places.get(path) or str(_around(listed, copies[0].place, Path(path)))

    # Volumes of the original are none of the new device, and the other way round.
    volumes = {str(copy.place): new_volume_id() for copy in copies}
    total, incarnations = Contents(), set()
    for at, copy in enumerate(copies):

        def step(percent: int, at: int = at) -> None:
            progress((at * 100 + percent) * 99 // (100 * len(copies)))

        _copy(source, copy, step)
        upgrade_copy(copy.made)
        incarnations |= _settled(copy, place, volumes, leap, group_id)
        if at == 0:
            record = _recorded(copy.made, record)
        total += contents_of(copy.made, lambda percent, step=step: step(60 + percent * 4 // 10))  # type: ignore[misc]
        parts.digest_of(copy.made)
    if (total.spaces, total.messages, total.transactions) != (listed.spaces, listed.messages, listed.transactions):
        raise _damaged(source, "it has another number of queue spaces, messages or transactions than it says")
    return incarnations, record


def _copy(source: Path, copy: _Copy, step: Callable[[int], None]) -> None:
    size = max(copy.source.size, 1)
    try:
        digest = parts.copy(source / copy.source.file, copy.made, lambda done: step(min(done * 60 // size, 60)))
    except FileNotFoundError as error:
        raise _damaged(source, f"its file {copy.source.file!r} is missing") from error
    if digest != copy.source.sha256:
        raise _damaged(source, f"its file {copy.source.file!r} is not what it was when the backup was made")


def _settled(
    copy: _Copy,
    place: Callable[[str], str],
    volumes: Mapping[str, str],
    leap: int,
    group_id: Callable[[str], int | None],
) -> set[str]:
    """Adapt a copy to its new place, where nobody is attached; return the incarnations of its queue spaces.

    `volumes` are the new identifiers of those that are restored, by their new places.
    """
    made = copy.made
    with contextlib.closing(files.connect(str(made), "rw")) as connection:
        files.checked(connection, str(made))
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE device SET volume = ?", (volumes[str(copy.place)],))
        for index, path, volume in connection.execute("SELECT dlindex, path, volume FROM entry").fetchall():
            its = place(path), volumes.get(place(path), volume), index
            connection.execute("UPDATE entry SET path = ?, volume = ? WHERE dlindex = ?", its)
        # The others have left nothing to be ended.
        connection.execute("DELETE FROM owner WHERE id NOT IN (SELECT owner_id FROM trans)")
        connection.execute("UPDATE owner SET boot = ?, process = ?", (_ELSEWHERE, _ELSEWHERE))
        connection.execute("DELETE FROM waiter")
        connection.execute("DELETE FROM forwarding")
        connection.execute(
            "UPDATE counter SET sequence = max(sequence, min(sequence + ?, ?)) WHERE queue_id = 0",
            (leap, numbers.SEQUENCE_MAX >> 1),
        )
        connection.execute("COMMIT")
        (group,) = connection.execute("SELECT group_name FROM device").fetchone()
        incarnations = {row[0] for row in connection.execute("SELECT incarnation FROM space")}
        # All of it in one file, whose header says WAL mode.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    number = group_id(group)
    if number is not None:
        os.chown(made, -1, number)
        made.chmod(files.SHARED_MODE)
    return incarnations


def _recorded(made: Path, record: AuditEntry) -> AuditEntry:
    """Write a record to the new device, and return it with its number; unchanged if the device cannot store it."""
    columns, places = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
    with contextlib.closing(files.connect(str(made), "rw")) as connection:
        try:
            ((number,),) = connection.execute(
                f"INSERT INTO audit ({columns}) VALUES ({places}) RETURNING id",  # noqa: S608 - names of ours
                values_of(record),
            ).fetchall()
        except sqlite3.Error as error:
            # The messages are worth more than the record.
            if translate.is_of_the_store(error):
                return record
            raise
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return dataclasses.replace(record, id=number)


def _put_in_place(copies: list[_Copy], *, replaces: bool) -> None:
    device, *others = copies
    linked: list[Path] = []
    try:
        for copy in others:
            # Unlike a rename, this replaces nothing.
            copy.place.hardlink_to(copy.made)
            linked.append(copy.place)
            parts.sync(copy.place.parent)
        if replaces:
            device.made.replace(device.place)
        else:
            device.place.hardlink_to(device.made)
    except BaseException as error:
        for path in linked:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise InUseError(f"{error.filename2!r} was created by another process meanwhile") from error
        raise
    parts.sync(device.place.parent)


def _damaged(source: Path, why: str) -> QueueError:
    return SystemFailureError(
        f"the backup {str(source)!r} is damaged: {why}", hint="Use another backup.", path=str(source)
    )
