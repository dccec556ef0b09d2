"""Comparing an archive with a device: the same messages, equal in every attribute, in the same order."""

from __future__ import annotations

import glob
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from qmadmin.archive.columns import STATES
from qmadmin.archive.file_systems import Directory, Place
from qmadmin.archive.manifest import ArchivedSpace, Content, Manifest, PartEntry
from qmadmin.archive.reading import Archive, open_archive
from qmadmin.archive.rows import Standing
from qmadmin.opening import open_device
from qmadmin.transfer import Executor, Progress, UnitProgress, Workers, no_progress, step_progress
from qmadmin.transfer.exporting import ExportOptions, Plan, fitting
from qmadmin.transfer.import_planning import Names, refuse_unknown_names
from qmadmin.transfer.selecting import ArchiveSelection, Outstanding
from qmadmin.transfer.snapshot import snapshot_of
from qmadmin.transfer.target import target_of
from qmadmin.transfer.units import Digest, Meanwhile, digest_part, digest_runs, joined, verify_part
from qmcore.message import State
from qmcore.values import dataclass

Numbered: TypeAlias = tuple[int, list[tuple[Standing, Digest]]]
"""The digests of a part of the work, and its number: parts end in any order."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference: the messages of a queue in one state, in memory or not; names are those of the archive.

    Without a state it is the queue as a whole, without a queue the queue space.
    """

    space: str
    queue: str | None
    state: State | None
    memory: bool
    sentence: str

    def is_of(self, standing: Standing) -> bool:
        """Return whether it concerns messages of this queue in this state."""
        space, queue, state, memory = standing
        if self.state is None:
            return self.space == space and self.queue in (None, queue)
        return (self.space, self.queue, self.state, self.memory) == (space, queue, state, memory)

    @property
    def whose(self) -> str:
        """The object that differs, in words."""
        queue = "" if self.queue is None else f"queue {self.queue!r} of "
        state = "" if self.state is None else f", {self.state.value}"
        return f"{queue}queue space {self.space!r}{state}{' in memory' if self.memory else ''}"


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison: the archive, the digest of each queue's messages, and the differences."""

    archive: str
    messages: int
    digests: Mapping[Standing, Digest]
    differences: tuple[Difference, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Stored:
    """The content of the device: the names of queues by those of their queue spaces, and the digests of messages.

    These are of the messages as they should be by now, where there is a `meanwhile`.
    """

    queues: Mapping[str, frozenset[str]]
    digests: Mapping[Standing, Digest]
    meanwhile: Meanwhile | None


def compare(
    where: Path | Place,
    config: str | None = None,
    *,
    key: bytes | None = None,
    spaces: Mapping[str, str] | None = None,
    queues: Mapping[str, str] | None = None,
    alone: bool = False,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    verified: Verified | None = None,
) -> Compared:
    """Verify an archive, and compare it with a device if one is given; `config` is its value of QMCONFIG.

    The archive is in a directory of this machine, or at a place.

    `spaces` and `queues` map the names in the archive to those on the device, as for an import. Only queues of the
    archive are compared, which have to exist. Messages that transactions hold there are not. With `alone` the queues
    may have no other messages, unless the archive has definitions only. Changes by time alone are not differences:
    messages that became available, expired, or whose retention is over. What an earlier step of the same command has
    `verified` is not read again.

    Raises what `open_archive` and `Archive.verify_part` do of a damaged archive.
    """
    began = time.monotonic()
    archive = open_archive(where, key)
    refuse_unknown_names(archive.manifest, spaces or {}, queues or {})
    executor = executor or fitting(archive.manifest.messages)
    with executor.part_workers(target_of, archive) as workers:
        entries = archive.manifest.parts
        told = step_progress(progress, "Verifying", archive.manifest.messages, 2 * len(entries))
        (verified or Verified()).verify(archive, workers, told)
        numbered = [(entry, number) for number, entry in enumerate(entries)]
        found = list(workers.run(digest_part, numbered, lambda ended: told(len(entries) + ended)))
    archived = _in_order(found)
    differences: list[Difference] = []
    if config is not None:
        names = Names(spaces or {}, queues or {})
        alone = alone and archive.manifest.content is not Content.DEFINITIONS
        stored = _stored(config, archive.manifest, names, executor, progress)
        differences = list(_differences(archive.manifest.spaces, archived, stored, names, alone=alone))
        if differences:
            stored = _stored(config, archive.manifest, names, executor, progress, aged=True)
            by_now = _archived(archive, executor, progress, stored.meanwhile)
            differences = list(_differences(archive.manifest.spaces, by_now, stored, names, alone=alone))
    return Compared(
        archive.manifest.archive, archive.manifest.messages, archived, tuple(differences), time.monotonic() - began
    )


def _archived(
    archive: Archive, executor: Executor, progress: Progress, meanwhile: Meanwhile | None
) -> dict[Standing, Digest]:
    """Return the digests of a verified archive as its messages would be by now."""
    entries = archive.manifest.parts
    with executor.part_workers(target_of, archive) as workers:
        tasks = [(entry, number, meanwhile) for number, entry in enumerate(entries)]
        return _in_order(
            workers.run(digest_part, tasks, step_progress(progress, "Comparing", archive.manifest.messages, len(tasks)))
        )


def _stored(
    config: str, manifest: Manifest, names: Names, executor: Executor, progress: Progress, *, aged: bool = False
) -> _Stored:
    """Return the content of the device in the queues of the archive, with `aged` as it should be by now."""
    archived = manifest.spaces
    wanted = tuple(names.space(space.name) for space in archived)
    queues = {names.queue(space.name, q.name) for space in archived for q in space.queues}
    exactly = tuple(glob.escape(name) for name in sorted(queues))
    asked = ExportOptions(selection=ArchiveSelection(queues=exactly or ("",)), outstanding=Outstanding.LEAVE_OUT)
    with open_device(config) as device:
        here = [space.name for space in device.spaces() if space.name in wanted]
        with snapshot_of(device, here, executor) as (own, workers, moment):
            # Housekeeping cannot have changed the messages of the snapshot later than that.
            meanwhile = Meanwhile(manifest.source.snapshot_us, device.clock.now()) if aged else None
            plan = Plan.made(own, here, asked, moment, executor.count)
            tasks = [(number, unit, meanwhile) for number, unit in enumerate(plan.units(asked, executor.count))]
            told = step_progress(progress, "Comparing", plan.messages, len(tasks))
            digests = _in_order(workers.run(digest_runs, tasks, told))
    there = {each.space.name: frozenset(queue.name for queue in each.queues) for each in plan.spaces}
    return _Stored(there, digests, meanwhile)


def _in_order(found: Iterable[Numbered]) -> dict[Standing, Digest]:
    pieces: dict[Standing, list[Digest]] = {}
    for _, digests in sorted(found, key=lambda result: result[0]):
        for standing, digest in digests:
            pieces.setdefault(standing, []).append(digest)
    return {standing: joined(parts) for standing, parts in pieces.items()}


def _differences(
    spaces: Sequence[ArchivedSpace], archived: Mapping[Standing, Digest], stored: _Stored, names: Names, *, alone: bool
) -> Iterator[Difference]:
    for space in spaces:
        name, called = space.name, names.space(space.name)
        if called not in stored.queues:
            yield Difference(name, None, None, False, f"there is no queue space {called!r} on the device")
            continue
        for each in space.queues:
            queue, here = each.name, names.queue(name, each.name)
            if here not in stored.queues[called]:
                missing = f"there is no queue {here!r} in queue space {called!r} on the device"
                yield Difference(name, queue, None, False, missing)
                continue
            for state, memory in itertools.product(STATES, (False, True)):
                standing = name, queue, state, memory
                wanted = archived.get(standing, Digest())
                there = stored.digests.get(names.standing(standing), Digest())
                if (alone or wanted.messages) and (sentence := _differing(wanted, there)):
                    yield Difference(*standing, sentence)


def _differing(wanted: Digest, there: Digest) -> str:
    """Return the difference in words; empty if they are the same."""
    if there.messages != wanted.messages:
        messages = "message" if wanted.messages == 1 else "messages"
        return f"{wanted.messages} {messages} in the archive, {there.messages} on the device"
    if there.content != wanted.content:
        return "messages differ"
    is_known = there.ordered and wanted.ordered
    return "the same messages in another order" if is_known and there.order != wanted.order else ""


_SETTLED_NS: Final = 2 * 10**9
"""How old the last change of a file must be for the next one to be visible: its times have a coarse resolution."""


class _Stamp(NamedTuple):
    """The identity of a file, and when it was changed (ctime), which not even its owner can set."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class Verified:
    """The parts that were verified during one command.

    A later step reads a part again only if its file is another one, was changed since, or was too new to tell; or if it
    is not in a directory of this machine, so that this is unknown. `now` returns the time in nanoseconds since 1970.
    """

    def __init__(self, now: Callable[[], int] = time.time_ns) -> None:
        self._now = now
        self._parts: dict[PartEntry, _Stamp] = {}

    def verify(self, archive: Archive, workers: Workers, told: UnitProgress = no_progress) -> None:
        """Read the parts that are not verified yet, and refuse the first that is not what the manifest says.

        `told` is called with the number of verified parts, at last with that of all.
        """
        began = self._now()
        # Taken before the files are read, so that a change meanwhile does not count as verified.
        stamps = _stamps(archive)
        known = {entry for entry, stamp in stamps.items() if self._parts.get(entry) == stamp}
        left = [entry for entry in archive.manifest.parts if entry not in known]
        told(len(known))
        for _ in workers.run(verify_part, [(entry,) for entry in left], lambda ended: told(len(known) + ended)):
            pass
        self._parts |= {entry: stamp for entry, stamp in stamps.items() if began - stamp.changed_ns > _SETTLED_NS}


def _stamps(archive: Archive) -> dict[PartEntry, _Stamp]:
    if not isinstance(archive.files, Directory):
        return {}
    return {entry: _stamp(archive, entry) for entry in archive.manifest.parts}


def _stamp(archive: Archive, entry: PartEntry) -> _Stamp:
    with archive.opened(entry) as file:
        found = os.fstat(file.fileno())
    return _Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
