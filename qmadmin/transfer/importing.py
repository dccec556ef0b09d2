"""Importing an archive into a device: nothing of it is visible before all of it is loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from qmadmin.archive.file_systems import Place
from qmadmin.archive.manifest import PartEntry
from qmadmin.archive.reading import Archive, open_archive
from qmadmin.attachment import Attachment
from qmadmin.audit import act
from qmadmin.console import counted
from qmadmin.device import Device
from qmadmin.opening import open_device
from qmadmin.transfer import Executor, Progress, Workers, no_progress, step_progress
from qmadmin.transfer.comparing import Verified
from qmadmin.transfer.exporting import fitting
from qmadmin.transfer.import_planning import ImportedSpace, ImportOptions, SpaceImportPlan, is_counted, plans
from qmadmin.transfer.selecting import RowFilter, SelectedMessages, last_ranks
from qmadmin.transfer.target import ImportTarget, attachment, target_of
from qmadmin.transfer.units import ImportUnit, load_part, tally_part
from qmcore.acts import importing as acts
from qmcore.definitions import OpenSpace
from qmcore.errors import BadResourceError, QueueError
from qmcore.imports import ImportJob, ImportPlan, Mode, Stage
from qmcore.port import Unit
from qmcore.purpose import Purpose
from qmcore.values import dataclass

T = TypeVar("T")

MERGED_AT_A_TIME = 2_000
"""Messages that a merge moves, or the end of an import deletes, in one transaction."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import, or of a dry run."""

    archive: str
    spaces: tuple[ImportedSpace, ...]
    messages: int
    seconds: float

    @property
    def stops(self) -> bool:
        """Whether any of its queues are stopped for dequeuing, unless they are started."""
        return any(mode is not Mode.APPEND for space in self.spaces for _, mode in space.queues.values())


def load_archive(
    where: Path | Place,
    config: str,
    options: ImportOptions | None = None,
    *,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    verified: Verified | None = None,
    dry_run: bool = False,
) -> Imported:
    """Import an archive, in a directory of this machine or at a place, into the device that `config` names.

    The archive is verified and all limits are checked before anything is changed. The queues of a queue space appear
    together, when all of their messages are loaded. An interrupted import leaves nothing visible, and the same call
    resumes it. Messages that are appended to a queue appear in batches after that, each once. What an earlier step of
    the same command has `verified` is not read again.

    Raises as `open_archive` does; InvalidArgumentError if a queue exists that must not, or the archive was imported
    before; NoSpaceError if a limit is exceeded.
    """
    asked, began = options or ImportOptions(), time.monotonic()
    archive = open_archive(where, asked.key)
    executor, verified = executor or fitting(archive.manifest.messages), verified or Verified()
    with open_device(config) as device:
        if dry_run:
            planned = _loaded(archive, device, asked, executor, progress, verified, dry_run=True)
        else:
            what = f"import of archive {archive.manifest.archive}"
            with act(device, what, "load_archive", {"where": str(where)}) as begun:
                planned = _loaded(archive, device, asked, executor, progress, verified, dry_run=False)
                begun.tell(_in_words([plan.told for plan in planned]))
        return _result(archive, planned, began)


def _loaded(
    archive: Archive,
    device: Device,
    asked: ImportOptions,
    executor: Executor,
    progress: Progress,
    verified: Verified,
    *,
    dry_run: bool,
) -> Sequence[SpaceImportPlan]:
    planned = list(plans(archive, device, asked))
    if not planned and archive.manifest.spaces:
        raise BadResourceError("nothing of the archive is selected", hint="Show it with qmspark show.")
    with executor.part_workers(target_of, archive) as workers, contextlib.ExitStack() as stack:
        counts = is_counted(archive, device, asked)
        if not counts:
            _refuse_unfit(device, planned, begins=not dry_run)
        told = step_progress(progress, "Verifying", archive.manifest.messages, len(archive.manifest.parts))
        verified.verify(archive, workers, told)
        only = _filter(archive, asked)
        if counts:
            only, tallies = _counted(archive, device, workers, asked, only, progress)
            planned = list(plans(archive, device, asked, tallies))
            _refuse_unfit(device, planned, begins=not dry_run)
        if dry_run:
            return planned
        begun = _all_begun(device, planned, stack)
        _load(workers, _units(archive, device, begun, executor, asked, only), progress)
        for each in begun:
            each.publish()
        return [*(plan for plan in planned if plan.done), *(each.told for each in begun)]


