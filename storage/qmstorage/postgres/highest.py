"""The highest use of the limits of queue spaces, which several sessions may raise at the same time."""

from __future__ import annotations

from qmstorage.highest import ITS, NEW, USED, Highest
from qmstorage.schema import highest
from qmstorage.sql import exists, postgresql

# Where it does not rise no row is locked.
_ADDING = postgresql.insert(highest).from_select(
    highest.columns.keys(), NEW.where(~exists().where(*ITS, highest.c.value >= USED))
)
_RAISE = _ADDING.on_conflict_do_update(
    index_elements=highest.primary_key.columns.keys(),
    set_={"value": _ADDING.excluded.value},
    where=highest.c.value < _ADDING.excluded.value,
)
"""Notes how much of a limit is in use, unless more was noted before."""


class SharedHighest(Highest):
    """The highest use of limits."""

    def raise_to(self, space_id: int, limit: str, used: int) -> None:
        """Note how much of a limit is in use, unless more was noted before."""
        self.run(_RAISE, of_space=space_id, of_resource=limit, used=used)
