"""The books: each request has exactly one of a reply, an entry in the error queue, and a place in its queue.

A failure that its client was told of stands for a reply. With -d such a request may be in the error queue as well.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from soaking.journal import Operation, Outcome

_SHOWN = 20
"""Requests of a kind that are shown by name."""

TAKEN = "reply that was taken"
FAILURE = "failure that was told"
ERROR = "entry in the error queue"


@dataclasses.dataclass
class Books:
    """What became of all requests. `problems` are sentences; where there are none, the books balance."""

    acknowledged: int
    """Requests whose enqueue, or the commit of it, has returned."""

    places: dict[str, int]
    """How many messages there are of each kind in the end: replies, entries in the error queue, requests."""

    problems: list[str]

    def lines(self) -> list[str]:
        """Return the books as text."""
        return [
            f"enqueued: {self.acknowledged:,} requests",
            *(f"{count:,} times {what}" for what, count in self.places.items()),
            *self.problems,
            "the books balance" if not self.problems else "THE BOOKS DO NOT BALANCE",
        ]


def balance(operations: Iterable[Operation], left: Mapping[str, Sequence[str]]) -> Books:
    """Settle what happened: `left` are the names of requests by what is left of them in the end, such as a reply."""
    by_outcome: dict[Outcome, list[Operation]] = {outcome: [] for outcome in Outcome}
    for operation in operations:
        by_outcome[operation.outcome].append(operation)
    asked = Counter(name for operation in by_outcome[Outcome.DONE] for name in operation.made)
    maybe = {name for operation in by_outcome[Outcome.UNKNOWN] for name in operation.made}
    never = {name for operation in by_outcome[Outcome.NOTHING] for name in operation.made}
    # What a dequeue of unknown outcome took nobody can tell; where there is none, nothing may be missing.
    blind = sum(operation.blind for operation in by_outcome[Outcome.UNKNOWN])
    found = {TAKEN: [name for operation in by_outcome[Outcome.DONE] for name in operation.took], **left}
    places: dict[str, list[str]] = {}
    for what, names in found.items():
        for name in names:
            places.setdefault(name, []).append(what)
    missing = sorted(asked.keys() - places.keys())
    problems = [
        *_shown(
            f"{name} is there more than once: {', '.join(what)}"
            for name, what in sorted(places.items())
            if what[1:] and what != [FAILURE, ERROR]
        ),
        *_shown(
            f"{name} is there, as {what[0]}, and its enqueue was refused or rolled back"
            for name, what in sorted(places.items())
            if name in never
        ),
        *_shown(
            f"{name!r} is there, as {what[0]}, and nobody has asked it"
            for name, what in sorted(places.items())
            if name not in asked and name not in maybe and name not in never
        ),
    ]
    if len(missing) > blind:
        problems += _shown(f"{name} has no reply, no entry in the error queue, and is not queued" for name in missing)
    return Books(len(asked), {what: len(names) for what, names in found.items()}, problems)


def _shown(sentences: Iterable[str]) -> list[str]:
    lines = list(sentences)
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"... and {len(lines) - _SHOWN:,} more like this one"]
