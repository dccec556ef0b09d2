"""A device, as applications and programs use it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from qmadmin import tracing
from qmadmin.attachment import Attachment
from qmadmin.audit import act, destructive, tell, user_name
from qmadmin.capacity import CapacityCommands, refusal
from qmadmin.device_volumes import Volumes
from qmadmin.maintenance import Maintenance
from qmadmin.recovery import ROLE, Recovery
from qmadmin.schedule_rules import following
from qmadmin.side_threads import SideThreads
from qmadmin.space import QueueSpace
from qmadmin.transacting import Transaction, refuse_nesting
from qmadmin.volume_makers import MEMORY, VolumeMaker
from qmcore import device as rules
from qmcore import names
from qmcore.acts import manage_devices, manage_spaces, processes
from qmcore.acts.deciding import Place
from qmcore.checks import check_int
from qmcore.definitions import OpenSpace
from qmcore.device import DeviceEntry, DeviceInfo, PageRange, TableEntry
from qmcore.errors import InvalidArgumentError, NotOpenError, QueueError
from qmcore.port import Volume
from qmcore.purpose import Purpose
from qmcore.times import Clock

if TYPE_CHECKING:
    from datetime import timedelta

logging.getLogger("qmadmin").addHandler(logging.NullHandler())
logger = logging.getLogger("qmadmin.transacting")

_CLOSE_SECONDS = 1.0
"""How long the end of a device waits for a thread that is just attaching to a queue space."""


class Device(Maintenance):
    """An open device: the device list, the table of contents, and the queue spaces. Safe for several threads.

    After a fork, the child opens the files again by itself.
    """

    def __init__(
        self, path: str, main: Volume, maker: VolumeMaker, clock: Clock, opens: Callable[[str], Device]
    ) -> None:
        """Take the volume that QMCONFIG names, what makes and opens others, and what opens other devices."""
        self.path = path
        self.readonly = main.readonly
        self.clock = clock
        self._maker = maker
        self.info: DeviceInfo = _info_of(main)
        """The device's record about itself: its id, page size in bytes, durability, group, and its age."""
        self._volumes = Volumes(path, main, maker, self.info, clock)
        self._recovery = Recovery(self, opens)
        self.side_threads = SideThreads()
        self._attachments: dict[str, Attachment] = {}
        self.probe = maker.probe
        self.probe.attachments = self._attachments
        self._users: dict[str, int] = {}
        self._lock: threading.RLock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        # A program that forgets to close detaches properly nevertheless, when the device is collected or at its end.
        self._leave = weakref.finalize(self, _leave, self._attachments, self._volumes.opened, self._pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.path!r}{' closed' if self._closed else ''}>"

    @property
    def kind(self) -> str:
        """The kind of store: "sqlite" or "postgresql"."""
        return self._maker.kind

    @property
    def config(self) -> str:
        """The value of QMCONFIG with which another process opens the device; it may contain a password."""
        return self._maker.config_of(self.path)

    def close(self) -> None:
        """Close the device and its open queue spaces. Open transactions roll back; waiting calls end."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._recovery.stop()
        self.side_threads.stop()
        # Who is just attaching is waited for, but not for long, and nobody begins to.
        is_quiet = self._lock.acquire(timeout=_CLOSE_SECONDS)
        try:
            self._leave()
        finally:
            if is_quiet:
                self._lock.release()

    def entries(self) -> list[DeviceEntry]:
        """Return the device list (UDL) in the order of its indexes."""
        return self._main.read(lambda unit: unit.device.entries())

    def create_entry(self, path: str | os.PathLike[str], offset: int, pages: int) -> DeviceEntry:
        """Add `pages` pages of a file, from page `offset`, to the device list; a file that does not exist is created.

        On PostgreSQL `path` is the name of a schema in the database of the device, or its URL.

        Raises InvalidArgumentError for numbers out of range or pages that are listed already, NoSpaceError for a 26th
        entry, BadResourceError if the file is something else: another device's, or a copy of a file that is listed.
        """
        present = self.entries()
        file = self._maker.path_of(path)
        if present and file == self.path:
            file = present[0].path
        wanted = DeviceEntry(-1, file, offset, pages)
        rules.checked_entry(wanted, present)
        if not present and file != self.path:
            raise InvalidArgumentError(
                f"the first entry of the device list must be the device itself, {self.path!r}, got {file!r}"
            )
        if present and file == present[0].path:
            wanted = dataclasses.replace(wanted, volume=present[0].volume)
        elif present:
            self.refuse_readonly()
            record = self._volumes.add(file)
            wanted = dataclasses.replace(wanted, volume=record.volume, opened=record.opened)
        return self._main.write(lambda unit: manage_devices.add_entry(unit, wanted), Purpose.ADMINISTRATION)

    def rename_entry(self, index: int, path: str | os.PathLike[str], *, force: bool = False) -> DeviceEntry:
        """Give an entry of the device list another path, after its file was moved or before it is.

        With `force` the entry, and all others of its file, take what is there in place of their own: an older copy, an
        empty file, or a volume that no other entry names, also one of another device that nobody has open. What that
        means is what `loss_by_rename` tells.

        Raises BadResourceError if something at that path is not the volume that the entry had, and is not taken.
        """
        entry, file = self._to_rename(index, path)
        if index == 0:
            self._volumes.refuse_other_device(file)
            return self._main.write(lambda unit: manage_devices.rename_entry(unit, index, file), Purpose.ADMINISTRATION)
        loss = self.loss_by_rename(index, path) if force else ""
        if not loss:
            return self._volumes.rename(entry, file, force=False)
        given = {"index": index, "path": file, "force": force}
        with act(self, f"device list entry {index}", "Device.rename_entry", given) as begun:
            renamed = self._volumes.rename(entry, file, force=True)
            begun.tell(f"renamed from {entry.path} to {file}, to {loss}")
        return renamed

    def loss_by_rename(self, index: int, path: str | os.PathLike[str]) -> str:
        """Return what `rename_entry` with that path would do that needs `force`; empty where it needs none.

        Raises BadResourceError if it would refuse that path in any case.
        """
        entry, file = self._to_rename(index, path)
        if index == 0:
            self._volumes.refuse_other_device(file)
            return ""
        refusal = self._volumes.difference(entry, file)
        if refusal is not None and not refusal.taken:
            raise refusal
        return "" if refusal is None else refusal.taken

    def _to_rename(self, index: int, path: str | os.PathLike[str]) -> tuple[DeviceEntry, str]:
        self._main.read(lambda unit: manage_devices.find_entry(unit, index))
        file = self._maker.path_of(path)
        return self._main.read(lambda unit: manage_devices.to_rename(unit, index, file)), file

    def _choice(self, volume: str | os.PathLike[str] | int | None) -> manage_spaces.Choice:
        if volume is None:
            return manage_spaces.Choice(missing=frozenset(each.path for each in self.missing_volumes()))
        path = self._listed_path(volume)
        self.volume_of(path, looks=True)
        return manage_spaces.Choice(path)

    def _listed_path(self, volume: str | os.PathLike[str] | int) -> str:
        """Return the path of the device list that is meant by a path or the index of an entry, or refuse."""
        if not isinstance(volume, (str, os.PathLike)):
            index = check_int(volume, "index of the volume", 0, rules.ENTRIES_MAX - 1)
            return self._main.read(lambda unit: manage_devices.find_entry(unit, index)).path
        file, listed = self._maker.path_of(volume), [entry.path for entry in self.entries()]
        if listed and file == self.path:
            return listed[0]
        if file not in listed:
            raise InvalidArgumentError(
                f"the device list of {self.path!r} has no {file!r}",
                hint="Look at its entries with lidl, or add one with crdl.",
                path=file,
            )
        return file

    def is_there(self, path: str) -> bool:
        """Return whether a path of the device list exists: a file, or on PostgreSQL a schema."""
        return path == self.path or self._maker.is_there(path)

    @destructive("device list entry {index}")
    def remove_entry(self, index: int, *, dry_run: bool = False) -> DeviceEntry:
        """Remove an entry from the device list; refused with InUseError while a queue space uses it.

        With `dry_run` nothing is removed; the call raises the error that it would raise otherwise.
        """
        if dry_run:
            return self._main.read(lambda unit: manage_devices.refuse_used(unit, index))
        removed = self._main.write(lambda unit: manage_devices.remove_entry(unit, index), Purpose.ADMINISTRATION)
        tell(f"removed: {removed.path}, offset {removed.offset}, size {removed.pages}")
        return removed

    def free_ranges(self, index: int) -> list[PageRange]:
        """Return the ranges of pages of an entry that no queue space has."""
        return self._main.read(lambda unit: manage_devices.free_ranges(unit, index))

    def table_of_contents(self) -> list[TableEntry]:
        """Return the rows of the table of contents (VTOC)."""
        return self._main.read(manage_devices.table_of_contents)

    def places(self) -> dict[str, str]:
        """Return the queue spaces of the table of contents by name, each with the path that it is on.

        Those that a missing file or schema holds are among them, and those whose creation was cut short.
        """
        return dict(self._main.read(manage_spaces.places))

    def runs_commands(self) -> bool:
        """Return whether the capacity commands of the device's queues run."""
        return self._main.read(lambda unit: unit.device.info()).commands

    def set_commands(self, *, enabled: bool) -> None:
        """Switch the capacity commands of the queues on or off; a limit that is reached is logged in either case."""
        self._main.write(lambda unit: unit.device.set_commands(enabled=enabled), Purpose.ADMINISTRATION)

    def open_space(self, name: str, *, role: str = "application") -> QueueSpace:
        """Open a queue space and attach this process to it; `role` is the name that others see.

        Raises BadResourceError if there is none of that name, NoSpaceError if as many processes are attached as the
        queue space allows; one process whose role is "qmadmin" or "MIB" can open it nevertheless.
        """
        opened = QueueSpace(self, name, role)
        if tracing.has_metrics():
            from qmadmin.monitoring.instruments import observe_space

            observe_space(opened)
        return opened

    def transaction(self, timeout: float | timedelta | None = None) -> Transaction:
        """Return a transaction over all queue spaces of the device, to be used as `with device.transaction() as tx:`.

        It is like that of a queue space, and commits together what was done on whatever volumes; then one volume
        decides for all, and the others follow even if they cannot be reached just then (`tx.complete`).
        """
        self._check_ready()
        refuse_nesting(self, None)
        return Transaction(self, timeout)

    def comes_free(self, name: str, seconds: float) -> bool:
        """Return whether a write to a queue space could begin within these seconds; other writers may hold it up.

        Other writers take milliseconds, unless a process was stopped while it wrote.
        """
        return self.volume_of_space(names.space_name(name), looks=True).comes_free(seconds)

    def volume_of(self, path: str, *, looks: bool = False) -> Volume:
        """Return the volume behind a path of the device list; `looks`: nothing will be written to it.

        Raises BadResourceError where something else is there, which is named.
        """
        self._check_ready()
        return self._volumes.of(path, looks=looks)

    def attachment(self, name: str, role: str) -> Attachment:
        """Return this process's attachment to a queue space; create it if there is none yet."""
        if self._pid != os.getpid():
            self._start_afresh()
        found = self._attachments.get(name)
        if found is not None and not found.volume.has_vanished:
            return found
        self._bring_back(name)
        with self._lock:
            self._check_open()
            if name not in self._attachments:
                self._attachments[name] = self._attach(name, role)
            return self._attachments[name]

    def use(self, name: str, role: str) -> None:
        """Add one use of the attachment to a queue space."""
        self._check_open()
        self._bring_back(name)
        with self._lock:
            if not self.attachment(name, role).is_current():
                self._attachments.pop(name).forget()
                self.attachment(name, role)
            self._users[name] = self._users.get(name, 0) + 1

    def drop(self, name: str) -> None:
        """Release one use of the attachment to a queue space; the last one detaches."""
        if self._closed:
            return
        if self._pid != os.getpid():
            # Nothing is open in this forked process yet, and a thread of the parent may have held the lock.
            self._users[name] -= 1
            return
        with self._lock:
            self._users[name] -= 1
            found = self._attachments.get(name)
            if found is None:
                return
            # Calls that wait through the closed handle end; others go on waiting.
            found.volume.wakeups.wake_own()
            if self._users[name] <= 0:
                del self._attachments[name]
                found.detach()

    def _bring_back(self, name: str) -> None:
        """Open the volume of a queue space again if it has vanished; what this process had in it is rolled back."""
        found = self._attachments.get(name)
        if found is not None and found.volume.has_vanished:
            # Nobody who wants another queue space waits for that.
            volume = self.volume_of_space(name)
            with self._lock:
                if self._attachments.get(name) is found:
                    del self._attachments[name]
                    if found.opened.me is not None:
                        # We live; for others to see that it does not, its file has to go.
                        volume.liveness.release(found.opened.me)

    def _check_open(self) -> None:
        if self._closed:
            raise NotOpenError(f"device {self.path!r} is closed", path=self.path)

    @property
    def _main(self) -> Volume:
        self._check_ready()
        return self._volumes.main

    def _check_ready(self) -> None:
        self._check_open()
        if self._pid != os.getpid():
            self._start_afresh()

    def _start_afresh(self) -> None:
        """Open the device in a forked process, which cannot use the files of its parent."""
        if self.path == MEMORY:
            raise NotOpenError("a device in memory belongs to the process that created it, and this one was forked")
        self._lock = threading.RLock()
        self._recovery = Recovery(self, self._recovery.opens)
        self.side_threads = SideThreads()
        self._attachments = {}
        self.probe.attachments = self._attachments
        self._volumes = Volumes(self.path, self._maker.open(self.path), self._maker, self.info, self.clock)
        self._pid = os.getpid()
        self._leave.detach()
        self._leave = weakref.finalize(self, _leave, self._attachments, self._volumes.opened, self._pid)

    def _attach(self, name: str, role: str) -> Attachment:
        volume = self.volume_of_space(name)
        found = volume.read(lambda unit: manage_spaces.find(unit, name))
        # Not a bound method, which would keep the device from being collected.
        refused = functools.partial(refusal, self._maker, (self.path, volume.path))
        volumes = self._volumes
        opened = OpenSpace(
            found,
            CapacityCommands(self._maker.config_of(self.path), lambda: volumes.main, volume, found, refused).start,
            self.info.page_size,
            user_name(),
            following,
        )
        if not volume.readonly:
            processes.attach(volume, opened, role, self.clock)
        is_durable = self.info.durability == rules.FULL
        attachment = Attachment(
            volume, opened, self.clock, Place(self.path, name), is_durable=is_durable, recovery=self._recovery
        )
        if role != ROLE:
            attachment.recover()
        return attachment


def _info_of(main: Volume) -> DeviceInfo:
    """Return a device's record about itself; nobody has the volume yet who would close it if that cannot be read."""
    try:
        return main.read(lambda unit: unit.device.info())
    except BaseException:
        main.close()
        raise


def _leave(attachments: dict[str, Attachment], volumes: dict[str, Volume], pid: int) -> None:
    """Detach from all queue spaces and close the volumes, in the process that opened them."""
    if pid != os.getpid():
        return
    for attachment in list(attachments.values()):
        with contextlib.suppress(QueueError):
            attachment.detach()
    for volume in volumes.values():
        # Callers that were refused before know it already.
        with contextlib.suppress(QueueError):
            volume.close()
