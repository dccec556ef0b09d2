"""Opening a device: the one place that puts storage under the engine."""

from __future__ import annotations

import grp
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.care import MEMORY
from qmadmin.device import Device
from qmcore.backup import BackupReport
from qmcore.device import PAGE_SIZE, DeviceEntry, DeviceInfo, checked_entry
from qmcore.errors import BadResourceError, InvalidArgumentError
from qmcore.times import Clock, SystemClock

if TYPE_CHECKING:
    from qmcore.port import Volume


def open_device(path_or_url: str | os.PathLike[str], *, clock: Clock | None = None) -> Device:
    """Open an existing device.

    `path_or_url` is the path of an SQLite file, or `sqlite:///path`; it is what QMCONFIG names. A user who may read
    the file and not write it gets a device whose `readonly` is true. `clock` is for tests.

    Raises BadResourceError where there is no device, ReleaseError where a newer release wrote it, and
    OperatingSystemError where it cannot be read.
    """
    from qmstorage.opening import open_volume

    path = path_of(path_or_url)
    if path == MEMORY:
        raise BadResourceError("a device in memory cannot be opened, only created", hint="Use create_device().")
    return Device(path, open_volume(path), _VolumeMaker(), clock or SystemClock())


def create_device(
    path_or_url: str | os.PathLike[str],
    pages: int,
    *,
    offset: int = 0,
    group: str | None = None,
    clock: Clock | None = None,
) -> Device:
    """Create a device whose device list has one entry: `pages` pages of 4096 bytes of the file, from page `offset`.

    The file may be read and written by its owner, and with `group` by that group of users too. `:memory:` makes a
    device that is gone when it is closed.

    Raises BadResourceError where something else is there, InvalidArgumentError for a number that is out of range,
    OperatingSystemError where the file cannot be made; the disk is left as it was.
    """
    path = path_of(path_or_url)
    clock = clock or SystemClock()
    checked_entry(DeviceEntry(0, path, offset, pages), [])
    info = DeviceInfo(
        id=secrets.token_hex(16),
        page_size=PAGE_SIZE,
        durability="full",
        group=group or "",
        created_at=clock.now(),
    )
    maker = _VolumeMaker()
    device = Device(path, maker.create(path, info, main=True), maker, clock)
    device.create_entry(path, offset, pages)
    return device


def restore_device(
    backup: str | os.PathLike[str],
    path_or_url: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> BackupReport:
    """Make a device of a backup; return what it has, with the paths of its files.

    The device must be absent. With `force` one that is there is replaced, if nobody has it open; its messages are
    lost. The other files of the device get places that lie around the new path as they lay around the old one, under
    names that nothing has. The backup is looked at before, and what is made of it after, it is put in place; until
    then, and when anything fails, everything is as it was.

    Transactions that were open when the backup was made roll back when their queue space is first used, and this
    counts for no message as a try. New messages get identifiers that were never given before, also not after the
    backup was made. `progress` gets percent.

    Raises BadResourceError where there is no backup, or a device without `force`; InUseError where the device is
    open; SystemFailureError where the backup is damaged; OperatingSystemError where the disk is full.
    """
    from qmstorage.sqlite.restoring import restore

    path = path_of(path_or_url)
    if path == MEMORY:
        raise InvalidArgumentError("a device in memory cannot be restored", hint="Name a file.")
    return restore(Path(backup), Path(path), _group_id, progress or (lambda _percent: None), force=force)


def read_backup(backup: str | os.PathLike[str]) -> BackupReport:
    """Return what a backup says of itself; BadResourceError where it is none. Its files are not looked at."""
    from qmstorage.sqlite.backups import read_list

    return read_list(Path(backup))


def path_of(path_or_url: str | os.PathLike[str]) -> str:
    """Return the absolute path of the file that holds a device, or `:memory:`.

    Raises BadResourceError for the URL of another kind of database.
    """
    text = os.fspath(path_or_url)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text if text == MEMORY else os.path.abspath(text)
    if scheme in ("sqlite", "sqlite+pysqlite"):
        return os.path.abspath(rest.removeprefix("/")) if rest.strip("/") not in ("", MEMORY) else MEMORY
    raise BadResourceError(
        f"devices of the kind {scheme!r} are not supported by this release",
        hint="Give the path of a file.",
        scheme=scheme,
    )


class _VolumeMaker:
    """Makes and opens the volumes of a device on SQLite."""

    def open(self, path: str) -> Volume:
        """Open the volume in a file."""
        from qmstorage.opening import open_volume

        return open_volume(path)

    def create(self, path: str, info: DeviceInfo, *, main: bool) -> Volume:
        """Make a volume of a device, for the group that the device is for."""
        from qmstorage.opening import create_volume

        return create_volume(path, info, main=main, group_id=_group_id(info.group))

    def back_up(
        self, volumes: Mapping[str, Volume], target: str, now: Callable[[], int], progress: Callable[[int], None]
    ) -> BackupReport:
        """Make a backup of volumes by their paths in the device list, the main one first."""
        from qmstorage.sqlite.backups import back_up

        return back_up(volumes, Path(target), now, progress)


def _group_id(group: str) -> int | None:
    if not group:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise InvalidArgumentError(f"there is no group {group!r} on this machine", group=group) from None
