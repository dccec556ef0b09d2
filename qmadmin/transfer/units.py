"""The units of work: functions of values that can be pickled, independent of the executor; and digests of messages.

Digests do not depend on where the messages are, nor on the pieces in which they are read. The digest of many messages
is the sum of their digests, so that any worker may add any of them; a sum over pairs of neighbours shows whether their
order is the same.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from qmadmin.archive.rows import Standing, batch_of, rows_of
from qmadmin.archive.writing import part_in
from qmadmin.transfer.import_planning import as_space
from qmadmin.transfer.selecting import RowFilter, SelectedMessages, tally
from qmadmin.transfer.target import ImportTarget, Target
from qmcore import bulk_rows
from qmcore.acts import importing
from qmcore.acts.expiry import kept_from
from qmcore.acts.purging import CarriedMessage
from qmcore.acts.stores import stores
from qmcore.bulk_rows import SIZE, Row, Run
from qmcore.errors import SystemFailureError
from qmcore.message import Reason, State
from qmcore.row_rules import refuse_damaged, refuse_of_another_kind
from qmcore.space import Space
from qmcore.values import dataclass

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from qmadmin.archive.manifest import PartEntry
    from qmadmin.archive.reading import Archive
    from qmadmin.transfer.snapshot import SnapshotReader
    from qmcore.condition import Condition
    from qmcore.port import Unit
    from qmcore.queue import Queue

_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _BYTES)
_GROUP: Final = bulk_rows.COLUMNS.index("group_sequence")
_LOCAL: Final = ("sequence", "order_key", "pages", "group_sequence")
"""Attributes that may differ between two copies of the same message."""

_SAME: Final = operator.itemgetter(*(at for at, name in enumerate(bulk_rows.COLUMNS) if name not in (*_LOCAL, "body")))


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest of consecutive messages: how many, their content, their order; "" means no message.

    `ordered` is whether the order is significant.
    """

    messages: int = 0
    content: int = 0
    order: int = 0
    first: str = ""
    last: str = ""
    ordered: bool = True

    @classmethod
    def of(cls, rows: Sequence[Row], msgid: Callable[[int], str], *, ordered: bool = True) -> Digest:
        """Return the digest of rows in their order; `msgid` gives the identifier of a sequence number."""
        names = [msgid(row[bulk_rows.SEQUENCE]) for row in rows]
        content = sum(_of_message(name, row, msgid) for name, row in zip(names, rows, strict=True)) % _MODULUS
        order = sum(_of_pair(one, other) for one, other in itertools.pairwise(names)) % _MODULUS
        return cls(len(rows), content, order, names[0] if names else "", names[-1] if names else "", ordered)

    def before(self, other: Digest) -> Digest:
        """Return the digest of these messages followed by others."""
        if not self.messages or not other.messages:
            return self if self.messages else other
        return Digest(
            self.messages + other.messages,
            (self.content + other.content) % _MODULUS,
            (self.order + other.order + _of_pair(self.last, other.first)) % _MODULUS,
            self.first,
            other.last,
            self.ordered and other.ordered,
        )

    @property
    def text(self) -> str:
        """The content as digits, for people to compare."""
        return f"{self.content:0{2 * _BYTES}x}"


def joined(digests: Iterable[Digest]) -> Digest:
    """Return the digest of messages from those of their parts, in order."""
    return reduce(Digest.before, digests, Digest())


def _of_message(name: str, row: Row, msgid: Callable[[int], str]) -> int:
    group = row[_GROUP]
    values = (name, None if group is None else msgid(group), row[bulk_rows.BODY] is None, *_SAME(row))
    body = row[bulk_rows.BODY]
    return _hashed(repr(values).encode(), b"" if body is None else body)


def _of_pair(one: str, other: str) -> int:
    return _hashed(f"{one} {other}".encode())


def _hashed(data: bytes, more: bytes = b"") -> int:
    digest = hashlib.blake2b(data, digest_size=_BYTES)
    digest.update(more)
    return int.from_bytes(digest.digest())


_EXPIRES: Final = bulk_rows.COLUMNS.index("expires_at")
_UNTIL: Final = bulk_rows.COLUMNS.index("until")
_CONSUMED: Final = bulk_rows.COLUMNS.index("consumed_at")
_REASON: Final = bulk_rows.COLUMNS.index("origin_reason")
_MOVED: Final = bulk_rows.COLUMNS.index("moved_at")


