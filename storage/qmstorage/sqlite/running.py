"""What a volume does in one commit, or in a few, by what its unit can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from qmcore.purpose import Purpose
from qmstorage.refused import RefusedError
from qmstorage.sqlite.group_commit import Work
from qmstorage.sqlite.unit import SqliteUnit, ours

if TYPE_CHECKING:
    from qmcore.transitions import Command, Refused, Result
    from qmstorage.sqlite.volume import SqliteVolume

_ALLOCATION_STEP: Final = 1024
"""Pages that are written at a time when disk is allocated."""


def run(
    volume: SqliteVolume, commands: Sequence[Command], on: object, purpose: Purpose | None
) -> Sequence[Result] | Refused:
    """Execute commands, all or none: in a commit of ours, or in the transaction of the application's connection."""
    try:
        if on is not None:
            return volume.write_on(on, lambda unit: ours(unit).execute(commands))
        if purpose is None:
            return volume.look(lambda unit: unit.execute(commands))
        if len(commands) == 1:
            request = commands[0] if purpose.durable else None
            return volume.done(Work(SqliteUnit.execute, commands, purpose=purpose, looks_first=True, request=request))
        return volume.done(Work(SqliteUnit.execute, commands, purpose=purpose))
    except RefusedError as error:
        return error.refused


def allocate_disk(volume: SqliteVolume, pages: int, progress: Callable[[int], None]) -> None:
    """Make the file have `pages` free pages, so that a full disk is found now; `progress` gets percent."""
    wanted = volume.read(lambda unit: ours(unit).pages_to_allocate(pages))
    volume.write(lambda unit: ours(unit).start_allocation(), Purpose.ADMINISTRATION)
    try:
        for done in range(0, wanted, _ALLOCATION_STEP):
            step = min(_ALLOCATION_STEP, wanted - done)
            volume.write(lambda unit, step=step: ours(unit).allocate(step), Purpose.ADMINISTRATION)  # type: ignore[misc]
            progress((done + step) * 100 // wanted)
    finally:
        volume.write(lambda unit: ours(unit).end_allocation(), Purpose.ADMINISTRATION)
