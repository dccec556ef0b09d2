"""Exporting queue spaces of a device into an archive, while others go on working."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

from qmadmin.archive.manifest import Manifest, Source
from qmadmin.archive.rows import Standing
from qmadmin.archive.writing import ArchiveWriter
from qmadmin.opening import open_device
from qmadmin.transfer.export_planning import ExportOptions, Plan
from qmadmin.transfer.picture import pictured
from qmadmin.transfer.telling import Progress, tell_no_one, told_by
from qmadmin.transfer.units import write_part
from qmadmin.transfer.workers import Alone, Processes, Workers, cores

SMALL = 20_000
"""Messages that one process has exported or imported before others would have started."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """What was exported, or with a dry run would be; `directory` is None then, and the manifest has no parts.

    `counts` are the messages of each queue, in their states, on disk and in memory.
    """

    directory: Path | None
    manifest: Manifest
    counts: Mapping[Standing, int]
    seconds: float

    @property
    def messages(self) -> int:
        """How many messages there are in all."""
        return sum(self.counts.values())


def export(
    config: str,
    directory: Path,
    options: ExportOptions | None = None,
    *,
    workers: Workers | None = None,
    progress: Progress = tell_no_one,
    dry_run: bool = False,
) -> Exported:
    """Write the queue spaces of a device into an archive, as they all stood at one moment.

    `config` is what QMCONFIG says of the device. The directory is made, or is empty; it is no archive before all is
    written. Without `workers` this process does what is small, and a process on each processor what is not.

    Raises InUseError where open transactions have messages and it is not said what becomes of those, or the directory
    holds something; BadResourceError and BadQueueError where nothing fits a pattern; OperatingSystemError where the
    disk is full. There is nothing in the directory then.
    """
    asked, began = options or ExportOptions(), time.monotonic()
    with open_device(config) as device:
        names = asked.selection.chosen_spaces([space.name for space in device.spaces()], f"device {device.path!r}")
        crew_of = workers or fitting(sum(device.space_usage(name).messages for name in names))
        with pictured(device, names, crew_of) as (own, crew, moment):
            plan = Plan.made(own, names, asked, moment, crew_of.count)
            asked.selection.refuse_unmatched(plan.queues, f"device {device.path!r}")
            whence = Source(device.path, device.info.id, device.kind, device.info.page_size, moment)
            if dry_run:
                return Exported(None, plan.manifest(whence, asked, ()), plan.counts(), time.monotonic() - began)
            writer = ArchiveWriter.create(directory, asked.key, again=asked.again)
            try:
                tasks = [(str(directory), unit) for unit in plan.units(asked, crew_of.count)]
                told = told_by(progress, "Exporting", plan.messages, len(tasks))
                entries = sorted(crew.run(write_part, tasks, told), key=lambda entry: entry.name)
                manifest = plan.manifest(whence, asked, entries)
                writer.finish(manifest)
            except BaseException:
                writer.discard()
                raise
    return Exported(directory, manifest, plan.counts(), time.monotonic() - began)


def fitting(messages: int) -> Workers:
    """Return this process for what is small, and several for what is not."""
    return Alone() if messages <= SMALL or cores() == 1 else Processes(cores())
