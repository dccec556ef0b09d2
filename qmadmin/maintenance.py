"""Maintenance of a device: its check, backups, capacity commands, and the record of destructive acts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from qmadmin.audit import entry_of
from qmadmin.capacity import refusal, warn
from qmadmin.managing_spaces import ManagingSpaces
from qmadmin.paths import absolute
from qmadmin.volume_makers import MEMORY
from qmcore import names, volume_record
from qmcore.acts import forwarding, outstanding
from qmcore.audit import KEPT, AuditEntry, kept_text
from qmcore.checks import check_int
from qmcore.errors import InvalidArgumentError, OperatingSystemError, OutcomeUnknownError
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import QueueDefinition
from qmcore.records import Forwarding
from qmcore.space import NUMBER_MAX

if TYPE_CHECKING:
    from qmadmin.recovery import Recovery
    from qmcore.attached import AttachedProcess, DecisionInfo, MemoryFile, TransactionInfo
    from qmcore.backup import BackupReport
    from qmcore.findings import Finding


class Maintenance(ManagingSpaces):
    """The part of a device that maintains it."""

    # What it uses of the device.
    _recovery: Recovery

    def command_refusal(self, space: str, command: str) -> str:
        """Return why a capacity command of a queue in a queue space is not run as this user; empty if it is run.

        It is run if nobody but this user can write the files of the device, or if the user's own settings name the
        device or the command.
        """
        return self.refusal(self.volume_of_space(space, looks=True), command)

    def refusal(self, volume: Volume, command: str) -> str:
        """Return why a capacity command that is stored in a volume is not run as this user; empty if it is run."""
        return refusal(self._maker, (self.path, volume.path), command)

    def warn_of_commands(self, volume: Volume, space: str, definition: QueueDefinition) -> None:
        """Log a warning for each capacity command of a queue that is not run as this user."""
        warn(space, definition, lambda command: self.refusal(volume, command))

    def attached(self, name: str) -> list[AttachedProcess]:
        """Return the processes attached to a queue space, the first to attach first, and dead ones not yet noticed."""
        volume, found = self._found(name, looks=True)
        return outstanding.attached(volume, found.id)

    def transactions(self, name: str, *, ask_deciders: bool = False) -> list[TransactionInfo]:
        """Return the transactions of a queue space that other processes can see, the oldest first.

        This is what `QueueSpace.transactions` returns, but no process is attached for it.
        """
        volume, found = self._found(name, looks=True)
        look = self._recovery.looks(volume) if ask_deciders else None
        return outstanding.transactions(volume, found.id, self.clock, look)

    def decisions(self, name: str) -> list[DecisionInfo]:
        """Return the decisions of a queue space of which branches elsewhere are to be told, the longest first.

        This is what `QueueSpace.decisions` returns, but no process is attached for it.
        """
        volume, found = self._found(name, looks=True)
        return outstanding.decisions(volume, found.id)

    def forwardings(self, name: str) -> list[tuple[AttachedProcess, Forwarding]]:
        """Return the processes that forward queues of a queue space, with their statistics.

        This is what `QueueSpace.forwardings` returns, but no process is attached for it.
        """
        volume, found = self._found(name, looks=True)
        return forwarding.forwardings(volume, found.id)

    def memory_files(self, name: str) -> list[MemoryFile]:
        """Return the files that hold the non-persistent messages of a queue space; none if it has no memory.

        On PostgreSQL it is the schema with the non-persistent messages of all queue spaces.
        """
        from qmcore.attached import MemoryFile

        volume, found = self._found(name, looks=True)
        return [MemoryFile(*file) for file in volume.memories.files(found)]

    def backup(
        self,
        directory: str | os.PathLike[str],
        *,
        leave_out_missing: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> BackupReport:
        """Make a backup of the device while it is in use, as a directory that must not exist yet.

        It contains all files of the device as they were at one moment: every persistent message that was acknowledged
        before and not consumed, and each transaction whole or not at all. Writers wait a few milliseconds while that
        moment is fixed. Non-persistent messages are not in it. The copies are checked before the directory gets its
        name; until then, and if anything fails, nothing of that name exists. `progress` is called with the percentage
        done.

        With `leave_out_missing` the files that are missing are not in it, which the faults of the report say.

        Raises BadResourceError if the directory exists or a file is missing, OperatingSystemError if the disk is full
        or the device is open for reading only, SystemFailureError if the device is damaged.
        """
        if self.path == MEMORY:
            raise InvalidArgumentError("a device in memory has no files that could be backed up")
        self.refuse_readonly()
        paths = [entry.path for entry in self.entries()] or [self.path]
        missing = {volume.path: volume for volume in self.missing_volumes()}
        if not leave_out_missing:
            volume_record.refuse_missing([*missing.values()], "the backup would lack")
        volumes = {path: self.volume_of(path, looks=True) for path in paths if path not in missing}
        target, told = absolute(directory), progress or (lambda _percent: None)
        report = self._maker.back_up(volumes, target, self.clock.now, told)
        faults = tuple(f"{volume}; it is not in the backup" for volume in missing.values())
        return dataclasses.replace(report, faults=(*faults, *report.faults))

    def refuse_readonly(self) -> None:
        """Raise OperatingSystemError if the device is open for reading only."""
        if self.readonly:
            raise OperatingSystemError(f"device {self.path!r} is open for reading only", path=self.path)

    def check(self, space: str | None = None, *, progress: Callable[[int], None] | None = None) -> Iterator[Finding]:
        """Check the device and yield the findings, including checks that passed: what, how bad it is, what to do.

        `space` names a queue space to check; None means the whole device. Quick checks come first. The check of
        everything that is stored takes about as long as reading it and works on a snapshot: others go on working, and
        the write-ahead log grows meanwhile. `progress` is called with the percentage of that check. Nothing is changed
        or repaired.
        """
        from qmadmin.monitoring.doctor import Doctor

        name = None if space is None else names.space_name(space)
        yield from Doctor(self, self._main, self._memory, progress or (lambda _percent: None)).check(name)

    def audit(self, command: str, target: str) -> AuditEntry:
        """Record durably that this user is about to do something destructive of which the device knows nothing.

        Its own destructive acts, and those of its queue spaces, are recorded automatically. `command` is the line as it
        was given, `target` the object, such as "queue space QS" or "queue QS/q1"; 4,000 characters of each are kept,
        and the newest 10,000 records. Nothing is recorded in a device that is open for reading only. Raises
        OperatingSystemError if the disk is full.
        """
        entry = entry_of(command, target, self.clock.now())
        if self.readonly:
            return entry
        return dataclasses.replace(entry, id=self._main.write(lambda unit: unit.audit.add(entry), Purpose.MESSAGES))

    def audit_outcome(self, entry: AuditEntry, outcome: str) -> None:
        """Record the outcome of what `audit` recorded; without an outcome it was cut off or is still running."""
        if not entry.id or self.readonly:
            return

        def note(unit: Unit) -> None:
            unit.audit.set_outcome(entry, kept_text(outcome))

        try:
            self._main.write(note, Purpose.MESSAGES)
        except OutcomeUnknownError:
            # To say it twice does no harm.
            self._main.write(note, Purpose.MESSAGES)

    def audited(self, limit: int | None = None) -> list[AuditEntry]:
        """Return the destructive acts that were recorded, the newest first; at most `limit`, 1 or more."""
        if limit is not None:
            limit = check_int(limit, "number of commands", 1, NUMBER_MAX)
        return self._main.read(lambda unit: unit.audit.last(limit or KEPT))
