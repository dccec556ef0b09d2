"""What the short way does in a unit: what most calls ask for, in few steps of Python, which cost what SQLite does.

There is one writer at a time, so that what was looked up is still so when it is changed. Nothing is changed before all
is looked up: whoever is turned back has done nothing.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, literal_column, select, update

from qmcore.records import Role
from qmcore.shortcut import PlainEnd
from qmstorage.counters import MOST, OF_SPACE, adding
from qmstorage.schema import counter
from qmstorage.sqlite import traffic
from qmstorage.sqlite.transitions import MAIN, Transitions
from qmstorage.statements import Row, given

_COUNT_OUT: Final = (
    adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(*OF_SPACE).values(MOST)
)
"""Of the queue space as a whole, where messages leave it, be there others that come."""
_OF_HANDOFF: Final = (counter.c.space_id == literal_column("0"), given(counter.c.queue_id, "of_handoff"))
_HANDOFF_COMMIT: Final = select(counter.c.sequence).where(*_OF_HANDOFF)
_COUNT_HANDOFF_COMMIT: Final = (
    update(counter).where(*_OF_HANDOFF, counter.c.sequence < bindparam("later")).values(sequence=bindparam("commit"))
)
"""Where no queue space is: they are numbered from 1. It is a row of a page that most commits write to anyway."""


class PlainTraffic(Transitions):
    """What most calls ask, in one step each. None or False: nothing was done."""

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

    def _count_out(
        self, space_id: int, messages: int, pages: int, size: int, *, enqueued: int = 0, dequeued: int = 0
    ) -> None:
        its = enqueued, messages, pages, size, enqueued, dequeued, space_id
        self._cursor.execute(self._texts.in_order[_COUNT_OUT], its)