def _in_words(spaces: Sequence[ImportedSpace]) -> str:
    """Return the numbers of imported messages and their queue spaces, in words."""
    messages = counted(sum(space.use.messages for space in spaces), "message")
    names = ", ".join(space.name for space in spaces)
    return f"{messages} imported into queue space{'' if len(spaces) == 1 else 's'} {names}" if names else messages


def refuse_what_does_not_fit(
    archive: Archive, config: str, asked: ImportOptions, tallies: Sequence[SelectedMessages]
) -> None:
    """Refuse an import that would be refused, of an archive that is not written yet."""
    with open_device(config) as device:
        planned = list(plans(archive, device, asked, tallies))
        if not planned:
            raise BadResourceError("nothing of the archive is selected", hint="Show it with qmspark show.")
        _refuse_unfit(device, planned, begins=True)


def imports_into(device: Device, space: str) -> list[ImportJob]:
    """Return the imports into a queue space, the oldest first, including completed ones."""
    with attachment(device, space) as attached:
        return _jobs(attached)


def _jobs(attached: Attachment) -> list[ImportJob]:
    return attached.volume.read(lambda unit: acts.imports(unit, attached.opened.space.id))


def _change(attached: Attachment, act: Callable[..., T], *arguments: Any) -> T:
    return attached.volume.write(lambda unit: act(unit, attached.opened, *arguments), Purpose.STAGE)


def abandon(config: str, space: str, archive: str | None = None, *, dry_run: bool = False) -> int:
    """Abandon imports into a queue space that are not published, and delete what they have loaded; return how many.

    `archive` is the identifier of the archive; None means all. With a dry run they are only counted.
    """
    with open_device(config) as device, attachment(device, space) as attached:
        unpublished = [job for job in _jobs(attached) if job.state in (Stage.LOADING, Stage.ABANDONED)]
        wanted = [job for job in unpublished if archive in (None, job.archive)]
        if wanted and not dry_run:
            what, facts = f"imports into queue space {space}", {"space": space, "archive": archive}
            with act(device, what, "abandon", facts) as begun:
                for job in wanted:
                    while _change(attached, acts.abandon, job, MERGED_AT_A_TIME):
                        pass
                begun.tell(f"{counted(len(wanted), 'import')} abandoned")
        return len(wanted)


def merging(config: str, archive: str | None = None) -> list[str]:
    """Return the queue spaces in which an import of an archive, None is any, was published and is not complete."""
    with open_device(config) as device:
        jobs = [(space.name, job) for space in device.spaces() for job in imports_into(device, space.name)]
    found = [name for name, job in jobs if archive in (None, job.archive) and job.state is Stage.MERGING]
    return list(dict.fromkeys(found))


class _Begun:
    """An import into one queue space that has begun."""

    def __init__(self, device: Device, plan: SpaceImportPlan, attached: Attachment) -> None:
        self.plan = plan
        self._device = device
        self._attached = attached
        known = {job.id for job in _jobs(attached)}
        self.job: ImportJob = _change(attached, acts.begin, plan.plan, device.clock.now())
        self.told = dataclasses.replace(plan, resumed=self.job.id in known)

    @property
    def target(self) -> ImportTarget:
        """The description for a worker."""
        return ImportTarget(self.plan.name, self.plan.source.name, self.job)

    def loaded(self) -> frozenset[tuple[str, int]]:
        """Return the batches that are loaded already: the part, and the number of the first row."""
        return self._attached.volume.read(lambda unit: acts.loaded_batches(unit, self.job))

    def take_back(self) -> None:
        """Abandon it, before anything was loaded; an import that was resumed is left as it was."""
        if not self.told.resumed:
            _change(self._attached, acts.abandon, self.job, 1)
            if self.plan.creates:
                self._device.destroy_space(self.plan.name, force=True)

    def publish(self) -> None:
        """Make it visible, and merge what is appended into its queues."""
        attached, clock, job = self._attached, self._device.clock, self.job
        if job.state is Stage.LOADING:
            job = _change(attached, acts.publish, job, clock.now())
        if job.state is Stage.MERGING:
            while _change(attached, acts.merge, job, MERGED_AT_A_TIME, clock.now()):
                pass


