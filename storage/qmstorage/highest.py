"""The highest use of the limits of queue spaces, in SQL: a row for each limit, written only where it rises."""

from __future__ import annotations

from qmstorage.schema import counter, highest
from qmstorage.sql import BigInteger, Integer, Text, bindparam, delete, exists, insert, literal_column, select, update
from qmstorage.statements import given
from qmstorage.unit_part import UnitPart

_NOTED = select(highest.c.resource, highest.c.value).where(given(highest.c.space_id, "of_space"))
ITS = (given(highest.c.space_id, "of_space"), given(highest.c.resource, "of_resource"))
USED = bindparam("used", type_=BigInteger())
NEW = select(bindparam("of_space", type_=Integer()), bindparam("of_resource", type_=Text()), USED)
"""The row of a limit."""
_RAISE = update(highest).where(*ITS, highest.c.value < USED).values(value=USED)
_ADD = insert(highest).from_select(highest.columns.keys(), NEW.where(~exists().where(*ITS)))
_FORGET = delete(highest).where(given(highest.c.space_id, "of_space"))
_FORGET_MESSAGES = (
    update(counter)
    .where(given(counter.c.space_id, "of_space"), counter.c.queue_id == literal_column("0"))
    .values(highest=literal_column("0"))
)


class Highest(UnitPart):
    """The highest use of limits."""

    def of_space(self, space_id: int) -> dict[str, int]:
        """Return the highest use that was noted of each limit of a queue space; none for one that was never used."""
        return dict(self.all(_NOTED, of_space=space_id))

    def raise_to(self, space_id: int, limit: str, used: int) -> None:
        """Note how much of a limit is in use, unless more was noted before."""
        values = {"of_space": space_id, "of_resource": limit, "used": used}
        if self.run(_RAISE, **values).rowcount == 0:
            self.run(_ADD, **values)

    def forget(self, space_id: int) -> None:
        """Forget the highest use of a queue space, that of messages on disk too, and change the generation."""
        self.run(_FORGET, of_space=space_id)
        self.run(_FORGET_MESSAGES, of_space=space_id)
        self.unit.change_generation(space_id)
