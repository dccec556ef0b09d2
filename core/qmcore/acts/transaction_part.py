"""The part of a transaction in one queue space, as its process knows it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from qmcore.acts import sending
from qmcore.acts.enqueue import Accepted, Outgoing
from qmcore.acts.room import RecentLevel
from qmcore.definitions import OpenSpace
from qmcore.errors import AbortedError, OperatingSystemError, OutcomeUnknownError, QueueError, SystemFailureError
from qmcore.queue import Delivery
from qmcore.records import Owner, Role, Use
from qmcore.space import Space
from qmcore.transitions import Holder
from qmcore.values import dataclass
from qmcore.xid import Xid

_CONTROL_BYTES = 512
"""About what a message takes of the memory of its process beside its body and headers."""

_PROVE_NOTHING = (OutcomeUnknownError, SystemFailureError, OperatingSystemError)
"""Errors behind which something may have been done."""

RESERVED_AT_A_TIME = 32
"""Sequence numbers that are taken at a time for the identifiers of what transactions enqueue."""


@dataclasses.dataclass(slots=True)
class Branch:
    """The part of a transaction in one queue space, as its process knows it."""

    opened: OpenSpace
    owner: Owner
    started_us: int
    deadline_us: int | None
    # As `random_number` draws it; a call of that would lead each transaction through one module more.
    id: int = dataclasses.field(default_factory=lambda: int.from_bytes(os.urandom(8)) >> 2)
    recorded: bool = False
    may_hold: bool = False
    locks: bool = False
    may_lock: bool = False
    may_spill: bool = False
    queue_ids: set[int] = dataclasses.field(default_factory=set)
    """The queues that it has taken messages of, or may have."""
    spilled_to: set[int] = dataclasses.field(default_factory=set)
    """The queues for which the store has messages of it, or may have."""
    settled: dict[int, Sequence[tuple[int, str, tuple[str, ...]]] | None] = dataclasses.field(default_factory=dict)
    """By which subscriptions of a queue for several, as `Definitions.terms_of` gives them, it is settled for whom those
    messages are; None where that was by more than one state of them."""
    holds: dict[Delivery, Use] = dataclasses.field(default_factory=dict)
    pending: list[Accepted] = dataclasses.field(default_factory=list)
    brings: dict[Delivery, Use] = dataclasses.field(default_factory=dict)
    spilled: int = 0
    """Persistent messages that the store has already."""
    kept_bytes: int = 0
    reserved: Sequence[int] = ()
    level: RecentLevel | None = None
    promised: Xid | None = None
    """The identifier by which it is prepared, or may be: to roll it back is to end that, too."""

    def at_risk(self, *queue_ids: int) -> Risk:
        """Note that a work may leave something with the transaction, of these queues or others; return its block."""
        before = self.may_hold, self.may_lock, self.may_spill, self.queue_ids.copy(), self.spilled_to.copy()
        self.may_hold = True
        self.queue_ids.update(queue_ids)
        return Risk(self, before)

    @property
    def stands_in(self) -> set[int]:
        """The queues of which the store may have messages for it."""
        return self.queue_ids | self.spilled_to

    def mark(self) -> Mark:
        """Return how much has been enqueued by now."""
        return Mark(len(self.pending), self.spilled)


class Risk(NamedTuple):
    """A block in which one work may leave something with a transaction, messages that it holds or has spilled.

    Whatever interrupts the work, the commit may have been before: so what may be left is noted as the block begins, and
    the rollback looks there. It is forgotten only by what proves that nothing was left: `nothing_left`, when the work
    has returned and says so, or a refusal, by which the store has undone all. Neither an interrupt nor a failure of the
    store proves anything.

        with branch.at_risk(queue.id) as risk:
            taken = volume.write(hold, Purpose.HOLDING)
            if isinstance(taken, Nothing):
                risk.nothing_left()
    """

    branch: Branch
    before: tuple[bool, bool, bool, set[int], set[int]]
    """What the branch had noted."""

    def __enter__(self) -> Self:
        return self

    def nothing_left(self) -> None:
        """Forget what was noted: the work is done, and has left nothing."""
        branch = self.branch
        branch.may_hold, branch.may_lock, branch.may_spill, branch.queue_ids, branch.spilled_to = self.before

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, QueueError) and not isinstance(error, _PROVE_NOTHING):
            self.nothing_left()


@dataclass(frozen=True, slots=True)
class Mark:
    """How much a branch had enqueued at some time: messages that its process keeps, and ones that the store has."""

    pending: int
    spilled: int


NO_USE = Use(0, 0, 0)


def given_up(branch: Branch) -> AbortedError:
    """Return the diagnostic for a transaction that others have rolled back."""
    return sending.given_up(branch.opened.space.name)


def holder_of(branch: Branch, space: Space, role: Role, numbers: int) -> Holder:
    """Return the transaction as the store is to know it that lets it hold messages."""
    return Holder(
        branch.id,
        branch.owner.id,
        branch.started_us,
        branch.deadline_us,
        branch.recorded,
        space.definition.transactions,
        branch.opened.highest.get("transactions", 0),
        int(role),
        branch.locks,
        numbers,
    )


def left_numbers(branch: Branch, least: int) -> Sequence[int]:
    """Return sequence numbers that a transaction has left over, at least so many; else none.

    They may be lower than those that this one has given out, whose messages stand in the order of their numbers.
    """
    if branch.pending or branch.may_spill:
        return ()
    try:
        left = branch.opened.left_numbers.pop()
    except IndexError:
        return ()
    return left if len(left) >= least else ()


def leave_numbers(branch: Branch) -> None:
    """Leave the sequence numbers that the transaction has not used to the next one."""
    if branch.reserved:
        branch.opened.left_numbers.append(branch.reserved)
        branch.reserved = ()


def adds(branch: Branch, delivery: Delivery) -> Use:
    """Return what the transaction would add to a store if it committed now."""
    messages, pages, size = branch.holds.get(delivery, NO_USE)
    brings = branch.brings.get(delivery, NO_USE)
    return Use(brings.messages - messages, brings.pages - pages, brings.size - size)


def count_pending(branch: Branch) -> None:
    """Count again what the process keeps of what the transaction enqueues."""
    branch.kept_bytes = sum(bytes_kept(item.outgoing) for item in branch.pending)
    branch.brings = {}
    count_brought(branch, branch.pending)


def count_brought(branch: Branch, items: Sequence[Accepted]) -> None:
    """Count what the transaction enqueues besides."""
    for item in items:
        _, size, pages, terms, _ = item.arrival
        delivery = Delivery.NONPERSIST if terms.memory else Delivery.PERSIST
        has = branch.brings.get(delivery, NO_USE)
        branch.brings[delivery] = Use(has.messages + 1, has.pages + pages, has.size + size)


def bytes_kept(outgoing: Outgoing) -> int:
    """Return how much memory a message takes of its process, about."""
    return outgoing.size + len(outgoing.headers or "") + _CONTROL_BYTES
