"""Comparing an archive with what a device has: the same messages, each in all that belongs to it, in their order."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from qmadmin.archive.reading import Archive, open_archive
from qmadmin.opening import open_device
from qmadmin.transfer.digesting import Digest, joined
from qmadmin.transfer.export_planning import ExportOptions, Plan
from qmadmin.transfer.exporting import Progress, fitting
from qmadmin.transfer.import_planning import refuse_strangers
from qmadmin.transfer.picture import pictured
from qmadmin.transfer.selecting import Outstanding, Selection
from qmadmin.transfer.units import Standing, digest_part, digest_runs, verify_part
from qmadmin.transfer.workers import Workers
from qmcore.message import State

if TYPE_CHECKING:
    from qmadmin.archive.manifest import ArchivedSpace

Numbered: TypeAlias = tuple[int, list[tuple[Standing, Digest]]]
"""The digests of a part of the work, and its number: parts end in any order."""


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """What differs of the messages of a queue in one state: names are those of the archive."""

    space: str
    queue: str
    state: State
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """What was compared: the archive as a whole, the digest of each queue's messages, what differs on the device."""

    archive: str
    messages: int
    digests: Mapping[Standing, Digest]
    differences: tuple[Difference, ...]
    seconds: float


def compare(
    directory: Path,
    config: str | None = None,
    *,
    key: bytes | None = None,
    spaces: Mapping[str, str] | None = None,
    queues: Mapping[str, str] | None = None,
    workers: Workers | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Compared:
    """Verify an archive, and compare it with a device where one is named; `config` is what QMCONFIG says of that.

    `spaces` and `queues` give the names that they have on the device, by those in the archive, as for an import. Only
    queues of the archive are looked at. What transactions hold there is not.

    Raises what `open_archive` and `Archive.verify_part` do of a damaged archive.
    """
    began = time.monotonic()
    archive = open_archive(directory, key)
    refuse_strangers(archive.manifest, spaces or {}, queues or {})
    crew_of = workers or fitting(archive.manifest.messages)
    with crew_of.apart(contextlib.nullcontext, archive) as crew:
        entries = archive.manifest.parts
        for _ in crew.run(verify_part, [(entry,) for entry in entries]):
            pass
        found = list(crew.run(digest_part, enumerate(entries)))
    archived = _in_order(found)
    differences: list[Difference] = []
    if config is not None:
        names = _Names(archive, spaces or {}, queues or {})
        stored = _stored(config, names, crew_of, progress)
        differences = list(_differences(archived, stored, names))
    return Compared(
        archive.manifest.archive, archive.manifest.messages, archived, tuple(differences), time.monotonic() - began
    )


class _Names:
    """What queue spaces and queues of an archive are called on a device."""

    def __init__(self, archive: Archive, spaces: Mapping[str, str], queues: Mapping[str, str]) -> None:
        self.archived: Sequence[ArchivedSpace] = archive.manifest.spaces
        self._spaces = spaces
        self._queues = queues

    def space(self, name: str) -> str:
        """Return the name of a queue space on the device."""
        return self._spaces.get(name, name)

    def queue(self, space: str, name: str) -> str:
        """Return the name of a queue on the device."""
        return self._queues.get(f"{space}/{name}", self._queues.get(name, name))

    def standing(self, of: Standing) -> Standing:
        """Return where messages of the archive stand on the device."""
        space, queue, state, memory = of
        return self.space(space), self.queue(space, queue), state, memory


def _stored(config: str, names: _Names, workers: Workers, progress: Progress) -> dict[Standing, Digest]:
    """Return the digests of what the device has in the queues of the archive."""
    wanted = tuple(names.space(space.definition.name) for space in names.archived)
    queues = {names.queue(space.definition.name, q.definition.name) for space in names.archived for q in space.queues}
    exactly = tuple(glob.escape(name) for name in sorted(queues))
    asked = ExportOptions(selection=Selection(queues=exactly or ("",)), outstanding=Outstanding.LEAVE_OUT)
    with open_device(config) as device:
        here = [space.name for space in device.spaces() if space.name in wanted]
        with pictured(device, here, workers) as (own, crew, moment):
            plan = Plan.made(own, here, asked, moment, workers.count)
            tasks = list(enumerate(plan.units(asked, workers.count)))

            def told(ended: int) -> None:
                progress(plan.messages * ended // max(len(tasks), 1), plan.messages)

            return _in_order(crew.run(digest_runs, tasks, told))


def _in_order(found: Iterable[Numbered]) -> dict[Standing, Digest]:
    pieces: dict[Standing, list[Digest]] = {}
    for _, digests in sorted(found, key=lambda result: result[0]):
        for standing, digest in digests:
            pieces.setdefault(standing, []).append(digest)
    return {standing: joined(parts) for standing, parts in pieces.items()}


def _differences(
    archived: Mapping[Standing, Digest], stored: Mapping[Standing, Digest], names: _Names
) -> Iterator[Difference]:
    for standing, wanted in archived.items():
        space, queue, state, _ = standing
        there = stored.get(names.standing(standing), Digest())
        if there.messages != wanted.messages:
            yield Difference(
                space, queue, state, f"{wanted.messages} messages in the archive, {there.messages} on the device"
            )
        elif there.content != wanted.content:
            yield Difference(space, queue, state, "messages differ")
        elif there.order != wanted.order:
            yield Difference(space, queue, state, "the same messages in another order")