@dataclass(frozen=True, slots=True)
class Aged:
    """Messages of one queue in their state at a moment; `ordered` if their order is the one of that moment."""

    state: State
    rows: Sequence[Row]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """The time between an archive and the snapshot of the device that is compared with it, in microseconds."""

    since_us: int
    now_us: int

    def aged(self, state: State, rows: Sequence[Row], retention: int) -> Iterator[Aged]:
        """Yield messages of the archive, or of the device before its housekeeping, as they should be now.

        Those that were delayed until now are ready, among the others. Those that have expired, or whose retention in
        seconds is over, are left out, and so are those that came to an error queue because they had expired.
        """
        if state is State.CONSUMED:
            kept = kept_from(retention, self.now_us)
            yield Aged(state, [row for row in rows if kept is None or row[_CONSUMED] >= kept])
            return
        lasting = [row for row in rows if not (self._has_expired(row) or self._is_left_of_expired(row))]
        if state is State.DELAYED:
            yield Aged(State.READY, [_released(row) for row in lasting if row[_UNTIL] <= self.now_us], ordered=False)
            lasting = [row for row in lasting if row[_UNTIL] > self.now_us]
        yield Aged(state, lasting)

    def _has_expired(self, row: Row) -> bool:
        return bool(row[_EXPIRES] is not None and row[_EXPIRES] <= self.now_us)

    def _is_left_of_expired(self, row: Row) -> bool:
        return bool(row[_REASON] == Reason.EXPIRED.value and row[_MOVED] > self.since_us)


def aged(meanwhile: Meanwhile | None, state: State, rows: Sequence[Row], retention: int) -> Iterator[Aged]:
    """Yield messages as they are after some time, or unchanged if that is None."""
    if meanwhile is None:
        yield Aged(state, rows)
    else:
        yield from meanwhile.aged(state, rows, retention)


def _released(row: Row) -> Row:
    return (*row[:_UNTIL], None, *row[_UNTIL + 1 :])


# ---- units -----------------------------------------------------------------------------------------------------------


T = TypeVar("T")

REMOVED_AT_A_TIME = 500
"""Messages that are removed in one transaction."""

