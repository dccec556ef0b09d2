"""What an import does, queue space by queue space: planned from the manifest and what the device has."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from qmadmin.archive.manifest import NO_INCARNATION, ArchivedQueue, ArchivedSpace, Content, Count, Manifest
from qmadmin.archive.reading import Archive
from qmadmin.archive.rows import Standing
from qmadmin.transfer.filtering import Tally
from qmadmin.transfer.naming import Names, as_space, refuse_one_name, refuse_strangers
from qmadmin.transfer.selecting import Selection
from qmcore.acts.importing import imports
from qmcore.bulk_rows import Adopted
from qmcore.errors import Alternative, BadQueueError, BadResourceError, InvalidArgumentError, NotOpenError
from qmcore.imports import NOTHING, ImportJob, ImportPlan, Mode, PlannedQueue, Source, Stage, Times, total
from qmcore.message import State
from qmcore.records import Use

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmcore.space import Space


UNFINISHED = (Stage.LOADING, Stage.MERGING)
"""Where an import stands that was cut short."""


class Existing(enum.Enum):
    """What becomes of a queue that is at the destination already."""

    REFUSE = "refuse"
    SKIP = "skip"
    REPLACE = "replace"
    APPEND = "append"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How an archive is imported.

    Of the selection the queue spaces, the queues, the states and the content are meant. `spaces` and `queues` give new
    names, by the old ones. `start` lets messages be dequeued where the archive says so; else imported queues are
    stopped for dequeuing, and with `closed` for enqueuing too. `times` is what becomes of the times of messages.
    `again` takes queues that were imported before, `once` passes them over. `resume` only goes on with what was cut
    short. `key` are the bytes of the key that the archive was signed with. `rate` limits the messages per second.
    """

    selection: Selection = dataclasses.field(default_factory=Selection)
    existing: Existing = Existing.REFUSE
    spaces: Mapping[str, str] = dataclasses.field(default_factory=dict)
    queues: Mapping[str, str] = dataclasses.field(default_factory=dict)
    start: bool = False
    times: Times = dataclasses.field(default_factory=Times)
    again: bool = False
    once: bool = False
    resume: bool = False
    closed: bool = False
    key: bytes | None = None
    rate: float | None = None

    @property
    def names(self) -> Names:
        """What queue spaces and queues of the archive get as names."""
        return Names(self.spaces, self.queues)


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedSpace:
    """What was imported into a queue space: from which one, which queues as what, and how many messages.

    `uses` are those of each queue, by its name in the archive; `commands` are the queues that get a capacity command
    from the archive, and the command; `resumed` says that it had begun before.
    """

    source: str
    name: str
    queues: Mapping[str, tuple[str, Mode]]
    skipped: tuple[str, ...]
    use: Use
    uses: Mapping[str, Use]
    commands: tuple[tuple[str, str], ...] = ()
    resumed: bool = False
    created: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SpacePlan:
    """What of a queue space of the archive is imported, and as what.

    `done`: it was imported already when the import of others was cut short.
    """

    source: ArchivedSpace
    name: str
    plan: ImportPlan
    skipped: tuple[str, ...]
    creates: bool
    resumed: bool = False
    done: bool = False

    @property
    def told(self) -> ImportedSpace:
        """What is told of it."""
        queues = {planned.source: (planned.name, planned.mode) for planned in self.plan.queues}
        uses = {
            planned.source: total((planned.use, planned.memory_use, planned.retained)) for planned in self.plan.queues
        }
        return ImportedSpace(
            source=self.source.definition.name,
            name=self.name,
            queues=queues,
            skipped=self.skipped,
            use=total(uses.values()),
            uses=uses,
            commands=tuple(self._commands(queues)),
            resumed=self.resumed,
            created=self.creates,
        )

    def _commands(self, queues: Mapping[str, tuple[str, Mode]]) -> Iterator[tuple[str, str]]:
        """Yield the capacity commands that queues are defined with, each after the name of its queue."""
        for archived in self.source.queues:
            name, mode = queues.get(archived.definition.name, ("", Mode.APPEND))
            if mode is not Mode.APPEND:
                yield from ((name, command) for command in archived.definition.commands)


