"""How much queue spaces and queues hold on SQLite, where there is one writer at a time."""

from __future__ import annotations

from typing import Final

from qmstorage.counters import MOST, OF_SPACE, Counters, adding
from qmstorage.schema import counter
from qmstorage.sql import bindparam, literal_column, select, update
from qmstorage.statements import Row, given

MAIN: Final = select(
    counter.c.generation, counter.c.sequence, counter.c.messages, counter.c.pages, counter.c.size
).where(*OF_SPACE)
COUNT: Final = adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(
    given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "of_queue")
)


COUNT_OUT: Final = adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(*OF_SPACE).values(MOST)
"""Of the queue space as a whole, where messages leave it, be there others that come."""
_OF_HANDOFF: Final = (counter.c.space_id == literal_column("0"), given(counter.c.queue_id, "of_handoff"))
_HANDOFF_COMMIT: Final = select(counter.c.sequence).where(*_OF_HANDOFF)
_COUNT_HANDOFF_COMMIT: Final = (
    update(counter).where(*_OF_HANDOFF, counter.c.sequence < bindparam("later")).values(sequence=bindparam("commit"))
)
"""Where no queue space is: they are numbered from 1. It is a row of a page that most commits write to anyway."""


class ExclusiveCounters(Counters):
    """How much queue spaces and queues hold. Nobody else changes it while a unit writes."""

    main: tuple[int, int, Row] | None = None
    """The number of a queue space, what was changed when it was read, and the row of all that is counted of it.

    Whoever begins another database transaction, or the work of another caller in it, takes it away.
    """

    def generation(self, space_id: int) -> int | None:
        """Return the generation of a queue space, which stands with its counters; None where it is gone."""
        row = self.row(space_id)
        return None if row is None else int(row[0])

    def row(self, space_id: int) -> Row | None:
        """Return the generation of a queue space and all that is counted of it, as `MAIN` does; None where it is gone.

        It is read again where something has changed since.
        """
        if self.main is not None:
            its, changes, known = self.main
            if its == space_id and changes == self.cursor.connection.total_changes:
                return known
        found: Row | None = self.run_in_order(MAIN, space_id).fetchone()
        if found is not None:
            self.main = space_id, self.cursor.connection.total_changes, found
        return found

    def handoff_commit(self, handoff: int) -> int:
        """Return the number of the last commit that did works of several processes."""
        found: Row | None = self.run_in_order(_HANDOFF_COMMIT, handoff).fetchone()
        return int(found[0]) if found is not None else 0

    def count_handoff_commit(self, handoff: int, commit: int) -> int:
        """Note that this is such a commit, and return its number: the one that is given, if it is a later one."""
        if self.run_in_order(_COUNT_HANDOFF_COMMIT, commit, handoff, commit).rowcount == 0:
            last = self.handoff_commit(handoff)
            if not last:
                self.add(0, handoff)
            commit = last + 1
            self.run_in_order(_COUNT_HANDOFF_COMMIT, commit, handoff, commit)
        return commit

    def _whole(self, space_id: int) -> Row:
        row = self.row(space_id)
        return super()._whole(space_id) if row is None else row[1:]
