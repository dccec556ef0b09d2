"""The backoff of a queue: how long it is paused, and why."""

from __future__ import annotations

import threading
import time

from qmadmin.consumers.policy import Wording
from qmadmin.consumers.statistics import Statistics

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 30.0


class Backoff:
    """Whether a queue is paused: each pause for the same reason is longer, until the queue is served again.

    `reason` is empty while the queue is served. `is_gone`: the queue does not exist, is stopped, or its first message
    is damaged. `asks_for_order`: it is unknown which message comes first in a strict order, so that the queue has to be
    read. It outlives the policy by which a queue is served.
    """

    def __init__(self, statistics: Statistics, wording: Wording) -> None:
        self.reason = ""
        self.is_gone = False
        self.asks_for_order = True
        self._statistics = statistics
        self._logger = wording.logger
        self._seconds = 0.0
        self._until = self._blocked_until = 0.0
        self._lock = threading.Lock()

    def left(self) -> float:
        """Return the seconds until the queue may be tried again; 0 if it is not paused."""
        return max(max(self._until, self._blocked_until) - time.monotonic(), 0.0)

    def begin(self, reason: str, seconds: float | None = None) -> None:
        """Pause for a reason: for the given seconds, or for longer each time."""
        with self._lock:
            if self._until > time.monotonic():
                # Several workers failed for the same reason at the same time.
                return
            self._seconds = min(self._seconds * 2 or _FIRST_SECONDS, _LONGEST_SECONDS)
            length = self._seconds if seconds is None else seconds
            self._until = time.monotonic() + length
            if reason != self.reason:
                self._logger.error("queue %r is paused: %s", self._statistics.queue, reason)
            self.reason = reason
        self._statistics.paused(length, reason)

    def block(self, seconds: float) -> None:
        """Pause for these seconds because the order of the queue requires it; this is not a failure."""
        self._blocked_until = time.monotonic() + seconds

    def retry_now(self) -> None:
        """Try again at once, because the queue has another handler; the reason is kept until that one works."""
        with self._lock:
            self._until = self._seconds = 0.0
            self.asks_for_order = True

    def end(self) -> None:
        """End the pause: the queue is served."""
        if not self.reason:
            return
        with self._lock:
            self.reason, self.is_gone, self._seconds = "", False, 0.0
        self._logger.info("queue %r is served again", self._statistics.queue)
        self._statistics.resumed()
