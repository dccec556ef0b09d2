"""The short way of a volume on SQLite: a message comes or goes in fewer steps of Python, in the same statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qmcore.records import Use
from qmcore.shortcut import PlainEnd
from qmstorage.sqlite.group_commit import Work
from qmstorage.sqlite.transitions import MAIN
from qmstorage.sqlite.unit import SqliteUnit

if TYPE_CHECKING:
    from qmstorage.sqlite.volume import SqliteVolume

_NO_USE: Final = Use(0, 0, 0)


class SqliteShortcut:
    """The short way of one volume."""

    spares_journeys = False

    def __init__(self, volume: SqliteVolume) -> None:
        self._volume = volume

    def level(self, space_id: int) -> tuple[int, Use]:
        """Return the generation of a queue space, -1 where it is gone, and how much it holds."""
        found = self._volume.look(MAIN, space_id)
        if not found:
            return -1, _NO_USE
        ((generation, _, messages, pages, size),) = found
        return generation, Use(messages, pages, size)

    def end(self, end: PlainEnd) -> bool:
        """Commit a transaction, durably; False: nothing was done."""
        return self._volume.done(Work(SqliteUnit.end_plainly, end, looks_first=True))
