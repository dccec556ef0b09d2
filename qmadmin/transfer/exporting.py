"""Exporting queue spaces of a device into an archive, while others go on working."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from qmadmin.archive.file_systems import Place, place_at
from qmadmin.archive.manifest import Manifest, Source
from qmadmin.archive.rows import Standing
from qmadmin.archive.writing import ArchiveWriter
from qmadmin.opening import open_device
from qmadmin.transfer.export_planning import ExportOptions, Plan
from qmadmin.transfer.progress import Progress, tell_no_one, told_by
from qmadmin.transfer.snapshot import pictured
from qmadmin.transfer.units import ExportUnit, size_runs, write_part
from qmadmin.transfer.workers import Alone, Crew, Processes, Workers, cores
from qmcore.device import MissingVolume

SMALL = 20_000
"""Messages that one process has exported or imported before others would have started."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exported:
    """What was exported, or with a dry run would be; `place` is None then, and the manifest has no parts.

    `counts` are the messages of each queue, in their states, on disk and in memory. `sizes` are the bytes of their
    bodies where a dry run was to tell them.
    """

    place: Place | None
    manifest: Manifest
    counts: Mapping[Standing, int]
    seconds: float
    sizes: Mapping[Standing, int] | None = None
    missing: Sequence[MissingVolume] = ()
    """Files or schemas of the device that cannot be opened: what is on them is not in the archive."""

    @property
    def messages(self) -> int:
        """How many messages there are in all."""
        return sum(self.counts.values())


def export(
    config: str,
    where: Path | Place,
    options: ExportOptions | None = None,
    *,
    workers: Workers | None = None,
    progress: Progress = tell_no_one,
    dry_run: bool = False,
    sized: bool = False,
) -> Exported:
    """Write the queue spaces of a device into an archive, as they all stood at one moment.

    `config` is what QMCONFIG says of the device. The archive goes into a directory of this machine, or to a place. That
    is made, or is empty; it is no archive before all is written. Without `workers` this process does what is small, and
    a process on each processor what is not; so it is where parts are staged, in at most as many as there are `workers`.
    A dry run that is to be `sized` looks at each message for its size.

    Raises InUseError where open transactions have messages and it is not said what becomes of those, or the directory
    holds something; BadResourceError and BadQueueError where nothing fits a pattern; OperatingSystemError where the
    disk is full. There is nothing in the directory then.
    """
    asked, place, began = options or ExportOptions(), place_at(where), time.monotonic()
    with open_device(config) as device:
        missing = device.missing_volumes()
        names = asked.selection.chosen_spaces([space.name for space in device.spaces()], f"device {device.path!r}")
        if workers is None or place.staged:
            messages = sum(device.space_usage(name).messages for name in names)
            workers = fitting(messages, most=workers.count if workers else None)
        with pictured(device, names, workers) as (own, crew, moment):
            plan = Plan.made(own, names, asked, moment, workers.count)
            asked.selection.refuse_unmatched(plan.queues, f"device {device.path!r}")
            whence = Source(device.path, device.info.id, device.kind, device.info.page_size, moment)
            if dry_run:
                sizes = _sizes(plan, crew, list(plan.units(asked, workers.count)), progress) if sized else None
                manifest = plan.manifest(whence, asked, ())
                return Exported(None, manifest, plan.counts(), time.monotonic() - began, sizes, missing)
            writer = ArchiveWriter.create(place, asked.key, again=asked.again)
            try:
                tasks = [(str(writer.staging), unit) for unit in plan.units(asked, workers.count)]
                told = told_by(progress, "Exporting", plan.messages, len(tasks))
                entries = sorted(map(writer.taken, crew.run(write_part, tasks, told)), key=lambda entry: entry.name)
                manifest = plan.manifest(whence, asked, entries)
                writer.finish(manifest)
            except BaseException:
                writer.discard()
                raise
    return Exported(place, manifest, plan.counts(), time.monotonic() - began, missing=missing)


def _sizes(plan: Plan, crew: Crew, units: Sequence[ExportUnit], progress: Progress) -> dict[Standing, int]:
    sizes: dict[Standing, int] = {}
    told = told_by(progress, "Counting", plan.messages, len(units))
    for found in crew.run(size_runs, [(unit,) for unit in units], told):
        for standing, size in found:
            sizes[standing] = sizes.get(standing, 0) + size
    return sizes


def fitting(messages: int, *, most: int | None = None) -> Workers:
    """Return this process for what is small, and several for what is not, one on each processor or `most`."""
    count = min(most or cores(), cores())
    return Alone() if messages <= SMALL or count == 1 else Processes(count)