def is_counted(archive: Archive, device: Device, asked: ImportOptions) -> bool:
    """Tell whether the archive has to be read to know how much of it is imported; else its manifest says that."""
    return asked.selection.picks or archive.manifest.source.page_size != device.info.page_size


def plans(
    archive: Archive, device: Device, asked: ImportOptions, tallies: Sequence[Tally] | None = None
) -> Iterator[SpacePlan]:
    """Yield what is imported into each queue space; refuse what cannot be.

    Of an archive that was made for its messages these are what is imported, unless only definitions are asked for. The
    tallies are what is meant of the queues; without them all is that is in the states that are selected.
    """
    asked = _as_made(archive.manifest, asked)
    counts = None if tallies is None else _counts_of(tallies)
    spaces = {space.definition.name: space for space in archive.manifest.spaces}
    refuse_strangers(archive.manifest, asked.spaces, asked.queues)
    names = asked.selection.chosen_spaces(spaces, "the archive")
    refuse_one_name(asked.names, names)
    asked.selection.refuse_unmatched(
        (queue.definition.name for name in names for queue in spaces[name].queues), "the archive"
    )
    present = {space.name: space for space in device.spaces()}
    jobs = {name: _jobs(archive, device, present.get(asked.names.space(name))) for name in names}
    is_cut_short = any(job.state in UNFINISHED for found in jobs.values() for job in found)
    if asked.resume and not is_cut_short:
        raise NotOpenError(
            f"no import of this archive into device {device.path!r} was cut short",
            hint="Omit --resume to begin one.",
            archive=archive.manifest.archive,
        )
    for name in names:
        earlier = jobs[name] if is_cut_short or asked.once else []
        plan = _plan(archive, spaces[name], device, present, asked, earlier, counts)
        if plan.plan.queues or plan.creates or plan.skipped:
            yield plan


def _as_made(manifest: Manifest, asked: ImportOptions) -> ImportOptions:
    """Return what is asked for, where nothing is said of that: what the archive was made for."""
    if manifest.content is not Content.MESSAGES or asked.selection.content is not Content.ALL:
        return asked
    return dataclasses.replace(asked, selection=dataclasses.replace(asked.selection, content=Content.MESSAGES))


def _counts_of(tallies: Sequence[Tally]) -> dict[Source, list[Count]]:
    """Return how many messages of each queue are meant, in each state."""
    counts: dict[Source, list[Count]] = {}
    for (space, queue, state, memory), uses in _by_standing(tallies).items():
        use = total(uses)
        counts.setdefault((space, queue), []).append(Count(state, memory, use.messages, use.pages, use.size))
    return counts


def _by_standing(tallies: Sequence[Tally]) -> dict[Standing, list[Use]]:
    found: dict[Standing, list[Use]] = {}
    for each in tallies:
        found.setdefault(each.standing, []).append(each.use)
    return found


def _jobs(archive: Archive, device: Device, space: Space | None) -> list[ImportJob]:
    """Return the imports of the archive into a queue space, those first that are to go on."""
    if space is None:
        return []
    found = device.volume_of_space(space.name).read(lambda unit: imports(unit, space.id))
    its = [job for job in found if job.archive == archive.manifest.archive and job.state is not Stage.ABANDONED]
    return sorted(its, key=lambda job: job.state not in UNFINISHED)


def _plan(
    archive: Archive,
    source: ArchivedSpace,
    device: Device,
    present: Mapping[str, Space],
    asked: ImportOptions,
    earlier: Sequence[ImportJob],
    counts: Mapping[Source, Sequence[Count]] | None,
) -> SpacePlan:
    """Plan what is imported into a queue space, or what was when an earlier import was cut short."""
    whole = counts is not None or not is_counted(archive, device, asked)
    for job in earlier:
        # What was published since then is there now, and is not to be taken for what was there before.
        modes = {planned.source: planned.mode for planned in job.plan.queues}
        plan = _planned_as(archive, source, device, present, asked, modes, counts)
        if plan.plan == job.plan or (not whole and _uncounted(plan.plan) == _uncounted(job.plan)):
            return dataclasses.replace(plan, resumed=True, done=job.state is Stage.DONE)
    return _planned_as(archive, source, device, present, asked, {}, counts)


