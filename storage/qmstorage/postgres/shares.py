"""For how many consumers a message stands, where several sessions part with it beside each other.

Nobody waits for another one here: a consumer may work in a transaction that an application keeps open. It adds a row of
its own for each place that ends, and a sweep subtracts those (`qm_spend` and `qm_sweep` in functions.sql).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from qmcore import numbers
from qmcore.records import Holding, Place, Swept
from qmcore.transitions import Removal
from qmstorage import selection
from qmstorage.postgres import keys
from qmstorage.postgres.pipeline import Call
from qmstorage.postgres.states import any_of
from qmstorage.postgres.tables import quoted
from qmstorage.schema import due, expiring, message, ready, share, spent
from qmstorage.shares import Shares
from qmstorage.sql import bindparam, delete, elements, func, postgresql, select
from qmstorage.statements import given

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresUnit

_OVER = select(func.count()).where(spent.c.message_id == share.c.message_id).scalar_subquery()
_LEFT = select(share.c.message_id, share.c.places - _OVER).where(share.c.message_id == any_of("ids"))
_LOCK = _LEFT.order_by(share.c.message_id).with_for_update(skip_locked=True, of=share)
_FORGET_EXPIRY = delete(expiring).where(
    elements.Among(
        _THIS := elements.Row(expiring.c.message_id, expiring),
        select(_THIS)
        .where(
            given(expiring.c.queue_id, "of_queue"),
            given(expiring.c.message_id, "of_message"),
            given(expiring.c.expires_at, "at"),
        )
        .with_for_update(skip_locked=True, of=expiring),
    )
)
_EXPIRE_AGAIN = (
    postgresql.insert(expiring).values({each.name: bindparam(each.name) for each in expiring.columns})
).on_conflict_do_nothing()
_READY_SEEN = (
    select(ready.c.message_id, ready.c.order_key, ready.c.retries, message.c.pages, message.c.size)
    .join_from(message, ready, selection.STANDS_FOR_CONSUMER)
    .where(message.c.id == any_of("ids"), given(message.c.queue_id, "of_messages"))
)
_READY_PLACES = _READY_SEEN.with_for_update(skip_locked=True, of=ready)
_DUE_SEEN = (
    select(due.c.message_id, due.c.order_key, due.c.retries, message.c.pages, message.c.size, due.c.available_at)
    .join_from(due, message, elements.Named(message.c.id, due.c.message_id))
    .where(due.c.message_id == any_of("ids"), given(due.c.queue_id, "of_queue"))
)
_DUE_PLACES = _DUE_SEEN.with_for_update(skip_locked=True, of=due)

_HOWS: Final = {Removal.DEQUEUED: 0, Removal.EXPIRED: 1, Removal.DISCARDED: 2, None: 3}
"""How a place ends, as `spent` has it."""

_UNKNOWN: Final = 1 << 30
"""Places of a message that somebody else sees to: more than it can have."""

_LOOKS: Final = 200
"""How often who is in a hurry asks for the turn to sweep, five milliseconds after each other."""

_SPEND: Final = {"of_queue": "int4", "numbers": "int8[]", "how": "int4", "at_time": "int8"}
_SWEEP: Final = {
    "volume_lock": "int8",
    "of_space": "int4",
    "of_slot": "int4",
    "most": "int8",
    "beyond": "int8",
    "of_messages": "int8[]",
    "turn": "int8",
    "looks": "int4",
}


@functools.cache
def _call(schema: str, name: str) -> Call:
    types = _SPEND if name == "qm_spend" else _SWEEP
    values = ", ".join(f"{each} => %({each})s::{its}" for each, its in types.items())
    return Call(name, f"SELECT {quoted(schema)}.{name}({values})", types)


class SharedShares(Shares):
    """For how many consumers messages still stand."""

    store: PostgresUnit

    def left(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places these messages have left, of those which came with several."""
        return dict(self.all(_LEFT, ids=list(message_ids)))

    def part(self, consumer_id: int, message_ids: Sequence[int], how: Removal | None) -> list[int]:
        """End the place that a consumer has of each of these messages; return those whose last it was."""
        if not message_ids:
            return []
        values = {"of_queue": consumer_id, "numbers": list(message_ids), "how": _HOWS[how]}
        values["at_time"] = self.store.clock.now()
        last: list[int] = self.store.ask(_call(self.store.schema, "qm_spend"), values)[0][0]
        return last

    def locked(self, message_ids: Sequence[int]) -> dict[int, int]:
        """Return how many places each of these messages has left, 0 where it came with one; nobody sweeps it.

        Very many are those of one that somebody else does that with: the next one sees to it, and it stays as it is.
        """
        self._swept(of_space=message_ids[0] >> numbers.SEQUENCE_BITS, of_messages=list(message_ids))
        there: dict[int, int] = dict(self.all(_LEFT, ids=list(message_ids)))
        ours: dict[int, int] = dict(self.all(_LOCK, ids=list(message_ids)))
        self._swept_elsewhere = there.keys() - ours.keys()
        return {number: ours.get(number, _UNKNOWN if number in there else 0) for number in message_ids}

    def expire_again(self, queue_id: int, holding: Holding) -> None:
        """Note when a message expires, whether that is noted or not."""
        if holding.expires_us is not None:
            its = {"queue_id": queue_id, "message_id": holding.place.message_id, "expires_at": holding.expires_us}
            self.run(_EXPIRE_AGAIN, **its)

    def forget_expiry(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Forget when a message expires, which goes; one who looks for what has expired just now does so by himself."""
        self.run(_FORGET_EXPIRY, of_queue=queue_id, of_message=message_id, at=expires_us)

    def expiring(self, queue_id: int, now_us: int, limit: int) -> dict[int, int]:
        """Return at most `limit` messages of a queue for several that have expired, and when; others pass them over."""
        self._taken, self._swept_elsewhere = set[int](), set[int]()
        return super().expiring(queue_id, now_us, limit)

    def places_of(self, consumer_id: int, queue_id: int, expired: Mapping[int, int]) -> list[Holding]:
        """Return where these messages of a queue for several stand for a consumer, but for what somebody takes."""
        ids = [number for number in expired if number not in self._swept_elsewhere]
        its = {"beyond": consumer_id - queue_id, "of_messages": queue_id, "ids": ids}
        due_ones = {"of_queue": consumer_id, "ids": ids}
        seen = {row[0] for row in (*self.all(_READY_SEEN, **its), *self.all(_DUE_SEEN, **due_ones))}
        if not seen:
            return []
        rows = [(*row, None) for row in self.all(_READY_PLACES, **its)]
        rows += self.all(_DUE_PLACES, **due_ones)
        # They may be back, where the transaction of an application is rolled back.
        self._taken |= seen.difference(row[0] for row in rows)
        return [
            Holding(Place(number, consumer_id, key, retries), pages, size, expired[number], until)
            for number, key, retries, pages, size, until in rows
        ]

    def no_longer_expiring(self, queue_id: int, expired: Mapping[int, int]) -> int:
        """Forget when messages expire, unless somebody else is taking a place; return of how many."""
        others = self._taken | self._swept_elsewhere
        return super().no_longer_expiring(queue_id, {each: at for each, at in expired.items() if each not in others})

    def sweep(self, space_id: int, beyond: int, limit: int, *, patiently: bool) -> Swept:
        """Subtract at most so many places that are over, of messages with numbers beyond one; return what came of it.

        Whoever does so `patiently` waits a little for others who are at it, and then sees what they have done.
        """
        turn = keys.key(self.store.schema, keys.Kind.SWEEP, space_id)
        looks = _LOOKS if patiently else 1
        return Swept(*self._swept(of_space=space_id, most=limit, beyond=beyond, turn=turn, looks=looks))

    def _swept(self, **values: object) -> Sequence[int]:
        whole = {"of_space": 0, "most": 0, "beyond": 0, "of_messages": None, "turn": None, "looks": 0, **values}
        whole |= {"volume_lock": self.store.lock_key, "of_slot": self.store.slot}
        found: Sequence[int] = self.store.ask(_call(self.store.schema, "qm_sweep"), whole)[0][0]
        return found
