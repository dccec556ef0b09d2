"""Where messages stand, in sessions that work beside each other.

The row of its state is what locks a message: it is taken first, what others hold is passed over, and whoever has it
owns all else that belongs to the message. So no session waits for another, and none for one that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from qmcore.condition import Condition
from qmcore.message_rows import EXPIRES, ID
from qmcore.records import Holding, Place
from qmcore.selection import Choice
from qmcore.space import Space
from qmstorage import conditions, selection
from qmstorage.schema import due, expiring, message, ready
from qmstorage.sql import (
    ARRAY,
    BigInteger,
    LargeBinary,
    Select,
    Text,
    bindparam,
    cast,
    column,
    delete,
    elements,
    exists,
    func,
    select,
    text,
)
from qmstorage.statements import given
from qmstorage.states import States

T = TypeVar("T")

_LOOKS = 3
"""How often somebody looks for a message in a queue that is not empty, and whose messages others take meanwhile."""

_MOST: Any = bindparam("most")
_DUE_OF_QUEUE = given(due.c.queue_id, "of_queue")
_TAKEN_DUE = (due.c.message_id, due.c.order_key, due.c.retries)


def _numbers(name: str) -> Any:
    return func.any(bindparam(name, type_=ARRAY(BigInteger)))


_THIS_DUE, _THIS_EXPIRING = (elements.Row(table.c.message_id, table) for table in (due, expiring))


def _take_due(chosen: Select[Any]) -> Any:
    own = chosen.with_for_update(skip_locked=True, of=due)
    return delete(due).where(elements.Among(_THIS_DUE, own)).returning(*_TAKEN_DUE)


_DUE = select(_THIS_DUE).where(_DUE_OF_QUEUE)
_TAKE_DUE = _take_due(_DUE.limit(_MOST))
_RELEASE = _take_due(
    _DUE.where(due.c.available_at <= bindparam("now")).order_by(due.c.available_at, due.c.message_id).limit(_MOST)
)
_EXPIRED = (
    select(expiring.c.message_id, cast(_THIS_EXPIRING, Text))
    .where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
    .order_by(expiring.c.expires_at, expiring.c.message_id)
    .limit(_MOST)
    # What others are about to remove is waited for: to pass it over would leave it to be dequeued meanwhile.
    .with_for_update()
)
_TAKE_READY_OF = (
    delete(ready)
    .where(
        elements.Among(
            selection.THIS,
            select(selection.THIS)
            .join_from(message, ready, selection.STANDS)
            .where(message.c.id == _numbers("ids"), given(message.c.queue_id, "of_queue"))
            .with_for_update(skip_locked=True, of=ready),
        ),
    )
    .returning(ready.c.message_id, ready.c.order_key, ready.c.retries)
)
_IS_RECORDED = exists(select(message.c.id).where(elements.Named(message.c.id, due.c.message_id)))
_TAKE_DUE_OF = _take_due(select(_THIS_DUE).where(due.c.message_id == _numbers("ids"), _IS_RECORDED))
_PLACES = func.any(cast(bindparam("places", type_=ARRAY(Text)), ARRAY(elements.Tid)))
_UNMAKE_EXPIRING_AT = delete(expiring).where(_THIS_EXPIRING.op("=")(_PLACES))
_CHARGED = select(message.c.id, message.c.pages, message.c.size, message.c.expires_at).where(
    message.c.id == _numbers("ids")
)
_KEYS = (
    func.unnest(bindparam("keys", type_=ARRAY(LargeBinary)))
    .table_valued(column("order_key", LargeBinary), name="keys")
    .render_derived()
)
# One by one: a join might begin with all messages of the queue.
_THEIRS = select(
    select(selection.THIS)
    .where(given(ready.c.queue_id, "of_queue"), ready.c.order_key == _KEYS.c.order_key)
    .correlate(_KEYS)
    .scalar_subquery()
).select_from(_KEYS)
_TAKE_OUT = delete(ready).where(elements.Among(selection.THIS, _THEIRS))
_LOCK_READY = (
    select(ready.c.message_id, ready.c.order_key, ready.c.retries)
    .where(elements.Among(selection.THIS, _THEIRS))
    .with_for_update(skip_locked=True, of=ready)
)
_EXPIRED_BY = ("expires_at", "message_id")
_NO_LONGER = (
    func.unnest(*(bindparam(f"each_{name}", type_=ARRAY(expiring.c[name].type)) for name in _EXPIRED_BY))
    .table_valued(*(column(name, expiring.c[name].type) for name in _EXPIRED_BY), name="no_longer")
    .render_derived()
)
_THEIR_EXPIRY = select(
    select(_THIS_EXPIRING)
    .where(given(expiring.c.queue_id, "of_queue"), *(expiring.c[name] == _NO_LONGER.c[name] for name in _EXPIRED_BY))
    .correlate(_NO_LONGER)
    .scalar_subquery()
).select_from(_NO_LONGER)
EXPIRE_NO_LONGER = delete(expiring).where(elements.Among(_THIS_EXPIRING, _THEIR_EXPIRY))
"""Forgets when messages expire."""
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")


class SharedStates(States):
    """Where messages stand while no transaction holds them."""

    def lock(self, key: int) -> None:
        """Wait until no other session has this advisory lock, and have it until the unit is committed."""
        self.run(_LOCK, key=key)

    def choose(self, queue_id: int, choice: Choice, limit: int, *, locks: bool = True) -> list[tuple[Any, ...]]:
        """Return the first ready messages that are chosen, and that nobody else is taking where it `locks` them."""
        choose = super().choose
        if not locks:
            return choose(queue_id, choice, limit, locks=False)
        return self._looked(queue_id, choice, lambda: choose(queue_id, choice, limit))

    def locked_ready(self, queue_id: int, found: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """Return those of these ready messages that nobody else is taking, or takes before the end."""
        return sorted(self.all(_LOCK_READY, of_queue=queue_id, keys=[row[1] for row in found]), key=itemgetter(1))

    def take_out(self, queue_id: int, its: Sequence[tuple[bytes, int, tuple[Any, ...]]]) -> None:
        """Take messages out of `ready`, by their keys, and forget when they expire."""
        self.run(_TAKE_OUT, of_queue=queue_id, keys=[key for key, _, _ in its])
        expire = [(row[EXPIRES], row[ID]) for _, _, row in its if row[EXPIRES] is not None]
        if expire:
            moments, numbers = map(list, zip(*expire, strict=True))
            self.run(EXPIRE_NO_LONGER, of_queue=queue_id, each_expires_at=moments, each_message_id=numbers)

    def take_many(self, queue_id: int, choice: Choice, limit: int) -> list[Place]:
        """Take the first ready messages that are chosen, and that nobody else is taking; return them in order."""
        take_many = super().take_many
        return self._looked(queue_id, choice, lambda: take_many(queue_id, choice, limit))

    def _looked(self, queue_id: int, choice: Choice, act: Callable[[], list[T]]) -> list[T]:
        """Take what there is, and look again where there was nothing.

        A statement sees what was there when it began. While it runs, others may take all of that, and bring new
        messages: then it finds nothing in a queue that was never empty.
        """
        for _ in range(_LOOKS):
            if (taken := act()) or self.find(queue_id, choice) is None:
                return taken
        return []

    def release_due(self, queue_id: int, now_us: int, limit: int) -> int:
        """Make at most `limit` messages ready that have become available, and return how many."""
        released = self.all(_RELEASE, of_queue=queue_id, now=now_us, most=limit)
        self.make_all_ready(queue_id, released)
        return len(released)

    def take_expired(self, queue_id: int, now_us: int, limit: int) -> list[Holding]:
        """Take at most `limit` messages that have expired out of their states; those that somebody takes are left."""
        places: dict[int, str] = dict(self.all(_EXPIRED, of_queue=queue_id, now=now_us, most=limit))
        if not places:
            return []
        ids = list(places)
        rows = self.all(_TAKE_READY_OF, of_queue=queue_id, ids=ids)
        if len(rows) < len(ids):
            rows += self.all(_TAKE_DUE_OF, ids=ids)
        taken = {row[0]: Place(row[0], queue_id, row[1], row[2]) for row in rows}
        self.run(_UNMAKE_EXPIRING_AT, places=[places[number] for number in taken])
        charged = {row[0]: row[1:] for row in self.all(_CHARGED, ids=list(taken))}
        return [Holding(taken[number], *charged[number]) for number in ids if number in taken]

    def take_due(self, space: Space, queue_id: int, condition: Condition | None, limit: int) -> list[Place]:
        """Take at most `limit` messages that are kept back, and are chosen, out of `due`."""
        if condition is None:
            taken = self.all(_TAKE_DUE, of_queue=queue_id, most=limit)
        else:
            where = conditions.where(condition, retries=due.c.retries, space=space, available_at=due.c.available_at)
            chosen = (
                _DUE.join_from(due, message, elements.Named(message.c.id, due.c.message_id)).where(where).limit(_MOST)
            )
            taken = self.built(_take_due(chosen), of_queue=queue_id, most=limit)
        return [Place(number, queue_id, key, retries) for number, key, retries in taken]
