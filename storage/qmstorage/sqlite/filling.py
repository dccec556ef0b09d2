"""Filling the file of a volume ahead of time, so that a full disk is found now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from qmcore.purpose import Purpose
from qmstorage.sqlite.unit import ours

if TYPE_CHECKING:
    from qmstorage.sqlite.volume import SqliteVolume

_STEP: Final = 1024
"""Pages that are written at a time."""


def allocate_disk(volume: SqliteVolume, pages: int, progress: Callable[[int], None]) -> None:
    """Make the file have `pages` free pages; `progress` gets percent."""
    wanted = volume.read(lambda unit: ours(unit).pages_to_allocate(pages))
    volume.write(lambda unit: ours(unit).start_allocation(), Purpose.ADMINISTRATION)
    try:
        for done in range(0, wanted, _STEP):
            step = min(_STEP, wanted - done)
            volume.write(lambda unit, step=step: ours(unit).allocate(step), Purpose.ADMINISTRATION)  # type: ignore[misc]
            progress((done + step) * 100 // wanted)
    finally:
        volume.write(lambda unit: ours(unit).end_allocation(), Purpose.ADMINISTRATION)
