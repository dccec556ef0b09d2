"""Messages whose record is missing or cannot be read: found one by one, and removed completely."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from qmcore import numbers
from qmcore.bulk_rows import Run
from qmcore.message import State
from qmcore.queue import Queue
from qmcore.records import Use
from qmcore.space import Space
from qmstorage.soundness import expected
from qmstorage.unit_part import StorePart

_STATES: Final = (State.READY, State.DELAYED, State.CONSUMED)


class Damage(StorePart):
    """Damaged messages. All of this is done while nothing changes."""

    def undecoded(self) -> AbstractContextManager[None]:
        """Read texts that cannot be decoded as something that no rule allows, where a store would refuse them."""
        return contextlib.nullcontext()

    def found(self, space: Space, queue: Queue) -> list[int]:
        """Return the messages of a queue that are damaged, and that no transaction holds."""
        from qmstorage import questions

        low = numbers.number(space.id, 0)
        bounds = {"low": low, "high": low + numbers.SEQUENCE_MAX}
        lacking = self.all(questions.WITHOUT_RECORD[self.store.in_memory], of_queue=queue.id)
        incomplete = self.all(questions.WRONG_BODIES[self.store.in_memory], of_queue=queue.id, **bounds)
        unreadable = (number for number, _ in self.unreadable(space, queue, lambda: None))
        return sorted({*(row[0] for row in lacking), *(row[0] for row in incomplete), *unreadable})

    def expunge(self, queue: Queue, message_ids: Sequence[int]) -> None:
        """Remove messages and their places, whatever is left of them. Nothing is counted."""
        from qmstorage import questions

        for number in message_ids:
            self.run(questions.REMOVE_BODY, of_message=number)
            self.run(questions.REMOVE, of_message=number, of_queue=queue.id)
            for statement in questions.REMOVE_PLACES[self.store.in_memory]:
                self.run(statement, of_message=number, of_queue=queue.id)
        self.run(questions.NO_LONGER_EXPIRING, of_queue=queue.id)

    def uncounted(self, space: Space, queue: Queue) -> Use:
        """Return how much more a queue has than its counters say; negative where it has less."""
        from qmstorage import questions

        low = numbers.number(space.id, 0)
        bounds = {"low": low, "high": low + numbers.SEQUENCE_MAX}
        sums = [
            (0, 0, 0)
            if self.store.in_memory and statement is questions.SUMS[1]
            else self._sum(statement, of_queue=queue.id, **bounds)
            for statement in questions.SUMS
        ]
        counted = self.store.counters.use(queue)
        wanted = expected(*sums)
        return Use(*(there - told for there, told in zip(wanted, counted, strict=True)))

    def _sum(self, statement: Any, **values: Any) -> tuple[int, int, int]:
        row = self.one(statement, **values)
        return (0, 0, 0) if row is None else (int(row[1]), int(row[2]), int(row[3]))

    def unreadable(self, space: Space, queue: Queue, step: Callable[[], None]) -> Iterator[tuple[int, str]]:
        """Yield the numbers of messages that are recorded and cannot be read, and what is wrong with each."""
        from qmcore.row_rules import fault_of

        with self.undecoded():
            for state in _STATES:
                for batch in self.store.bulk_read.rows(
                    space, queue, Run(queue.name, state, self.store.in_memory, None, None, 0), body=False
                ):
                    step()
                    for row in batch:
                        what = fault_of(row)
                        if what is not None:
                            yield numbers.number(space.id, row[0]), what
