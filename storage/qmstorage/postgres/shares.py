"""For how many consumers a message stands, where several sessions part with it beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qmcore.records import Holding, Place
from qmstorage import selection
from qmstorage.postgres.states import any_of
from qmstorage.schema import due, message, ready, share
from qmstorage.shares import Shares
from qmstorage.sql import delete, elements, select, update
from qmstorage.statements import given

_THESE = share.c.message_id == any_of("ids")
_LEFT = select(share.c.message_id, share.c.places).where(_THESE)
# In one order everywhere: two that part with the same messages would wait for each other.
_LESS = update(share).where(_THESE).values(places=share.c.places - 1)
_FORGET = delete(share).where(_THESE)
_LOCKED = _LEFT.order_by(share.c.message_id).with_for_update()

_READY_PLACES = (
    select(ready.c.message_id, ready.c.order_key, ready.c.retries, message.c.pages, message.c.size)
    .join_from(message, ready, selection.STANDS_FOR_CONSUMER)
    .where(message.c.id == any_of("ids"), given(message.c.queue_id, "of_messages"))
    .with_for_update(skip_locked=True, of=ready)
)
_DUE_PLACES = (
    select(due.c.message_id, due.c.order_key, due.c.retries, message.c.pages, message.c.size, due.c.available_at)
    .join_from(due, message, elements.Named(message.c.id, due.c.message_id))
    .where(due.c.message_id == any_of("ids"), given(due.c.queue_id, "of_queue"))
    .with_for_update(skip_locked=True, of=due)
)


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

    def places_of(self, consumer_id: int, queue_id: int, expired: Mapping[int, int]) -> list[Holding]:
        """Return where these messages of a queue for several stand for a consumer, but for what somebody takes."""
        ids = list(expired)
        found = self.all(_READY_PLACES, beyond=consumer_id - queue_id, of_messages=queue_id, ids=ids)
        rows = [(*row, None) for row in found]
        rows += self.all(_DUE_PLACES, of_queue=consumer_id, ids=ids)
        return [
            Holding(Place(number, consumer_id, key, retries), pages, size, expired[number], until)
            for number, key, retries, pages, size, until in rows
        ]
