"""Messages that are kept after they were consumed, which several sessions may forget at the same time."""

from __future__ import annotations

from qmstorage.history import History
from qmstorage.schema import history
from qmstorage.sql import bindparam, delete, elements, select
from qmstorage.statements import given

_THIS_PAST = elements.Row(history.c.message_id, history)
_OUTLIVED = (
    select(_THIS_PAST)
    .where(given(history.c.queue_id, "of_queue"), history.c.consumed_at < bindparam("before"))
    .order_by(history.c.consumed_at, history.c.message_id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_FORGET = delete(history).where(elements.Among(_THIS_PAST, _OUTLIVED)).returning(history.c.message_id)


class SharedHistory(History):
    """Messages that are kept after they were consumed."""

    def forget(self, queue_id: int, before_us: int, limit: int) -> tuple[int, int]:
        """Delete at most `limit` messages that were consumed before a time; return how many, and their pages."""
        forgotten = self.all(_FORGET, of_queue=queue_id, before=before_us, most=limit)
        return len(forgotten), self.unit.messages.discard_all([number for (number,) in forgotten])
