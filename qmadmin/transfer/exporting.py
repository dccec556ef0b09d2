"""Exporting queue spaces of a device into an archive, while other processes go on working."""

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
    ArchiveSource,
    Content,
    Count,
    LeftOut,
    Manifest,
    PartEntry,
    counted,
)
from qmadmin.archive.rows import Standing
from qmadmin.archive.writing import ArchiveWriter
from qmadmin.opening import open_device
from qmadmin.transfer import Executor, Local, Processes, Progress, Workers, cores, no_progress, step_progress
from qmadmin.transfer.selecting import ArchiveSelection, Outstanding
from qmadmin.transfer.snapshot import SnapshotReader, snapshot_of
from qmadmin.transfer.units import ExportUnit, size_runs, state_in_archive, write_part
from qmadmin.version import __version__
from qmcore import volume_record
from qmcore.acts.outstanding import held as held_in
from qmcore.acts.stores import stores
from qmcore.bulk_rows import Run
from qmcore.errors import InUseError, InvalidArgumentError
from qmcore.message import State
from qmcore.records import Outcome, Role, Use
from qmcore.values import dataclass
from qmcore.xid import Xid

if TYPE_CHECKING:
    from qmadmin.transfer.target import Destination
    from qmcore.condition import Condition
    from qmcore.port import Unit
    from qmcore.queue import Queue
    from qmcore.space import Space
    from qmcore.store import Store
    from qmcore.volume_record import MissingVolume

SMALL = 20_000
"""The messages that one process exports or imports in the time that others would take to start."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export; for a dry run `place` is None, and the manifest has no parts.

    `counts` are the messages of each queue, in their states, on disk and in memory. `sizes` are the bytes of their
    bodies if a dry run was asked for them.
    """

    place: Place | None
    manifest: Manifest
    counts: Mapping[Standing, int]
    seconds: float
    sizes: Mapping[Standing, int] | None = None
    missing: Sequence[MissingVolume] = ()
    """Files or schemas that cannot be opened, with the selected queue spaces on them, which are not in the archive."""

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
    """Write the queue spaces of a device into an archive, all as they were at one moment.

    `config` is the value of QMCONFIG for the device. The archive goes into a directory of this machine, or to a place,
    which is created or must be empty; it is not an archive until all is written. Without `executor` this process does
    small exports, and a process on each processor does large ones; so it is if parts are staged, with at most as many
    processes as the `executor` has workers. A dry run that is `sized` reads the size of each message.

    Raises InUseError if open transactions hold messages and `outstanding` refuses that, or if the directory is not
    empty; BadResourceError and BadQueueError if nothing matches a pattern; BadResourceError if the volume of a selected
    queue space is missing, unless `leave_out_missing`; OperatingSystemError if the disk is full.
    Then nothing is left in the directory.
    """
    asked, place, began = options or ExportOptions(), place_at(where), time.monotonic()
    with open_device(config) as device:
        missing = asked.selection.missing_of(device)
        names = asked.selection.spaces_of(device)
        if not asked.leave_out_missing:
            volume_record.refuse_missing(missing, "the archive would lack")
        if executor is None or place.staged:
            messages = sum(device.space_usage(name).messages for name in names)
            executor = fitting(messages, most=executor.count if executor else None)
        with contextlib.ExitStack() as undo, snapshot_of(device, names, executor) as (own, workers, moment):
            plan = Plan.made(own, names, asked, moment, executor.count)
            asked.selection.refuse_unmatched(plan.queues, f"device {device.path!r}")
            whence = ArchiveSource(device.path, device.info.id, device.kind, device.info.page_size, moment)
            if dry_run:
                sizes = _sizes(plan, workers, list(plan.units(asked, executor.count)), progress) if sized else None
                manifest = plan.manifest(whence, asked, ())
                return Exported(None, manifest, plan.counts(), time.monotonic() - began, sizes, missing)
            writer = ArchiveWriter.create(place, asked.key, again=asked.again)
            # After the workers have ended: one that is at work could leave a file behind.
            undo.callback(writer.discard)
            tasks = [(str(writer.staging), unit) for unit in plan.units(asked, executor.count)]
            told = step_progress(progress, "Exporting", plan.messages, len(tasks))
            entries = sorted(map(writer.taken, workers.run(write_part, tasks, told)), key=lambda entry: entry.name)
            manifest = plan.manifest(whence, asked, entries)
            writer.finish(manifest)
            undo.pop_all()
    return Exported(place, manifest, plan.counts(), time.monotonic() - began, missing=missing)


def _sizes(plan: Plan, workers: Workers, units: Sequence[ExportUnit], progress: Progress) -> dict[Standing, int]:
    sizes: dict[Standing, int] = {}
    told = step_progress(progress, "Counting", plan.messages, len(units))
    for found in workers.run(size_runs, [(unit,) for unit in units], told):
        for standing, size in found:
            sizes[standing] = sizes.get(standing, 0) + size
    return sizes


