"""Exporting queue spaces of a device into an archive, while others go on working."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.archive.file_systems import Place, place_at
from qmadmin.archive.manifest import (
    ArchivedQueue,
    ArchivedSpace,
    Content,
    Count,
    LeftOut,
    Manifest,
    PartEntry,
    Source,
    counted,
)
from qmadmin.archive.rows import Standing
from qmadmin.archive.writing import ArchiveWriter
from qmadmin.opening import open_device
from qmadmin.transfer.executors import Executor, Local, Processes, Progress, Workers, cores, no_progress, step_progress
from qmadmin.transfer.selecting import Outstanding, Selection
from qmadmin.transfer.snapshot import SnapshotReader, snapshot_of
from qmadmin.transfer.units import ExportUnit, size_runs, state_in_archive, write_part
from qmadmin.version import __version__
from qmcore.acts.outstanding import held as held_in
from qmcore.acts.stores import stores
from qmcore.bulk_rows import Run
from qmcore.device import MissingVolume
from qmcore.errors import InUseError
from qmcore.message import State
from qmcore.records import Outcome, Role, Use

if TYPE_CHECKING:
    from qmadmin.transfer.destination import Destination
    from qmcore.condition import Condition
    from qmcore.port import Unit
    from qmcore.queue import Queue
    from qmcore.space import Space
    from qmcore.store import Store

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
    executor: Executor | None = None,
    progress: Progress = no_progress,
    dry_run: bool = False,
    sized: bool = False,
) -> Exported:
    """Write the queue spaces of a device into an archive, as they all stood at one moment.

    `config` is what QMCONFIG says of the device. The archive goes into a directory of this machine, or to a place. That
    is made, or is empty; it is not an archive until all is written. Without `executor` this process does what is small,
    and a process on each processor what is not; so it is where parts are staged, in at most as many processes as the
    `executor` has workers. A dry run that is to be `sized` looks at each message for its size.

    Raises InUseError where open transactions have messages and it is not said what becomes of those, or the directory
    holds something; BadResourceError and BadQueueError where nothing fits a pattern; OperatingSystemError where the
    disk is full. There is nothing in the directory then.
    """
    asked, place, began = options or ExportOptions(), place_at(where), time.monotonic()
    with open_device(config) as device:
        missing = device.missing_volumes()
        names = asked.selection.chosen_spaces([space.name for space in device.spaces()], f"device {device.path!r}")
        if executor is None or place.staged:
            messages = sum(device.space_usage(name).messages for name in names)
            executor = fitting(messages, most=executor.count if executor else None)
        with snapshot_of(device, names, executor) as (own, workers, moment):
            plan = Plan.made(own, names, asked, moment, executor.count)
            asked.selection.refuse_unmatched(plan.queues, f"device {device.path!r}")
            whence = Source(device.path, device.info.id, device.kind, device.info.page_size, moment)
            if dry_run:
                sizes = _sizes(plan, workers, list(plan.units(asked, executor.count)), progress) if sized else None
                manifest = plan.manifest(whence, asked, ())
                return Exported(None, manifest, plan.counts(), time.monotonic() - began, sizes, missing)
            writer = ArchiveWriter.create(place, asked.key, again=asked.again)
            try:
                tasks = [(str(writer.staging), unit) for unit in plan.units(asked, executor.count)]
                told = step_progress(progress, "Exporting", plan.messages, len(tasks))
                entries = sorted(map(writer.taken, workers.run(write_part, tasks, told)), key=lambda entry: entry.name)
                manifest = plan.manifest(whence, asked, entries)
                writer.finish(manifest)
            except BaseException:
                writer.discard()
                raise
    return Exported(place, manifest, plan.counts(), time.monotonic() - began, missing=missing)


def _sizes(plan: Plan, workers: Workers, units: Sequence[ExportUnit], progress: Progress) -> dict[Standing, int]:
    sizes: dict[Standing, int] = {}
    told = step_progress(progress, "Counting", plan.messages, len(units))
    for found in workers.run(size_runs, [(unit,) for unit in units], told):
        for standing, size in found:
            sizes[standing] = sizes.get(standing, 0) + size
    return sizes


def fitting(messages: int, *, most: int | None = None) -> Executor:
    """Return this process for what is small, and several for what is not, one on each processor or `most`."""
    count = min(most or cores(), cores())
    return Local() if messages <= SMALL or count == 1 else Processes(count)


PART_MESSAGES = 100_000
PART_BYTES = 96 * 2**20
"""A part is planned to have at most so many messages, and about so many bytes of bodies."""

LEAST_MESSAGES = 2_000
"""A part is not planned to have fewer, for the sake of many workers."""

_UNITS_OF_EACH = 4
"""How many parts each worker gets at least, so that all end at about the same time."""

_STATES = (State.READY, State.HELD, State.DELAYED, State.CONSUMED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How a device is exported.

    `outstanding` says what becomes of messages that open transactions have. `key` are the bytes of a key that signs
    the archive. `rate` limits the messages per second. `again` begins again where an export was cut short. `enabled`
    tells of queues that were stopped for the export, by queue space and queue, whether messages could be enqueued and
    dequeued before. `destination` is where it is all moved to, if it is.
    """

    selection: Selection = dataclasses.field(default_factory=Selection)
    outstanding: Outstanding = Outstanding.REFUSE
    key: bytes | None = None
    rate: float | None = None
    again: bool = False
    enabled: Mapping[tuple[str, str], tuple[bool, bool]] = dataclasses.field(default_factory=dict)
    destination: Destination | None = None

    def said(self) -> dict[str, Any]:
        """Return what is asked for, as the manifest of an archive tells it."""
        moved = {} if self.destination is None else self.destination.said()
        return self.selection.said() | {"transactions": self.outstanding.value} | moved


