"""Moving queues to another device, and removing exported messages from a device."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from qmadmin.archive.file_systems import Place, place_at
from qmadmin.archive.manifest import ArchivedQueue, Content, Manifest
from qmadmin.archive.reading import Archive, holds_archive, open_archive
from qmadmin.archive.writing import refuse_occupied
from qmadmin.audit import act
from qmadmin.console import counted
from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.space import QueueSpace
from qmadmin.transfer import Executor, Local, Progress, no_progress, step_progress
from qmadmin.transfer.comparing import Compared, Verified, compare
from qmadmin.transfer.exporting import Exported, ExportOptions, export, fitting
from qmadmin.transfer.import_planning import ImportOptions, Names
from qmadmin.transfer.importing import Imported, abandon, imports_into, load_archive, refuse_what_does_not_fit
from qmadmin.transfer.selecting import ArchiveSelection, Outstanding, SelectedMessages
from qmadmin.transfer.snapshot import ROLE, StoppedQueues, stopped_queues
from qmadmin.transfer.target import ASKED, Destination, target_of
from qmadmin.transfer.units import REMOVED_STATES, remove_part
from qmcore.acts.manage_messages import CHANGEABLE
from qmcore.errors import (
    Alternative,
    BadResourceError,
    InUseError,
    InvalidArgumentError,
    QueueError,
    SystemFailureError,
)
from qmcore.imports import Stage
from qmcore.records import Use
from qmcore.values import dataclass


@dataclass(frozen=True, slots=True)
class Removed:
    """How many messages were removed from a device, and how many of the archive were not.

    Those that were `kept` no longer exist, or have changed since they were exported. If it is resumed, an earlier
    attempt has removed some, which are `before` if their number is known, and otherwise among the kept ones.
    """

    removed: int
    kept: int
    seconds: float
    before: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move, step by step; `left` messages are in queues of the source that stay stopped.

    If only some of their messages were moved, queues are not `emptied`, but started again at the source. `destination`
    is the name of the other device; the queues `waiting` there, with their queue spaces, are still stopped for
    dequeuing.
    """

    exported: Exported
    imported: Imported
    compared: Compared
    removed: Removed
    destination: str
    waiting: tuple[tuple[str, str], ...]
    emptied: bool
    left: int


def remove_exported(
    where: Path | Place,
    config: str,
    *,
    key: bytes | None = None,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    verified: Verified | None = None,
    dry_run: bool = False,
) -> Removed:
    """Remove the messages of an archive from the device that it was exported from, if they are unchanged since.

    The archive is verified before, without what an earlier step of the same command has `verified`. Messages that were
    dequeued, changed, moved or tried meanwhile stay, and so do retained ones.

    Raises as `open_archive` does, and BadResourceError if the archive is not of this device.
    """
    began = time.monotonic()
    archive = open_archive(where, key)
    executor = executor or fitting(archive.manifest.messages)
    entries = archive.manifest.parts
    total = sum(portion.messages for entry in entries for portion in entry.portions if portion.state in REMOVED_STATES)
    with open_device(config) as device:
        _refuse_other_device(archive.manifest, device)
        with executor.part_workers(target_of, archive) as workers:
            told = step_progress(progress, "Verifying", archive.manifest.messages, len(entries))
            (verified or Verified()).verify(archive, workers, told)
            if dry_run:
                return Removed(0, total, time.monotonic() - began)
            told = step_progress(progress, "Removing", total, len(entries))
            what = f"messages of archive {archive.manifest.archive}"
            with act(device, what, "remove_exported", {"where": str(where)}) as begun:
                removed = sum(workers.run(remove_part, [(entry, device.config) for entry in entries], told))
                begun.tell(f"{counted(removed, 'message')} removed")
    return Removed(removed, total - removed, time.monotonic() - began)


