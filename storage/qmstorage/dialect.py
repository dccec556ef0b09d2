"""Pieces of statements that find their rows by keys, whatever the planner believes of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from qmcore.queue import Queue
from qmstorage.schema import counter, message
from qmstorage.sql import ColumnElement, Select, Table, bindparam, func, select

OF_QUEUES: Final = (
    counter.c.space_id == bindparam("of_space", type_=counter.c.space_id.type),
    counter.c.queue_id.between(
        bindparam("first", type_=counter.c.queue_id.type), bindparam("last", type_=counter.c.queue_id.type)
    ),
)
"""The counters of queues of one queue space, whose values are `these`.

A statement about them begins there, and looks up what it tells of each as one about a single queue would: so it costs
for each what that costs, and never reads the messages of other queue spaces.
"""


def these(queues: Sequence[Queue]) -> dict[str, Any]:
    """Return the values for `OF_QUEUES`; what is told of others, whose numbers lie between, is passed over."""
    numbers = [queue.id for queue in queues]
    return {"of_space": queues[0].space_id, "first": min(numbers), "last": max(numbers)}


def says(number: ColumnElement[int], condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that the message of this number meets another one, which is checked row by row.

    With a join the planner could begin with the messages that meet it, of which there may be many elsewhere.
    """
    return select(condition).where(message.c.id == number).scalar_subquery()


def first_of_each(table: Table, moment: ColumnElement[int]) -> Select[tuple[int, int]]:
    """Return the statement for the first moment of each queue in a table, which has an index by queue and moment.

    It goes from one queue to the next in that index, whatever the number of rows of each.
    """
    queue = table.c.queue_id
    found = select(func.min(queue).label("id")).cte(f"queue_in_{table.name}", recursive=True)
    following = select(func.min(queue)).where(queue > found.c.id).scalar_subquery()
    found = found.union_all(select(following).where(found.c.id.is_not(None)))
    first = select(func.min(moment)).where(queue == found.c.id).scalar_subquery()
    return select(found.c.id, first).where(found.c.id.is_not(None))
