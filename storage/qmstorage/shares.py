"""Messages of queues for several consumers: in which places they stand, and how many. One goes with its last place.

A message that came with one place has no row in the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from qmcore.records import NOTHING_SWEPT, Holding, Place, Swept
from qmcore.transitions import Removal
from qmstorage import selection
from qmstorage.schema import chunk, due, expiring, message, ready, share
from qmstorage.sql import bindparam, case, delete, elements, insert, select, update
from qmstorage.statements import given, insert_into
from qmstorage.unit_part import StorePart

_OF_MESSAGE = given(share.c.message_id, "of_message")
_ADD: Final = insert_into(share)
_LEFT: Final = select(share.c.places).where(_OF_MESSAGE)
_LESS: Final = update(share).where(_OF_MESSAGE).values(places=share.c.places - 1)
_FORGET: Final = delete(share).where(_OF_MESSAGE)

_EXPIRING = (
    select(expiring.c.message_id, expiring.c.expires_at)
    .where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
    .order_by(expiring.c.expires_at, expiring.c.message_id)
    .limit(bindparam("most"))
    # Others may keep it for as long as an application likes. They see to it.
    .with_for_update(skip_locked=True)
)
_READY_PLACE = (
    select(ready.c.order_key, ready.c.retries, message.c.pages, message.c.size)
    .join_from(message, ready, selection.STANDS_FOR_CONSUMER)
    .where(given(message.c.id, "of_message"), given(message.c.queue_id, "of_messages"))
    .with_for_update(skip_locked=True, of=ready)
)
_DUE_PLACE = (
    select(due.c.order_key, due.c.retries, message.c.pages, message.c.size, due.c.available_at)
    .join_from(message, due, elements.Named(due.c.message_id, message.c.id))
    .where(
        given(message.c.id, "of_message"),
        given(message.c.queue_id, "of_messages"),
        given(due.c.queue_id, "of_queue"),
    )
    .with_for_update(skip_locked=True, of=due)
)
_ITS_ID = given(message.c.id, "of_message")
_NEW_ID = bindparam("new_id", type_=message.c.id.type)
_COPIED: dict[str, Any] = {"id": _NEW_ID, "body_id": case((message.c.body_id.is_not(None), _NEW_ID))}
_COPY = insert(message).from_select(
    message.columns.keys(),
    select(*(_COPIED.get(column.name, column) for column in message.columns)).where(_ITS_ID),
)
_COPY_BODY = insert(chunk).from_select(
    chunk.columns.keys(),
    select(_NEW_ID, chunk.c.number, chunk.c.content).where(
        chunk.c.body_id == select(message.c.body_id).where(_ITS_ID).scalar_subquery()
    ),
)


class Shares(StorePart):
    """Messages of queues for several consumers, and the places that they have left."""

    def add(self, message_ids: Sequence[int], places: int) -> None:
        """Note with how many places messages have come, where it is more than one."""
        if places > 1:
            self.many(_ADD, [{"message_id": number, "places": places} for number in message_ids])

    def left(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places these messages have left, of those which came with several."""
        found = ((number, self.one(_LEFT, of_message=number)) for number in message_ids)
        return {number: row[0] for number, row in found if row is not None}

    def part(self, consumer_id: int, message_ids: Sequence[int], how: Removal | None) -> list[int]:
        """End the place that a consumer has of each of these messages; return those whose last it was, in their order.

        `how` it ends is None where the message is moved. Others may delete them later, where that is not known now.
        """
        del consumer_id, how
        last = []
        for number, places in self.locked(message_ids).items():
            if places > 1:
                self.run(_LESS, of_message=number)
                continue
            if places:
                self.run(_FORGET, of_message=number)
            last.append(number)
        return last

    def locked(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places each of these messages has left, 0 where it came with one; nobody changes that."""
        left = self.left(message_ids)
        return {number: left.get(number, 0) for number in message_ids}

    def expire_again(self, queue_id: int, holding: Holding) -> None:
        """Note when a message expires, whether that is noted or not."""
        if holding.expires_us is not None:
            its = queue_id, holding.place.message_id, holding.expires_us
            self.store.states.unmake_expiring(*its)
            self.store.states.make_expiring(*its)

    def forget_expiry(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Forget when a message of a queue for several expires, which goes."""
        self.store.states.unmake_expiring(queue_id, message_id, expires_us)

    def split(self, message_id: int, new_id: int) -> None:
        """Store a copy of a message under another number, with a body of its own: others keep this one."""
        self.run(_COPY_BODY, of_message=message_id, new_id=new_id)
        self.run(_COPY, of_message=message_id, new_id=new_id)

    def expiring(self, queue_id: int, now_us: int, limit: int) -> dict[int, int]:
        """Return at most `limit` messages of a queue for several that have expired, and when; others wait for us."""
        return dict(self.all(_EXPIRING, of_queue=queue_id, now=now_us, most=limit))

    def places_of(self, consumer_id: int, queue_id: int, expired: Mapping[int, int]) -> list[Holding]:
        """Return where these messages of a queue for several stand for a consumer, but for what somebody takes."""
        its = []
        for number, expires in expired.items():
            which = {"of_messages": queue_id, "of_message": number}
            found = self.all(_READY_PLACE, beyond=consumer_id - queue_id, **which)
            rows = [(*row, None) for row in found] or self.all(_DUE_PLACE, of_queue=consumer_id, **which)
            its += [
                Holding(Place(number, consumer_id, key, retries), pages, size, expires, until)
                for key, retries, pages, size, until in rows
            ]
        return its

    def no_longer_expiring(self, queue_id: int, expired: Mapping[int, int]) -> int:
        """Forget when messages expire, unless somebody else is taking a place; return of how many."""
        for number, expires in expired.items():
            self.store.states.unmake_expiring(queue_id, number, expires)
        return len(expired)

    def sweep(self, space_id: int, beyond: int, limit: int, *, patiently: bool) -> Swept:
        """Do what consumers have left to do of messages whose places they have ended: nothing, where they do it all."""
        del space_id, beyond, limit, patiently
        return NOTHING_SWEPT
