"""What follows failures of calls: the backoff of their queue, and what is logged.

Enough is logged to see what is wrong, but not a thousand lines if a thousand calls fail.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from types import TracebackType
from typing import Final

from qmadmin.console import duration
from qmadmin.consumers import Failure, Park, RemoteTracebackError, Snooze, Wording
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


# ---- what is logged --------------------------------------------------------------------------------------------------


FAILURES_A_MINUTE: Final = 20
"""How many failures of a queue have a line of their own in a minute; the others are counted in one line."""

TRACEBACK_SECONDS: Final = 3600.0
"""For how long the traceback of an exception from the same place, or the same missing queue, is not logged again."""

_WINDOW_SECONDS: Final = 60.0
_PLACES_MAX: Final = 100
_OURS: Final = f"{Path(__file__).parents[1]}{os.sep}"


class FailureLog:
    """Logs failed calls for one queue. Threads may share it. `clock` counts seconds."""

    def __init__(self, queue: str, wording: Wording, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._handler = wording.handler
        self._logger = wording.logger
        self._clock = clock
        self._lock = threading.Lock()
        self._since = -math.inf
        self._told = 0
        self._held = 0
        self._last = ""
        self._places: dict[Hashable, float] = {}

    def failed(self, msgid: str, number: int, failure: Failure) -> None:
        """Log that try `number` of a message failed, or count it if the minute has had its lines."""
        with self._lock:
            self._begin_window()
            what = f"message {msgid}, try {number}: {failure}"
            if self._told == FAILURES_A_MINUTE:
                self._held, self._last = self._held + 1, what
                return
            self._told += 1
            trace = self._traceback(failure.__cause__)
            self._logger.warning("%s %r failed on %s", self._handler, self._queue, what, exc_info=trace)

    def succeeded(self, msgid: str, seconds: float) -> None:
        """Log a call that succeeded, if each call is logged."""
        if self._logger.isEnabledFor(logging.DEBUG):
            took = duration(round(seconds * 1e6))
            self._logger.debug("%s %r processed message %s in %s", self._handler, self._queue, msgid, took)

    def put_off(self, msgid: str, verdict: Snooze | Park) -> None:
        """Log that a message was parked; that it was snoozed, if each call is logged."""
        why = f": {verdict}" if str(verdict) else ""
        if isinstance(verdict, Park):
            self._logger.info("%s %r has parked message %s%s", self._handler, self._queue, msgid, why)
            return
        said = "%s %r puts message %s off for %g seconds%s"
        self._logger.debug(said, self._handler, self._queue, msgid, verdict.retry_after, why)

    def dropped(self, msgid: str, what: str, queue: str) -> None:
        """Log that the reply or failure to a message is dropped because its queue is missing: once an hour for each."""
        with self._lock:
            if self._is_new_place((what, queue)):
                said = "the %s to message %s of queue %r is dropped: there is no %s queue %r; others are only counted"
                self._logger.warning(said, what, msgid, self._queue, what, queue)

    def log_rest(self, *, at_once: bool = False) -> None:
        """Log the failures that were only counted: when their minute is over, or at once."""
        if self._held:
            with self._lock:
                self._begin_window(at_once=at_once)

    def _begin_window(self, *, at_once: bool = False) -> None:
        now = self._clock()
        if now - self._since < _WINDOW_SECONDS and not at_once:
            return
        if self._held:
            more = "%s %r failed %d more times, the last on %s"
            self._logger.warning(more, self._handler, self._queue, self._held, self._last)
        self._since, self._told, self._held, self._last = now, 0, 0, ""

    def _traceback(
        self, error: BaseException | None
    ) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
        """Return the traceback of an exception from where the handler begins, if that place was not logged lately."""
        if error is None:
            return None
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename.startswith(_OURS):
            trace = trace.tb_next
        if isinstance(error, RemoteTracebackError):
            return (type(error), error, None) if self._is_new_place(_end_of_text(str(error))) else None
        if trace and self._is_new_place((type(error), *_end(trace))):
            return type(error), error, trace
        return None

    def _is_new_place(self, place: Hashable) -> bool:
        """Return whether no exception from a place was logged lately; from now on it counts as logged."""
        now = self._clock()
        if now - self._places.get(place, -math.inf) < TRACEBACK_SECONDS:
            return False
        if len(self._places) >= _PLACES_MAX:
            self._places.clear()
        self._places[place] = now
        return True


def _end_of_text(trace: str) -> str:
    """Return the line of a traceback that says where the exception was raised."""
    return next((line for line in reversed(trace.splitlines()) if line.startswith("  File ")), "")


def _end(trace: TracebackType) -> tuple[str, int]:
    """Return file and line in which an exception was raised."""
    while trace.tb_next:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno
