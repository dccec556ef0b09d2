"""Messages and their states in SQL."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, exists, literal, or_, select, tuple_, update

from qmcore.message import Message, Origin
from qmcore.port import Level, NewMessage, Place
from qmcore.space import Space
from qmstorage import rows
from qmstorage.runner import Runner, Statement, given, insert_into
from qmstorage.schema import counter, due, expiring, message, ready

_OF_SPACE = (given(counter.c.space_id, "space_id"), counter.c.queue_id == literal(0))
_OF_SPACE_AND_QUEUE = (
    given(counter.c.space_id, "space_id"),
    or_(counter.c.queue_id == 0, given(counter.c.queue_id, "of_queue")),
)
_RESERVE = (
    update(counter)
    .where(*_OF_SPACE)
    .values(sequence=counter.c.sequence + bindparam("count"))
    .returning(counter.c.sequence)
)
_ARRIVE = (
    update(counter)
    .where(*_OF_SPACE_AND_QUEUE)
    .values(
        sequence=counter.c.sequence + bindparam("count"),
        messages=counter.c.messages + bindparam("count"),
        pages=counter.c.pages + bindparam("by_pages"),
        size=counter.c.size + bindparam("by_size"),
        enqueued=counter.c.enqueued + bindparam("count"),
    )
    .returning(counter.c.queue_id, counter.c.sequence, counter.c.messages, counter.c.pages)
)


def _leave(how: str) -> Statement:
    return (
        update(counter)
        .where(*_OF_SPACE_AND_QUEUE)
        .values(
            {
                "messages": counter.c.messages - bindparam("count"),
                "pages": counter.c.pages - bindparam("by_pages"),
                "size": counter.c.size - bindparam("by_size"),
                how: counter.c[how] + bindparam("count"),
            }
        )
    )


_LEAVE = {how: _leave(how) for how in ("dequeued", "expired", "discarded", "moved")}
_PUT = insert_into(message)
_MAKE_READY = insert_into(ready)
_MAKE_DUE = insert_into(due)
_MAKE_EXPIRING = insert_into(expiring)
_UNMAKE_EXPIRING = delete(expiring).where(
    given(expiring.c.queue_id, "of_queue"),
    given(expiring.c.expires_at, "at"),
    given(expiring.c.message_id, "of_message"),
)
_NEXT_DUE = select(due.c.available_at).where(given(due.c.queue_id, "of_queue")).order_by(due.c.available_at).limit(1)
_HAS_DUE = exists().where(given(due.c.queue_id, "of_queue"), due.c.available_at <= bindparam("now"))
_HAS_EXPIRED = exists().where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
_PENDING_WORK = select(_HAS_DUE, _HAS_EXPIRED)
_TAKE_DUE = (
    delete(due)
    .where(
        tuple_(due.c.queue_id, due.c.available_at, due.c.message_id).in_(
            select(due.c.queue_id, due.c.available_at, due.c.message_id)
            .where(given(due.c.queue_id, "of_queue"), due.c.available_at <= bindparam("now"))
            .order_by(due.c.available_at, due.c.message_id)
            .limit(bindparam("most"))
        )
    )
    .returning(due.c.order_key, due.c.message_id, due.c.retries)
)
_TAKE_EXPIRING = (
    delete(expiring)
    .where(
        tuple_(expiring.c.queue_id, expiring.c.expires_at, expiring.c.message_id).in_(
            select(expiring.c.queue_id, expiring.c.expires_at, expiring.c.message_id)
            .where(given(expiring.c.queue_id, "of_queue"), expiring.c.expires_at <= bindparam("now"))
            .order_by(expiring.c.expires_at, expiring.c.message_id)
            .limit(bindparam("most"))
        )
    )
    .returning(expiring.c.message_id)
)
_TAKEN = (ready.c.message_id, ready.c.order_key, ready.c.retries)
_FIRST_KEY = (
    select(ready.c.order_key)
    .where(given(ready.c.queue_id, "of_queue"))
    .order_by(ready.c.order_key)
    .limit(1)
    .scalar_subquery()
)
_TAKE_FIRST = (
    delete(ready).where(given(ready.c.queue_id, "of_queue"), ready.c.order_key == _FIRST_KEY).returning(*_TAKEN)
)
_KEY_OF = (
    select(message.c.order_key)
    .where(given(message.c.id, "of_message"), given(message.c.queue_id, "of_queue"))
    .scalar_subquery()
)
_TAKE_BY_ID = delete(ready).where(given(ready.c.queue_id, "of_queue"), ready.c.order_key == _KEY_OF).returning(*_TAKEN)
_CORRELATED_KEY = (
    select(message.c.order_key)
    .where(
        given(message.c.queue_id, "of_queue"),
        given(message.c.corrid, "corrid"),
        exists().where(ready.c.queue_id == message.c.queue_id, ready.c.order_key == message.c.order_key),
    )
    .order_by(message.c.order_key)
    .limit(1)
    .scalar_subquery()
)
_TAKE_BY_CORRID = (
    delete(ready).where(given(ready.c.queue_id, "of_queue"), ready.c.order_key == _CORRELATED_KEY).returning(*_TAKEN)
)
_REMOVE_READY_BY_ID = delete(ready).where(given(ready.c.queue_id, "of_queue"), ready.c.order_key == _KEY_OF)
_REMOVE_DUE_BY_ID = delete(due).where(given(due.c.message_id, "of_message"))
_READ = select(*message.columns).where(given(message.c.id, "of_message"))
_REMOVE = delete(message).where(given(message.c.id, "of_message")).returning(*message.columns)
_DISCARD = delete(message).where(given(message.c.id, "of_message")).returning(message.c.pages, message.c.size)
_PRIORITY = select(message.c.priority).where(given(message.c.id, "of_message"))
_MOVE = (
    update(message)
    .where(given(message.c.id, "of_message"))
    .values(
        id=bindparam("new_id"),
        queue_id=bindparam("to_queue"),
        order_key=bindparam("new_key"),
        available_at=None,
        expires_at=None,
        origin_queue=bindparam("from_queue"),
        origin_msgid=bindparam("from_msgid"),
        origin_reason=bindparam("reason"),
        origin_error=bindparam("error"),
        moved_at=bindparam("at"),
    )
)


class Messages(Runner):
    """Messages and the states that they pass through."""

    def reserve(self, space_id: int, count: int) -> int:
        """Give out `count` sequence numbers and return the last."""
        return int(self.all(_RESERVE, space_id=space_id, count=count)[0][0])

    def arrive(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int) -> Level:
        """Count messages in and give out as many sequence numbers; the level's is the last."""
        for of, *level in self.all(
            _ARRIVE, space_id=space_id, of_queue=queue_id, count=count, by_pages=pages, by_size=size
        ):
            if of == 0:
                return Level(*level)
        raise LookupError(f"queue space {space_id} has no counters")

    def leave(self, space_id: int, queue_id: int, *, count: int, pages: int, size: int, how: str) -> None:
        """Count messages out; `how` is the counter that grows: dequeued, expired, discarded or moved."""
        self.run(_LEAVE[how], space_id=space_id, of_queue=queue_id, count=count, by_pages=pages, by_size=size)

    def put(self, new: NewMessage) -> None:
        """Store a message, without a state yet."""
        self._cursor.execute(self._texts[_PUT][0], rows.to_row(new))

    def make_ready(self, place: Place) -> None:
        """Let the message be dequeued, in the order of its key; those who wait for the queue are told."""
        self.run(
            _MAKE_READY,
            queue_id=place.queue_id,
            order_key=place.order_key,
            message_id=place.message_id,
            retries=place.retries,
        )
        self.arrivals.add(place.queue_id)

    def make_due(self, place: Place, available_us: int) -> None:
        """Keep the message back until a time; those who wait for the queue are told."""
        self.run(
            _MAKE_DUE,
            queue_id=place.queue_id,
            available_at=available_us,
            message_id=place.message_id,
            order_key=place.order_key,
            retries=place.retries,
        )
        self.arrivals.add(place.queue_id)

    def make_expiring(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Note when a message that no transaction holds expires."""
        self.run(_MAKE_EXPIRING, queue_id=queue_id, message_id=message_id, expires_at=expires_us)

    def unmake_expiring(self, queue_id: int, message_id: int, expires_us: int) -> None:
        """Forget when the message expires."""
        self.run(_UNMAKE_EXPIRING, of_queue=queue_id, of_message=message_id, at=expires_us)

    def next_due(self, queue_id: int) -> int | None:
        """Return when the next message of the queue that is kept back becomes available."""
        row = self.one(_NEXT_DUE, of_queue=queue_id)
        return None if row is None else int(row[0])

    def pending_work(self, queue_id: int, now_us: int) -> tuple[bool, bool]:
        """Tell whether the queue has messages that became available, and ones that expired."""
        available, expired = self.all(_PENDING_WORK, of_queue=queue_id, now=now_us)[0]
        return bool(available), bool(expired)

    def release_due(self, queue_id: int, now_us: int, limit: int) -> int:
        """Make at most `limit` messages ready that have become available, and return how many."""
        released = self.all(_TAKE_DUE, of_queue=queue_id, now=now_us, most=limit)
        self.many(
            _MAKE_READY,
            (
                {"queue_id": queue_id, "order_key": key, "message_id": number, "retries": retries}
                for key, number, retries in released
            ),
        )
        if released:
            self.arrivals.add(queue_id)
        return len(released)

    def take_expired(self, queue_id: int, now_us: int, limit: int) -> tuple[int, int, int]:
        """Delete at most `limit` messages that have expired; return how many, their pages and their size."""
        expired = self.all(_TAKE_EXPIRING, of_queue=queue_id, now=now_us, most=limit)
        pages = size = 0
        for (number,) in expired:
            self.run(_REMOVE_READY_BY_ID, of_queue=queue_id, of_message=number)
            self.run(_REMOVE_DUE_BY_ID, of_message=number)
            had_pages, had_size = self.all(_DISCARD, of_message=number)[0]
            pages += had_pages
            size += had_size
        return len(expired), pages, size

    def take_first(self, queue_id: int) -> Place | None:
        """Take the first ready message of the queue out of `ready`."""
        row = self.one(_TAKE_FIRST, of_queue=queue_id)
        return None if row is None else Place(row[0], queue_id, row[1], row[2])

    def take_by_id(self, queue_id: int, message_id: int) -> Place | None:
        """Take this message out of `ready` if it stands there, in this queue."""
        row = self.one(_TAKE_BY_ID, of_queue=queue_id, of_message=message_id)
        return None if row is None else Place(row[0], queue_id, row[1], row[2])

    def take_by_corrid(self, queue_id: int, corrid: bytes) -> Place | None:
        """Take the first ready message with this correlation identifier out of `ready`."""
        row = self.one(_TAKE_BY_CORRID, of_queue=queue_id, corrid=corrid)
        return None if row is None else Place(row[0], queue_id, row[1], row[2])

    def read(self, space: Space, queue_name: str, place: Place) -> tuple[Message, int]:
        """Return a message that stays stored, and its pages."""
        return self._message(_READ, space, queue_name, place)

    def remove(self, space: Space, queue_name: str, place: Place) -> tuple[Message, int]:
        """Delete a message and return it, and its pages."""
        return self._message(_REMOVE, space, queue_name, place)

    def priority(self, message_id: int) -> int:
        """Return the priority of a message."""
        return int(self.all(_PRIORITY, of_message=message_id)[0][0])

    def discard(self, message_id: int) -> None:
        """Delete a message."""
        self.run(_DISCARD, of_message=message_id).fetchall()

    def move(self, message_id: int, *, new_id: int, queue_id: int, order_key: bytes, origin: Origin) -> None:
        """Give a message another queue and number; it no longer expires."""
        self.run(
            _MOVE,
            of_message=message_id,
            new_id=new_id,
            to_queue=queue_id,
            new_key=order_key,
            from_queue=origin.queue,
            from_msgid=origin.msgid,
            reason=origin.reason.value,
            error=origin.error or None,
            at=origin.moved_us,
        )

    def _message(self, statement: Statement, space: Space, queue_name: str, place: Place) -> tuple[Message, int]:
        rows_ = self.all(statement, of_message=place.message_id)
        if not rows_:
            raise LookupError(f"message {place.message_id} of queue {queue_name!r} has a place but no row")
        return rows.to_message(rows_[0], space.incarnation, queue_name, place.retries), rows_[0][_PAGES]


_PAGES = message.columns.keys().index("pages")
