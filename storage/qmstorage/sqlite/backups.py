"""Backups: a directory with a copy of each file of a device as they stood at one moment, and a list of them.

All writers wait for the milliseconds in which a read transaction is begun on each file; so the copies are of one
moment, and each transaction is in them whole or not at all, whatever is written while they are made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qmcore.backup import BackupReport, BackupVolume
from qmcore.errors import BadResourceError, QueueError, ReleaseError, SystemFailureError
from qmcore.port import Snapshot, Unit, Volume
from qmcore.values import dataclass
from qmstorage.sqlite import files, parts, snapshot, translate
from qmstorage.sqlite.unit import SqliteUnit
from qmstorage.statements import Texts

FORMAT = 1
LIST = "backup.json"
"""The list of what is in a backup; a directory without it is not a backup."""

_PATIENCE = 0.5
"""Seconds that the writers of all files wait at most while one file is still being written."""

_INSTRUCTIONS = 20_000
"""Instructions of SQLite's virtual machine: some milliseconds."""

_COPIED = 60
"""Percent of a file's time that copying takes; the rest is checking the copy."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file of a device contains: how many queue spaces, persistent messages, transactions, and what is wrong."""

    spaces: int = 0
    messages: int = 0
    transactions: int = 0
    faults: tuple[str, ...] = ()

    def __add__(self, other: Contents) -> Contents:
        return Contents(
            self.spaces + other.spaces,
            self.messages + other.messages,
            self.transactions + other.transactions,
            self.faults + other.faults,
        )


def back_up(
    volumes: Mapping[str, Volume], target: Path, now: Callable[[], int], progress: Callable[[int], None]
) -> BackupReport:
    """Make a backup of a device's volumes, the main one first, as the directory `target`, which must not exist.

    `volumes` are by their paths in the device list.
    """
    refuse_existing(target)
    try:
        with contextlib.ExitStack() as stack:
            part = stack.enter_context(parts.part_beside(target))
            moment, taken = _taken_at_once(list(volumes.values()), now, stack)
            report = _copied(list(volumes), taken, part, target, moment, progress)
            finish(part, report, target)
    except OSError as error:
        raise translate.from_os(error, "making the backup", str(target)) from error
    progress(100)
    return report


def read_list(source: Path) -> BackupReport:
    """Return the list of a backup."""
    try:
        found = json.loads((source / LIST).read_text())
        if found["format"] > FORMAT:
            raise ReleaseError(
                f"the backup {str(source)!r} was made by a newer release", hint="Use that release.", path=str(source)
            )
        volumes = tuple(BackupVolume(**volume) for volume in found.pop("volumes"))
        del found["format"]
        report = BackupReport(path=str(source), volumes=volumes, faults=tuple(found.pop("faults")), **found)
    except FileNotFoundError as error:
        raise _no_backup(source, f"it has no {LIST}") from error
    except OSError as error:
        raise translate.from_os(error, "reading the backup", str(source)) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_backup(source, f"its {LIST} cannot be read") from error
    if not volumes or any(Path(volume.file).name != volume.file for volume in volumes):
        raise _no_backup(source, f"its {LIST} names no files in it")
    return report


def commands_of(source: Path) -> list[str]:
    """Return the capacity commands of the queues in a backup; damaged files, which are not restored, have none."""
    found: dict[str, None] = {}
    for volume in read_list(source).volumes:
        with (
            contextlib.suppress(QueueError, sqlite3.Error),
            contextlib.closing(files.connect(str(source / volume.file), "immutable")) as connection,
        ):
            unit = SqliteUnit(files.checked(connection, volume.file, older=True).cursor(), Texts(files.DIALECT))
            for space in unit.spaces.listed():
                for queue in unit.queues.of_space(space.id):
                    found |= dict.fromkeys(queue.definition.commands)
    return list(found)


