"""Two queues as plain lists, and what transactions over both of them do to them."""

from __future__ import annotations

import dataclasses
from collections import Counter

SPACES = ("A", "B")


@dataclasses.dataclass(eq=False)
class Entry:
    """A message that stands in a queue, in its place, also while a transaction has it."""

    name: str
    tries: int = 0
    holder: Part | None = None


@dataclasses.dataclass(eq=False)
class Part:
    """What a transaction has done in one of the queue spaces."""

    took: list[Entry] = dataclasses.field(default_factory=list)
    puts: list[str] = dataclasses.field(default_factory=list)
    is_over: bool = False

    @property
    def changes(self) -> bool:
        return bool(self.took or self.puts)


@dataclasses.dataclass(eq=False)
class Transacting:
    """A transaction in the queue spaces that it may use."""

    names: str
    parts: dict[str, Part] = dataclasses.field(default_factory=dict)
    is_aborted: bool = False
    """Whether an administrator has ended a part of it, so that it cannot commit."""

    def __post_init__(self) -> None:
        self.parts = {name: Part() for name in self.names}

    @property
    def is_distributed(self) -> bool:
        return len(self.names) > 1 and all(part.changes for part in self.parts.values())


class Ledger:
    """Both queues, and the counters of each."""

    def __init__(self) -> None:
        self.queues: dict[str, list[Entry]] = {name: [] for name in SPACES}
        self.enqueued: Counter[str] = Counter()
        self.dequeued: Counter[str] = Counter()

    def put(self, name: str, message: str, mine: Transacting | None = None) -> None:
        if mine is not None:
            mine.parts[name].puts.append(message)
            return
        self.queues[name].append(Entry(message))
        self.enqueued[name] += 1

    def take(self, name: str, mine: Transacting | None = None) -> str | None:
        """Take the first message that nobody has."""
        first = next((entry for entry in self.queues[name] if entry.holder is None), None)
        if first is None:
            return None
        if mine is not None:
            first.holder = mine.parts[name]
            mine.parts[name].took.append(first)
        else:
            self._remove(name, first)
        return first.name

    def commit(self, mine: Transacting, *names: str) -> None:
        """Let what was done take effect, in all queue spaces, or in those named."""
        for name in names or mine.names:
            part = mine.parts[name]
            if not part.is_over:
                part.is_over = True
                for entry in part.took:
                    self._remove(name, entry)
                for message in part.puts:
                    self.put(name, message)

    def roll_back(self, mine: Transacting, *names: str, counts: bool = True) -> None:
        """Give back what was taken, which counts as a try, and forget the rest."""
        for name in names or mine.names:
            part = mine.parts[name]
            if not part.is_over:
                part.is_over = True
                for entry in part.took:
                    entry.holder = None
                    entry.tries += counts

    def ready(self, name: str) -> list[tuple[str, int]]:
        """Return what can be taken, in its order, and how often it was tried."""
        return [(entry.name, entry.tries) for entry in self.queues[name] if entry.holder is None]

    def ready_after(self, name: str, mine: Transacting, *, commits: bool) -> list[tuple[str, int]]:
        """Return what could be taken if a transaction had ended in one way or the other."""
        part = mine.parts[name]
        if commits:
            return [*self.ready(name), *((message, 0) for message in part.puts)]
        return [
            (entry.name, entry.tries + (entry.holder is part))
            for entry in self.queues[name]
            if entry.holder in (None, part)
        ]

    def held(self, name: str) -> list[str]:
        """Return what transactions have."""
        return sorted(entry.name for entry in self.queues[name] if entry.holder is not None)

    def _remove(self, name: str, entry: Entry) -> None:
        self.queues[name].remove(entry)
        self.dequeued[name] += 1
