"""The forwarder's work: it watches its queues, has their crews take what comes, and ends what takes too long."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from qmadmin.console.plurals import counted
from qmadmin.consumers.running_calls import Calls
from qmadmin.consumers.worker_pool import Crew
from qmcore.acts.waiting import may_pass
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmadmin.consumers.concurrency_limit import Places
    from qmadmin.consumers.processor import Feed
    from qmadmin.consumers.stop import Stop
    from qmadmin.space import QueueSpace
    from qmadmin.watching import QueueWatch

logger = logging.getLogger("qmadmin.forwarder")

_TICK_SECONDS = 1.0
_LEAVE_SECONDS = 1.0
"""How long a queue has had messages all the time when those who bring more need not tell us any longer."""

_LOOK_SECONDS = 0.002
"""The least time between two looks at queues that had nothing, however often messages come to others."""


class Forwarder:
    """Forwards the messages of queues until a stop is asked for.

    `idle_seconds` is the longest sleep while there are no messages; a message that comes ends it. 0 means none.
    `until_empty`: it also ends when none of the queues has a message that can be dequeued. `once`: it ends when one
    message of each queue was forwarded, as far as they have any. `tick` is called about once a second.
    """

    def __init__(
        self,
        space: QueueSpace,
        calls: Calls,
        places: Places,
        stop: Stop,
        *,
        idle_seconds: float,
        until_empty: bool = False,
        once: bool = False,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._space = space
        self._calls = calls
        self._places = places
        self._stop = stop
        self._idle_seconds = idle_seconds
        self._until_empty = until_empty
        self._once = once
        self._tick = tick
        self._next_tick = self._last_look = 0.0
        self._crews: dict[str, Crew] = {}
        self._leaving: list[Crew] = []
        self._seen_busy: dict[str, float] = {}
        self._left: set[str] = set()
        self._store_is_away = False
        self._error: BaseException | None = None

    def serve(self, feeds: Mapping[str, Feed]) -> None:
        """Serve these queues from now on, and on these terms; calls that run are not disturbed."""
        self._leaving = [crew for crew in self._leaving if not crew.is_at_rest()]
        for queue in self._crews.keys() - feeds.keys():
            crew = self._crews.pop(queue)
            self._leaving.append(crew)
            crew.end()
            crew.feed.log.tell_rest(at_once=True)
        for queue, feed in feeds.items():
            if queue not in self._crews:
                self._crews[queue] = Crew(feed, self._places, self._wake, self._fail)
                if self._once:
                    self._crews[queue].only(1)
            else:
                self._crews[queue].feed.log.tell_rest(at_once=True)
                self._crews[queue].feed = feed

    def run(self, between: Callable[[], None]) -> None:
        """Forward; returns when a stop was asked for, or there is no more to do.

        `between` is called whenever the main thread is awake. Raises the error of a worker after which nothing can go
        on: QueueError where the store has failed.
        """
        with self._space.watch() as watch:
            if self._once:
                for crew in self._crews.values():
                    crew.rouse()
            while not self._stop.asked:
                between()
                self._work_of_the_main_thread()
                self._let_some_time_pass()
                try:
                    seconds = self._rouse(watch)
                    self._store_is_back()
                except QueueError as error:
                    seconds = self._wait_for_the_store(error)
                if seconds is None:
                    return
                if seconds:
                    watch.wait(seconds)

    def finish(self, seconds: float, stop_calls: Callable[[], None]) -> None:
        """Let the calls that run come to their ends, for so many seconds or until a second signal; then end them.

        What has not ended by then is rolled back, which does not count as a try.
        """
        self._end_calls(seconds, stop_calls)
        for crew in self._crews.values():
            crew.feed.log.tell_rest(at_once=True)

    def _rouse(self, watch: QueueWatch) -> float | None:
        """Rouse the crews of queues that have messages; return how long to sleep, None where there is no more to do."""
        watched = [queue for queue, crew in self._crews.items() if crew.wants_watching()]
        resting = self._is_at_rest()
        if self._once and resting:
            return None
        seen = watch.look(watched)
        for queue in seen.queues:
            self._crews[queue].rouse()
        for queue in set(watched).difference(seen.queues):
            self._crews[queue].feed.is_back()
        if seen.queues:
            return 0.0
        if self._until_empty and resting and self._is_drained(watched):
            return None
        self._leave_busy(watch, watched)
        return self._sleep(seen.seconds)

    def _wait_for_the_store(self, error: QueueError) -> float:
        """Return how long to wait for a store that is away, or locked, so that calls that run may end with it back."""
        if not may_pass(error):
            raise error
        if not self._store_is_away:
            self._store_is_away = True
            logger.warning("%s: %s; trying again each second", error.name, error.message)
        return _TICK_SECONDS

    def _store_is_back(self) -> None:
        if self._store_is_away:
            self._store_is_away = False
            logger.info("the device can be used again")

    def _let_some_time_pass(self) -> None:
        """Wait a moment where the last look was only just now, because of messages for other queues."""
        left = self._last_look + _LOOK_SECONDS - time.monotonic()
        if left > 0:
            time.sleep(left)
        self._last_look = time.monotonic()

    def _sleep(self, next_due: float) -> float:
        pauses = [left for crew in self._crews.values() if (left := crew.feed.pause.left())]
        until_tick = max(self._next_tick - time.monotonic(), 0.0)
        return max(min([self._idle_seconds, next_due, until_tick, self._calls.next_late(), *pauses]), _LOOK_SECONDS)

    def _leave_busy(self, watch: QueueWatch, watched: list[str]) -> None:
        """Be told no longer of messages of queues whose crews are looking for them all the time anyway."""
        now = time.monotonic()
        for queue in watched:
            self._seen_busy.pop(queue, None)
        busy = [queue for queue in self._crews if queue not in watched]
        for queue in busy:
            self._seen_busy.setdefault(queue, now)
        left = {queue for queue in busy if now - self._seen_busy[queue] >= _LEAVE_SECONDS}
        if not left <= self._left:
            watch.leave(sorted(left))
        self._left = left

    def _work_of_the_main_thread(self) -> None:
        if self._error is not None:
            raise self._error
        self._calls.give_up_late()
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + _TICK_SECONDS
            self._tick()
            for crew in self._crews.values():
                crew.feed.log.tell_rest()

    def _end_calls(self, seconds: float, stop_calls: Callable[[], None]) -> None:
        for crew in self._crews.values():
            crew.end()
        end = time.monotonic() + seconds
        while not self._is_at_rest() and not self._stop.at_once and time.monotonic() < end:
            self._calls.give_up_late()
            self._wait_for_rest(min(end - time.monotonic(), self._calls.next_late(), 0.1))
        if self._is_at_rest():
            return
        returned = self._calls.return_all("the forwarder was stopped")
        stop_calls()
        if returned:
            late = counted(returned, "call")
            logger.warning("%s did not end in time; their messages are back in the queues", late)
        self._wait_for_rest(_TICK_SECONDS)

    def _is_at_rest(self) -> bool:
        return all(crew.is_at_rest() for crew in (*self._crews.values(), *self._leaving))

    def _is_drained(self, watched: Collection[str]) -> bool:
        """Tell whether there is nothing to dequeue; `watched` are the queues in which a look has found nothing."""
        return all(queue in watched or _is_empty(crew.feed) for queue, crew in self._crews.items())

    def _wait_for_rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for crew in (*self._crews.values(), *self._leaving):
            crew.join(max(end - time.monotonic(), 0.0))

    def _fail(self, error: BaseException) -> None:
        """Take an error of a worker, after which the main thread cannot let the others go on."""
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        """Wake the main thread. A worker may come back when the queue space is closed, and nobody sleeps any more."""
        with contextlib.suppress(QueueError):
            self._space.wake()


def _is_empty(feed: Feed) -> bool:
    """Tell of a queue that pauses whether it has nothing to dequeue, or is absent."""
    return feed.pause.is_gone or not (feed.pause.trouble or feed.head_priority())