def move(
    source: str,
    destination: str,
    where: Path | Place,
    *,
    exporting: ExportOptions | None = None,
    importing: ImportOptions | None = None,
    executor: Executor | None = None,
    progress: Progress = no_progress,
) -> Moved:
    """Move queues from one device to another, by way of an archive that stays.

    It is refused, before anything is stopped, if the destination has no room. The queues are stopped, exported,
    imported and compared; what arrived is removed from the source. Its queues stay stopped, unless only some of their
    messages were moved. If anything fails before the messages have arrived, the queues are as they were and the
    destination abandons what it had begun; after that they stay stopped, so that no message is consumed in both
    places. An interrupted move is resumed if `exporting` says `again`, and only to the same destination.

    Raises InvalidArgumentError where an archive that is to be gone on with is of a move to another device; InUseError
    where another move is under way, transactions that have messages of a queue do not end within 30 seconds, or an
    archive is to be gone on with whose queues were started since; SystemFailureError where what arrived is not what was
    sent; and whatever an export and an import raise.
    """
    with open_device(source) as here, open_device(destination) as there:
        what = {"source": here.path, "destination": there.path, "where": str(where)}
        with (
            act(here, f"queues moved to device {there.path}", "move", what) as leaving,
            act(there, f"queues moved from device {here.path}", "move", what),
        ):
            asked, landing = exporting or ExportOptions(), importing or ImportOptions()
            done = _moved(source, destination, where, asked, landing, {"executor": executor, "progress": progress})
            leaving.tell(f"{counted(done.removed.removed, 'message')} moved")
            return done


class _How(TypedDict):
    """How a move is carried out: the executor, and the function that takes the progress."""

    executor: Executor | None
    progress: Progress


def _moved(
    source: str, destination: str, where: Path | Place, asked: ExportOptions, landing: ImportOptions, how: _How
) -> Moved:
    verified = Verified()
    _refuse_partial_content(asked.selection)
    goes_on = asked.again and holds_archive(where)
    _refuse_itself(source, destination, landing)
    if not goes_on:
        _refuse_unfit(source, destination, where, asked, landing)
    with stopped_queues(source, asked.selection) as stopped:
        bound_for = Destination.of(destination, landing)
        if goes_on:
            exported = _exported_before(source, where, asked, bound_for, stopped)
        else:
            asked = dataclasses.replace(asked, enabled=stopped.enabled, destination=bound_for)
            exported = export(source, where, asked, **how)
        with _arriving(destination, exported.manifest, landing, stopped):
            # Messages that are enqueued there before the comparison would be a difference.
            arriving = dataclasses.replace(landing, start=False, closed=True, once=True)
            imported = load_archive(where, destination, arriving, verified=verified, **how)
            spaces, queues = landing.spaces, landing.queues
            compared = compare(
                where, destination, key=asked.key, spaces=spaces, queues=queues, verified=verified, **how
            )
            # If nothing is left to be removed, everything was equal before, and the destination may be in use.
            if not goes_on or _left(source, exported.manifest):
                _refuse_differences(compared)
            removed = remove_exported(where, source, key=asked.key, verified=verified, **how)
            waiting = _start(destination, exported.manifest, landing)
        stopped.stay()
    emptied = not _is_partial(asked.selection)
    left = _left(source, exported.manifest) if emptied else 0
    if not emptied:
        _go_on(source, exported.manifest)
    if goes_on:
        removed = _without_earlier(removed, left)
    return Moved(exported, imported, compared, removed, bound_for.device, tuple(waiting), emptied, left)


def _refuse_partial_content(selection: ArchiveSelection) -> None:
    if selection.content is Content.DEFINITIONS:
        raise InvalidArgumentError(
            "a move without messages would only stop the queues", hint="Export the definitions, and import them."
        )
    if selection.content is Content.MESSAGES:
        raise InvalidArgumentError(
            "a move creates the queues at the destination, and so needs their definitions",
            hint="Move both, or export the messages, import them and remove them from the source.",
        )


