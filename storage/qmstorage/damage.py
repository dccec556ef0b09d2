"""Messages of which the record is gone or cannot be read: found one by one, and removed as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from sqlalchemy import and_, delete, exists, func, or_, select, union

from qmcore import numbers
from qmcore.carried import Run
from qmcore.findings import Fault
from qmcore.message import State
from qmcore.queue import Queue
from qmcore.records import Use
from qmcore.row_rules import fault_of
from qmcore.space import Space
from qmstorage.carrying import Carrying
from qmstorage.counters import Counters
from qmstorage.runner import given
from qmstorage.schema import chunk, due, expiring, history, message, ready
from qmstorage.soundness import PARTS, RETAINED, SPILLED, STORED, Soundness, expected

_STATES: Final = (State.READY, State.DELAYED, State.CONSUMED)
_PLACES: Final = (ready, due, history)
_OF_QUEUE: Final = given(message.c.queue_id, "of_queue")
_ITS_ID: Final = given(message.c.id, "of_message")


def _lacking(table: Any) -> Any:
    return select(table.c.message_id).where(
        given(table.c.queue_id, "of_queue"), ~exists().where(message.c.id == table.c.message_id)
    )


_WITHOUT_RECORD: Final = {
    False: union(*(_lacking(table) for table in _PLACES)),
    True: union(_lacking(ready), _lacking(due)),
}
"""The messages of a queue that have a place only; by whether they are in memory, where nothing is retained."""

_WRONG_BODY: Final = (
    select(message.c.id)
    .outerjoin(PARTS, PARTS.c.body_id == message.c.body_id)
    .where(
        _OF_QUEUE,
        or_(
            and_(message.c.body_id.is_(None), func.coalesce(func.length(message.c.body), 0) != message.c.size),
            and_(message.c.body_id.is_not(None), func.coalesce(PARTS.c.size, -1) != message.c.size),
        ),
    )
)
_STANDS: Final = {
    in_memory: or_(
        *(
            exists().where(table.c.queue_id == message.c.queue_id, table.c.message_id == message.c.id)
            for table in places
        )
    )
    for in_memory, places in ((False, _PLACES), (True, (ready, due)))
}
_REMOVE_BODY: Final = delete(chunk).where(chunk.c.body_id.in_(select(message.c.body_id).where(_ITS_ID)))
_REMOVE: Final = delete(message).where(_ITS_ID, _OF_QUEUE)
_REMOVE_PLACE: Final = [
    delete(table).where(given(table.c.queue_id, "of_queue"), given(table.c.message_id, "of_message"))
    for table in (ready, due, history, expiring)
]
_NO_LONGER_EXPIRING: Final = delete(expiring).where(
    given(expiring.c.queue_id, "of_queue"), ~exists().where(message.c.id == expiring.c.message_id)
)
_SUMS: Final = [statement.where(_OF_QUEUE) for statement in (STORED, RETAINED, SPILLED)]


class Damages(Counters, Carrying, Soundness):
    """Damaged messages. What is asked here is asked of what nobody changes meanwhile."""

    def undecoded(self) -> AbstractContextManager[None]:
        """Have texts that are not texts read as something that no rule allows, not refused; most stores have none."""
        return contextlib.nullcontext()

    def faults(
        self,
        space: Space,
        queues: Sequence[Queue],
        page_size: int,
        step: Callable[[], None],
        hidden: Sequence[tuple[int, Queue]] = (),
    ) -> list[Fault]:
        """Return what is wrong with the messages of a queue space; `step` is called every now and then."""
        found = super().faults(space, queues, page_size, step, hidden)
        for queue in queues:
            unreadable = [what for _, what in self._unreadable(space, queue, step)]
            if unreadable:
                many = "1 message" if len(unreadable) == 1 else f"{len(unreadable)} messages"
                found.append(
                    Fault(f"{many} of queue {queue.name!r} that cannot be read: {unreadable[0]}", len(unreadable))
                )
        return found

    def damaged(self, space: Space, queue: Queue) -> list[int]:
        """Return the messages of a queue that are damaged, and that no transaction holds."""
        low = numbers.number(space.id, 0)
        bounds = {"low": low, "high": low + numbers.SEQUENCE_MAX}
        lacking = self.all(_WITHOUT_RECORD[self.in_memory], of_queue=queue.id)
        incomplete = self.all(_WRONG_BODIES[self.in_memory], of_queue=queue.id, **bounds)
        unreadable = (number for number, _ in self._unreadable(space, queue, lambda: None))
        return sorted({*(row[0] for row in lacking), *(row[0] for row in incomplete), *unreadable})

    def expunge(self, queue: Queue, message_ids: Sequence[int]) -> None:
        """Remove messages and their places, whatever is left of them. Nothing is counted."""
        for number in message_ids:
            self.run(_REMOVE_BODY, of_message=number)
            self.run(_REMOVE, of_message=number, of_queue=queue.id)
            for statement in _REMOVE_PLACE[:2] + _REMOVE_PLACE[3:] if self.in_memory else _REMOVE_PLACE:
                self.run(statement, of_message=number, of_queue=queue.id)
        self.run(_NO_LONGER_EXPIRING, of_queue=queue.id)

    def uncounted(self, space: Space, queue: Queue) -> Use:
        """Return by how much a queue has more than is counted of it; less than nothing where it has less."""
        low = numbers.number(space.id, 0)
        bounds = {"low": low, "high": low + numbers.SEQUENCE_MAX}
        sums = [
            (0, 0, 0) if self.in_memory and statement is _SUMS[1] else self._sum(statement, of_queue=queue.id, **bounds)
            for statement in _SUMS
        ]
        counted = self.use(queue)
        wanted = expected(*sums)
        return Use(*(there - told for there, told in zip(wanted, counted, strict=True)))

    def _sum(self, statement: Any, **values: Any) -> tuple[int, int, int]:
        row = self.one(statement, **values)
        return (0, 0, 0) if row is None else (int(row[1]), int(row[2]), int(row[3]))

    def _unreadable(self, space: Space, queue: Queue, step: Callable[[], None]) -> Iterator[tuple[int, str]]:
        """Yield the numbers of messages that are recorded and cannot be read, and what is wrong with each."""
        with self.undecoded():
            for state in _STATES:
                for batch in self.carried(
                    space, queue, Run(queue.name, state, self.in_memory, None, None, 0), body=False
                ):
                    step()
                    for row in batch:
                        what = fault_of(row)
                        if what is not None:
                            yield numbers.number(space.id, row[0]), what


_WRONG_BODIES: Final = {in_memory: _WRONG_BODY.where(_STANDS[in_memory]) for in_memory in (False, True)}