def _uncounted(plan: ImportPlan) -> ImportPlan:
    """Return a plan as it is before it is known how much is imported."""
    queues = (
        dataclasses.replace(planned, use=NOTHING, memory_use=NOTHING, retained=NOTHING) for planned in plan.queues
    )
    return dataclasses.replace(plan, queues=tuple(queues))


def _planned_as(
    archive: Archive,
    source: ArchivedSpace,
    device: Device,
    present: Mapping[str, Space],
    asked: ImportOptions,
    modes: Mapping[str, Mode],
    counts: Mapping[Source, Sequence[Count]] | None,
) -> SpacePlan:
    selection = asked.selection
    name = asked.names.space(source.definition.name)
    there = present.get(name)
    if there is None and selection.content is Content.MESSAGES:
        raise BadResourceError(
            f"there is no queue space {name!r} on device {device.path!r}",
            hint="Import the definitions first, or create it with qspacecreate.",
            space=name,
        )
    known = {} if there is None else {queue.name: queue for queue in device.queues(name)}
    planned, skipped = [], []
    for queue in source.queues:
        if not selection.has_queue(queue.definition.name):
            continue
        called = asked.names.queue(source.definition.name, queue.definition.name)
        mode = modes.get(queue.definition.name) or _mode(called, known, name, asked)
        if mode is None:
            skipped.append(queue.definition.name)
        else:
            key = (source.definition.name, queue.definition.name)
            of_queue = queue.counts if counts is None else counts.get(key, ())
            planned.append(_planned(source, queue, called, mode, asked, of_queue))
    plan = ImportPlan(
        archive=archive.manifest.archive,
        queues=tuple(planned),
        first=source.first,
        last=source.last,
        adopted=_identifiers(source),
        times=asked.times,
        again=asked.again,
    )
    return SpacePlan(source, name, plan, tuple(skipped), there is None)


def _mode(name: str, known: Mapping[str, object], space: str, asked: ImportOptions) -> Mode | None:
    """Return how a queue is imported; None where it is skipped."""
    if name not in known:
        if asked.selection.content is Content.MESSAGES:
            raise BadQueueError(
                f"there is no queue {name!r} in queue space {space!r} that the messages could be appended to",
                hint="Import the definitions first, or create it with qcreate.",
                queue=name,
            )
        return Mode.CREATE
    if asked.selection.content is Content.MESSAGES and asked.existing in (Existing.REFUSE, Existing.APPEND):
        return Mode.APPEND
    match asked.existing:
        case Existing.SKIP:
            return None
        case Existing.REPLACE:
            return Mode.REPLACE
        case Existing.APPEND:
            return Mode.APPEND
    raise InvalidArgumentError(
        f"queue {name!r} exists already in queue space {space!r}",
        hint="Say what to do with existing queues (skip, replace, append), or give this one another name.",
        queue=name,
        space=space,
        alternative=Alternative.EXISTING,
    )


def _planned(
    source: ArchivedSpace, queue: ArchivedQueue, name: str, mode: Mode, asked: ImportOptions, of_queue: Sequence[Count]
) -> PlannedQueue:
    states = asked.selection.carried_states
    counts = [count for count in of_queue if count.state in states]

    def use(*, memory: bool, retained: bool) -> Use:
        chosen = [count for count in counts if count.memory == memory and (count.state is State.CONSUMED) == retained]
        return Use(
            sum(count.messages for count in chosen),
            sum(count.pages for count in chosen),
            sum(count.size for count in chosen),
        )

    return PlannedQueue(
        source_space=source.definition.name,
        source=queue.definition.name,
        definition=dataclasses.replace(queue.definition, name=name),
        mode=mode,
        enqueue_enabled=queue.enqueue_enabled and not asked.closed,
        dequeue_enabled=queue.dequeue_enabled and asked.start,
        use=use(memory=False, retained=False),
        memory_use=use(memory=True, retained=False),
        retained=use(memory=False, retained=True),
    )


def _identifiers(source: ArchivedSpace) -> tuple[Adopted, ...]:
    """Return the identifiers of the archive that stay valid."""
    if not source.last or source.incarnation == NO_INCARNATION:
        return ()
    return tuple(as_space(source).pieces(source.first, source.last))
