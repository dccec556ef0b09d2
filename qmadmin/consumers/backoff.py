"""When nothing is to be taken off a queue, and why."""

from __future__ import annotations

import threading
import time

from qmadmin.consumers.policy import Wording
from qmadmin.consumers.statistics import Statistics

_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 30.0


class Backoff:
    """Whether a queue is left alone for now: each pause for the same reason is longer, until all is well again.

    `reason` is empty while all is well. `is_gone`: that is because the queue is absent, or stopped, or has a damaged
    message before all others. `asks_for_order`: what a strict order wants is not known, and has to be looked for in the
    queue. It outlives the policy by which a queue is served.
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
        """Return the seconds for which nothing should be tried; 0 when there is no pause."""
        return max(max(self._until, self._blocked_until) - time.monotonic(), 0.0)

    def begin(self, reason: str, seconds: float | None = None) -> None:
        """Pause for a reason: for so many seconds, or each time for longer."""
        with self._lock:
            if self._until > time.monotonic():
                # Several workers have met the same thing at the same time.
                return
            self._seconds = min(self._seconds * 2 or _FIRST_SECONDS, _LONGEST_SECONDS)
            length = self._seconds if seconds is None else seconds
            self._until = time.monotonic() + length
            if reason != self.reason:
                self._logger.error("queue %r is paused: %s", self._statistics.queue, reason)
            self.reason = reason
        self._statistics.paused(length, reason)

    def block(self, seconds: float) -> None:
        """Leave the queue alone for so long because its order wants that; nothing is wrong then."""
        self._blocked_until = time.monotonic() + seconds

    def retry_now(self) -> None:
        """Try again at once, because the queue has another handler; the reason stands until that works."""
        with self._lock:
            self._until = self._seconds = 0.0
            self.asks_for_order = True

    def end(self) -> None:
        """Note that all is well."""
        if not self.reason:
            return
        with self._lock:
            self.reason, self.is_gone, self._seconds = "", False, 0.0
        self._logger.info("queue %r is served again", self._statistics.queue)
        self._statistics.resumed()