def _refuse_itself(source: str, destination: str, landing: ImportOptions) -> None:
    """Refuse a move to the same queues; under other names queues can be moved within a device."""
    with open_device(source) as here, open_device(destination) as there:
        if here.info.id == there.info.id and not (landing.spaces or landing.queues):
            raise InvalidArgumentError(
                f"queues of device {here.path!r} cannot be moved to that device itself", hint="Name another device."
            )


def _refuse_unfit(
    source: str, destination: str, where: Path | Place, asked: ExportOptions, landing: ImportOptions
) -> None:
    """Refuse what archive and destination would refuse, before anything is stopped or written."""
    refuse_occupied(where, again=asked.again)
    # Transactions that are open now are waited for later.
    rehearsed = dataclasses.replace(asked, outstanding=Outstanding.IN_DOUBT_TOO, again=False)
    would_be = export(source, Path(), rehearsed, executor=Local(), dry_run=True)
    # The pages of messages are unknown before they are read: each takes at least one.
    least = [SelectedMessages(standing, Use(count, count, 0)) for standing, count in would_be.counts.items()]
    try:
        refuse_what_does_not_fit(Archive(place_at(where), would_be.manifest), destination, landing, least)
    except InvalidArgumentError as error:
        if error.alternative is Alternative.EXISTING:
            error.alternative = None
            error.hint = (
                "A move creates its queues. Move others, or export these, import them in addition or under other names,"
                " and remove what was exported."
            )
        raise


def _left(source: str, manifest: Manifest) -> int:
    """Return how many messages are left in the moved queues of the source."""
    with _queues_of(source, manifest, Names({}, {})) as queues:
        return sum(space.usage(name).messages for space, name, _ in queues)


@contextlib.contextmanager
def _queues_of(config: str, manifest: Manifest, names: Names) -> Iterator[list[tuple[QueueSpace, str, ArchivedQueue]]]:
    """Yield the queues of the archive under their names on a device, each with its queue space, which is open."""
    with open_device(config) as device, contextlib.ExitStack() as opened:
        spaces = [
            (archived, opened.enter_context(device.open_space(names.space(archived.name), role=ROLE)))
            for archived in manifest.spaces
        ]
        yield [
            (space, names.queue(archived.name, queue.name), queue)
            for archived, space in spaces
            for queue in archived.queues
        ]


def _without_earlier(removed: Removed, left: int) -> Removed:
    """Count missing messages as removed by an earlier attempt: nothing else could, as the queues were stopped."""
    kept = min(removed.kept, left)
    return dataclasses.replace(removed, kept=kept, before=removed.kept - kept)


def _refuse_differences(compared: Compared) -> None:
    if compared.differences:
        first = compared.differences[0]
        raise SystemFailureError(
            f"queue {first.queue!r} of queue space {first.space!r} did not arrive as it was: {first.sentence}",
            hint="Nothing more was removed from the source. Check the destination with qmspark verify; if it is"
            " right nevertheless, qmspark export --remove --resume removes from the source what the archive has, and"
            " qstart starts the queues.",
        )


def _exported_before(
    source: str, where: Path | Place, asked: ExportOptions, bound_for: Destination, stopped: StoppedQueues
) -> Exported:
    """Return the export of an interrupted move to the same place, whose messages cannot have changed since."""
    manifest = open_archive(where, asked.key).manifest
    with open_device(source) as device:
        _refuse_other_device(manifest, device)
    bound_for.refuse_another(manifest)
    _refuse_other_selection(manifest, asked.selection)
    for space in manifest.spaces:
        for queue in space.queues:
            _refuse_started(space.name, queue.name, stopped)
    return Exported(place_at(where), manifest, manifest.standings(), 0.0)


def _refuse_other_selection(manifest: Manifest, selection: ArchiveSelection) -> None:
    """Refuse to resume with another selection, which decides which queues are started at the source in the end."""
    before = {name: value for name, value in manifest.selection.items() if name not in ("transactions", ASKED)}
    if before != selection.said():
        raise InvalidArgumentError(
            "the archive was exported with another selection of queues or messages",
            hint="Use the same selection as then; qmspark show shows it.",
        )


