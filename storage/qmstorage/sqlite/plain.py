"""What the short way does in a unit: what most calls ask for, in few steps of Python, which cost what SQLite does.

There is one writer at a time, so that what was looked up is still so when it is changed. Nothing is changed before all
is looked up: whoever is turned back has done nothing.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Integer, bindparam, exists, func, insert, literal_column, select

from qmcore import numbers
from qmcore.message import Message
from qmcore.order import ordinary_key
from qmcore.records import Nothing, Outcome, Role
from qmcore.shortcut import PlainArrival, PlainDeparture, PlainEnd, PlainHeld, PlainHold
from qmstorage.counters import adding
from qmstorage.runner import Row, given
from qmstorage.schema import counter, message, owner, trans
from qmstorage.sqlite import traffic
from qmstorage.unit import SqlUnit

MAIN: Final = select(
    counter.c.generation, counter.c.sequence, counter.c.messages, counter.c.pages, counter.c.size
).where(given(counter.c.space_id, "space_id"), counter.c.queue_id == literal_column("0"))
_COUNT: Final = adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(
    given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "of_queue")
)
_OF_TRANSACTION: Final = ("id", "space_id", "owner_id", "state", "started_at", "deadline")
_OPEN: Final = (
    select(func.count())
    .select_from(trans)
    .where(given(trans.c.space_id, "of_space"), trans.c.state != literal_column(f"'{Outcome.COMMITTED.value}'"))
)
_BEGIN: Final = insert(trans).from_select(
    list(_OF_TRANSACTION),
    select(*(bindparam(name, type_=trans.c[name].type) for name in _OF_TRANSACTION)).where(
        exists().where(given(owner.c.id, "of_owner")), _OPEN.scalar_subquery() < bindparam("most", type_=Integer())
    ),
)
"""Records a transaction, where its owner was not given up and the queue space has fewer than `most`."""

_PAGES: Final = message.columns.keys().index("pages")
_SIZE: Final = message.columns.keys().index("size")
_EXPIRES: Final = message.columns.keys().index("expires_at")
_BODY_ID: Final = message.columns.keys().index("body_id")


class PlainTraffic(traffic.Traffic, SqlUnit):
    """What most calls ask, in one step each. None or False: nothing was done."""

    def arrive_plainly(self, arrival: PlainArrival) -> int | None:
        """Enqueue a message and return its sequence number."""
        terms, new = arrival
        space, queue_id = terms.space.id, new.queue_id
        main: Row | None = self.run_in_order(MAIN, space).fetchone()
        if main is None or main[0] != terms.generation:
            return None
        _, last, messages, pages, _ = main
        if messages >= terms.most_messages or pages + new.pages > terms.most_pages:
            return None
        self._count(space, 0, 1, new.pages, new.size, enqueued=1)
        self._count(space, queue_id, 1, new.pages, new.size, enqueued=1)
        self._bring(arrival, numbers.number(space, last + 1), last + 1)
        return int(last) + 1

    def depart_plainly(self, departure: PlainDeparture) -> Message | Nothing | None:
        """Consume the first message of a queue."""
        space, _, queue_id, name, _ = departure
        found = self._first_of(departure)
        if not isinstance(found, tuple):
            return found
        key, retries, row = found
        self._take_out(queue_id, key, row)
        self.run_in_order(traffic.REMOVE, row[0])
        self._count(space.id, 0, -1, -row[_PAGES], -row[_SIZE], dequeued=1)
        self._count(space.id, queue_id, -1, -row[_PAGES], -row[_SIZE], dequeued=1)
        return self._message(row, True, space, name, retries)

    def hold_plainly(self, hold: PlainHold) -> PlainHeld | Nothing | None:
        """Record a transaction and let it hold the first message of a queue."""
        departure, record, most, count = hold
        found = self._first_of(departure)
        if not isinstance(found, tuple):
            return found
        owner_id, state = record.owner_id, record.state.value
        its = record.id, record.space_id, owner_id, state, record.started_us, record.deadline_us
        if self.run_in_order(_BEGIN, *its, owner_id, record.space_id, most).rowcount == 0:
            return None
        key, retries, row = found
        self._take_out(departure.queue_id, key, row)
        held = row[0], departure.queue_id, key, retries, row[_PAGES], row[_SIZE], row[_EXPIRES]
        self.run_in_order(traffic.HOLD, record.id, *held, int(Role.DEQUEUED))
        sequences = self.reserve(record.space_id, count) if count else ()
        taken = self._message(row, True, departure.space, departure.queue_name, retries)
        return PlainHeld(taken, row[_PAGES], sequences)

    def end_plainly(self, end: PlainEnd) -> bool:
        """Commit a transaction that holds messages of one queue."""
        found = self._take_record(end)
        if found is None:
            return False
        its, last = found
        self._delete_each(its, end.transaction_id, end.queue_id, Role.DEQUEUED)
        self._count_end(end)
        if end.brings is not None:
            self._bring(end.brings, end.brings.new.id, last + 1)
        return True

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _first_of(self, departure: PlainDeparture) -> tuple[bytes, int, Row] | Nothing | None:
        """Return the order key of the first message of a queue, its retries and its row; nothing is changed."""
        space, generation, queue_id, _, now = departure
        main: Row | None = self.run_in_order(MAIN, space.id).fetchone()
        if main is None or main[0] != generation or any(self.pending_work(queue_id, now)):
            return None
        found: Row | None = self.run_in_order(traffic.IN_ORDER, queue_id).fetchone()
        if found is None:
            return Nothing((queue_id,), self.next_due(queue_id), held=self.held_in(queue_id))
        number, key, retries = found
        row = self._row_of(traffic.READ, number)
        return (key, retries, row) if row[_BODY_ID] is None else None

    def _take_record(self, end: PlainEnd) -> tuple[list[Row], int] | None:
        """Take the record of a transaction away; return what it holds, and the last sequence number that was given out.

        None: it is another than was meant, or there is no room for what it brings, and nothing was changed.
        """
        space, generation, transaction_id, owner_id, queue_id, holds, brings = end
        main: Row | None = self.run_in_order(MAIN, space.id).fetchone()
        if main is None or main[0] != generation:
            return None
        _, last, messages, pages, _ = main
        if brings is not None and (
            messages - holds.messages >= brings.terms.most_messages
            or pages - holds.pages + brings.new.pages > brings.terms.most_pages
        ):
            return None
        its = self.run_in_order(traffic.HELD[Role.DEQUEUED], queue_id, transaction_id).fetchall()
        if traffic.use_of(its) != holds or not self.end_transaction(transaction_id, owner_id):
            return None
        return its, last

    def _count_end(self, end: PlainEnd) -> None:
        """Count out what a transaction has consumed, and in what it brings."""
        space_id, queue_id, holds = end.space.id, end.queue_id, end.holds
        gone = -holds.messages, -holds.pages, -holds.size
        if end.brings is None:
            self._count(space_id, 0, *gone, dequeued=holds.messages)
            self._count(space_id, queue_id, *gone, dequeued=holds.messages)
            return
        new = end.brings.new
        after = 1 - holds.messages, new.pages - holds.pages, new.size - holds.size
        self._count(space_id, 0, *after, enqueued=1, dequeued=holds.messages)
        if new.queue_id == queue_id:
            self._count(space_id, queue_id, *after, enqueued=1, dequeued=holds.messages)
        else:
            self._count(space_id, queue_id, *gone, dequeued=holds.messages)
            self._count(space_id, new.queue_id, 1, new.pages, new.size, enqueued=1)

    def _take_out(self, queue_id: int, key: bytes, row: Row) -> None:
        """Take a message out of `ready`, and forget when it expires."""
        self.run_in_order(traffic.TAKE, queue_id, key)
        if row[_EXPIRES] is not None:
            self.unmake_expiring(queue_id, row[0], row[_EXPIRES])

    def _bring(self, arrival: PlainArrival, number: int, sequence: int) -> None:
        """Store a message, and let it stand in the order of its queue."""
        (_, _, queue_id, head, descends, _, _), new = arrival
        key = ordinary_key(head, sequence, descends=descends)
        standing = new.standing
        if traffic.is_plain(new):
            self._cursor.execute(self._texts.in_order[traffic.PUT_PLAIN], traffic.plain_row(new, number, key))
        elif traffic.is_usual(new) and standing.expires_us is None:
            self._cursor.execute(self._texts.in_order[traffic.PUT_USUAL], traffic.usual_row(new, number, key))
        else:
            new = new._replace(id=number, standing=standing._replace(order_key=key))
            self.bring([new], standing.enqueued_us)
            return
        self._cursor.execute(self._texts.in_order[traffic.MAKE_READY], (queue_id, key, number, 0))
        self.news.came(queue_id)

    def _count(
        self,
        space_id: int,
        queue_id: int,
        messages: int,
        pages: int,
        size: int,
        *,
        enqueued: int = 0,
        dequeued: int = 0,
    ) -> None:
        its = enqueued, messages, pages, size, enqueued, dequeued, space_id, queue_id
        self._cursor.execute(self._texts.in_order[_COUNT], its)
