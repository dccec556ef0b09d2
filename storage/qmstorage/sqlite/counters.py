"""How much queue spaces and queues hold on SQLite, where there is one writer at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Final

from qmstorage.counters import MOST, OF_SPACE, adding
from qmstorage.schema import counter
from qmstorage.sql import select
from qmstorage.statements import given

if TYPE_CHECKING:
    from qmstorage.sqlite.transitions import Transitions

MAIN: Final = select(
    counter.c.generation, counter.c.sequence, counter.c.messages, counter.c.pages, counter.c.size
).where(*OF_SPACE)
COUNT: Final = adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(
    given(counter.c.space_id, "space_id"), given(counter.c.queue_id, "of_queue")
)


_COUNT_OUT: Final = (
    adding("sequence", "messages", "pages", "size", "enqueued", "dequeued").where(*OF_SPACE).values(MOST)
)
"""Of the queue space as a whole, where messages leave it, be there others that come."""


def count_all(unit: Transitions, space_id: int, changes: Mapping[int, Sequence[int]]) -> None:
    """Count what changes in queues, and in the queue space as a whole."""
    execute, texts = unit.cursor.execute, unit.texts.in_order
    whole: Sequence[int] = ()
    for queue_id, change in changes.items():
        execute(texts[COUNT], (*change, space_id, queue_id))
        whole = list(map(add, whole, change)) if whole else change
    if whole:
        execute(texts[_COUNT_OUT], (*whole, space_id))
