"""Filling the file of a volume ahead of time, so that a full disk is found now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from qmcore.port import Unit
from qmcore.purpose import Purpose
from qmstorage.schema import counter, space
from qmstorage.sql import func, select
from qmstorage.sqlite.unit import ours

if TYPE_CHECKING:
    from qmstorage.sqlite.volume import SqliteVolume

_STEP: Final = 1024
"""Pages that are written at a time."""

_BEGIN: Final = "CREATE TABLE IF NOT EXISTS allocation (filling BLOB NOT NULL)"
_END: Final = "DROP TABLE IF EXISTS allocation"
"""Frees what was filled: the file keeps its size, and its pages are there for whoever needs them."""

_PROMISED: Final = (
    select(func.sum(space.c.pages - counter.c.pages))
    .join_from(space, counter, (counter.c.space_id == space.c.id) & (counter.c.queue_id == 0))
    .where(space.c.initialized)
)
"""Pages that queue spaces have been promised and do not use yet."""


def allocate_disk(volume: SqliteVolume, pages: int, progress: Callable[[int], None]) -> None:
    """Make the file have `pages` free pages; `progress` gets percent."""
    wanted = volume.read(lambda unit: _wanted(unit, pages))
    # What an interrupted allocation left is filled further.
    volume.write(lambda unit: ours(unit).cursor.execute(_BEGIN), Purpose.ADMINISTRATION)
    try:
        for done in range(0, wanted, _STEP):
            step = min(_STEP, wanted - done)
            volume.write(lambda unit, step=step: _fill(unit, step), Purpose.ADMINISTRATION)  # type: ignore[misc]
            progress((done + step) * 100 // wanted)
    finally:
        volume.write(lambda unit: ours(unit).cursor.execute(_END), Purpose.ADMINISTRATION)


def _wanted(unit: Unit, pages: int) -> int:
    """Return how many pages must be filled so that `pages` are free besides those that are promised already.

    What is filled takes the free pages first, so that it is either all of them or none.
    """
    (free,) = ours(unit).cursor.execute("PRAGMA freelist_count").fetchone()
    ((promised,),) = ours(unit).all(_PROMISED)
    wanted = pages + int(promised or 0)
    return wanted if wanted > free else 0


def _fill(unit: Unit, pages: int) -> None:
    execute = ours(unit).cursor.execute
    (size,) = execute("PRAGMA page_size").fetchone()
    # Another allocation may have ended meanwhile and taken the table away.
    execute(_BEGIN)
    execute("INSERT INTO allocation VALUES (zeroblob(?))", (pages * size,))
