"""For how many consumers a message stands, where several sessions part with it beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from qmstorage.schema import share
from qmstorage.shares import Shares
from qmstorage.sql import ARRAY, BigInteger, bindparam, delete, func, select, update

_THESE = share.c.message_id == func.any(bindparam("ids", type_=ARRAY(BigInteger)))
_LEFT = select(share.c.message_id, share.c.places).where(_THESE)
# In one order everywhere: two that part with the same messages would wait for each other.
_LESS = update(share).where(_THESE).values(places=share.c.places - 1)
_FORGET = delete(share).where(_THESE)
_LOCKED = _LEFT.order_by(share.c.message_id).with_for_update()


class SharedShares(Shares):
    """For how many consumers messages still stand."""

    def left(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places these messages have left, of those which came with several."""
        return dict(self.all(_LEFT, ids=list(message_ids)))

    def part(self, message_ids: Sequence[int]) -> list[int]:
        """Count down one place of each of these messages; return those of which it was the last, in their order."""
        places = self.locked(message_ids)
        last = [number for number, left in places.items() if left < 2]
        if len(last) < len(places):
            self.run(_LESS, ids=[number for number, left in places.items() if left > 1])
        if any(places[number] for number in last):
            self.run(_FORGET, ids=last)
        return last

    def locked(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places each of these messages has left, 0 where it came with one; nobody changes that."""
        left: dict[int, int] = dict(self.all(_LOCKED, ids=list(message_ids)))
        return {number: left.get(number, 0) for number in message_ids}
