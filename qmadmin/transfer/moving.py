"""Moving queues to another device, and removing from a device exactly what an archive has of it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.archive.places import Place, place_at
from qmadmin.archive.reading import holds_archive, open_archive
from qmadmin.opening import open_device
from qmadmin.transfer.comparing import Compared, compare
from qmadmin.transfer.desk import at_desk
from qmadmin.transfer.export_planning import ExportOptions
from qmadmin.transfer.exporting import Exported, export, fitting
from qmadmin.transfer.import_planning import ImportOptions
from qmadmin.transfer.importing import Imported, load_archive
from qmadmin.transfer.telling import Progress, tell_no_one, told_by
from qmadmin.transfer.units import REMOVED_STATES, remove_part
from qmadmin.transfer.verifying import Verified
from qmcore.errors import BadResourceError, SystemFailureError

if TYPE_CHECKING:
    from qmadmin.archive.manifest import Manifest
    from qmadmin.device import Device
    from qmadmin.transfer.selecting import Selection
    from qmadmin.transfer.workers import Workers

ROLE = "move"
"""What others see of a process that moves queues."""

_WAIT_SECONDS = 30.0
"""How long transactions that have messages of a queue may take to end before it is moved."""


@dataclasses.dataclass(frozen=True, slots=True)
class Removed:
    """How many messages were removed from a device, and how many of the archive were not.

    Those that were `kept` are no longer there, or are not as they were when they were exported.
    """

    removed: int
    kept: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """What a move has done, step by step."""

    exported: Exported
    imported: Imported
    compared: Compared
    removed: Removed


def remove_exported(
    where: Path | Place,
    config: str,
    *,
    key: bytes | None = None,
    workers: Workers | None = None,
    progress: Progress = tell_no_one,
    verified: Verified | None = None,
    dry_run: bool = False,
) -> Removed:
    """Remove from the device that an archive was exported from what the archive has, where it is unchanged since.

    The archive is verified before, without what an earlier step of the same command has `verified`. Messages that were
    dequeued, changed, moved or tried meanwhile are left alone, and so is what is kept after it was consumed.

    Raises what `open_archive` does of a damaged archive, and BadResourceError where it is not of this device.
    """
    began = time.monotonic()
    archive = open_archive(where, key)
    crew_of = workers or fitting(archive.manifest.messages)
    entries = archive.manifest.parts
    total = sum(portion.messages for entry in entries for portion in entry.portions if portion.state in REMOVED_STATES)
    with open_device(config) as device:
        _refuse_stranger(archive.manifest, device)
        with crew_of.on_parts(at_desk, archive) as crew:
            told = told_by(progress, "Verifying", archive.manifest.messages, len(entries))
            (verified or Verified()).verify(archive, crew, told)
            if dry_run:
                return Removed(0, total, time.monotonic() - began)
            told = told_by(progress, "Removing", total, len(entries))
            removed = sum(crew.run(remove_part, [(entry, device.config) for entry in entries], told))
    return Removed(removed, total - removed, time.monotonic() - began)


def move(
    source: str,
    destination: str,
    where: Path | Place,
    *,
    exporting: ExportOptions | None = None,
    importing: ImportOptions | None = None,
    workers: Workers | None = None,
    progress: Progress = tell_no_one,
) -> Moved:
    """Move queues from one device to another, by way of an archive that stays.

    The queues are stopped, exported, imported and compared; what arrived is removed from the source, whose queues stay
    stopped. Where anything fails before that, they are as they were, and the source still has everything. What was cut
    short goes on where it was, if `exporting` says `again`.

    Raises InUseError where transactions that have messages of a queue do not end within 30 seconds, SystemFailureError
    where what arrived is not what was sent, and whatever an export and an import raise.
    """
    asked, landing, verified = exporting or ExportOptions(), importing or ImportOptions(), Verified()
    with _frozen(source, asked.selection) as enabled:
        asked = dataclasses.replace(asked, enabled=enabled)
        exported = _export_once(source, where, asked, workers, progress)
        # What is enqueued there before it was compared would be a difference.
        arriving = dataclasses.replace(landing, start=False, closed=True, once=True)
        imported = load_archive(where, destination, arriving, workers=workers, progress=progress, verified=verified)
        compared = compare(
            where,
            destination,
            key=asked.key,
            spaces=landing.spaces,
            queues=landing.queues,
            workers=workers,
            progress=progress,
            verified=verified,
        )
        if compared.differences:
            first = compared.differences[0]
            raise SystemFailureError(
                f"queue {first.queue!r} of queue space {first.space!r} did not arrive as it was: {first.sentence}",
                hint="Nothing was removed from the source. Look at the destination with qmspark verify.",
            )
        removed = remove_exported(where, source, key=asked.key, workers=workers, progress=progress, verified=verified)
        _start(destination, exported.manifest, landing)
    return Moved(exported, imported, compared, removed)


def _export_once(
    source: str, where: Path | Place, asked: ExportOptions, workers: Workers | None, progress: Progress
) -> Exported:
    """Export, unless a move that was cut short had done that."""
    if not (asked.again and holds_archive(where)):
        return export(source, where, asked, workers=workers, progress=progress)
    manifest = open_archive(where, asked.key).manifest
    with open_device(source) as device:
        _refuse_stranger(manifest, device)
    counts = {
        (space.definition.name, queue.definition.name, count.state, count.memory): count.messages
        for space in manifest.spaces
        for queue in space.queues
        for count in queue.counts
    }
    return Exported(place_at(where), manifest, counts, 0.0)


@contextlib.contextmanager
def _frozen(config: str, selection: Selection) -> Iterator[dict[tuple[str, str], tuple[bool, bool]]]:
    """Have queues stopped, and tell in which directions they were started; where the block fails they are so again."""
    with open_device(config) as device, contextlib.ExitStack() as opened, contextlib.ExitStack() as undo:
        enabled: dict[tuple[str, str], tuple[bool, bool]] = {}
        for name in selection.chosen_spaces([space.name for space in device.spaces()], f"device {device.path!r}"):
            space = opened.enter_context(device.open_space(name, role=ROLE))
            for queue in space.queues():
                if selection.has_queue(queue.name):
                    before = (queue.enqueue_enabled, queue.dequeue_enabled)
                    undo.callback(space.start_queue, queue.name, enqueue=before[0], dequeue=before[1])
                    space.stop_queue(queue.name, wait=_WAIT_SECONDS)
                    enabled[name, queue.name] = before
        yield enabled
        undo.pop_all()


def _start(config: str, manifest: Manifest, landing: ImportOptions) -> None:
    """Let messages be enqueued where they were before the move, and dequeued if that is asked for."""
    with open_device(config) as device:
        for archived in manifest.spaces:
            with device.open_space(landing.names.space(archived.definition.name), role=ROLE) as space:
                for queue in archived.queues:
                    space.start_queue(
                        landing.names.queue(archived.definition.name, queue.definition.name),
                        enqueue=queue.enqueue_enabled,
                        dequeue=queue.dequeue_enabled and landing.start,
                    )


def _refuse_stranger(manifest: Manifest, device: Device) -> None:
    whence = manifest.source
    if whence.device_id != device.info.id:
        raise BadResourceError(
            f"the archive was exported from device {whence.device!r}, not from {device.path!r}",
            hint="Name the device that it is of.",
            device=device.path,
        )
