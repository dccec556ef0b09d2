"""The short way of a volume on SQLite: a message comes or goes in fewer steps of Python, in the same statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from qmcore.message import Message
from qmcore.purpose import Purpose
from qmcore.records import Nothing, Use
from qmcore.shortcut import PlainDeparture, PlainEnd, PlainHeld, PlainHold
from qmstorage.sqlite.group_commit import Work
from qmstorage.sqlite.transitions import MAIN
from qmstorage.sqlite.unit import SqliteUnit

if TYPE_CHECKING:
    from qmstorage.sqlite.handoff_requests import Request
    from qmstorage.sqlite.volume import SqliteVolume

Asked = TypeVar("Asked")
T = TypeVar("T")

_NO_USE: Final = Use(0, 0, 0)


class SqliteShortcut:
    """The short way of one volume."""

    spares_journeys = False

    def __init__(self, volume: SqliteVolume) -> None:
        self._volume = volume

    def depart(self, departure: PlainDeparture) -> Message | Nothing | None:
        """Dequeue a message for good and return it, or that the queue has none; None: nothing was done."""
        return self._volume.done(_work(SqliteUnit.depart_plainly, departure, departure))

    def depart_together(self, departure: PlainDeparture, most: int) -> None:
        """Leave it to the ordinary way: what that asks for each call is little beside what each message takes."""

    def level(self, space_id: int) -> tuple[int, Use]:
        """Return the generation of a queue space, -1 where it is gone, and how much it holds."""
        found = self._volume.look(MAIN, space_id)
        if not found:
            return -1, _NO_USE
        ((generation, _, messages, pages, size),) = found
        return generation, Use(messages, pages, size)

    def hold(self, hold: PlainHold) -> PlainHeld | Nothing | None:
        """Record a transaction and let it hold a message, or return that the queue has none; None: nothing was done."""
        return self._volume.done(Work(SqliteUnit.hold_plainly, hold, looks_first=True, purpose=Purpose.HOLDING))

    def end(self, end: PlainEnd) -> bool:
        """Commit a transaction, durably; False: nothing was done."""
        return self._volume.done(_work(SqliteUnit.end_plainly, end))


def _work(act: Callable[[SqliteUnit, Asked], T], asked: Asked, request: Request | None = None) -> Work[T]:
    return Work(act, asked, looks_first=True, request=request)