def contents_of(path: Path, step: Callable[[int], None], now_and_then: Callable[[], None] | None = None) -> Contents:
    """Return what a copy that nobody else has open contains; refuse one that is damaged."""
    try:
        with contextlib.closing(files.connect(str(path), "immutable")) as connection:
            if now_and_then is not None:
                connection.set_progress_handler(now_and_then, _INSTRUCTIONS)
            files.checked(connection, str(path))
            damage = list(snapshot.integrity(connection, lambda percent: step(percent * 7 // 10)))
            if damage:
                raise SystemFailureError(
                    f"the store is damaged: {damage[0]}", hint="Check the device with qcheck.", path=str(path)
                )
            found = _contents(SqliteUnit(connection.cursor(), Texts(files.DIALECT)))
    except sqlite3.Error as error:
        raise translate.from_sqlite(error, str(path)) from error
    step(100)
    return found


def _taken_at_once(
    volumes: Sequence[Volume], now: Callable[[], int], stack: contextlib.ExitStack
) -> tuple[int, list[Snapshot]]:
    """Return the moment, and what each volume is at that moment."""
    end = time.monotonic() + translate.BUSY_SECONDS
    while True:
        try:
            with contextlib.ExitStack() as still:
                # In one order, or two backups could deadlock.
                for volume in sorted(volumes, key=lambda volume: volume.path):
                    still.enter_context(volume.quiesced(_PATIENCE))
                return now(), [stack.enter_context(volume.snapshot()) for volume in volumes]
        except QueueError as error:
            # Some program has a transaction open on one file: the others are released before waiting for it.
            if not error.blocked or time.monotonic() > end:
                raise


def _copied(
    paths: Sequence[str],
    taken: Sequence[Snapshot],
    part: Path,
    target: Path,
    moment: int,
    progress: Callable[[int], None],
) -> BackupReport:
    directory = part / "files"
    directory.mkdir(mode=0o700)
    device = taken[0].read(lambda unit: unit.device.info())
    copies = [directory / ("device" if at == 0 else f"volume-{at}") for at in range(len(paths))]
    wanted = []
    for at, (source, copy) in enumerate(zip(taken, copies, strict=True)):
        copy.touch(mode=files.PRIVATE_MODE)
        source.copy_to(str(copy), lambda percent, at=at: progress((at * 100 + percent) * _COPIED // (100 * len(paths))))  # type: ignore[misc]
        wanted.append(source.read(_counted))
        # From here on the log may be reused; checking the copy takes longer than making it.
        source.release()
    total, listed = Contents(), []
    for at, (path, source, copy) in enumerate(zip(paths, taken, copies, strict=True)):

        def step(percent: int, at: int = at) -> None:
            progress(_COPIED + (at * 100 + percent) * (99 - _COPIED) // (100 * len(paths)))

        found = _looked_at(source, copy, step)
        _compare(wanted[at], found, path)
        total += found
        listed.append(BackupVolume(file=copy.name, path=path, size=copy.stat().st_size, sha256=parts.digest_of(copy)))
    return BackupReport(
        path=str(target),
        device=paths[0],
        device_id=device.id,
        made_us=moment,
        volumes=tuple(listed),
        spaces=total.spaces,
        messages=total.messages,
        transactions=total.transactions,
        faults=total.faults,
    )


def _looked_at(source: Snapshot, copy: Path, step: Callable[[int], None]) -> Contents:
    with source.deferring_forks() as unlocked:
        return contents_of(copy, lambda percent: unlocked(lambda: step(percent)), lambda: unlocked(lambda: None))


def _compare(wanted: Contents, found: Contents, path: str) -> None:
    if wanted != dataclasses.replace(found, faults=()):
        raise SystemFailureError(f"the copy of {path!r} differs from what was copied: {wanted}, {found}", path=path)


def _contents(unit: Unit) -> Contents:
    page_size = unit.device.info().page_size
    faults: list[str] = []
    for space in unit.spaces.listed():
        hidden = unit.imports.hidden_queues(space.id)
        found = unit.soundness.faults(space, unit.queues.of_space(space.id), page_size, lambda: None, hidden)
        faults += [f"queue space {space.name!r}: {fault.sentence}" for fault in found]
    return dataclasses.replace(_counted(unit), faults=tuple(faults))


def _counted(unit: Unit) -> Contents:
    spaces = unit.spaces.listed()
    return Contents(
        spaces=len(spaces),
        messages=sum(unit.counters.level(space.id).messages for space in spaces),
        transactions=sum(unit.transactions.count(space.id) for space in spaces),
    )


def refuse_existing(target: Path) -> None:
    """Refuse a path that exists."""
    if target.exists() or target.is_symlink():
        raise BadResourceError(
            f"{str(target)!r} exists already, and a backup never overwrites anything",
            hint="Name another.",
            path=str(target),
        )


def finish(part: Path, report: BackupReport, target: Path) -> None:
    """Write the list of the files in a hidden directory, and rename it to the backup."""
    _write_list(part, report)
    # A directory can replace an empty one only.
    part.joinpath("files").rename(target)
    parts.sync(target.parent)


def _write_list(part: Path, report: BackupReport) -> None:
    said: dict[str, Any] = {"format": FORMAT} | dataclasses.asdict(report)
    del said["path"]
    path = part / "files" / LIST
    path.touch(mode=files.PRIVATE_MODE)
    path.write_text(json.dumps(said, indent=2) + "\n")
    parts.digest_of(path)
    parts.sync(part / "files")


def _no_backup(source: Path, why: str) -> QueueError:
    return BadResourceError(
        f"{str(source)!r} is not a backup: {why}", hint="Name the directory that qbackup made.", path=str(source)
    )
