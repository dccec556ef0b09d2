"""The volumes of an open device: opened, compared with the device list before anything is written to them, and kept."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Final

from qmadmin.volume_makers import MEMORY
from qmcore import volume_record
from qmcore.acts import manage_devices, manage_spaces, manage_volumes, outstanding
from qmcore.errors import (
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    NotADeviceError,
    NotOpenError,
    QueueError,
    in_other_words,
)
from qmcore.purpose import Purpose
from qmcore.volume_record import MissingVolume, VolumeMissingError, VolumeRecord, Why

if TYPE_CHECKING:
    from qmadmin.volume_makers import VolumeMaker
    from qmcore.device import DeviceEntry, DeviceInfo
    from qmcore.port import Volume
    from qmcore.times import Clock

logger = logging.getLogger("qmadmin.transacting")

_PATIENCE_SECONDS: Final = 0.5
"""How long a mere look, and the return of a volume, wait for others that are just opening or closing it."""

_PAUSE_SECONDS: Final = 1.0
"""How long to pause after an attempt to open a volume again that has vanished."""


class Volumes:
    """The volumes of a device by their paths in its list. Safe for several threads."""

    def __init__(self, path: str, main: Volume, maker: VolumeMaker, info: DeviceInfo, clock: Clock) -> None:
        self._path = path
        self._maker = maker
        self._info = info
        self._clock = clock
        self.opened: dict[str, Volume] = {path: main}
        """Those that are open."""
        self._logged: set[str] = set()
        """The paths of those that the log says are missing."""
        self._locks: dict[str, threading.RLock] = {}
        """One for each path: who waits for one volume holds up nobody who wants another."""
        self._raised: set[str] = set()
        """The paths of those whose number was raised since they were opened."""
        self._refused: dict[str, tuple[float, QueueError]] = {}
        """Why one that has vanished could not be opened again, and when that is tried next, by its path."""

    @property
    def main(self) -> Volume:
        """The volume that QMCONFIG names; one that has vanished is opened again, which is tried once a second."""
        found = self.opened[self._path]
        return self._main_again() if found.has_vanished else found

    def of(self, path: str, *, looks: bool = False) -> Volume:
        """Return the volume at a path of the device list; who only `looks` waits for nobody, and writes nothing.

        Anybody else raises its number, unless a process is attached to a queue space on it. One that has vanished is
        opened again, which is tried once a second. Raises VolumeMissingError where something else is there.
        """
        entries = self.main.read(lambda unit: unit.device.entries())
        if not entries or path == entries[0].path:
            return self.main
        with self._lock_of(path):
            volume = self._usable(path, looks=looks)
            entry = next((entry for entry in entries if entry.path == path), None)
            if entry is not None and not looks and path not in self._raised:
                self._raise_number(volume, entry)
            return volume

    def missing(self, *, logged: bool = False) -> list[MissingVolume]:
        """Return the volumes of the device list that are missing, with the queue spaces on them.

        If that is to be `logged`, each is once, until it is there again.
        """
        found = []
        for path in dict.fromkeys(self.main.read(lambda unit: [entry.path for entry in unit.device.entries()])):
            error = self._why_missing(path)
            if error is not None:
                spaces = self.main.read(lambda unit, path=path: manage_spaces.on_path(unit, path))  # type: ignore[misc]
                found.append(MissingVolume(path, spaces, error.message, error.hint, volume_record.why_of(error)))
        if logged:
            for volume in found:
                if volume.path not in self._logged:
                    logger.warning("%s", volume)
            self._logged = {volume.path for volume in found}
        return found

    def _why_missing(self, path: str) -> QueueError | None:
        """Return why the volume at a path of the device list cannot be opened; None where it is there."""
        try:
            volume = self.of(path, looks=True)
            try:
                volume.check_place()
                if volume is not self.main:
                    # Only a statement shows that a schema was dropped, or another one has its name.
                    self._accept(volume.read(lambda unit: unit.device.volume()), path)
            except NotOpenError:
                if not volume.has_vanished:
                    raise
                # It may be there again.
                self.of(path, looks=True)
        except QueueError as error:
            return self._refusal(path, error)
        return None

    def add(self, path: str) -> VolumeRecord:
        """Return the record of the volume at a path that is to be listed, made before where there is none.

        Raises VolumeMissingError where another device's is there, or one that is listed under another path.
        """
        entries = self.main.read(lambda unit: unit.device.entries())
        if any(entry.path == path for entry in entries):
            # If it is missing, an empty one must not take its place.
            return self.of(path).read(lambda unit: unit.device.volume())
        if self._path == MEMORY:
            raise InvalidArgumentError("a device in memory has no other files")
        with self._lock_of(path):
            opened = self._maker.open_or_create(path, self._info, lambda record: self._refuse_listed(record, path))
            before, self.opened[path] = self.opened.get(path), opened
        _close(before)
        return opened.read(lambda unit: unit.device.volume())

    def refuse_other_device(self, path: str) -> None:
        """Refuse, for the first entry, an existing path that is not the device itself."""
        if path != self._path and self._maker.is_there(path) and not self._maker.are_same(path, self._path):
            raise BadResourceError(
                f"{path!r} is not device {self._path!r}, which the first entry of its list names",
                hint="Name the path that the device has now, or will have.",
                path=path,
            )

    def rename(self, entry: DeviceEntry, path: str, *, force: bool) -> DeviceEntry:
        """Give an entry another path, and with `force` the volume there, though it is not that of the entry."""
        refusal = self.difference(entry, path)
        if refusal is None:
            return self.main.write(
                lambda unit: manage_devices.rename_entry(unit, entry.index, path), Purpose.ADMINISTRATION
            )
        if not (force and refusal.taken):
            raise refusal
        record = self._taken(entry, path, refusal.why)
        renamed = self.main.write(
            lambda unit: manage_devices.replace_volume(unit, entry.index, path, record.volume, record.opened),
            Purpose.ADMINISTRATION,
        )
        self.forget(entry.path)
        return renamed

    def difference(self, entry: DeviceEntry, path: str) -> VolumeMissingError | None:
        """Return what is wrong with what is at a path as the volume of an entry; None where it fits, or nothing is."""
        if not self._maker.is_there(path):
            return None
        try:
            _close(self._maker.open(path, lambda record: self._compare(record, entry, path)))
        except VolumeMissingError as refusal:
            return self._advised(refusal)
        except BadResourceError as error:
            if self._maker.is_empty(path):
                return self._advised(volume_record.missing(Why.EMPTY, path, self._path))
            if isinstance(error, NotADeviceError):
                return volume_record.missing(Why.NOT_A_VOLUME, path, self._path)
            raise
        return None

    def forget(self, path: str) -> None:
        """Close a volume that is no longer usable."""
        with self._lock_of(path):
            gone = self.opened.pop(path, None)
            self._raised.discard(path)
        _close(gone)

    def _lock_of(self, path: str) -> threading.RLock:
        return self._locks.setdefault(path, threading.RLock())

    def _main_again(self) -> Volume:
        with self._lock_of(self._path):
            found = self.opened[self._path]
            if found.has_vanished:
                self._refuse_too_soon(self._path)
                try:
                    opened = self._maker.open(self._path, self._accept_main, patience=_PATIENCE_SECONDS)
                except QueueError as error:
                    self._refused[self._path] = self._clock.monotonic() + _PAUSE_SECONDS, error
                    raise
                self._refused.pop(self._path, None)
                self.opened[self._path] = opened
                _close(found)
            return self.opened[self._path]

    def _accept_main(self, record: VolumeRecord) -> None:
        if record.device != self._info.id or not record.main:
            raise volume_record.missing(Why.OTHER_DEVICE, self._path, self._path)

    def _refuse_too_soon(self, path: str) -> None:
        again, refusal = self._refused.get(path, (0.0, None))
        if refusal is not None and self._clock.monotonic() < again:
            raise in_other_words(refusal)

    def _usable(self, path: str, *, looks: bool) -> Volume:
        """Return the volume at a path of the device list, opened if it is not open, or has vanished."""
        found = self.opened.get(path)
        if found is not None and not found.has_vanished:
            return found
        returns = found is not None or path in self._refused
        self.forget(path)
        if not looks:
            self._refuse_too_soon(path)
        try:
            opened = self._maker.open(
                path,
                lambda record: self._accept(record, path),
                patience=_PATIENCE_SECONDS if looks or returns else None,
            )
        except QueueError as error:
            refusal = self._refusal(path, error)
            if returns:
                self._refused[path] = self._clock.monotonic() + _PAUSE_SECONDS, refusal
            raise refusal from error
        self._refused.pop(path, None)
        self.opened[path] = opened
        return opened

    def _raise_number(self, volume: Volume, entry: DeviceEntry) -> None:
        try:
            if manage_volumes.raise_number(self.main, volume, entry):
                self._raised.add(entry.path)
        except QueueError as error:
            # What keeps the caller from working is told by what it does next.
            logger.info("the number of volume %r was not raised: %s", entry.path, error)

    def _accept(self, record: VolumeRecord, path: str) -> None:
        """Refuse a volume at a path that is not the one which the device list has there."""
        entries = self.main.read(lambda unit: unit.device.entries())
        entry = next((entry for entry in entries if entry.path == path), None)
        if entry is None:
            return
        try:
            volume_record.refuse_stranger(record, entry, path, self._info.id, self._path)
        except VolumeMissingError as refusal:
            raise volume_record.named(refusal, path, self._path) from None

    def _compare(self, record: VolumeRecord, entry: DeviceEntry, path: str) -> None:
        """Refuse a volume at a path that is not that of an entry; one of another entry by that name."""
        if record.volume != entry.volume:
            self._refuse_listed(record, path)
        volume_record.refuse_stranger(record, entry, path, self._info.id, self._path)

    def _refuse_listed(self, record: VolumeRecord, path: str) -> None:
        """Refuse a volume of another device, or of an entry, or a copy of one."""
        if record.device != self._info.id:
            raise volume_record.missing(Why.OTHER_DEVICE, path, self._path)
        if record.main:
            raise volume_record.missing(Why.DEVICE_ITSELF, path, self._path)
        entries = self.main.read(lambda unit: unit.device.entries())
        if any(entry.volume == record.volume for entry in entries):
            raise volume_record.missing(Why.LISTED, path, self._path)

    def _taken(self, entry: DeviceEntry, path: str, why: Why) -> VolumeRecord:
        """Make what is at a path the volume of an entry, and return its record."""
        if why is Why.EMPTY:
            with contextlib.closing(self._maker.create(path, self._info, first=None)) as made:
                return made.read(lambda unit: unit.device.volume())
        with contextlib.closing(self._maker.open(path)) as volume:
            found = volume.read(lambda unit: unit.device.volume())
            if why is Why.OTHER_DEVICE:
                self._take_from_other(volume)
            elif why is Why.OLDER:
                # The newer one, should it come back, is the older one then.
                newest = max(entry.opened, found.opened) + 1
                volume.write(lambda unit: unit.device.set_opened(newest), Purpose.MESSAGES)
                volume.sync(others=True)
            return volume.read(lambda unit: unit.device.volume())

    def _take_from_other(self, volume: Volume) -> None:
        """Make a volume of another device one of this."""
        its, spaces, listed = volume.read(
            lambda unit: (unit.device.info(), unit.spaces.listed(), unit.device.entries())
        )
        others = sorted({entry.path for entry in listed} - {each.path for each in listed[:1]})
        if others:
            raise BadResourceError(
                f"{volume.path!r} is a device itself, and its device list names {', '.join(map(repr, others))} too",
                hint="Name a volume of that device instead, or remove those entries from its list with dsdl.",
                path=volume.path,
            )
        if its.page_size != self._info.page_size:
            raise BadResourceError(
                f"{volume.path!r} has pages of {its.page_size} bytes, and device {self._path!r} of"
                f" {self._info.page_size}",
                hint="Move the messages with qexport and qimport.",
                path=volume.path,
            )
        for space in spaces:
            if any(process.alive for process in outstanding.attached(volume, space.id)):
                raise InUseError(
                    f"queue space {space.name!r} in {volume.path!r} has processes attached",
                    hint="End them first.",
                    space=space.name,
                )
        volume.write(lambda unit: unit.device.join_device(self._info), Purpose.ADMINISTRATION)

    def _refusal(self, path: str, error: QueueError) -> QueueError:
        """Return the refusal of what is at a path of the device list in the words of that."""
        if isinstance(error, VolumeMissingError) or not isinstance(error, BadResourceError):
            # In a directory that may not be entered it may well exist.
            return error
        if not self._maker.is_there(path):
            why = Why.ABSENT
        elif self._maker.is_empty(path):
            why = Why.EMPTY
        elif isinstance(error, NotADeviceError):
            why = Why.NOT_A_VOLUME
        else:
            return error
        return volume_record.named(volume_record.missing(why, path, self._path), path, self._path)

    @staticmethod
    def _advised(refusal: VolumeMissingError) -> VolumeMissingError:
        if not refusal.taken:
            return refusal
        hint = f"{refusal.hint} To {refusal.taken}, force it: chdl -f."
        return in_other_words(refusal, hint=hint)


def _close(volume: Volume | None) -> None:
    if volume is not None:
        with contextlib.suppress(QueueError):
            volume.close()
