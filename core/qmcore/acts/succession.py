"""The act of committing a transaction and beginning its successor, for whoever works on one message after the other.

All of it is one database transaction: the reply is accepted and arrives, the request goes, and the next one is held.
Where anything is refused nothing is done, and the same steps, taken one by one, say why and what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qmcore.acts.dequeue import Wanted, claims_for, messages_of
from qmcore.acts.dequeue_in_transaction import note
from qmcore.acts.enqueue import Accepted, Outgoing, accepted
from qmcore.acts.sending import refusal
from qmcore.acts.transaction_part import Branch, leave_numbers, reserve
from qmcore.acts.transactions import commit_branch
from qmcore.errors import (
    InvalidArgumentError,
    OperatingSystemError,
    OutcomeUnknownError,
    QueueError,
    SystemFailureError,
)
from qmcore.message import Message
from qmcore.port import Unit, Volume
from qmcore.purpose import Purpose
from qmcore.queue import Delivery
from qmcore.selection import FIRST
from qmcore.transitions import Claimed, Refused

_Taken = tuple[Claimed | None, Sequence[int]]
"""What the successor has claimed, and the sequence numbers that are left over."""


def commit_and_take(
    volume: Volume, branch: Branch, outgoing: Sequence[Outgoing], successor: Branch | None, name: str, now: int
) -> list[Message] | None:
    """Enqueue messages, commit, and let a successor, if there is one, hold the first message of a queue.

    Return what the successor holds: one message, or none where there is none at hand. None is returned where
    something was refused, and nothing was done then.
    """
    known, shortcut = branch.opened.known, volume.shortcut
    if known is None or known.space.definition.memory or (shortcut is not None and shortcut.spares_journeys):
        # Memory follows the disk in steps of its own, and where each step is a journey there are short ways for each.
        return None

    def done(unit: Unit) -> _Taken:
        items, left = _accepted(unit, branch, outgoing)
        commit_branch(unit, branch, [*branch.pending, *items], now)
        if successor is None:
            return None, left
        successor.reserved = left
        return _take_first(unit, successor, name), left

    try:
        taken, left = volume.write(done, Purpose.MESSAGES) if successor is None else _at_risk(volume, successor, done)
    except (OperatingSystemError, SystemFailureError, OutcomeUnknownError):
        raise
    except QueueError:
        return None
    if successor is None or taken is None:
        branch.reserved = left
        leave_numbers(branch)
        return []
    note(successor, _first_of(name, successor), taken)
    return messages_of(successor.opened, name, taken)


def _at_risk(volume: Volume, successor: Branch, work: Callable[[Unit], _Taken]) -> _Taken:
    with successor.at_risk() as risk:
        found = volume.write(work, Purpose.MESSAGES)
        if found[0] is None:
            risk.nothing_left()
        return found


def _accepted(unit: Unit, branch: Branch, outgoing: Sequence[Outgoing]) -> tuple[list[Accepted], Sequence[int]]:
    """Return messages as their queues accept them, and the numbers that the transaction has left over then."""
    known = branch.opened.definitions(unit)
    numbers = branch.reserved
    if len(numbers) < len(outgoing):
        numbers = reserve(unit, branch, len(outgoing))
    items = accepted(unit, known, outgoing, numbers)
    if any(item.delivery is Delivery.NONPERSIST for item in items):
        raise InvalidArgumentError("a message for memory does not arrive in the same step as others")
    return items, numbers[len(items) :]


def _take_first(unit: Unit, successor: Branch, name: str) -> Claimed | None:
    """Let the successor hold the first message of a queue, where nothing else is to be done before."""
    opened = successor.opened
    known = opened.definitions(unit)
    (command,) = claims_for(opened, known, _first_of(name, successor))
    result = unit.claim(command)
    if isinstance(result, Refused):
        raise refusal(known, result)
    return result if isinstance(result, Claimed) else None


def _first_of(name: str, successor: Branch) -> Wanted:
    return Wanted(name, FIRST, 1, branch=successor)