def fitting(messages: int, *, most: int | None = None) -> Executor:
    """Return this process for a small job, and several for a large one, one for each processor or `most`."""
    count = min(most or cores(), cores())
    return Local() if messages <= SMALL or count == 1 else Processes(count)


PART_MESSAGES = 100_000
PART_BYTES = 96 * 2**20
"""The maximum number of messages in a part, and about the maximum bytes of bodies."""

LEAST_MESSAGES = 2_000
"""The minimum number of messages in a part, even with many workers."""

_UNITS_OF_EACH = 4
"""The least number of parts for each worker, so that all end at about the same time."""

_STATES = (State.READY, State.HELD, State.DELAYED, State.PARKED, State.CONSUMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How a device is exported.

    `outstanding` says what happens to messages that open transactions hold. `key` are the bytes of a key that signs
    the archive. `rate` limits the messages per second. `again` begins again after an interrupted export. `enabled`
    has, by queue space and queue, whether messages could be enqueued and dequeued before the queues were stopped for
    the export. `destination` is that of a move. `leave_out_missing` leaves out queue spaces whose volumes are missing.
    """

    selection: ArchiveSelection = dataclasses.field(default_factory=ArchiveSelection)
    outstanding: Outstanding = Outstanding.REFUSE
    key: bytes | None = None
    rate: float | None = None
    again: bool = False
    enabled: Mapping[tuple[str, str], tuple[bool, bool]] = dataclasses.field(default_factory=dict)
    destination: Destination | None = None
    leave_out_missing: bool = False

    def said(self) -> dict[str, Any]:
        """Return the options in the form of a manifest."""
        moved = {} if self.destination is None else self.destination.said()
        return self.selection.said() | {"transactions": self.outstanding.value} | moved


@dataclass(frozen=True, slots=True)
class SpaceExportPlan:
    """The part of a queue space that is exported, in the snapshot."""

    space: Space
    queues: tuple[Queue, ...]
    runs: tuple[Run, ...]
    left_out: LeftOut
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The export of all queue spaces."""

    spaces: tuple[SpaceExportPlan, ...]
    moment: int

    @classmethod
    def made(cls, own: SnapshotReader, names: Sequence[str], asked: ExportOptions, moment: int, workers: int) -> Plan:
        """Plan an export of the snapshot; refuse what cannot be exported."""
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
        """Return the number of messages of each queue, in their states in the archive."""
        counts: dict[Standing, int] = {}
        for plan in self.spaces:
            for run in plan.runs:
                standing = (plan.space.name, run.queue, state_in_archive(run.state), run.memory)
                counts[standing] = counts.get(standing, 0) + run.messages
        return counts

    def units(self, asked: ExportOptions, workers: int) -> Iterator[ExportUnit]:
        """Yield a unit for each part; small runs share one."""
        parts = list(self._parts(_share(self.messages, workers)))
        # With fewer parts than workers, some workers have nothing to do.
        rate = asked.rate and asked.rate / max(1, min(workers, len(parts)))
        condition = asked.selection.whole_condition(self.moment)
        for number, runs in enumerate(parts):
            yield ExportUnit(name=f"part-{number:05d}.parquet", runs=runs, condition=condition, rate=rate)

    def manifest(self, whence: ArchiveSource, asked: ExportOptions, parts: Sequence[PartEntry]) -> Manifest:
        """Return the manifest of the archive."""
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


def _plan_space(
    unit: Unit, space: Space, asked: ExportOptions, condition: Condition | None, workers: int
) -> SpaceExportPlan:
    selection = asked.selection
    queues = tuple(queue for queue in unit.queues.of_space(space.id) if selection.has_queue(queue.name))
    for queue in queues:
        _refuse_several(queue)
    outstanding = _Transactions.found(unit, space, queues)
    last = unit.counters.last_sequence(space.id)
    if selection.content is Content.DEFINITIONS:
        return SpaceExportPlan(space, queues, (), outstanding.left_out(carried=False), last)
    if outstanding.held and State.HELD in selection.states:
        if asked.outstanding is Outstanding.REFUSE:
            raise outstanding.refusal(space)
        if asked.outstanding is Outstanding.ROLLED_BACK and outstanding.in_doubt is not None:
            raise outstanding.refusal_in_doubt(space)
    carries = (Outstanding.ROLLED_BACK, Outstanding.IN_DOUBT_TOO)
    carries_held = asked.outstanding in carries and State.HELD in selection.states
    runs: list[Run] = []
    for queue in queues:
        runs += _runs(unit, space, queue, selection, condition, workers, carries_held=carries_held)
    return SpaceExportPlan(space, queues, tuple(runs), outstanding.left_out(carried=carries_held), last)


def _refuse_several(queue: Queue) -> None:
    """Refuse a queue of which an archive cannot say yet what stands there for which consumer."""
    if queue.definition.multiple_consumers:
        raise InvalidArgumentError(
            f"queue {queue.name!r} is for several consumers, and an archive cannot hold one yet",
            hint="Select other queues, or back up the device with qbackup.",
            queue=queue.name,
        )


def _runs(
    unit: Unit,
    space: Space,
    queue: Queue,
    selection: ArchiveSelection,
    condition: Condition | None,
    workers: int,
    *,
    carries_held: bool,
) -> Iterator[Run]:
    """Yield runs of the messages of a queue; at most the selected number, the first in the order of the queue."""
    left, found = selection.count, stores(unit, space.id)
    for state in _STATES:
        if state not in selection.states or (state is State.HELD and not carries_held):
            continue
        shares = _shares(found, space, queue, state, condition, left)
        for number, (store, most) in enumerate(zip(found, shares, strict=True)):
            every = _every(store.counters.use(queue), most, workers)
            after = None
            for until, messages in store.bulk_read.boundaries(space, queue, state, every, condition, most=most):
                yield Run(queue.name, state, bool(number), after, until, messages)
                after = until
                if left is not None:
                    left -= messages


def _shares(
    found: Sequence[Store], space: Space, queue: Queue, state: State, condition: Condition | None, count: int | None
) -> list[int | None]:
    """Return how many of the first `count` messages of a queue in one state each store can have."""
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
    """Return how many messages a worker gets at a time."""
    return max(LEAST_MESSAGES, min(PART_MESSAGES, math.ceil(messages / (workers * _UNITS_OF_EACH))))


def _every(use: Use, most: int | None, workers: int) -> int:
    """Return the number of messages of a run of a queue, if at most `most` of them are exported."""
    by_size = PART_BYTES * max(use.messages, 1) // max(use.size, 1)
    carried = use.messages if most is None else min(use.messages, most)
    return max(1, min(by_size, _share(carried, workers)))


@dataclass(frozen=True, slots=True)
class _Transactions:
    """The open transactions of a queue space, and how many messages they hold and have enqueued."""

    active: int
    prepared: int
    held: int
    pending: int
    in_doubt: Xid | None
    """The identifier of a prepared one that holds any."""

    @classmethod
    def found(cls, unit: Unit, space: Space, queues: Sequence[Queue]) -> _Transactions:
        """Return those of a queue space, with the messages of these queues that they hold."""
        records = unit.transactions.of_space(space.id)
        states = [record.state for record in records]
        held = sum(
            store.bulk_read.tally(queue.id, State.HELD).messages for store in stores(unit, space.id) for queue in queues
        )
        counts, selected = held_in(unit, space.id), {queue.id for queue in queues}
        pending = sum(count for (_, role), count in counts.items() if role is Role.ENQUEUED)
        holders = {number for number, role in counts if role is not Role.ENQUEUED}
        in_doubt = (
            record.xid
            for record in records
            if record.state is Outcome.PREPARED and record.id in holders and not selected.isdisjoint(record.queue_ids)
        )
        return cls(states.count(Outcome.ACTIVE), states.count(Outcome.PREPARED), held, pending, next(in_doubt, None))

    def left_out(self, *, carried: bool) -> LeftOut:
        """Return their entry in the manifest."""
        return LeftOut(
            held=0 if carried else self.held,
            as_rolled_back=self.held if carried else 0,
            pending=self.pending,
            active=self.active,
            prepared=self.prepared,
        )

    def refusal(self, space: Space) -> InUseError:
        """Return the refusal of messages that open transactions hold."""
        count = self.active + self.prepared
        return InUseError(
            f"{count} open {'transaction has' if count == 1 else 'transactions have'} {self.held}"
            f" {'message' if self.held == 1 else 'messages'} of queue space {space.name!r}"
            f" ({self.active} active, {self.prepared} prepared)",
            hint="Leave such messages out, export them as if rolled back, or wait until the transactions have ended.",
            space=space.name,
            held=self.held,
        )

    def refusal_in_doubt(self, space: Space) -> InUseError:
        """Return the refusal of messages that a prepared transaction holds, as if it had rolled back."""
        return InUseError(
            f"prepared transaction {self.in_doubt} has messages of queue space {space.name!r}, which would be there"
            " twice if it commits",
            hint="Wait until its coordinator has ended it, leave such messages out, or export them too (in-doubt-too).",
            space=space.name,
        )


def _archived(
    plan: SpaceExportPlan,
    asked: ExportOptions,
    found: Mapping[tuple[str, str], tuple[Count, ...]],
    parts: Sequence[PartEntry],
) -> ArchivedSpace:
    name = plan.space.name
    portions = [portion for part in parts for portion in part.portions if portion.space == name]
    first = min((portion.first for portion in portions), default=0)
    # The number in an order key may be above that of its message, but not above the last assigned number.
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
