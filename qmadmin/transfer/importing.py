"""Importing an archive into a device: nobody sees a part of it before all of it is there."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.archive.reading import Archive, open_archive
from qmadmin.opening import open_device
from qmadmin.transfer.exporting import fitting
from qmadmin.transfer.import_planning import ImportedSpace, ImportOptions, SpacePlan, plans
from qmadmin.transfer.telling import Progress, tell_no_one, told_by
from qmadmin.transfer.units import ROLE, ImportTarget, ImportUnit, load_part, loading, verify_part
from qmadmin.transfer.workers import Workers
from qmcore.acts import importing as acts
from qmcore.errors import BadResourceError, NotOpenError
from qmcore.imports import ImportJob, Stage
from qmcore.port import always

if TYPE_CHECKING:
    from qmadmin.device import Attachment, Device

MERGED_AT_A_TIME = 2_000
"""Messages that a merge moves, or the end of an import deletes, in one transaction."""


@dataclasses.dataclass(frozen=True, slots=True)
class Imported:
    """What was imported, or with a dry run would be."""

    archive: str
    spaces: tuple[ImportedSpace, ...]
    messages: int
    seconds: float


def load_archive(
    directory: Path,
    config: str,
    options: ImportOptions | None = None,
    *,
    workers: Workers | None = None,
    progress: Progress = tell_no_one,
    dry_run: bool = False,
) -> Imported:
    """Import an archive into a device; `config` is what QMCONFIG says of it.

    The archive is verified and all limits are checked before anything is changed. The queues of a queue space appear
    together, when all of their messages are there. An import that is cut short leaves nothing that anybody sees, and
    the same call goes on where it was. Messages that are appended to a queue appear some at a time after that, each
    once.

    Raises what `open_archive` does of the archive; InvalidArgumentError where a queue is there that is not to be, or
    the archive was imported before; NoSpaceError where a limit is in the way.
    """
    asked, began = options or ImportOptions(), time.monotonic()
    archive = open_archive(directory, asked.key)
    crew_of = workers or fitting(archive.manifest.messages)
    with open_device(config) as device:
        planned = list(plans(archive, device, asked))
        if not planned:
            raise BadResourceError("nothing of the archive is selected", hint="Look at it with qmspark show.")
        _verify(archive, crew_of, progress)
        if dry_run:
            return _result(archive, planned, began)
        with contextlib.ExitStack() as stack:
            begun = [stack.enter_context(_begun(device, plan, asked)) for plan in planned]
            _load(archive, device, begun, crew_of, asked, progress)
            for each in begun:
                each.publish()
            return _result(archive, [dataclasses.replace(each.plan, resumed=each.resumed) for each in begun], began)


def abandon(config: str, space: str, archive: str | None = None, *, dry_run: bool = False) -> int:
    """Give up imports into a queue space that are not published, and delete what they have loaded; return how many.

    `archive` is the identifier of the archive; None means all. With a dry run they are only counted.
    """
    with open_device(config) as device, device.open_space(space, role=ROLE):
        attached = device.attachment(space, ROLE)
        jobs = attached.volume.read(lambda unit: acts.imports(unit, attached.opened.space.id))
        wanted = [
            job for job in jobs if job.state in (Stage.LOADING, Stage.ABANDONED) and archive in (None, job.archive)
        ]
        for job in () if dry_run else wanted:
            while attached.volume.write(
                lambda unit, job=job: acts.abandon(unit, attached.opened, job, MERGED_AT_A_TIME),  # type: ignore[misc]
                repeatable=always,
            ):
                pass
        return len(wanted)


def is_merging(config: str, space: str, archive: str) -> bool:
    """Tell whether an import of an archive into a queue space was published, and is not done with all the same."""
    with open_device(config) as device, device.open_space(space, role=ROLE):
        attached = device.attachment(space, ROLE)
        jobs = attached.volume.read(lambda unit: acts.imports(unit, attached.opened.space.id))
        return any(job.archive == archive and job.state is Stage.MERGING for job in jobs)


class _Begun:
    """An import into one queue space that has begun."""

    def __init__(self, device: Device, plan: SpacePlan, attached: Attachment) -> None:
        self.plan = plan
        self._device = device
        self._attached = attached
        known = {job.id for job in attached.volume.read(lambda unit: acts.imports(unit, attached.opened.space.id))}
        now = device.clock.now()
        self.job: ImportJob = attached.volume.write(
            lambda unit: acts.begin(unit, attached.opened, plan.plan, now), repeatable=always
        )
        self.resumed = self.job.id in known

    @property
    def target(self) -> ImportTarget:
        """What a worker has to know of it."""
        loaded = self._attached.volume.read(lambda unit: acts.loaded_batches(unit, self.job))
        return ImportTarget(self.plan.name, self.plan.source.definition.name, self.job, loaded)

    def publish(self) -> None:
        """Let everybody see it, and move what is appended to where it belongs."""
        attached, now = self._attached, self._device.clock.now()
        job = self.job
        if job.state is Stage.LOADING:
            job = attached.volume.write(
                lambda unit: acts.publish(unit, attached.opened, self.job, now), repeatable=always
            )
        while job.state is Stage.MERGING and attached.volume.write(
            lambda unit: acts.merge(unit, attached.opened, job, MERGED_AT_A_TIME, self._device.clock.now()),
            repeatable=always,
        ):
            pass


@contextlib.contextmanager
def _begun(device: Device, plan: SpacePlan, asked: ImportOptions) -> Iterator[_Begun]:
    if plan.creates:
        if asked.resume:
            raise _nothing_to_resume(plan)
        device.create_space(dataclasses.replace(plan.source.definition, name=plan.name))
    with device.open_space(plan.name, role=ROLE):
        begun = _Begun(device, plan, device.attachment(plan.name, ROLE))
        if asked.resume and not begun.resumed:
            # It was begun to find that out, and nothing is loaded yet.
            begun_job = begun.job
            attached = device.attachment(plan.name, ROLE)
            attached.volume.write(lambda unit: acts.abandon(unit, attached.opened, begun_job, 1), repeatable=always)
            raise _nothing_to_resume(plan)
        yield begun


def _nothing_to_resume(plan: SpacePlan) -> NotOpenError:
    return NotOpenError(
        f"no import of this archive into queue space {plan.name!r} was cut short",
        hint="Leave --resume out to begin one.",
        space=plan.name,
    )


def _load(
    archive: Archive,
    device: Device,
    begun: Sequence[_Begun],
    workers: Workers,
    asked: ImportOptions,
    progress: Progress,
) -> None:
    targets = tuple(each.target for each in begun if each.job.state is Stage.LOADING)
    wanted = {target.source for target in targets}
    states = asked.selection.carried_states
    entries = [
        entry
        for entry in archive.manifest.parts
        if any(portion.space in wanted and portion.state in states for portion in entry.portions)
    ]
    total = sum(entry.rows for entry in entries)
    tasks = [
        (ImportUnit(entry=entry, states=states, rate=asked.rate and asked.rate / workers.count),) for entry in entries
    ]
    if not tasks:
        return
    told = told_by(progress, "Importing", total, len(tasks))

    with workers.apart(loading, device.config, archive, targets) as crew:
        for _ in crew.run(load_part, tasks, told):
            pass


def _verify(archive: Archive, workers: Workers, progress: Progress) -> None:
    """Read all parts before anything of them is used."""
    entries = archive.manifest.parts
    told = told_by(progress, "Verifying", archive.manifest.messages, len(entries))
    with workers.apart(contextlib.nullcontext, archive) as crew:
        for _ in crew.run(verify_part, [(entry,) for entry in entries], told):
            pass


def _result(archive: Archive, planned: Sequence[SpacePlan], began: float) -> Imported:
    told = tuple(plan.told for plan in planned)
    return Imported(archive.manifest.archive, told, sum(space.use.messages for space in told), time.monotonic() - began)
