"""The plan of an import, queue space by queue space, from the manifest and the content of the device."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence

from qmadmin.archive.manifest import NO_INCARNATION, ArchivedQueue, ArchivedSpace, Content, Count, Manifest
from qmadmin.archive.reading import Archive
from qmadmin.archive.rows import Standing
from qmadmin.device import Device
from qmadmin.transfer.selecting import ArchiveSelection, SelectedMessages
from qmcore.acts.importing import imports
from qmcore.bulk_rows import Adopted
from qmcore.errors import Alternative, BadQueueError, BadResourceError, InvalidArgumentError, NotOpenError
from qmcore.imports import NOTHING, ImportJob, ImportPlan, Mode, PlannedQueue, Source, Stage, Times, total
from qmcore.message import State
from qmcore.records import Use
from qmcore.space import Space
from qmcore.values import dataclass

UNFINISHED = (Stage.LOADING, Stage.MERGING)
"""The states of an interrupted import."""


class Existing(enum.Enum):
    """What happens to a queue that exists already at the destination."""

    REFUSE = "refuse"
    SKIP = "skip"
    REPLACE = "replace"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How an archive is imported.

    The selection applies with its queue spaces, queues, states and content. `spaces` and `queues` map old names to new
    ones. `start` starts queues for dequeuing that were started in the archive; otherwise imported queues are stopped
    for dequeuing, and with `closed` for enqueuing too. `times` says what happens to the times of messages. `again`
    imports queues that were imported before, `once` skips them. `resume` only resumes an interrupted import. `key` are
    the bytes of the key that signs the archive. `rate` limits the messages per second.
    """

    selection: ArchiveSelection = dataclasses.field(default_factory=ArchiveSelection)
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
        """The new names of queue spaces and queues of the archive."""
        return Names(self.spaces, self.queues)


