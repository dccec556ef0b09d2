"""The books: every message that was enqueued is consumed once, or stored, or it is known why that cannot be told."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from soaking.journal import Operation, Outcome

_SHOWN = 20
"""Problems of a kind that are shown by name."""


@dataclasses.dataclass
class Books:
    """What became of all messages. `problems` are sentences; where there are none, the books balance."""

    acknowledged: int
    """Messages whose enqueue, or the commit of it, has returned."""

    appeared: int
    """Messages of an enqueue with an unknown outcome that turned out to have happened."""

    vanished: int
    """Messages of an enqueue with an unknown outcome that turned out not to have happened, or were not seen again."""

    refused: int
    """Messages whose enqueue raised an error, so that they must not exist."""

    consumed: int
    """Messages that an operation took which has returned, or which turned out to have happened."""

    stored: int
    """Messages that were there in the end."""

    missing: int
    """Messages that were there and are not: each was taken by a dequeue with an unknown outcome."""

    unknown_dequeues: int
    """Dequeues outside of a transaction with an unknown outcome, each of which may have taken one message."""

    unknown_others: int
    """Enqueues and commits with an unknown outcome: all that one has made and taken happened, or nothing."""

    errors: Counter[str]
    """How often each class of error was raised."""

    problems: list[str]

    def lines(self) -> list[str]:
        """Return the books as text."""
        there = self.acknowledged + self.appeared
        gone = self.consumed + self.stored + self.missing
        errors = ", ".join(f"{name} {count:,}" for name, count in sorted(self.errors.items())) or "none"
        return [
            f"enqueued: {self.acknowledged:,} acknowledged + {self.appeared:,} of unknown outcome = {there:,}",
            f"consumed: {self.consumed:,} + stored: {self.stored:,} + missing: {self.missing:,} = {gone:,}",
            f"did not happen: {self.vanished:,} enqueued with an unknown outcome, {self.refused:,} refused",
            f"dequeues of unknown outcome, which account for what is missing: {self.unknown_dequeues:,}",
            f"enqueues and commits of unknown outcome: {self.unknown_others:,}",
            f"errors: {errors}",
            *self.problems,
            "the books balance" if not self.problems else "THE BOOKS DO NOT BALANCE",
        ]


def balance(operations: Iterable[Operation], stored: Sequence[str], counted: int | None = None) -> Books:
    """Settle what happened: `stored` are the names of the messages that were there in the end.

    `counted` is how many messages the queues' own counters say were dequeued before.
    """
    by_outcome: dict[Outcome, list[Operation]] = {outcome: [] for outcome in Outcome}
    for operation in operations:
        by_outcome[operation.outcome].append(operation)
    done, unknown, refused = by_outcome[Outcome.DONE], by_outcome[Outcome.UNKNOWN], by_outcome[Outcome.NOTHING]
    errors = Counter(operation.error for operation in (*unknown, *refused) if operation.error)
    acknowledged = Counter(name for operation in done for name in operation.made)
    consumed = Counter(name for operation in done for name in operation.took)
    end = Counter(stored)
    open_ones, torn = _settle(unknown, consumed, end)
    may_exist = {name for operation in unknown for name in operation.made}
    appeared = {name for name in may_exist if name in consumed or name in end}
    never = {name for operation in refused for name in operation.made} - may_exist - acknowledged.keys()
    seen = consumed.keys() | end.keys()
    gone = (acknowledged.keys() | appeared) - seen
    # Whether that transaction happened, or a dequeue of unknown outcome took the message, comes to the same here.
    swallowed = gone & {name for operation in open_ones if not operation.made for name in operation.took}
    missing = gone - swallowed
    consumed.update(swallowed)
    blind = sum(operation.blind for operation in unknown)
    problems = [
        *_named("was consumed or stored more than once", (consumed + end) - Counter(consumed.keys() | end.keys())),
        *_named("was acknowledged more than once", acknowledged - Counter(acknowledged.keys())),
        *_named("is there though its enqueue was refused", seen & never),
        *_named("is there and nobody has enqueued it", seen - acknowledged.keys() - may_exist - never),
        *_named("was enqueued by a transaction that did not consume what it took", torn),
    ]
    if len(missing) > blind:
        problems.append(f"{len(missing):,} messages are missing, and only {blind:,} dequeues have an unknown outcome")
        problems += _named("is missing", missing)
    if counted is not None and counted != sum(consumed.values()) + len(missing):
        problems.append(f"the counters of the queues say that {counted:,} messages were dequeued")
    return Books(
        acknowledged=len(acknowledged),
        appeared=len(appeared),
        vanished=len(may_exist - appeared),
        refused=len(never),
        consumed=sum(consumed.values()),
        stored=len(stored),
        missing=len(missing),
        unknown_dequeues=blind,
        unknown_others=len(unknown) - blind,
        errors=errors,
        problems=problems,
    )


def _settle(unknown: list[Operation], consumed: Counter[str], end: Counter[str]) -> tuple[list[Operation], list[str]]:
    """Find out which operations of unknown outcome have happened, and count what those took as consumed.

    What one has made is there if and only if it happened. Return those that cannot be told, and what was made by
    those of which only a part seems to have happened.
    """
    left = unknown
    torn: list[str] = []

    def has_happened(operation: Operation) -> bool:
        return any(name in consumed or name in end for name in operation.made)

    while happened := [operation for operation in left if has_happened(operation)]:
        left = [operation for operation in left if not has_happened(operation)]
        for operation in happened:
            consumed.update(operation.took)
            if any(name in end for name in operation.took):
                torn += operation.made
    return left, torn


def _named(what: str, names: Iterable[str]) -> list[str]:
    sorted_names = sorted(names)
    lines = [f"{name} {what}" for name in sorted_names[:_SHOWN]]
    if len(sorted_names) > _SHOWN:
        lines.append(f"... {len(sorted_names) - _SHOWN:,} more: {what}")
    return lines
