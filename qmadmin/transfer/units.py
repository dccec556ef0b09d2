"""What a worker does at a time: functions of values that can be pickled, which know nothing of who runs them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.archive.rows import Standing, batch_of, rows_of
from qmadmin.archive.writing import part_in
from qmadmin.opening import open_device
from qmadmin.transfer.digesting import Digest, joined
from qmadmin.transfer.naming import as_space
from qmcore.acts import importing
from qmcore.acts.removing import CarriedMessage, remove_carried
from qmcore.acts.stores import stores
from qmcore.carried import Row
from qmcore.errors import SystemFailureError
from qmcore.imports import ImportJob, Source
from qmcore.message import State
from qmcore.port import Volume
from qmcore.space import Space

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.archive.manifest import ArchivedSpace, PartEntry
    from qmadmin.archive.reading import Archive
    from qmadmin.device import Attachment, Device
    from qmadmin.transfer.picture import Reader
    from qmcore.carried import Run
    from qmcore.condition import Condition
    from qmcore.port import Unit


ROLE = "import"
"""What others see of a process that imports."""

REMOVED_AT_A_TIME = 500
"""Messages that are removed in one transaction."""

REMOVED_STATES = (State.READY, State.DELAYED)
"""The states in which messages can be removed; what was consumed is kept for as long as its queue says."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExportUnit:
    """A part of an archive: its name, the runs of messages that it gets, each with its queue space.

    Only messages are meant that fulfil the condition. `rate` limits the messages per second.
    """

    name: str
    runs: tuple[tuple[str, Run], ...]
    condition: Condition | None = None
    rate: float | None = None


def write_part(reader: Reader, directory: str, unit: ExportUnit) -> PartEntry:
    """Write a part of an archive, and return what the manifest says of it."""
    pace = Pace(unit.rate)
    with part_in(Path(directory), unit.name) as part:
        for space, run in unit.runs:

            def write(work: Unit, found: Space, run: Run = run) -> int:
                count = 0
                for batch in _batches(work, found, run, unit.condition):
                    part.write(batch)
                    count += batch.num_rows
                    pace.keep(batch.num_rows)
                return count

            count = reader.read(space, write)
            if count != run.messages:
                raise SystemFailureError(
                    f"queue {run.queue!r} of queue space {space!r} has {count} messages where the snapshot had"
                    f" {run.messages}",
                    hint="Look at the device with qcheck.",
                )
        return part.close()


def read_unit(reader: Reader, unit: ExportUnit, *, body: bool = True) -> Iterator[tuple[State, RecordBatch]]:
    """Yield the messages of a unit, each batch with the state that they are in; without bodies if not wanted."""
    for space, run in unit.runs:
        # A generator cannot stay within the snapshot's turn, so that a run is read as a whole.
        yield from reader.read(space, lambda work, found, run=run: list(_stated(work, found, run, unit, body=body)))  # type: ignore[misc]


def _stated(work: Unit, space: Space, run: Run, unit: ExportUnit, *, body: bool) -> Iterator[tuple[State, RecordBatch]]:
    for batch in _batches(work, space, run, unit.condition, body=body):
        yield run.state, batch


def _batches(
    unit: Unit, space: Space, run: Run, condition: Condition | None, *, body: bool = True
) -> Iterator[RecordBatch]:
    for rows in _rows(unit, space, run, condition, body=body):
        yield batch_of(space.name, run.queue, state_in_archive(run.state), run.memory, rows, space.msgid)


def state_in_archive(state: State) -> State:
    """Return what a state is in an archive: what a transaction holds stands there as if that had rolled back."""
    return State.READY if state is State.HELD else state


def _rows(unit: Unit, space: Space, run: Run, condition: Condition | None, *, body: bool = True) -> Iterator[list[Row]]:
    queue = next(queue for queue in unit.queues(space.id) if queue.name == run.queue)
    return stores(unit, space.id)[run.memory].carried(space, queue, run, condition, body=body)