REMOVED_STATES = (State.READY, State.DELAYED)
"""The states in which messages can be removed; consumed ones stay as long as the retention of their queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportUnit:
    """A part of an archive: its name, the runs of messages that it gets, each with its queue space.

    It gets only messages that meet the condition. `rate` limits the messages per second.
    """

    name: str
    runs: tuple[tuple[str, Run], ...]
    condition: Condition | None = None
    rate: float | None = None


def write_part(reader: SnapshotReader, directory: str, unit: ExportUnit) -> PartEntry:
    """Write a part of an archive, and return its entry for the manifest."""
    pace = Pace(unit.rate)
    with part_in(Path(directory), unit.name) as part:
        for space, run in unit.runs:

            def write(work: Unit, found: Space, queue: Queue, run: Run = run) -> int:
                count = 0
                for rows in _rows(work, found, queue, run, unit.condition):
                    batch = _batch(found, queue, run, rows)
                    part.write(batch)
                    count += batch.num_rows
                    pace.keep(batch.num_rows)
                return count

            count = reader.read_queue(space, run.queue, write)
            if count != run.messages:
                raise SystemFailureError(
                    f"queue {run.queue!r} of queue space {space!r} has {count} messages where the snapshot had"
                    f" {run.messages}",
                    hint="Check the device with qcheck.",
                )
        return part.close()


def size_runs(reader: SnapshotReader, unit: ExportUnit) -> list[tuple[Standing, int]]:
    """Return the bytes of the bodies in the runs of a unit, without reading them."""
    found = _of_runs(reader, unit, lambda _space, _queue, _run, rows: (row[SIZE] for row in rows), body=False)
    return [((space, run.queue, state_in_archive(run.state), run.memory), sum(sizes)) for space, run, sizes in found]


def read_unit(reader: SnapshotReader, unit: ExportUnit, *, body: bool = True) -> Iterator[tuple[State, RecordBatch]]:
    """Yield the messages of a unit, each batch with their state; without bodies unless `body`."""
    for _, run, batches in _of_runs(reader, unit, lambda *of: [_batch(*of)], body=body):
        for batch in batches:
            yield run.state, batch


def _of_runs(
    reader: SnapshotReader,
    unit: ExportUnit,
    of_rows: Callable[[Space, Queue, Run, list[Row]], Iterable[T]],
    *,
    body: bool = True,
) -> Iterator[tuple[str, Run, list[T]]]:
    """Yield the runs of a unit, each after its queue space, with the results of a function for their rows."""
    for space, run in unit.runs:

        def read(work: Unit, found: Space, queue: Queue, run: Run = run) -> list[T]:
            # A generator cannot stay within the lock of the snapshot, so that a run is read as a whole.
            pieces = _rows(work, found, queue, run, unit.condition, body=body)
            return [each for rows in pieces for each in of_rows(found, queue, run, rows)]

        yield space, run, reader.read_queue(space, run.queue, read)


def _batch(space: Space, queue: Queue, run: Run, rows: list[Row]) -> RecordBatch:
    # Damage that would prevent an import is reported while it can still be repaired.
    refuse_damaged(rows, queue.name, space.msgid)
    try:
        return batch_of(space.name, run.queue, state_in_archive(run.state), run.memory, rows, space.msgid)
    except (TypeError, ValueError, OverflowError):
        refuse_of_another_kind(rows, queue.name, space.msgid)
        raise


def state_in_archive(state: State) -> State:
    """Return the state in an archive.

    A held message is there as if its transaction had rolled back, and a parked one is delayed until it never comes.
    """
    return _IN_ARCHIVE.get(state, state)


_IN_ARCHIVE: Final = {State.HELD: State.READY, State.PARKED: State.DELAYED}


def _rows(
    unit: Unit, space: Space, queue: Queue, run: Run, condition: Condition | None, *, body: bool = True
) -> Iterator[list[Row]]:
    return stores(unit, space.id)[run.memory].bulk_read.rows(space, queue, run, condition, body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportUnit:
    """How a part of an archive is loaded into a device: the messages of the filter, at most `rate` per second.

    `config` is the value of QMCONFIG for the device; the targets are the queue spaces in it. `loaded` are the batches
    that are loaded already: the queue space of the archive, and the number of the first row.
    """

    config: str
    targets: tuple[ImportTarget, ...]
    only: RowFilter
    loaded: frozenset[tuple[str, int]] = frozenset()
    rate: float | None = None


def load_part(target: Target, entry: PartEntry, unit: ImportUnit) -> int:
    """Load a part of an archive, and return how many messages were loaded."""
    pace, count = Pace(unit.rate), 0
    loader, names = target.loader(unit.config, unit.targets), _namers(target.archive)
    for first, batch in target.archive.batches(entry):
        of_space: dict[str, list[importing.Group]] = {}
        for standing, rows in rows_of(batch):
            space, queue, state, memory = standing
            if not loader.wants((space, queue)) or (space, first) in unit.loaded:
                continue
            if meant := unit.only.rows(standing, rows, names[space]):
                of_space.setdefault(space, []).append(((space, queue), state, memory, meant))
        for space, groups in of_space.items():
            loader.load(space, (entry.name, first), groups)
            loaded = sum(len(rows) for *_, rows in groups)
            count += loaded
            pace.keep(loaded)
    return count


def tally_part(
    target: Target, entry: PartEntry, only: RowFilter, page_size: int, count: int | None
) -> list[SelectedMessages]:
    """Return the selected messages of a part, and the first `count` ranks of each queue."""
    names = _namers(target.archive)
    return [
        tally(standing, only.rows(standing, rows, names[standing[0]]), page_size, count)
        for _, batch in target.archive.batches(entry)
        for standing, rows in rows_of(batch)
    ]


def _namers(archive: Archive) -> dict[str, Callable[[int], str]]:
    """Return for each queue space of an archive a function from sequence numbers to identifiers."""
    return {space.name: as_space(space).msgid for space in archive.manifest.spaces}


def _retentions(archive: Archive) -> dict[tuple[str, str], int]:
    """Return the retentions, in seconds, of the queues of an archive."""
    return {
        (space.name, queue.name): queue.definition.retention
        for space in archive.manifest.spaces
        for queue in space.queues
    }


def verify_part(target: Target, entry: PartEntry) -> None:
    """Refuse a part that is not what the manifest says."""
    target.archive.verify_part(entry)


def remove_part(target: Target, entry: PartEntry, config: str) -> int:
    """Remove the messages of a part from a device, and return their number."""
    removed, remover = 0, target.remover(config)
    for standing, rows in target.archive.places(entry, REMOVED_AT_A_TIME):
        if standing[2] in REMOVED_STATES:
            removed += remover.remove(standing, [CarriedMessage(*row) for row in rows])
    return removed


def digest_part(
    target: Target, entry: PartEntry, number: int, meanwhile: Meanwhile | None = None
) -> tuple[int, list[tuple[Standing, Digest]]]:
    """Return the digests of a part, or as they would be by now, with the number of the part."""
    names, retentions = _namers(target.archive), _retentions(target.archive)
    found = [
        ((space, queue, each.state, memory), Digest.of(each.rows, names[space], ordered=each.ordered))
        for _, batch in target.archive.batches(entry)
        for (space, queue, state, memory), rows in rows_of(batch)
        for each in aged(meanwhile, state, rows, retentions[space, queue])
    ]
    return number, found


def digest_runs(
    reader: SnapshotReader, number: int, unit: ExportUnit, meanwhile: Meanwhile | None = None
) -> tuple[int, list[tuple[Standing, Digest]]]:
    """Return the digests of some runs of a device, or as they should be by now, with the number of the unit."""

    def digests(space: Space, queue: Queue, run: Run, rows: list[Row]) -> Iterator[tuple[State, Digest]]:
        for each in aged(meanwhile, state_in_archive(run.state), rows, queue.definition.retention):
            yield each.state, Digest.of(each.rows, space.msgid, ordered=each.ordered)

    return number, [
        ((space, run.queue, state, run.memory), digest)
        for space, run, found in _of_runs(reader, unit, digests)
        for state, digest in found
    ]


class Pace:
    """Limits work to a number of messages per second; None means no limit."""

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
