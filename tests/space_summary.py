"""What a queue space is like in a snapshot: what an export says about it beside the messages themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from qmcore.acts.outstanding import held, shown
from qmcore.acts.stores import stores
from qmcore.bulk_rows import Tally
from qmcore.message import State
from qmcore.port import Unit
from qmcore.queue import Delivery, Queue
from qmcore.records import Outcome, Role
from qmcore.space import Space

DELIVERIES = (Delivery.PERSIST, Delivery.NONPERSIST)
"""The stores of a queue space, in their order."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue, and how many messages it has of each state and delivery that there are any of."""

    queue: Queue
    tallies: Mapping[tuple[State, Delivery], Tally]

    def total(self, *states: State) -> Tally:
        """Return the tally of these states, or of all, over both deliveries."""
        wanted = states or tuple(State)
        return sum((tally for (state, _), tally in self.tallies.items() if state in wanted), Tally())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that is not over: `dequeued` messages go when it commits, `locked` stay, `to_enqueue` arrive.

    What its process keeps for itself until the commit is not known to others. `committed` is the state of one that has
    ended on disk and that the memory of the queue space has not followed yet: what it says of memory is outdated.
    """

    id: str
    state: Outcome
    started_us: int
    dequeued: int
    locked: int
    to_enqueue: int


@dataclasses.dataclass(frozen=True, slots=True)
class SpaceSummary:
    """A queue space with those of its queues that were asked for, and all transactions that are open in it.

    `last_sequence` is at least the highest sequence number that was given out by then. `has_memory` tells whether its
    non-persistent messages are counted: they are not where there is no memory, or none that can be looked at.
    """

    space: Space
    queues: tuple[QueueSummary, ...]
    transactions: tuple[OpenTransaction, ...]
    last_sequence: int
    has_memory: bool

    def total(self, *states: State) -> Tally:
        """Return the tally of these states, or of all, over all queues and both deliveries."""
        return sum((queue.total(*states) for queue in self.queues), Tally())


def summary(unit: Unit, space: Space, queues: Iterable[Queue]) -> SpaceSummary:
    """Return the summary of a queue space; each message of the queues is read, without its body."""
    return SpaceSummary(
        space,
        tuple(QueueSummary(queue, dict(_tallies(unit, queue))) for queue in queues),
        tuple(_transactions(unit, space.id)),
        unit.counters.last_sequence(space.id),
        unit.memory(space.id) is not None,
    )


def _tallies(unit: Unit, queue: Queue) -> Iterator[tuple[tuple[State, Delivery], Tally]]:
    for store, delivery in zip(stores(unit, queue.space_id), DELIVERIES, strict=False):
        for state in State:
            tally = store.bulk_read.tally(queue.id, state)
            if tally.messages:
                yield (state, delivery), tally


def _transactions(unit: Unit, space_id: int) -> Iterator[OpenTransaction]:
    counts = held(unit, space_id)
    for record in unit.transactions.of_space(space_id):
        yield OpenTransaction(
            id=shown(record.id),
            state=record.state,
            started_us=record.started_us,
            dequeued=counts.get((record.id, Role.DEQUEUED), 0),
            locked=counts.get((record.id, Role.LOCKED), 0),
            to_enqueue=counts.get((record.id, Role.ENQUEUED), 0),
        )