@dataclasses.dataclass(frozen=True, slots=True)
class ImportTarget:
    """A queue space that an archive is imported into: its name, that in the archive, and the import.

    `loaded` are the batches that are there already.
    """

    name: str
    source: str
    job: ImportJob
    loaded: frozenset[tuple[str, int]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImportUnit:
    """A part of an archive that is loaded: only messages in these states, at most `rate` in a second."""

    entry: PartEntry
    states: tuple[State, ...]
    rate: float | None = None


class Loader:
    """What it takes to load parts of an archive into queue spaces of a device."""

    def __init__(self, archive: Archive, volumes: Mapping[str, Volume], targets: Sequence[ImportTarget]) -> None:
        self.archive = archive
        self._volumes = volumes
        self._targets = {target.source: target for target in targets}

    def wants(self, source: Source, batch: tuple[str, int]) -> bool:
        """Tell whether what a batch has of a queue of the archive is still to be loaded."""
        target = self._targets.get(source[0])
        return target is not None and source in target.job.queues and batch not in target.loaded

    def load(self, space: str, batch: tuple[str, int], groups: Sequence[importing.Group]) -> None:
        """Load the messages of a queue space of the archive that are in a batch."""
        importing.load_batch(self._volumes[space], self._targets[space].job, batch, groups)


@contextlib.contextmanager
def loading(config: str, archive: Archive, targets: Sequence[ImportTarget]) -> Iterator[Loader]:
    """Give what it takes to load parts of an archive into a device."""
    with open_device(config) as device, contextlib.ExitStack() as stack:
        for target in targets:
            if target.job.plan.memory_use.messages:
                # Whoever is attached has the memory of the queue space open.
                stack.enter_context(device.open_space(target.name, role=ROLE))
        yield Loader(archive, {target.source: device.volume_of_space(target.name) for target in targets}, targets)


def load_part(loader: Loader, unit: ImportUnit) -> int:
    """Load a part of an archive, and return how many messages were loaded."""
    pace, count = Pace(unit.rate), 0
    for first, batch in loader.archive.batches(unit.entry):
        name = (unit.entry.name, first)
        of_space: dict[str, list[importing.Group]] = {}
        for space, queue, state, memory, rows in rows_of(batch):
            if state in unit.states and loader.wants((space, queue), name):
                of_space.setdefault(space, []).append(((space, queue), state, memory, rows))
        for space, groups in of_space.items():
            loader.load(space, name, groups)
            loaded = sum(len(rows) for *_, rows in groups)
            count += loaded
            pace.keep(loaded)
    return count


def verify_part(archive: Archive, entry: PartEntry) -> None:
    """Refuse a part that is not what the manifest says."""
    archive.verify_part(entry)


@contextlib.contextmanager
def removing(config: str, archive: Archive) -> Iterator[Remover]:
    """Give what it takes to remove from a device what an archive has of it."""
    with open_device(config) as device, contextlib.ExitStack() as stack:
        for space in archive.manifest.spaces:
            stack.enter_context(device.open_space(space.definition.name, role=ROLE))
        attached = {
            space.definition.name: device.attachment(space.definition.name, ROLE) for space in archive.manifest.spaces
        }
        yield Remover(archive, device, attached)


class Remover:
    """What it takes to remove from a device what an archive has of it."""

    def __init__(self, archive: Archive, device: Device, attached: Mapping[str, Attachment]) -> None:
        self.archive = archive
        self._device = device
        self._attached = attached

    def remove(self, standing: Standing, carried: Sequence[CarriedMessage]) -> int:
        """Remove messages that are as they were, and return how many that is."""
        space, queue, _, memory = standing
        its, now = self._attached[space], self._device.clock.now()
        if self.archive_space(space).incarnation != its.opened.space.incarnation:
            return 0
        return its.volume.write(
            lambda unit: remove_carried(unit, its.opened, queue, carried, now, memory=memory), concurrent=True
        )

    def archive_space(self, name: str) -> ArchivedSpace:
        """Return a queue space of the archive."""
        return next(space for space in self.archive.manifest.spaces if space.definition.name == name)


def remove_part(remover: Remover, entry: PartEntry) -> int:
    """Remove from a device what a part has of it, and return how many messages it was."""
    removed = 0
    for standing, rows in remover.archive.places(entry, REMOVED_AT_A_TIME):
        if standing[2] in REMOVED_STATES:
            removed += remover.remove(standing, [CarriedMessage(*row) for row in rows])
    return removed


def digest_part(archive: Archive, number: int, entry: PartEntry) -> tuple[int, list[tuple[Standing, Digest]]]:
    """Return the digests of what a part has, with the number of the part."""
    names = {space.definition.name: as_space(space).msgid for space in archive.manifest.spaces}
    found = [
        ((space, queue, state, memory), Digest.of(rows, names[space]))
        for _, batch in archive.batches(entry)
        for space, queue, state, memory, rows in rows_of(batch)
    ]
    return number, found


def digest_runs(reader: Reader, number: int, unit: ExportUnit) -> tuple[int, list[tuple[Standing, Digest]]]:
    """Return the digests of what a device has in some runs, with the number of the unit."""

    def digest(run: Run) -> Callable[[Unit, Space], Digest]:
        return lambda work, found: joined(
            Digest.of(rows, found.msgid) for rows in _rows(work, found, run, unit.condition)
        )

    return number, [
        ((space, run.queue, run.state, run.memory), reader.read(space, digest(run))) for space, run in unit.runs
    ]


class Pace:
    """Keeps work to so many messages per second; None is as many as there can be."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._done = 0

    def keep(self, count: int) -> None:
        """Wait until `count` more messages are due."""
        if self._rate is None:
            return
        self._done += count
        ahead = self._done / self._rate - (time.monotonic() - self._began)
        if ahead > 0:
            time.sleep(ahead)
