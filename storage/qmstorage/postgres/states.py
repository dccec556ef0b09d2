"""Where messages stand, in sessions that work beside each other.

The row of its state is what locks a message: it is taken first, what others hold is passed over, and whoever has it
owns all else that belongs to the message. So no session waits for another, and none for one that waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from qmcore.records import Holding, Place
from qmcore.selection import Choice
from qmstorage import selection
from qmstorage.postgres import keys
from qmstorage.schema import due, expiring, message, ready
from qmstorage.sql import (
    ARRAY,
    BigInteger,
    LargeBinary,
    bindparam,
    column,
    delete,
    elements,
    func,
    select,
    text,
)
from qmstorage.statements import given
from qmstorage.states import States

if TYPE_CHECKING:
    from qmstorage.postgres.unit import PostgresMemoryStore, PostgresUnit

T = TypeVar("T")

_LOOKS = 3
"""How often somebody looks for a message in a queue that is not empty, and whose messages others take meanwhile."""

_MOST: Any = bindparam("most")


def any_of(name: str) -> Any:
    """Return what a number has to equal to be one of those that are given by this name."""
    return func.any(bindparam(name, type_=ARRAY(BigInteger)))


_THIS_DUE = elements.Row(due.c.message_id, due)


_AVAILABLE = (
    select(_THIS_DUE)
    .where(given(due.c.queue_id, "of_queue"), due.c.available_at <= bindparam("now"))
    .order_by(due.c.available_at, due.c.message_id)
    .limit(_MOST)
    .with_for_update(skip_locked=True, of=due)
)
_RELEASE = (
    delete(due).where(elements.Among(_THIS_DUE, _AVAILABLE)).returning(due.c.message_id, due.c.order_key, due.c.retries)
)
_EXPIRED = (
    select(expiring.c.message_id, expiring.c.expires_at)
    .where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
    .order_by(expiring.c.expires_at, expiring.c.message_id)
    .limit(_MOST)
    # What others are about to remove is waited for: to pass it over would leave it to be dequeued meanwhile.
    .with_for_update()
)
_READY_OF = (
    select(ready.c.message_id, ready.c.order_key, ready.c.retries, message.c.pages, message.c.size)
    .join_from(message, ready, selection.STANDS)
    .where(message.c.id == any_of("ids"), given(message.c.queue_id, "of_queue"))
    .with_for_update(skip_locked=True, of=ready)
)
_DUE_OF = (
    select(due.c.message_id, due.c.order_key, due.c.retries, message.c.pages, message.c.size, due.c.available_at)
    .join_from(due, message, elements.Named(message.c.id, due.c.message_id))
    .where(due.c.message_id == any_of("ids"))
    .with_for_update(skip_locked=True, of=due)
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
_LOCK_READY = (
    select(ready.c.message_id, ready.c.order_key, ready.c.retries)
    .where(elements.Among(selection.THIS, _THEIRS))
    .with_for_update(skip_locked=True, of=ready)
)
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")


class SharedStates(States):
    """Where messages stand while no transaction holds them."""

    store: PostgresUnit | PostgresMemoryStore

    def take_alone(self, queue_id: int) -> None:
        """Let nobody else who asks for this take messages out of the queue before the unit is committed."""
        self.run(_LOCK, key=keys.key(self.store.schema, keys.Kind.QUEUE, queue_id))

    def choose(
        self, queue_id: int, messages_of: int, choice: Choice, limit: int, *, locks: bool = True
    ) -> list[tuple[Any, ...]]:
        """Return the first ready messages that are chosen, and that nobody else is taking where it `locks` them.

        A statement sees what was there when it began. While it runs, others may take all of that, and bring new
        messages: then it finds nothing in a queue that was never empty, and looks again.
        """
        for _ in range(_LOOKS if locks else 1):
            found = super().choose(queue_id, messages_of, choice, limit, locks=locks)
            if found or not locks or self.find(queue_id, messages_of, choice) is None:
                return found
        return []

    def locked_ready(self, queue_id: int, found: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """Return those of these ready messages that nobody else is taking, or takes before the end."""
        return sorted(self.all(_LOCK_READY, of_queue=queue_id, keys=[row[1] for row in found]), key=itemgetter(1))

    def release_due(self, queue_id: int, now_us: int, limit: int) -> int:
        """Make at most `limit` messages ready that have become available, and return how many."""
        released = self.all(_RELEASE, of_queue=queue_id, now=now_us, most=limit)
        self.make_ready(queue_id, released)
        return len(released)

    def expired(self, queue_id: int, now_us: int, limit: int) -> list[Holding]:
        """Return at most `limit` messages that have expired, but for those that somebody else takes."""
        moments: dict[int, int] = dict(self.all(_EXPIRED, of_queue=queue_id, now=now_us, most=limit))
        if not moments:
            return []
        ids = list(moments)
        rows = [(*row, None) for row in self.all(_READY_OF, of_queue=queue_id, ids=ids)]
        if len(rows) < len(ids):
            rows += self.all(_DUE_OF, ids=ids)
        its = {
            number: Holding(Place(number, queue_id, key, retries), pages, size, moments[number], until)
            for number, key, retries, pages, size, until in rows
        }
        return [its[number] for number in ids if number in its]
