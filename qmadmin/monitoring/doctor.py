"""The check of a device: its files, its definitions and everything that is stored, with findings and advice."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.console import counted
from qmadmin.volume_makers import MEMORY
from qmcore.acts import diagnosing_transactions, diagnosis, forwarding, importing, looking, manage_spaces, outstanding
from qmcore.errors import QueueError, SystemFailureError
from qmcore.findings import Fault, Finding, Severity
from qmcore.port import Snapshot, Unit, Volume
from qmcore.queue import Queue, QueueUsage
from qmcore.space import Space

if TYPE_CHECKING:
    from qmadmin.maintenance import Maintenance
    from qmcore.device import DeviceEntry
    from qmcore.volume_record import MissingVolume

_MIB = 1024 * 1024
_LARGE_LOG = 64 * _MIB
_SHOWN = 20
"""How many lines about damage are reported; there may be one for each page."""

_SHELL = frozenset("|&;<>()$`*?[]{}~#!\n")
_BUILTINS = frozenset(": . cd echo eval exec export exit false kill printf set test true umask".split())  # noqa: SIM905 - as they are typed


class Doctor:
    """Checks a device; quick checks come first, the check of everything that is stored last."""

    def __init__(
        self,
        device: Maintenance,
        main: Volume,
        memory: Callable[[Volume, Space], AbstractContextManager[None]],
        progress: Callable[[int], None],
    ) -> None:
        self._device = device
        self._main = main
        self._opened_memory = memory
        self._in_memory = device.path == MEMORY
        self._now = device.clock.now()
        self._progress = progress
        self._missing: set[str] = set()
        """The paths of volumes that are missing."""
        self._unread: set[str] = set()
        """The queue spaces on those, and others that cannot be read."""

    def check(self, only: str | None) -> Iterator[Finding]:
        """Yield the findings; `only` names a queue space to check, None means the whole device."""
        names = [only] if only is not None else self._main.read(manage_spaces.names)
        where: dict[str, tuple[Volume, Space]] = {}
        for missing in self._device.missing_volumes():
            self._missing.add(missing.path)
            self._unread.update(missing.spaces)
            if only in (None, *missing.spaces):
                yield self._is_missing(missing)
        names = [name for name in names if name not in self._unread]
        yield from self._guarded("space-unreadable", names, lambda name: self._locate(name, where))
        if only is None:
            well = f"it has schema version {self._device.info.schema_version}; rights, files and pages are in order"
            yield from self._part("device", well, self._outside)
        for name, (volume, space) in where.items():
            yield from self._part(
                f"queue space {name}",
                "definitions, limits, processes and transactions are in order",
                lambda volume=volume, space=space: self._space(volume, space),  # type: ignore[misc]
            )
        volumes = {volume.path: volume for volume, _ in where.values()}
        if only is None:
            volumes = {self._main.path: self._main} | volumes
        for at, (path, volume) in enumerate(volumes.items()):
            here = [space for found, space in where.values() if found is volume]
            yield from self._part(
                _place(path),
                "what is stored is consistent",
                lambda volume=volume, here=here, at=at: self._store(volume, here, at, len(volumes)),  # type: ignore[misc]
            )
        self._progress(100)

    def _is_missing(self, volume: MissingVolume) -> Finding:
        sentence, spaces = volume.reason, volume.spaces
        if spaces:
            sentence += f"; queue space{'s' * (len(spaces) > 1)} {', '.join(spaces)} cannot be used without it"
        return Finding(
            severity=Severity.ERROR,
            check="volume-missing",
            target=f"{'schema' if self._device.kind == 'postgresql' else 'file'} {volume.path}",
            sentence=sentence,
            advice=volume.advice,
        )

    def _locate(self, name: str, where: dict[str, tuple[Volume, Space]]) -> None:
        path = self._main.read(lambda unit: manage_spaces.path_of(unit, name))
        volume = self._device.volume_of(path, looks=True)
        space = volume.read(lambda unit: unit.spaces.find(name))
        # One that its volume does not have is reported with the extents.
        if space is not None:
            where[name] = volume, space

    def _part(self, target: str, well: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
        """Yield the findings of a part of the check; without any, one that says that the part is in order."""
        found = False
        try:
            for finding in look():
                found = True
                yield finding
        except QueueError as error:
            yield _unreadable(target, error)
            found = True
        except LookupError as error:
            # The engine relies on what is damaged here; the check of the store reports it.
            yield _unreadable(target, SystemFailureError(f"its records are incomplete ({error})"))
            found = True
        if not found:
            yield Finding(severity=Severity.OK, check="sound", target=target, sentence=well)

    def _guarded(self, check: str, names: list[str], look: Callable[[str], None]) -> Iterator[Finding]:
        for name in names:
            try:
                look(name)
            except QueueError as error:
                self._unread.add(name)
                yield dataclasses.replace(_unreadable(f"queue space {name}", error), check=check)

    # ---- from outside -----------------------------------------------------------------------------------------------

    def _outside(self) -> Iterator[Finding]:
        # If a queue space is created or extended between the two reads, a second try is consistent.
        yield from self._extents() and self._extents()
        yield from self._record()
        if self._in_memory:
            return
        entries = self._main.read(lambda unit: unit.device.entries())
        volumes = {self._main.path: self._main}
        for path in dict.fromkeys(entry.path for entry in entries[1:] if entry.path not in self._missing):
            try:
                volume = self._device.volume_of(path, looks=True)
                volumes[volume.path] = volume
                yield from self._ahead(volume, next(entry for entry in entries if entry.path == path))
            except QueueError as error:
                yield _unreadable(_place(path), error)
        for volume in volumes.values():
            if _is_file(volume.path):
                yield from self._rights(volume.path)
                yield from self._log(volume.path)
                yield from self._room(volume)
            yield from self._leftovers(volume)
        # A finding about the server is reported for each volume on it.
        yield from dict.fromkeys(found for volume in volumes.values() for found in volume.health(self._device.info))

    def _ahead(self, volume: Volume, entry: DeviceEntry) -> Iterator[Finding]:
        # A process that was killed in between has left it ahead by one.
        ahead = volume.read(lambda unit: unit.device.volume()).opened - entry.opened
        if ahead > 1:
            yield Finding(
                severity=Severity.WARNING,
                check="device-list-behind",
                target="device",
                sentence=f"its list is {ahead} openings behind {entry.path!r}: it is an older copy, or could not be"
                " written",
                advice="If it is an older copy, put the newest one back: queue spaces may be missing in this one.",
            )

    def _record(self) -> Iterator[Finding]:
        try:
            self._main.read(lambda unit: unit.audit.last(1))
        except QueueError as error:
            yield Finding(
                severity=Severity.ERROR,
                check="audit-unreadable",
                target="record of destructive acts",
                sentence=error.message,
                advice="Restore the device from a backup, or move the queues to a new one: this one refuses everything"
                " that destroys messages.",
            )

    def _extents(self) -> list[Finding]:
        entries, extents = self._main.read(lambda unit: (unit.device.entries(), unit.device.extents()))
        paths = {entry.index: entry.path for entry in entries}
        known: dict[str, Space] = {}
        for extent in extents:
            if extent.number == 0 and extent.space not in self._unread and extent.entry in paths:
                volume = self._device.volume_of(paths[extent.entry], looks=True)
                space = volume.read(lambda unit, name=extent.space: unit.spaces.find(name))  # type: ignore[misc]
                known |= {} if space is None else {space.name: space}
        return list(diagnosis.extents(entries, extents, known, self._unread))

    def _rights(self, path: str) -> Iterator[Finding]:
        status = Path(path).stat()
        mode, group = stat.S_IMODE(status.st_mode), self._device.info.group
        allowed = 0o660 if group else 0o600
        if mode & ~allowed & 0o777:
            yield Finding(
                severity=Severity.ERROR,
                check="rights",
                target=f"file {path}",
                sentence=f"its mode {mode:04o} lets others read or write messages",
                advice=f"chmod {allowed:04o} {shlex.quote(path)}",
            )
        if status.st_nlink > 1:
            yield Finding(
                severity=Severity.WARNING,
                check="hard-link",
                target=f"file {path}",
                sentence=f"it has {status.st_nlink} names (hard links), of which only this one can be used",
                advice="Remove the others, which find -samefile shows, or make them symbolic links.",
            )
        if status.st_uid != os.geteuid() and os.geteuid() != 0:
            yield Finding(
                severity=Severity.INFO,
                check="rights",
                target=f"file {path}",
                sentence=f"it belongs to user {status.st_uid}, and you are user {os.geteuid()}",
            )

    def _log(self, path: str) -> Iterator[Finding]:
        log = Path(f"{path}-wal")
        size = log.stat().st_size if log.exists() else 0
        if size > _LARGE_LOG:
            yield Finding(
                severity=Severity.WARNING,
                check="log-large",
                target=f"file {path}",
                sentence=f"its log has grown to {size // _MIB} MiB",
                advice="Look for a program that has been reading the file for a long time, such as an SQLite shell in a"
                " transaction; when it has ended, the log shrinks as messages come and go.",
            )

    def _leftovers(self, volume: Volume) -> Iterator[Finding]:
        # A queue space is listed before it exists, and is removed soon after it is no longer listed.
        before = volume.read(lambda unit: unit.spaces.listed())
        listed = self._listed_on(volume)
        after = volume.read(
            lambda unit: {space.incarnation: manage_spaces.messages(unit, space) for space in unit.spaces.listed()}
        )
        for space in before:
            if space.name not in listed and space.incarnation in after:
                is_taken = space.name in self._main.read(manage_spaces.names)
                yield diagnosis.left(_place(volume.path), space, after[space.incarnation], is_taken=is_taken)

    def _listed_on(self, volume: Volume) -> set[str]:
        paths = self._main.read(lambda unit: dict(manage_spaces.places(unit)))
        return {
            name
            for name, path in paths.items()
            if name not in self._unread and self._device.volume_of(path, looks=True) is volume
        }

    def _room(self, volume: Volume) -> Iterator[Finding]:
        used, promised = volume.read(_pages)
        page_size = self._device.info.page_size
        disk = os.statvfs(Path(volume.path).parent)
        free = disk.f_bavail * disk.f_frsize + max(Path(volume.path).stat().st_size - used * page_size, 0)
        if promised * page_size > free:
            yield Finding(
                severity=Severity.WARNING,
                check="disk-space",
                target=f"file {volume.path}",
                sentence=f"its queue spaces may take {promised * page_size // _MIB} MiB more, and the disk has room for"
                f" {free // _MIB} MiB",
                advice="Free disk space, or move the file to a larger disk.",
            )

    # ---- a queue space ----------------------------------------------------------------------------------------------

    def _space(self, volume: Volume, space: Space) -> Iterator[Finding]:
        page_size, now = self._device.info.page_size, self._now
        queues, usages, targets, latest = volume.read(lambda unit: _of_space(unit, space, now))
        yield from diagnosis.error_queues(space, queues)
        if not self._main.read(lambda unit: unit.device.info()).commands:
            yield from diagnosis.commands_off(space, queues)
        else:
            yield from diagnosis.commands_refused(space, queues, lambda command: self._device.refusal(volume, command))
        for queue, usage in zip(queues, usages, strict=True):
            yield from diagnosis.thresholds(space, queue, page_size)
            yield from _programs(space, queue)
            yield from diagnosis.stopped(space, queue)
            yield from diagnosis.waiting(space, queue, usage, now)
        yield from diagnosis.schedules(space, queues, targets)
        yield from diagnosis.limits(space, self._device.space_usage(space.name), page_size)
        yield from diagnosis.processes(space, outstanding.attached(volume, space.id))
        yield from diagnosis.forwarders(space, forwarding.forwardings(volume, space.id))
        yield from diagnosing_transactions.findings(
            space, self._device.transactions(space.name, ask_deciders=True), now
        )
        yield from diagnosing_transactions.untold(self._device.decisions(space.name), now)
        yield from diagnosis.imports(space, volume.read(lambda unit: importing.imports(unit, space.id)), now)
        yield from diagnosis.clock(space, latest, now)

    # ---- from inside ------------------------------------------------------------------------------------------------

    def _store(self, volume: Volume, here: list[Space], at: int, of: int) -> Iterator[Finding]:
        def step(percent: int) -> None:
            self._progress((at * 100 + percent) * 99 // (100 * of))

        if self._in_memory:
            yield from volume.read(lambda unit: list(self._inside(unit, here, step)))
        else:
            with volume.snapshot() as snapshot:
                yield from self._walk(volume, snapshot, here, step)
        for space in here:
            yield from self._memory(volume, space)

    def _walk(
        self, volume: Volume, snapshot: Snapshot, here: list[Space], step: Callable[[int], None]
    ) -> Iterator[Finding]:
        damage = snapshot.integrity(lambda percent: step(percent * 6 // 10))
        for line in damage[:_SHOWN]:
            yield Finding(
                severity=Severity.ERROR,
                check="file-damaged",
                target=f"file {volume.path}",
                sentence=line,
                advice="Check the disk, and restore the device from a backup.",
            )
        if not damage:
            yield from snapshot.read(lambda unit: list(self._inside(unit, here, step, snapshot.run_unlocked)))

    def _inside(
        self,
        unit: Unit,
        here: list[Space],
        step: Callable[[int], None],
        run_unlocked: Callable[[Callable[[], None]], None] = lambda call: call(),
    ) -> Iterator[Finding]:
        strays = unit.soundness.strays()
        if strays:
            yield _fault(
                "file",
                Fault(
                    f"there {'is' if strays == 1 else 'are'} {counted(strays, 'message')} without a queue space", strays
                ),
            )
        for at, space in enumerate(here):
            queues = unit.queues.of_space(space.id)
            hidden, page_size = unit.imports.hidden_queues(space.id), self._device.info.page_size
            for fault in unit.soundness.faults(space, queues, page_size, lambda: run_unlocked(_pass), hidden):
                yield _fault(f"queue space {space.name}", fault)
            given = unit.counters.last_sequence(space.id)
            yield from diagnosis.sequence(space, unit.soundness.last_number(space), given)
            yield from diagnosis.identifiers(space, given)
            run_unlocked(lambda at=at: step(60 + 40 * (at + 1) // len(here)))  # type: ignore[misc]

    def _memory(self, volume: Volume, space: Space) -> Iterator[Finding]:
        """Check the non-persistent messages."""
        page_size = self._device.info.page_size
        if not self._in_memory and not volume.memories.files(space):
            # Opening it would create it.
            return

        def found(unit: Unit) -> list[Fault]:
            memory = unit.memory(space.id)
            if memory is None:
                return []
            hidden = unit.imports.hidden_queues(space.id)
            return memory.soundness.faults(space, unit.queues.of_space(space.id), page_size, lambda: None, hidden)

        with self._opened_memory(volume, space):
            for fault in volume.read(found):
                yield _fault(f"memory of queue space {space.name}", fault)


def _of_space(unit: Unit, space: Space, now: int) -> tuple[list[Queue], list[QueueUsage], list[tuple[str, str]], int]:
    """Return the queues of a queue space, what each holds on disk, its schedules with their queues, the latest time."""
    queues = unit.queues.of_space(space.id)
    usages = looking.usages_in([unit], queues, now)
    return queues, usages, unit.schedules.queues(space.id), unit.soundness.latest(space)


def _is_file(path: str) -> bool:
    return "://" not in path


def _place(path: str) -> str:
    """Return the name of a volume in a finding."""
    return f"file {path}" if _is_file(path) else path


def _programs(space: Space, queue: Queue) -> Iterator[Finding]:
    for threshold in (queue.definition.threshold, queue.definition.memory_threshold):
        program = _program(threshold.command)
        if program and shutil.which(program) is None:
            yield Finding(
                severity=Severity.ERROR,
                check="command-missing",
                target=f"queue {space.name}/{queue.name}",
                sentence=f"its capacity command {threshold.command!r} cannot run: there is no program {program!r} that"
                " this user may execute",
                advice="Install it, or change the command with qchange.",
            )


def _program(command: str) -> str:
    """Return the program that a command of the shell begins with; empty if only a shell can tell."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    while words and "=" in words[0].split("/")[0]:
        del words[0]
    if not words or _SHELL & set(words[0]) or words[0] in _BUILTINS:
        return ""
    return words[0].rstrip(";")


def _pages(unit: Unit) -> tuple[int, int]:
    """Return how many pages the queue spaces of a volume use, and how many more they may use."""
    present = unit.spaces.listed()
    used = [unit.counters.level(space.id).pages for space in present]
    return sum(used), sum(space.definition.pages for space in present) - sum(used)


def _pass() -> None:
    """Do nothing, between two steps at which a waiting fork can proceed."""


def _fault(target: str, fault: Fault) -> Finding:
    return Finding(
        severity=Severity.ERROR,
        check="store-fault",
        target=target,
        sentence=fault.sentence,
        advice="Restore the device from a backup, or report the problem, with what was done before.",
    )


def _unreadable(target: str, error: QueueError) -> Finding:
    return Finding(
        severity=Severity.ERROR, check="unreadable", target=target, sentence=error.message, advice=error.hint
    )
