"""Whether what is stored is consistent: each message in one place, its body complete, all counters right.

Messages that are damaged are found one by one, and removed completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmcore import numbers
from qmcore.bulk_rows import Run
from qmcore.message import State
from qmcore.queue import Queue
from qmcore.records import Use
from qmcore.space import Space
from qmcore.times import LATEST
from qmstorage.statements import Statement
from qmstorage.unit_part import StorePart

if TYPE_CHECKING:
    from qmcore.findings import Fault

_STATES: Final = (State.READY, State.DELAYED, State.PARKED, State.CONSUMED)
_ROWS = 10_000
"""How many positions are checked between two steps."""


class Soundness(StorePart):
    """Consistency of a store. It is checked while nothing changes, as in a snapshot."""

    def faults(
        self,
        space: Space,
        queues: Sequence[Queue],
        page_size: int,
        step: Callable[[], None],
        hidden: Sequence[tuple[int, Queue]] = (),
    ) -> list[Fault]:
        """Return what is wrong with the messages of a queue space; `step` is called every now and then."""
        from qmstorage import questions

        self._step = step
        low = numbers.number(space.id, 0)
        self._bounds = {"low": low, "high": low + numbers.SEQUENCE_MAX}
        parts: list[Callable[[], Iterator[Fault]]] = [
            lambda: self._ask(questions.PLACING[self.store.in_memory]),
            lambda: self._ask(questions.KEYS[self.store.in_memory]),
            lambda: self._ask(questions.EXPIRY[self.store.in_memory]),
            lambda: self._ask(questions.BODIES, page=page_size),
            lambda: self._ask([] if self.store.in_memory else questions.HELD_WITHOUT_TRANSACTION),
            lambda: self._orphaned_forwardings(space),
            lambda: self._misplaced([*queues, *(queue for _, queue in hidden)]),
            lambda: self._miscounted(space, queues, hidden),
            lambda: self._unreadable(space, queues),
        ]
        return [fault for part in parts for fault in part()]

    def last_number(self, space: Space) -> int:
        """Return the highest sequence number of the messages that are stored; 0 where there is none."""
        from qmstorage import questions

        low = numbers.number(space.id, 0)
        return numbers.sequence(self.all(questions.LAST, low=low, high=low + numbers.SEQUENCE_MAX)[0][0] or 0)

    def latest(self, space: Space) -> int:
        """Return about the latest time stored in a queue space: of messages, transactions and attached processes."""
        from qmstorage import questions

        low = numbers.number(space.id, 0)
        last = self.all(questions.NEWEST, low=low, high=low + numbers.SEQUENCE_MAX)
        others = [self.all(statement, of_space=space.id)[0][0] for statement in questions.LATEST]
        found = [time for time in (*(row[0] for row in last), *others) if isinstance(time, int)]
        return min(max([0, *found]), LATEST)

    def strays(self) -> int:
        """Return how many messages belong to a queue space that does not exist."""
        from qmstorage import questions

        return int(self.all(questions.STRAYS)[0][0])

    def _ask(self, questions: list[tuple[str, Statement]], **values: Any) -> Iterator[Fault]:
        from qmcore.findings import Fault

        for sentence, statement in questions:
            ((count,),) = self.all(statement, **self._bounds, **values)
            self._step()
            if count:
                yield Fault(sentence.format(_messages(count)), count)

    def _orphaned_forwardings(self, space: Space) -> Iterator[Fault]:
        if self.store.in_memory:
            return
        from qmcore.findings import Fault
        from qmstorage import questions

        ((count,),) = self.all(questions.ORPHANED_FORWARDINGS, of_space=space.id)
        if count:
            yield Fault(f"figures of a forwarder, or of a queue, that is not there: {count} rows", count)

    def _misplaced(self, queues: Sequence[Queue]) -> Iterator[Fault]:
        from qmcore.findings import Fault
        from qmstorage import questions

        orders = {queue.id: queue.definition.order for queue in queues}
        wrong = 0
        for at, (queue_id, key) in enumerate(self.run(questions.ORDER_KEYS, **self._bounds)):
            wrong += queue_id in orders and not orders[queue_id].is_key(key)
            if at % _ROWS == 0:
                self._step()
        if wrong:
            yield Fault(f"{_messages(wrong)} at a position that the order of the queue does not know", wrong)

    def _miscounted(
        self, space: Space, queues: Sequence[Queue], hidden: Sequence[tuple[int, Queue]]
    ) -> Iterator[Fault]:
        from qmcore.findings import Fault
        from qmstorage import questions

        names = {queue.id: f"queue {queue.name!r}" for queue in queues}
        filled = {queue.id: f"queue {queue.name!r} of import {number}" for number, queue in hidden}
        stored, spilled = self._sums(questions.STORED), self._sums(questions.SPILLED)
        retained = {} if self.store.in_memory else self._sums(questions.RETAINED)
        strays = sum(count for queue_id, (count, _, _) in stored.items() if queue_id not in names | filled)
        # Memory learns of the end of a queue at the next housekeeping.
        if strays and not self.store.in_memory:
            yield Fault(f"{_messages(strays)} of a queue that is not there", strays)
        wanted_of = {
            queue_id: expected(stored.get(queue_id, _NONE), retained.get(queue_id, _NONE), spilled.get(queue_id, _NONE))
            for queue_id in names | filled
        }
        counted = {row[0]: tuple(row[1:]) for row in self.all(questions.COUNTERS, of_space=space.id)}
        more = []
        for queue_id, name in filled.items():
            charged, wanted = counted.get(queue_id, _NONE), wanted_of.pop(queue_id)
            more.append(tuple(part - there for part, there in zip(charged, wanted, strict=True)))
            if min(more[-1]) < 0:
                yield Fault(f"{name} has {_use(wanted)}, and is charged for {_use(charged)}")
        if not self.store.in_memory:
            names |= (
                consumers := {number: f"{name!r}" for number, name in self.all(questions.CONSUMERS, of_space=space.id)}
            )
            placed = self._sums(questions.PLACED) if consumers else {}
            wanted_of |= {number: placed.get(number, _NONE) for number in consumers}
        # Retained messages count by their pages alone, and spilled ones only in the queue space as a whole.
        whole = expected(_total(stored.values()), _total(retained.values()), _NONE)
        wanted_of[0] = _total([whole, *more])
        for queue_id, wanted in wanted_of.items():
            if self.store.in_memory and wanted == _NONE and queue_id not in counted:
                # Memory learns of a new queue at the next housekeeping.
                continue
            if counted.get(queue_id) != wanted:
                yield Fault(
                    f"{names.get(queue_id, 'the queue space')} has {_use(wanted)}, and {_use(counted.get(queue_id))}"
                    " are counted"
                )

    def _unreadable(self, space: Space, queues: Sequence[Queue]) -> Iterator[Fault]:
        from qmcore.findings import Fault

        for queue in queues:
            unreadable = [what for _, what in self.store.damage.unreadable(space, queue, self._step)]
            if unreadable:
                many = "1 message" if len(unreadable) == 1 else f"{len(unreadable)} messages"
                yield Fault(f"{many} of queue {queue.name!r} that cannot be read: {unreadable[0]}", len(unreadable))

    def _sums(self, statement: Statement) -> dict[int, tuple[int, int, int]]:
        found = self.all(statement, **self._bounds)
        self._step()
        return {row[0]: (row[1], row[2], row[3]) for row in found}


_NONE = (0, 0, 0)


def expected(
    stored: tuple[int, int, int], retained: tuple[int, int, int], spilled: tuple[int, int, int]
) -> tuple[int, int, int]:
    """Return the messages, pages and bytes that the counters of a queue with these should have."""
    return (stored[0] - retained[0] - spilled[0], stored[1] - spilled[1], stored[2] - retained[2] - spilled[2])


def _total(sums: Iterable[tuple[int, ...]]) -> tuple[int, int, int]:
    rows = list(sums)
    return sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _use(use: tuple[int, ...] | None) -> str:
    if use is None:
        return "none"
    return f"{_messages(use[0])}, {use[1]} pages and {use[2]} bytes"


class Damage(StorePart):
    """Damaged messages. All of this is done while nothing changes."""

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

        with self.store.messages.undecoded():
            for state in _STATES:
                for batch in self.store.bulk_read.rows(
                    space, queue, Run(queue.name, state, self.store.in_memory, None, None, 0), body=False
                ):
                    step()
                    for row in batch:
                        what = fault_of(row)
                        if what is not None:
                            yield numbers.number(space.id, row[0]), what