@dataclass(frozen=True, slots=True)
class ImportedSpace:
    """The import into a queue space: its source, the names of its queues, and the numbers of messages.

    `uses` are those of each queue, by its name in the archive; `commands` are the queues that get a capacity command
    from the archive, with the command; `resumed`: it had begun before.
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


@dataclass(frozen=True, slots=True)
class SpaceImportPlan:
    """The plan for a queue space of the archive: what is imported, and under which names.

    `done`: it was imported already when the import of others was interrupted.
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
        """Its report."""
        queues = {planned.source: (planned.name, planned.mode) for planned in self.plan.queues}
        uses = {
            planned.source: total((planned.use, planned.memory_use, planned.retained)) for planned in self.plan.queues
        }
        return ImportedSpace(
            source=self.source.name,
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
            name, mode = queues.get(archived.name, ("", Mode.APPEND))
            if mode is not Mode.APPEND:
                yield from ((name, command) for command in archived.definition.commands)


def is_counted(archive: Archive, device: Device, asked: ImportOptions) -> bool:
    """Return whether the archive has to be read to know how much of it is imported; otherwise the manifest shows it."""
    return asked.selection.picks or archive.manifest.source.page_size != device.info.page_size


def plans(
    archive: Archive, device: Device, asked: ImportOptions, tallies: Sequence[SelectedMessages] | None = None
) -> Iterator[SpaceImportPlan]:
    """Yield the plan for each queue space; refuse what cannot be imported.

    From an archive of messages only the messages are imported, unless only definitions are requested. The tallies are
    the selected messages of the queues; without them all messages in the selected states are.
    """
    asked = _as_made(archive.manifest, asked)
    counts = None if tallies is None else _counts_of(tallies)
    spaces = {space.name: space for space in archive.manifest.spaces}
    refuse_unknown_names(archive.manifest, asked.spaces, asked.queues)
    names = asked.selection.chosen_spaces(spaces, "the archive")
    refuse_one_name(asked.names, names)
    asked.selection.refuse_unmatched((queue.name for name in names for queue in spaces[name].queues), "the archive")
    planner = _Planner(archive, device, asked, counts, {space.name: space for space in device.spaces()})
    jobs = {name: planner.jobs(spaces[name]) for name in names}
    is_cut_short = any(job.state in UNFINISHED for found in jobs.values() for job in found)
    if asked.resume and not is_cut_short:
        raise NotOpenError(
            f"no import of this archive into device {device.path!r} was interrupted",
            hint="Omit --resume to begin one.",
            archive=archive.manifest.archive,
        )
    for name in names:
        plan = planner.plan(spaces[name], jobs[name] if is_cut_short or asked.once else [])
        if plan.plan.queues or plan.creates or plan.skipped:
            yield plan


def _as_made(manifest: Manifest, asked: ImportOptions) -> ImportOptions:
    """Return the options with the content for which the archive was made as the default."""
    if manifest.content is not Content.MESSAGES or asked.selection.content is not Content.ALL:
        return asked
    return dataclasses.replace(asked, selection=dataclasses.replace(asked.selection, content=Content.MESSAGES))


def _counts_of(tallies: Sequence[SelectedMessages]) -> dict[Source, list[Count]]:
    """Return the number of selected messages of each queue, in each state."""
    counts: dict[Source, list[Count]] = {}
    for each in tallies:
        space, queue, state, memory = each.standing
        use = each.use
        counts.setdefault((space, queue), []).append(Count(state, memory, use.messages, use.pages, use.size))
    return counts


@dataclass(frozen=True, slots=True)
class _Planner:
    """Makes the plans for all queue spaces of an archive.

    `counts` are the selected messages of each queue; None means those that the manifest counts. `present` are the
    queue spaces of the device.
    """

    archive: Archive
    device: Device
    asked: ImportOptions
    counts: Mapping[Source, Sequence[Count]] | None
    present: Mapping[str, Space]

    def jobs(self, source: ArchivedSpace) -> list[ImportJob]:
        """Return the imports of the archive into a queue space, those first that are to be resumed."""
        space = self.present.get(self.asked.names.space(source.name))
        if space is None:
            return []
        found = self.device.volume_of_space(space.name, looks=True).read(lambda unit: imports(unit, space.id))
        archive = self.archive.manifest.archive
        its = [job for job in found if job.archive == archive and job.state is not Stage.ABANDONED]
        return sorted(its, key=lambda job: job.state not in UNFINISHED)

    def plan(self, source: ArchivedSpace, earlier: Sequence[ImportJob]) -> SpaceImportPlan:
        """Plan an import into a queue space, or return the plan of an interrupted one."""
        whole = self.counts is not None or not is_counted(self.archive, self.device, self.asked)
        for job in earlier:
            # Queues that were published since then exist now, but did not exist before the import.
            plan = self._plan(source, {planned.source: planned.mode for planned in job.plan.queues})
            if plan.plan == job.plan or (not whole and _uncounted(plan.plan) == _uncounted(job.plan)):
                return dataclasses.replace(plan, resumed=True, done=job.state is Stage.DONE)
        return self._plan(source, {})

    def _plan(self, source: ArchivedSpace, modes: Mapping[str, Mode]) -> SpaceImportPlan:
        asked = self.asked
        name = asked.names.space(source.name)
        creates = name not in self.present
        if creates and asked.selection.content is Content.MESSAGES:
            raise BadResourceError(
                f"there is no queue space {name!r} on device {self.device.path!r}",
                hint="Import the definitions first, or create it with qspacecreate.",
                space=name,
            )
        known = set() if creates else {queue.name for queue in self.device.queues(name)}
        planned, skipped = [], []
        for queue in source.queues:
            if not asked.selection.has_queue(queue.name):
                continue
            called = asked.names.queue(source.name, queue.name)
            mode = modes.get(queue.name) or _mode(called, name, asked, exists=called in known)
            if mode is None:
                skipped.append(queue.name)
            else:
                planned.append(self._planned(source.name, queue, called, mode))
        plan = ImportPlan(
            archive=self.archive.manifest.archive,
            queues=tuple(planned),
            first=source.first,
            last=source.last,
            adopted=_identifiers(source),
            times=asked.times,
            again=asked.again,
        )
        return SpaceImportPlan(source, name, plan, tuple(skipped), creates)

    def _planned(self, space: str, queue: ArchivedQueue, name: str, mode: Mode) -> PlannedQueue:
        states = self.asked.selection.carried_states
        counts = queue.counts if self.counts is None else self.counts.get((space, queue.name), ())

        def use(*, memory: bool, retained: bool) -> Use:
            return total(
                Use(count.messages, count.pages, count.size)
                for count in counts
                if count.state in states and count.memory == memory and (count.state is State.CONSUMED) == retained
            )

        return PlannedQueue(
            source_space=space,
            source=queue.name,
            definition=dataclasses.replace(queue.definition, name=name),
            mode=mode,
            enqueue_enabled=queue.enqueue_enabled and not self.asked.closed,
            dequeue_enabled=queue.dequeue_enabled and self.asked.start,
            use=use(memory=False, retained=False),
            memory_use=use(memory=True, retained=False),
            retained=use(memory=False, retained=True),
        )


def _uncounted(plan: ImportPlan) -> ImportPlan:
    """Return a plan before the numbers of messages are known."""
    queues = (
        dataclasses.replace(planned, use=NOTHING, memory_use=NOTHING, retained=NOTHING) for planned in plan.queues
    )
    return dataclasses.replace(plan, queues=tuple(queues))


def _mode(name: str, space: str, asked: ImportOptions, *, exists: bool) -> Mode | None:
    """Return how a queue is imported; None if it is skipped."""
    appends = asked.selection.content is Content.MESSAGES
    if not exists:
        if appends:
            raise BadQueueError(
                f"there is no queue {name!r} in queue space {space!r} that the messages could be appended to",
                hint="Import the definitions first, or create it with qcreate.",
                queue=name,
            )
        return Mode.CREATE
    match asked.existing:
        case Existing.SKIP:
            return None
        case Existing.REPLACE:
            return Mode.REPLACE
        case Existing.REFUSE if not appends:
            raise InvalidArgumentError(
                f"queue {name!r} exists already in queue space {space!r}",
                hint="Say what to do with existing queues (skip, replace, append), or give this one another name.",
                queue=name,
                space=space,
                alternative=Alternative.EXISTING,
            )
        case _:
            return Mode.APPEND


def _identifiers(source: ArchivedSpace) -> tuple[Adopted, ...]:
    """Return the identifiers of the archive that stay valid."""
    if not source.last or source.incarnation == NO_INCARNATION:
        return ()
    return tuple(as_space(source).pieces(source.first, source.last))


_HINT = "Give the name that it has in the archive first; qmspark show shows it."


class Names:
    """The names of queue spaces and queues of an archive on a device."""

    def __init__(self, spaces: Mapping[str, str], queues: Mapping[str, str]) -> None:
        self._spaces = spaces
        self._queues = queues

    def space(self, name: str) -> str:
        """Return the name of a queue space on the device."""
        return self._spaces.get(name, name)

    def queue(self, space: str, name: str) -> str:
        """Return the name of a queue on the device; a new name for one queue space precedes one for all."""
        return self._queues.get(f"{space}/{name}", self._queues.get(name, name))

    def standing(self, of: Standing) -> Standing:
        """Return the queue and state of messages of the archive on the device."""
        space, queue, state, memory = of
        return self.space(space), self.queue(space, queue), state, memory


def refuse_unknown_names(manifest: Manifest, spaces: Iterable[str], queues: Iterable[str]) -> None:
    """Refuse new names for queue spaces and queues that the archive does not have."""
    known = {space.name: {queue.name for queue in space.queues} for space in manifest.spaces}
    for name in spaces:
        if name not in known:
            raise BadResourceError(
                f"the archive has no queue space {name!r} that could get another name", hint=_HINT, space=name
            )
    everywhere = set().union(*known.values())
    for name in queues:
        space, _, queue = name.partition("/")
        if name not in everywhere and queue not in known.get(space, ()):
            raise BadQueueError(
                f"the archive has no queue {name!r} that could get another name", hint=_HINT, queue=name
            )


def refuse_one_name(names: Names, spaces: Iterable[str]) -> None:
    """Refuse two queue spaces of an archive that would have the same name on the device."""
    sources: dict[str, str] = {}
    for name in spaces:
        new = names.space(name)
        other = sources.setdefault(new, name)
        if other != name:
            raise InvalidArgumentError(
                f"queue spaces {other!r} and {name!r} of the archive would both be called {new!r}",
                hint="Give them different names, or import one of them.",
                space=new,
            )


def as_space(archived: ArchivedSpace) -> Space:
    """Return a queue space of an archive as one that has its messages: what identifiers they have there."""
    return Space(0, archived.incarnation, archived.definition, False, 0, archived.adopted)