@dataclasses.dataclass(frozen=True, slots=True)
class SpacePlan:
    """What of a queue space is exported, as the snapshot shows it."""

    space: Space
    queues: tuple[Queue, ...]
    runs: tuple[Run, ...]
    left_out: LeftOut
    last_sequence: int


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What of all queue spaces is exported."""

    spaces: tuple[SpacePlan, ...]
    moment: int

    @classmethod
    def made(cls, own: SnapshotReader, names: Sequence[str], asked: ExportOptions, moment: int, workers: int) -> Plan:
        """Look at the snapshot; refuse what cannot be exported."""
        condition = asked.selection.whole_condition(moment)
        spaces = [
            own.read(name, lambda unit, space: _plan_space(unit, space, asked, condition, workers)) for name in names
        ]
        return cls(tuple(spaces), moment)

    @property
    def queues(self) -> list[str]:
        """The names of the queues that are exported."""
        return [queue.name for plan in self.spaces for queue in plan.queues]

    @property
    def messages(self) -> int:
        """How many messages are exported."""
        return sum(run.messages for plan in self.spaces for run in plan.runs)

    def counts(self) -> dict[Standing, int]:
        """Return how many messages there are of each queue, in the states that they have in the archive."""
        counts: dict[Standing, int] = {}
        for plan in self.spaces:
            for run in plan.runs:
                standing = (plan.space.name, run.queue, state_in_archive(run.state), run.memory)
                counts[standing] = counts.get(standing, 0) + run.messages
        return counts

    def units(self, asked: ExportOptions, workers: int) -> Iterator[ExportUnit]:
        """Yield the work, a part at a time; small runs go together."""
        parts = list(self._parts(_share(self.messages, workers)))
        # Where there are fewer parts than workers, some of these have nothing to do.
        rate = asked.rate and asked.rate / max(1, min(workers, len(parts)))
        condition = asked.selection.whole_condition(self.moment)
        for number, runs in enumerate(parts):
            yield ExportUnit(name=f"part-{number:05d}.parquet", runs=runs, condition=condition, rate=rate)

    def manifest(self, whence: Source, asked: ExportOptions, parts: Sequence[PartEntry]) -> Manifest:
        """Return what the archive says about itself."""
        found = counted(parts)
        return Manifest(
            archive=secrets.token_hex(16),
            created_us=self.moment,
            release=__version__,
            source=whence,
            selection=asked.said(),
            spaces=tuple(_archived(plan, asked, found, parts) for plan in self.spaces),
            parts=tuple(parts),
            content=asked.selection.content,
        )

    def _parts(self, most: int) -> Iterator[tuple[tuple[str, Run], ...]]:
        gathered: list[tuple[str, Run]] = []
        messages = 0
        for plan in self.spaces:
            for run in plan.runs:
                if gathered and messages + run.messages > most:
                    yield tuple(gathered)
                    messages, gathered = 0, []
                gathered.append((plan.space.name, run))
                messages += run.messages
        if gathered:
            yield tuple(gathered)


def _plan_space(unit: Unit, space: Space, asked: ExportOptions, condition: Condition | None, workers: int) -> SpacePlan:
    selection = asked.selection
    queues = tuple(queue for queue in unit.queues.of_space(space.id) if selection.has_queue(queue.name))
    outstanding = _Transactions.found(unit, space, queues)
    last = unit.last_sequence(space.id)
    if selection.content is Content.DEFINITIONS:
        return SpacePlan(space, queues, (), outstanding.left_out(carried=False), last)
    if outstanding.held and State.HELD in selection.states and asked.outstanding is Outstanding.REFUSE:
        raise outstanding.refusal(space)
    carries_held = asked.outstanding is Outstanding.ROLLED_BACK and State.HELD in selection.states
    runs: list[Run] = []
    for queue in queues:
        runs += _runs(unit, space, queue, selection, condition, workers, carries_held=carries_held)
    return SpacePlan(space, queues, tuple(runs), outstanding.left_out(carried=carries_held), last)


def _runs(
    unit: Unit,
    space: Space,
    queue: Queue,
    selection: Selection,
    condition: Condition | None,
    workers: int,
    *,
    carries_held: bool,
) -> Iterator[Run]:
    """Yield the messages of a queue in runs; at most as many as are asked for, the first in the order of the queue."""
    left, found = selection.count, stores(unit, space.id)
    for state in _STATES:
        if state not in selection.states or (state is State.HELD and not carries_held):
            continue
        shares = _shares(found, space, queue, state, condition, left)
        for number, (store, most) in enumerate(zip(found, shares, strict=True)):
            every = _every(store.use(queue), most, workers)
            after = None
            for until, messages in store.bulk_read.boundaries(space, queue, state, every, condition, most=most):
                yield Run(queue.name, state, bool(number), after, until, messages)
                after = until
                if left is not None:
                    left -= messages


def _shares(
    found: Sequence[Store], space: Space, queue: Queue, state: State, condition: Condition | None, count: int | None
) -> list[int | None]:
    """Return how many messages each store has at most of the first `count` of a queue in one state."""
    if not count or not all(store.bulk_read.boundaries(space, queue, state, 1, condition, most=1) for store in found):
        return [count] * len(found)
    with contextlib.ExitStack() as opened:
        places = [
            zip(
                opened.enter_context(contextlib.closing(store.bulk_read.places(space, queue, state, condition))),
                repeat(number),
            )
            for number, store in enumerate(found)
        ]
        of_store = Counter(number for _, number in islice(heapq.merge(*places), count))
    return [of_store[number] for number in range(len(found))]


def _share(messages: int, workers: int) -> int:
    """Return how many messages a worker does at a time."""
    return max(LEAST_MESSAGES, min(PART_MESSAGES, math.ceil(messages / (workers * _UNITS_OF_EACH))))


def _every(use: Use, most: int | None, workers: int) -> int:
    """Return how many messages of a queue a run has, where at most so many of them are carried."""
    by_size = PART_BYTES * max(use.messages, 1) // max(use.size, 1)
    carried = use.messages if most is None else min(use.messages, most)
    return max(1, min(by_size, _share(carried, workers)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Transactions:
    """The open transactions of a queue space, and how many messages they have and are to enqueue."""

    active: int
    prepared: int
    held: int
    pending: int

    @classmethod
    def found(cls, unit: Unit, space: Space, queues: Sequence[Queue]) -> _Transactions:
        """Look at a queue space, and at what transactions have of these queues."""
        states = [record.state for record in unit.transactions(space.id)]
        held = sum(
            store.bulk_read.tally(queue.id, State.HELD).messages for store in stores(unit, space.id) for queue in queues
        )
        pending = sum(count for (_, role), count in held_in(unit, space.id).items() if role is Role.ENQUEUED)
        return cls(states.count(Outcome.ACTIVE), states.count(Outcome.PREPARED), held, pending)

    def left_out(self, *, carried: bool) -> LeftOut:
        """Return what the manifest says of it."""
        return LeftOut(
            held=0 if carried else self.held,
            as_rolled_back=self.held if carried else 0,
            pending=self.pending,
            active=self.active,
            prepared=self.prepared,
        )

    def refusal(self, space: Space) -> InUseError:
        """Return the diagnostic for messages of which nobody has said what becomes of them."""
        count = self.active + self.prepared
        return InUseError(
            f"{count} open {'transaction has' if count == 1 else 'transactions have'} {self.held}"
            f" {'message' if self.held == 1 else 'messages'} of queue space {space.name!r}"
            f" ({self.active} active, {self.prepared} prepared)",
            hint="Leave such messages out, export them as if rolled back, or wait until the transactions have ended.",
            space=space.name,
            held=self.held,
        )


def _archived(
    plan: SpacePlan,
    asked: ExportOptions,
    found: Mapping[tuple[str, str], tuple[Count, ...]],
    parts: Sequence[PartEntry],
) -> ArchivedSpace:
    name = plan.space.name
    portions = [portion for part in parts for portion in part.portions if portion.space == name]
    first = min((portion.first for portion in portions), default=0)
    # An order key may have a number above that of its message, but none that was not given yet.
    last = max((plan.last_sequence, *(portion.last for portion in portions))) if portions else 0
    return ArchivedSpace(
        definition=plan.space.definition,
        incarnation=plan.space.incarnation,
        first=first,
        last=last,
        adopted=tuple(piece for piece in plan.space.pieces(first, last) if piece.incarnation != plan.space.incarnation),
        queues=tuple(
            ArchivedQueue(
                queue.definition,
                *asked.enabled.get((name, queue.name), (queue.enqueue_enabled, queue.dequeue_enabled)),
                found.get((name, queue.name), ()),
            )
            for queue in plan.queues
        ),
        left_out=plan.left_out,
    )
