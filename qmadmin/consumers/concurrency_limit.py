"""How many calls run at the same time in all, and whose turn it is when they are as many as may be."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

_IN_TURN: Final = 10
"""Each so many-th permit goes to who has waited longest, so that what is less urgent comes to its turn, too."""


class ConcurrencyLimit:
    """So many workers may be busy at a time, over all queues; each holds a permit.

    A queue that has none of them comes before those that have, and takes its first one also where others want a
    second; for each queue without any a permit is kept free, so that a slow handler delays its own queue only. That
    needs as many permits as there are queues.
    """

    def __init__(self, total: float = math.inf) -> None:
        self._total = total
        self._queues: set[str] = set()
        self._taken: Counter[str] = Counter()
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()
        self._handed_out = 1

    def serve(self, queues: set[str], total: float) -> None:
        """Know the queues that share the permits, and how many there are."""
        with self._lock:
            self._queues, self._total = queues, total
            self._hand_out()

    @property
    def is_counted(self) -> bool:
        """Whether there may be too few permits, so that somebody else may come first."""
        return self._total != math.inf

    @contextlib.contextmanager
    def permit(self, queue: str, priority: Callable[[], int]) -> Iterator[Callable[[], None]]:
        """Wait for a permit and hold it. Of those who wait alike, the highest priority comes first.

        What it gives is called to return the permit early, from any thread, for a holder who does not come back.
        """
        if not self.is_counted:
            yield lambda: None
            return
        if not self._take(queue):
            self._wait(_Waiting(queue, priority()))
        held = [queue]

        def release() -> None:
            with self._lock:
                if held:
                    self._taken[held.pop()] -= 1
                    self._hand_out()

        try:
            yield release
        finally:
            release()

    def _take(self, queue: str) -> bool:
        """Take a permit if there is one and nobody waits."""
        with self._lock:
            takes = not self._waiting and self._may_take(queue)
            if takes:
                self._taken[queue] += 1
            return takes

    def _wait(self, waiting: _Waiting) -> None:
        with self._lock:
            self._waiting.append(waiting)
            self._hand_out()
        waiting.turn.wait()

    def _hand_out(self) -> None:
        """Give free permits to those whose turn it is."""
        while chosen := self._next():
            self._waiting.remove(chosen)
            self._taken[chosen.queue] += 1
            self._handed_out += 1
            chosen.turn.set()

    def _next(self) -> _Waiting | None:
        may = [each for each in self._waiting if self._may_take(each.queue)]
        if may and self._handed_out % _IN_TURN == 0:
            return may[0]
        return min(may, key=lambda each: (self._taken[each.queue], -each.priority), default=None)

    def _may_take(self, queue: str) -> bool:
        free = self._total - self._taken.total()
        if self._taken[queue] == 0 or len(self._queues) > self._total:
            return free >= 1
        kept = sum(1 for other in self._queues if self._taken[other] == 0)
        return free > kept


@dataclasses.dataclass(slots=True, eq=False)
class _Waiting:
    """A worker that waits for a permit."""

    queue: str
    priority: int
    turn: threading.Event = dataclasses.field(default_factory=threading.Event)