def _refuse_started(space: str, queue: str, stopped: StoppedQueues) -> None:
    if any(stopped.enabled.get((space, queue), ())):
        raise InUseError(
            f"queue {queue!r} of queue space {space!r} was started after it was exported, so that the archive no longer"
            " tells what it has",
            hint="Give up what has begun at the destination with qmspark import --abandon, and move into another"
            " archive; where the queue is there already, compare it with qmspark verify before either is used.",
            space=space,
            queue=queue,
        )


@contextlib.contextmanager
def _arriving(destination: str, manifest: Manifest, landing: ImportOptions, stopped: StoppedQueues) -> Iterator[None]:
    """Make sure, if the block fails, that messages that are in both places can be consumed in one at most.

    The hint of the error, or the notes of an interrupt, end with the state of the queues.
    """
    try:
        yield
    except BaseException as error:
        if _has_arrived(destination, manifest, landing):
            stopped.stay()
            stand = "The queues stay stopped in both places; the same move with --resume continues."
        else:
            _give_up(destination, manifest, landing)
            stand = "The queues stay stopped, and nothing has arrived; the same move with --resume continues."
            if stopped.were_started:
                stand = "The queues are started again, and nothing has arrived; a new move needs another archive."
        if isinstance(error, QueueError):
            error.hint = f"{error.hint} {stand}".strip()
        else:
            error.add_note(stand)
        raise


def _has_arrived(destination: str, manifest: Manifest, landing: ImportOptions) -> bool:
    """Return whether a queue of the archive is, or may be, visible at the destination."""
    try:
        with open_device(destination) as device:
            return any(
                job.archive == manifest.archive and job.state in (Stage.MERGING, Stage.DONE)
                for name in _landed(device, manifest, landing)
                for job in imports_into(device, name)
            )
    except QueueError:
        # The destination cannot be asked.
        return True


def _give_up(destination: str, manifest: Manifest, landing: ImportOptions) -> None:
    with contextlib.suppress(QueueError):
        with open_device(destination) as device:
            names = _landed(device, manifest, landing)
        for name in names:
            abandon(destination, name, manifest.archive)


def _landed(device: Device, manifest: Manifest, landing: ImportOptions) -> list[str]:
    """Return the existing queue spaces of the destination that the archive is imported into."""
    there = {space.name for space in device.spaces()}
    wanted = (landing.names.space(space.name) for space in manifest.spaces)
    return [name for name in wanted if name in there]


def _is_partial(selection: ArchiveSelection) -> bool:
    """Return whether queues may have messages left that were not selected."""
    return selection.picks or not set(CHANGEABLE) <= set(selection.carried_states)


def _go_on(config: str, manifest: Manifest) -> None:
    """Start the queues at the source as they were before the move."""
    with _queues_of(config, manifest, Names({}, {})) as queues:
        for space, name, queue in queues:
            space.start_queue(name, enqueue=queue.enqueue_enabled, dequeue=queue.dequeue_enabled)


def _start(config: str, manifest: Manifest, landing: ImportOptions) -> list[tuple[str, str]]:
    """Start the queues at the destination as they were before the move; for dequeuing only if requested.

    Return the queue spaces and queues from which messages could be dequeued before, and cannot be now.
    """
    waiting = []
    with _queues_of(config, manifest, landing.names) as queues:
        for space, name, queue in queues:
            space.start_queue(name, enqueue=queue.enqueue_enabled, dequeue=queue.dequeue_enabled and landing.start)
            if queue.dequeue_enabled and not space.queue(name).dequeue_enabled:
                waiting.append((space.name, name))
    return waiting


def _refuse_other_device(manifest: Manifest, device: Device) -> None:
    whence = manifest.source
    if whence.device_id != device.info.id:
        raise BadResourceError(
            f"the archive was exported from device {whence.device!r}, not from {device.path!r}",
            hint="Name the device that it was exported from.",
            device=device.path,
        )
