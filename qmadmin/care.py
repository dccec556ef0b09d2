"""What keeps a device in order beside its queues: the record of destructive commands."""

from __future__ import annotations

import abc
import dataclasses
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from qmadmin.commands import refusal, warn
from qmadmin.maker import VolumeMaker
from qmcore import names
from qmcore.acts import forwarding, outstanding, spaces
from qmcore.audit import KEPT, AuditEntry, kept_text
from qmcore.checks import whole
from qmcore.device import DeviceEntry, DeviceInfo, MissingVolume
from qmcore.errors import InvalidArgumentError, OperatingSystemError
from qmcore.findings import Finding
from qmcore.port import Volume
from qmcore.queue import QueueDefinition
from qmcore.records import Forwarding
from qmcore.space import NUMBER_MAX, Space, SpaceUsage
from qmcore.times import Clock

if TYPE_CHECKING:
    from qmcore.attached import AttachedProcess, MemoryFile
    from qmcore.backup import BackupReport

MEMORY = ":memory:"
"""The path of a device in the memory of this process."""


class Care(abc.ABC):
    """The part of a device that looks after it."""

    path: str
    readonly: bool
    clock: Clock
    info: DeviceInfo
    _maker: VolumeMaker

    @property
    @abc.abstractmethod
    def _main(self) -> Volume:
        """The volume that QMCONFIG names."""

    @abc.abstractmethod
    def entries(self) -> list[DeviceEntry]:
        """Return the device list (UDL) in the order of its indexes."""

    @abc.abstractmethod
    def volume_of(self, path: str) -> Volume:
        """Return the volume behind a path of the device list."""

    @abc.abstractmethod
    def missing_volumes(self) -> list[MissingVolume]:
        """Return the files or schemas of the device list that cannot be opened, and the queue spaces on them."""

    @abc.abstractmethod
    def space_usage(self, name: str) -> SpaceUsage:
        """Return how much of each limit of a queue space is in use."""

    @abc.abstractmethod
    def _memory(self, volume: Volume, found: Space | None) -> AbstractContextManager[None]:
        """Open the memory of a queue space, if it has one, for as long as something is looked at."""

    @abc.abstractmethod
    def volume_of_space(self, name: str) -> Volume:
        """Return the volume that a queue space is on, or raise BadResourceError."""

    def command_refusal(self, space: str, command: str) -> str:
        """Return why a capacity command of a queue space's queues is not run as this user; empty where it is.

        It is run where nobody but this user can write the files of the device, and where the user's own settings name
        the device or the command.
        """
        return self.refusal(self.volume_of_space(space), command)

    def refusal(self, volume: Volume, command: str) -> str:
        """Return the same for a command that stands in a volume."""
        return refusal(self._maker, (self.path, volume.path), command)

    def warn_of_commands(self, volume: Volume, space: str, definition: QueueDefinition) -> None:
        """Log a warning for each capacity command of a queue that is not run as this user."""
        warn(space, definition, lambda command: self.refusal(volume, command))

    def attached(self, name: str) -> list[AttachedProcess]:
        """Return who is attached to a queue space, the longest first, with those who died and were not noticed yet."""
        volume, found = self._found(name)
        return outstanding.attached(volume, found.id)

    def forwardings(self, name: str) -> list[tuple[AttachedProcess, Forwarding]]:
        """Return who forwards which queues of a queue space, and what it has told of each, as the queue space does.

        Nobody is attached for that.
        """
        volume, found = self._found(name)
        return forwarding.forwardings(volume, found.id)

    def memory_files(self, name: str) -> list[MemoryFile]:
        """Return the files that hold the non-persistent messages of a queue space; none where there is no memory.

        On PostgreSQL it is the schema with the non-persistent messages of all queue spaces.
        """
        from qmcore.attached import MemoryFile

        volume, found = self._found(name)
        return [MemoryFile(*file) for file in volume.memory_files(found)]

    def backup(
        self, directory: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None
    ) -> BackupReport:
        """Make a backup of the device while it is in use, as a directory that must not exist yet.

        It has all files of the device as they stood at one moment: every persistent message that was acknowledged
        before and not consumed, and each transaction whole or not at all. Writers wait for the milliseconds in which
        that moment is settled. Non-persistent messages are not in it. The copies are looked at before the directory
        gets its name; until then, and when anything fails, there is nothing of that name. `progress` gets percent.

        A file that is missing is not in it, which the faults of the report tell.

        Raises BadResourceError where the directory exists, OperatingSystemError where the disk is full or the device
        is open for reading only, SystemFailureError where the device is damaged.
        """
        if self.path == MEMORY:
            raise InvalidArgumentError("a device in memory has no files that could be backed up")
        self.refuse_readonly()
        paths = [entry.path for entry in self.entries()] or [self.path]
        missing = {volume.path: volume for volume in self.missing_volumes()}
        volumes = {path: self.volume_of(path) for path in paths if path not in missing}
        target, told = os.path.abspath(directory), progress or (lambda _percent: None)
        report = self._maker.back_up(volumes, target, self.clock.now, told)
        faults = tuple(f"{volume}; it is not in the backup" for volume in missing.values())
        return dataclasses.replace(report, faults=(*faults, *report.faults))

    def refuse_readonly(self) -> None:
        """Raise OperatingSystemError where the device is open for reading only."""
        if self.readonly:
            raise OperatingSystemError(f"device {self.path!r} is open for reading only", path=self.path)

    def check(self, space: str | None = None, *, progress: Callable[[int], None] | None = None) -> Iterator[Finding]:
        """Yield what a doctor finds: what is wrong, how bad it is, and what to do; of what is sound, that it is.

        `space` names a queue space to look at; None is all of the device. What is quickly seen comes first. The walk
        through all that is stored, which takes about as long as reading it, works on a snapshot: others go on, and
        the log grows meanwhile. `progress` gets percent of that walk. Nothing is changed or repaired.
        """
        from qmadmin.doctor import Doctor, Patient

        patient = Patient(
            path=self.path,
            info=self.info,
            main=self._main,
            volume_of=self.volume_of,
            memory=self._memory,
            usage=self.space_usage,
            in_memory=self.path == MEMORY,
            refusal=self.refusal,
        )
        name = None if space is None else names.space_name(space)
        yield from Doctor(patient, self.clock, progress or (lambda _percent: None)).check(name)

    def audit(self, command: str, target: str) -> AuditEntry:
        """Record that this user is about to do something destructive: durably, before it happens.

        `command` is the line as it was given, `target` the object, such as "queue space QS" or "queue QS/q1"; 4,000
        characters of each are kept, and the newest 10,000 entries. A device that is open for reading only records
        nothing. Raises OperatingSystemError where the disk is full.
        """
        entry = AuditEntry(
            id=0,
            at_us=self.clock.now(),
            user=_user_name(),
            uid=os.getuid(),
            host=os.uname().nodename,
            pid=os.getpid(),
            command=kept_text(command),
            target=kept_text(target),
        )
        if self.readonly:
            return entry
        return dataclasses.replace(entry, id=self._main.write(lambda unit: unit.add_audit(entry)))

    def audit_outcome(self, entry: AuditEntry, outcome: str) -> None:
        """Record what came of a command: one that has no outcome did not come to its end, or is still at it."""
        if entry.id and not self.readonly:
            self._main.write(lambda unit: unit.set_outcome(entry, kept_text(outcome)))

    def audited(self, limit: int | None = None) -> list[AuditEntry]:
        """Return the destructive commands that were recorded, the newest first; at most `limit`, 1 or more."""
        if limit is not None:
            limit = whole(limit, "number of commands", 1, NUMBER_MAX)
        return self._main.read(lambda unit: unit.audited(limit or KEPT))

    def _found(self, name: str) -> tuple[Volume, Space]:
        volume = self.volume_of_space(name)
        return volume, volume.read(lambda unit: spaces.find(unit, name))


def _user_name() -> str:
    """Return the name of the user who runs this process; who has none is named by the number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
