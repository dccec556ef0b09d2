"""How much of the limits of a queue space was in use at most: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from qmcore.space import Limited


class HighestRecords(Protocol):
    """The highest use of limits that is counted where it rises. Messages have counters of their own for it."""

    def of_space(self, space_id: int) -> Mapping[str, int]:
        """Return the highest use that was noted of each limit of a queue space; none for one that was never used."""

    def raise_to(self, space_id: int, limit: Limited, used: int) -> None:
        """Note how much of a limit is in use, unless more was noted before."""

    def forget(self, space_id: int) -> None:
        """Forget the highest use of a queue space, that of messages on disk too, and change the generation."""