def _refuse_unfit(device: Device, planned: Sequence[SpaceImportPlan], *, begins: bool) -> None:
    """Refuse, before anything is imported, what cannot be: there is no room, or a queue exists already."""
    for plan in planned:
        if plan.creates:
            device.refuse_space(dataclasses.replace(plan.source.definition, name=plan.name))
        elif not plan.done:
            with attachment(device, plan.name) as attached:
                attached.volume.read(functools.partial(_check, attached.opened, plan.plan, begins))


def _check(opened: OpenSpace, plan: ImportPlan, begins: bool, unit: Unit) -> None:
    acts.check(unit, opened, plan, begins=begins)


def _all_begun(device: Device, planned: Sequence[SpaceImportPlan], stack: contextlib.ExitStack) -> list[_Begun]:
    """Begin all imports; if one is refused, those that have begun before are abandoned."""
    with contextlib.ExitStack() as undo:
        begun = []
        for plan in planned:
            if not plan.done:
                begun.append(stack.enter_context(_begun(device, plan)))
                undo.callback(begun[-1].take_back)
        undo.pop_all()
        return begun


@contextlib.contextmanager
def _begun(device: Device, plan: SpaceImportPlan) -> Iterator[_Begun]:
    with contextlib.ExitStack() as undo:
        if plan.creates:
            device.create_space(dataclasses.replace(plan.source.definition, name=plan.name))
            undo.callback(_destroy_unused, device, plan.name)
        with attachment(device, plan.name) as attached:
            begun = _Begun(device, plan, attached)
            # From now on an abandoned import also destroys the queue space.
            undo.pop_all()
            yield begun


def _destroy_unused(device: Device, name: str) -> None:
    """Destroy a queue space in which nothing was begun, unless another process uses it by now."""
    with contextlib.suppress(QueueError):
        device.destroy_space(name)


def _filter(archive: Archive, asked: ImportOptions) -> RowFilter:
    """Return the filter of the selected messages; their age is that in the archive."""
    selection = asked.selection
    return RowFilter(selection.carried_states, selection.whole_condition(archive.manifest.source.snapshot_us))


def _counted(
    archive: Archive, device: Device, workers: Workers, asked: ImportOptions, only: RowFilter, progress: Progress
) -> tuple[RowFilter, list[SelectedMessages]]:
    """Read the archive for the selected messages; return their filter, and their numbers."""

    def tallies(only: RowFilter, count: int | None) -> list[SelectedMessages]:
        entries = archive.manifest.parts
        told = step_progress(progress, "Counting", archive.manifest.messages, len(entries))
        tasks = [(entry, only, device.info.page_size, count) for entry in entries]
        return [each for found in workers.run(tally_part, tasks, told) for each in found]

    count = asked.selection.count
    found = tallies(only, count)
    if count is None:
        return only, found
    only = dataclasses.replace(only, last=last_ranks(found, count))
    return only, tallies(only, None)


def _load(workers: Workers, units: Sequence[tuple[PartEntry, ImportUnit]], progress: Progress) -> None:
    told = step_progress(progress, "Importing", sum(entry.rows for entry, _ in units), len(units))
    for _ in workers.run(load_part, units, told):
        pass


def _units(
    archive: Archive, device: Device, begun: Sequence[_Begun], executor: Executor, asked: ImportOptions, only: RowFilter
) -> list[tuple[PartEntry, ImportUnit]]:
    """Return a unit for each part that has messages to load."""
    going = [each for each in begun if each.job.state is Stage.LOADING]
    targets = tuple(each.target for each in going)
    wanted = {target.source for target in targets}
    loaded: dict[str, set[tuple[str, int]]] = {}
    for each in going:
        for part, first in each.loaded():
            loaded.setdefault(part, set()).add((each.target.source, first))
    entries = [
        entry
        for entry in archive.manifest.parts
        if any(portion.space in wanted and portion.state in only.states for portion in entry.portions)
    ]
    # Where there are fewer parts than workers, some of these have nothing to do.
    rate = asked.rate and asked.rate / max(1, min(executor.count, len(entries)))
    whole = ImportUnit(config=device.config, targets=targets, only=only, rate=rate)
    return [(entry, dataclasses.replace(whole, loaded=frozenset(loaded.get(entry.name, ())))) for entry in entries]


def _result(archive: Archive, planned: Sequence[SpaceImportPlan], began: float) -> Imported:
    told = tuple(plan.told for plan in planned)
    return Imported(archive.manifest.archive, told, sum(space.use.messages for space in told), time.monotonic() - began)
