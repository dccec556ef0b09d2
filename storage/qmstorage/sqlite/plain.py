"""What the short way does in a unit: what most calls ask for, in few steps of Python, which cost what SQLite does.

There is one writer at a time, so that what was looked up is still so when it is changed. Nothing is changed before all
is looked up: whoever is turned back has done nothing.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Integer, bindparam, exists, func, insert, literal_column, select, update

from qmcore.errors import SystemFailureError
from qmcore.message import Message
from qmcore.records import Nothing, Outcome, Role, Use
from qmcore.shortcut import PlainDeparture, PlainEnd, PlainHeld, PlainHold
from qmcore.space import Space
from qmstorage import rows
from qmstorage.counters import MOST, OF_SPACE, adding
from qmstorage.schema import counter, owner, trans
from qmstorage.sqlite import traffic
from qmstorage.sqlite.transitions import MAIN, Transitions
from qmstorage.statements import Row, given
from qmstorage.transactions import written_state

_LEVEL: Final = 2
"""Where its messages, pages and bytes begin in that."""

_COUNT_OUT: Final = (
    adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(*OF_SPACE).values(MOST)
)
"""Of the queue space as a whole, where messages leave it, be there others that come."""
_OF_TRANSACTION: Final = ("id", "space_id", "owner_id", "started_at", "deadline")
_OPEN: Final = (
    select(func.count())
    .select_from(trans)
    .where(given(trans.c.space_id, "of_space"), trans.c.state != written_state(Outcome.COMMITTED))
)
_MAY_BEGIN: Final = (
    exists().where(given(owner.c.id, "of_owner")),
    _OPEN.scalar_subquery() < bindparam("most", type_=Integer()),
)
_RECORD: Final = [bindparam(name, type_=trans.c[name].type) for name in _OF_TRANSACTION]
_BEGIN: Final = insert(trans).from_select(
    [*_OF_TRANSACTION, "state"], select(*_RECORD, written_state(Outcome.ACTIVE)).where(*_MAY_BEGIN)
)
"""Records an active transaction, where its owner was not given up and the queue space has fewer than `most`."""

_OF_HANDOFF: Final = (counter.c.space_id == literal_column("0"), given(counter.c.queue_id, "of_handoff"))
_HANDOFF_COMMIT: Final = select(counter.c.sequence).where(*_OF_HANDOFF)
_COUNT_HANDOFF_COMMIT: Final = (
    update(counter).where(*_OF_HANDOFF, counter.c.sequence < bindparam("later")).values(sequence=bindparam("commit"))
)
"""Where no queue space is: they are numbered from 1. It is a row of a page that most commits write to anyway."""


class PlainTraffic(Transitions):
    """What most calls ask, in one step each. None or False: nothing was done."""

    def depart_plainly(self, departure: PlainDeparture) -> Message | Nothing | None:
        """Consume the first message of a queue."""
        space, generation, queue_id, name, now = departure
        found = self.first_of(space.id, generation, queue_id, now)
        if not isinstance(found, tuple):
            return found
        key, retries, row, _ = found
        # What is damaged is refused here, before anything is done with it.
        taken = self._message(row, True, space, name, retries)
        self.take_away(space.id, queue_id, key, row)
        return taken

    def hold_plainly(self, hold: PlainHold) -> PlainHeld | Nothing | None:
        """Record a transaction and let it hold the first message of a queue."""
        departure, record, most, count = hold
        found = self.first_of(departure.space.id, departure.generation, departure.queue_id, departure.now_us)
        if not isinstance(found, tuple):
            return found
        key, retries, row, level = found
        taken = self._message(row, True, departure.space, departure.queue_name, retries)
        its = record.id, record.space_id, record.owner_id, record.started_us, record.deadline_us
        if self.run_in_order(_BEGIN, *its, record.owner_id, record.space_id, most).rowcount == 0:
            return None
        self._take_out(departure.queue_id, key, row)
        held = row[0], departure.queue_id, key, retries, row[rows.PAGES], row[rows.SIZE], row[rows.EXPIRES]
        self.run_in_order(traffic.HOLD, record.id, *held, int(Role.DEQUEUED))
        sequences = self.reserve(record.space_id, count) if count else ()
        return PlainHeld(taken, row[rows.PAGES], sequences, Use(*level))

    def end_plainly(self, end: PlainEnd) -> bool:
        """Commit a transaction that holds messages of one queue."""
        found = self._take_record(end)
        if found is None:
            return False
        its, last = found
        self._delete_each(its, end.transaction_id, end.queue_id, Role.DEQUEUED)
        self._count_end(end)
        if end.brings is not None:
            guard, route, arrivals = end.brings
            self.stand(guard, route, (last + 1,), arrivals, self.clock.now())
        return True

    # ---- what these are made of, and what is done for other processes ------------------------------------------------

    def first_of(
        self, space_id: int, generation: int, queue_id: int, now: int
    ) -> tuple[bytes, int, Row, Row] | Nothing | None:
        """Return the order key of the first message of a queue, its retries and its row; nothing is changed.

        Behind them comes how much the queue space holds: messages, pages and bytes.
        """
        main: Row | None = self.run_in_order(MAIN, space_id).fetchone()
        if main is None or main[0] != generation or any(self.pending_work(queue_id, now)):
            return None
        found: Row | None = self.run_in_order(traffic.IN_ORDER, queue_id).fetchone()
        if found is None:
            return Nothing((queue_id,), self.next_due(queue_id), held=self.held_in(queue_id))
        number, key, retries = found
        row = self._row_of(traffic.READ, number)
        # Whatever else the ordinary way deals with.
        is_plain = row[rows.BODY_ID] is None and retries.__class__ is int
        return (key, retries, row, main[_LEVEL:]) if is_plain else None

    def take_away(self, space_id: int, queue_id: int, key: bytes, row: Row) -> None:
        """Take a message out of its queue, and delete it."""
        self._take_out(queue_id, key, row)
        self.run_in_order(traffic.REMOVE, row[0])
        self._count_out(space_id, -1, -row[rows.PAGES], -row[rows.SIZE], dequeued=1)
        self.count(space_id, queue_id, -1, -row[rows.PAGES], -row[rows.SIZE], dequeued=1)

    def is_sound(self, row: Row, space: Space) -> bool:
        """Return whether a message can be made of a row; it is named as one of the queue space."""
        try:
            self._message(row, True, space, "", 0)
        except SystemFailureError:
            return False
        return True

    def handoff_commit(self, handoff: int) -> int:
        """Return the number of the last commit that did works of several processes."""
        found: Row | None = self.run_in_order(_HANDOFF_COMMIT, handoff).fetchone()
        return int(found[0]) if found is not None else 0

    def count_handoff_commit(self, handoff: int, commit: int) -> int:
        """Note that this is such a commit, and return its number: the one that is given, if it is a later one."""
        if self.run_in_order(_COUNT_HANDOFF_COMMIT, commit, handoff, commit).rowcount == 0:
            last = self.handoff_commit(handoff)
            if not last:
                self.add_counters(0, handoff)
            commit = last + 1
            self.run_in_order(_COUNT_HANDOFF_COMMIT, commit, handoff, commit)
        return commit

    # ---- steps -------------------------------------------------------------------------------------------------------
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
            messages - holds.messages >= brings.guard.messages
            or pages - holds.pages + brings.arrivals[0].pages > brings.guard.pages
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
            self._count_out(space_id, *gone, dequeued=holds.messages)
            self.count(space_id, queue_id, *gone, dequeued=holds.messages)
            return
        new, to_queue = end.brings.arrivals[0], end.brings.route.queue_id
        after = 1 - holds.messages, new.pages - holds.pages, new.size - holds.size
        self._count_out(space_id, *after, enqueued=1, dequeued=holds.messages)
        if to_queue == queue_id:
            self.count(space_id, queue_id, *after, enqueued=1, dequeued=holds.messages)
        else:
            self.count(space_id, queue_id, *gone, dequeued=holds.messages)
            self.count(space_id, to_queue, 1, new.pages, new.size, enqueued=1)

    def _take_out(self, queue_id: int, key: bytes, row: Row) -> None:
        """Take a message out of `ready`, and forget when it expires."""
        self.run_in_order(traffic.TAKE, queue_id, key)
        if row[rows.EXPIRES] is not None:
            self.unmake_expiring(queue_id, row[0], row[rows.EXPIRES])

    def _count_out(
        self, space_id: int, messages: int, pages: int, size: int, *, enqueued: int = 0, dequeued: int = 0
    ) -> None:
        its = enqueued, messages, pages, size, enqueued, dequeued, space_id
        self._cursor.execute(self._texts.in_order[_COUNT_OUT], its)
