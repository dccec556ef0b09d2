"""A consumer: it calls handlers with the messages of queues, which its main thread watches until it is asked to stop.

consumer = Consumer(stop)
consumer.serve({"ORDERS": (FunctionHandler(ship), Policy(workers=4))})
consumer.run(space)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType
from typing import Final

from qmadmin import tracing
from qmadmin.console import counted
from qmadmin.consumers import Handler, Policy, RunPolicy, Wording
from qmadmin.consumers.deadlines import RunningCalls
from qmadmin.consumers.failures import Backoff
from qmadmin.consumers.processor import Processor
from qmadmin.consumers.statistics import Reporter, Statistics
from qmadmin.consumers.worker_pool import ConcurrencyLimit, WorkerPool
from qmadmin.queue_watch import QueueWatch
from qmadmin.space import QueueSpace
from qmcore.errors import QueueError, may_pass
from qmcore.times import Clock, SystemClock


class Consumer:
    """Calls handlers with the messages of queues until a stop is requested, or there is no more to do.

    Its knowledge of the queues - `statistics` by queue, and which of them are paused - outlives the open queue space:
    after a failure of the store it can run again when the queue space is open again; `statistics` are those of a
    consumer that has ended. The caller closes the handlers.
    """

    def __init__(
        self,
        stop: Stop,
        policy: RunPolicy = RunPolicy(),  # noqa: B008 - it never changes
        wording: Wording | None = None,
        clock: Clock | None = None,
        statistics: dict[str, Statistics] | None = None,
    ) -> None:
        self.statistics: dict[str, Statistics] = {} if statistics is None else statistics
        self._stop = stop
        self._policy = policy
        self._wording = wording or Wording()
        self._clock = clock or SystemClock()
        self._limit = ConcurrencyLimit()
        self._backoffs: dict[str, Backoff] = {}
        self._served: Mapping[str, tuple[Handler, Policy]] = {}
        self._dispatcher: Dispatcher | None = None

    def serve(self, queues: Mapping[str, tuple[Handler, Policy]]) -> None:
        """Serve these queues from now on, even while it runs. Running calls are not disturbed.

        A paused queue is tried again at once.
        """
        self._served = dict(queues)
        for queue, (_, policy) in queues.items():
            statistics = self.statistics.setdefault(queue, Statistics(queue, clock=self._clock))
            statistics.set_workers(policy.workers)
            self._backoffs.setdefault(queue, Backoff(statistics, self._wording))
        self._limit.serve(set(queues), self._policy.total_workers)
        if self._dispatcher is not None:
            self._dispatch(self._dispatcher)

    def run(
        self, space: QueueSpace, between: Callable[[], None] = lambda: None, ending: Callable[[], None] = lambda: None
    ) -> None:
        """Serve the queues of a queue space; return when a stop was requested, or there is no more to do.

        It runs in the calling thread and in others. `between` is called about once a second and whenever that thread is
        awake, `ending` before running calls are waited for. Raises QueueError if the store has failed, and what a
        worker has raised that is not an error of a handler; then it does not wait for running calls.
        """
        dispatcher = self._dispatcher = Dispatcher(
            space, self._limit, self._stop, self._policy, self._wording, self._clock
        )
        self._stop.wake = dispatcher.wake
        self._dispatch(dispatcher)
        grace = 0.0
        try:
            dispatcher.run(between)
            grace = self._policy.grace_seconds
        finally:
            ending()
            dispatcher.finish(grace)
            self._dispatcher = None

    def _dispatch(self, dispatcher: Dispatcher) -> None:
        processors = {}
        for queue, (handler, policy) in self._served.items():
            self._backoffs[queue].retry_now()
            terms = dataclasses.replace(policy, batch=1) if self._policy.once else policy
            known = dispatcher.calls, self.statistics[queue], self._backoffs[queue], self._wording
            processors[queue] = Processor(dispatcher.space, handler, terms, *known)
            if tracing.has_metrics():
                from qmadmin.monitoring.instruments import observe_calls

                observe_calls(dispatcher.space, self.statistics[queue])
        dispatcher.serve(processors)


# ---- the main thread -------------------------------------------------------------------------------------------------


_TICK_SECONDS = 1.0
_LEAVE_SECONDS = 1.0
"""How many seconds a queue must have had messages without a gap before it needs no wake-ups any more."""

_POLL_SECONDS = 0.002
"""The least seconds between two polls of queues that were empty, however often messages arrive on others."""


@dataclasses.dataclass(eq=False)
class Dispatcher:
    """Makes the workers of queues process messages until a stop is requested, or there is no more to do."""

    space: QueueSpace
    limit: ConcurrencyLimit
    stop: Stop
    policy: RunPolicy
    wording: Wording
    clock: Clock

    def __post_init__(self) -> None:
        self.calls = RunningCalls()
        self._next_tick = self._last_poll = 0.0
        self._pools: dict[str, WorkerPool] = {}
        self._leaving: list[WorkerPool] = []
        self._seen_busy: dict[str, float] = {}
        self._left: set[str] = set()
        self._store_is_away = False
        self._error: BaseException | None = None

    def serve(self, processors: Mapping[str, Processor]) -> None:
        """Serve these queues from now on, by these processors; running calls are not disturbed."""
        statistics = [processor.statistics for processor in processors.values()]
        self._reporter = Reporter(self.space, statistics, self.wording, self.clock)
        self._log_rest(at_once=True)
        self._leaving = [pool for pool in self._leaving if not pool.is_at_rest()]
        for queue in self._pools.keys() - processors.keys():
            self._leaving.append(self._pools.pop(queue))
            self._leaving[-1].end()
        for queue, processor in processors.items():
            if queue in self._pools:
                self._pools[queue].processor = processor
            else:
                shared = self.limit, self.stop, self.wording
                self._pools[queue] = WorkerPool(processor, *shared, self.wake, self._fail)
                if self.policy.once:
                    self._pools[queue].limit_to(1)

    def run(self, between: Callable[[], None]) -> None:
        """Dispatch; return when a stop was requested, or there is no more to do.

        `between` is called whenever the main thread is awake. Raises the error of a worker after which nothing can go
        on: QueueError if the store has failed.
        """
        with self.space.watch() as watch:
            if self.policy.once:
                for pool in self._pools.values():
                    pool.start_one()
            while not self.stop.asked:
                between()
                self._run_main_thread_tasks()
                self._throttle()
                try:
                    seconds = self._start_workers(watch)
                    self._store_is_back()
                except QueueError as error:
                    seconds = self._wait_for_the_store(error)
                if seconds is None:
                    return
                if seconds:
                    watch.wait(seconds)

    def finish(self, seconds: float) -> None:
        """Wait for running calls, for these seconds or until a second signal; then end them.

        Those that have not ended by then are rolled back, which does not count as a try.
        """
        if self.stop.asked and not self.stop.at_once:
            self.wording.logger.info(
                "%s: stopping after the current message; a second signal stops at once", self.stop.asked
            )
        self._end_calls(seconds)
        self._log_rest(at_once=True)
        self._reporter.report()

    def wake(self) -> None:
        """Wake the main thread. A worker may return after the queue space was closed and the thread has ended."""
        with contextlib.suppress(QueueError):
            self.space.wake()

    def _start_workers(self, watch: QueueWatch) -> float | None:
        """Start workers of queues that have messages; return how long to sleep, None if there is no more to do."""
        watched = [queue for queue, pool in self._pools.items() if pool.has_no_poll()]
        resting = self._is_at_rest()
        if self.policy.once and resting:
            return None
        seen = watch.look(watched)
        for queue in seen.queues:
            self._pools[queue].start_one()
        for queue in set(watched).difference(seen.queues):
            self._pools[queue].processor.is_back()
        if seen.queues:
            return 0.0
        if self.policy.until_empty and resting and self._is_drained(watched):
            return None
        self._unwatch_busy(watch, watched)
        return self._sleep(seen.seconds)

    def _wait_for_the_store(self, error: QueueError) -> float:
        """Return how long to wait for a store that is away or locked, so that running calls can end when it is back."""
        if not may_pass(error):
            raise error
        if not self._store_is_away:
            self._store_is_away = True
            self.wording.logger.warning("%s: %s; trying again each second", error.name, error.message)
        return _TICK_SECONDS

    def _store_is_back(self) -> None:
        if self._store_is_away:
            self._store_is_away = False
            self.wording.logger.info("the device can be used again")

    def _throttle(self) -> None:
        """Wait a moment if the last poll was just now, because of messages for other queues."""
        left = self._last_poll + _POLL_SECONDS - time.monotonic()
        if left > 0:
            time.sleep(left)
        self._last_poll = time.monotonic()

    def _sleep(self, next_due: float) -> float:
        pauses = [left for pool in self._pools.values() if (left := pool.processor.backoff.left())]
        until_tick = max(self._next_tick - time.monotonic(), 0.0)
        return max(
            min([self.policy.idle_seconds, next_due, until_tick, self.calls.next_late(), *pauses]), _POLL_SECONDS
        )

    def _unwatch_busy(self, watch: QueueWatch, watched: list[str]) -> None:
        """Stop the wake-ups for queues whose workers poll all the time anyway."""
        now = time.monotonic()
        for queue in watched:
            self._seen_busy.pop(queue, None)
        busy = [queue for queue in self._pools if queue not in watched]
        for queue in busy:
            self._seen_busy.setdefault(queue, now)
        left = {queue for queue in busy if now - self._seen_busy[queue] >= _LEAVE_SECONDS}
        if not left <= self._left:
            watch.leave(sorted(left))
        self._left = left

    def _run_main_thread_tasks(self) -> None:
        if self._error is not None:
            raise self._error
        self.calls.give_up_late()
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + _TICK_SECONDS
            self._reporter.report()
            self._log_rest(at_once=False)

    def _log_rest(self, *, at_once: bool) -> None:
        for pool in self._pools.values():
            pool.processor.log.log_rest(at_once=at_once)

    def _end_calls(self, seconds: float) -> None:
        for pool in self._pools.values():
            pool.end()
        end = time.monotonic() + seconds
        while not self._is_at_rest() and not self.stop.at_once and time.monotonic() < end:
            self.calls.give_up_late()
            self._wait_for_rest(min(end - time.monotonic(), self.calls.next_late(), 0.1))
        if self._is_at_rest():
            return
        returned = self.calls.return_all(f"{self.wording.consumer} was stopped")
        self._stop_calls()
        if returned:
            late = counted(returned, "call")
            self.wording.logger.warning("%s did not end in time; their messages are back in the queues", late)
        self._wait_for_rest(_TICK_SECONDS)

    def _stop_calls(self) -> None:
        if self.stop.at_once:
            self.wording.logger.warning(
                "%s: stopping at once; the current message goes back to its queue", self.stop.asked
            )
        for pool in self._all_pools():
            pool.processor.handler.stop_calls()

    def _is_at_rest(self) -> bool:
        return all(pool.is_at_rest() for pool in self._all_pools())

    def _all_pools(self) -> list[WorkerPool]:
        return [*self._pools.values(), *self._leaving]

    def _is_drained(self, watched: Collection[str]) -> bool:
        """Return whether there is nothing to dequeue; `watched` are the queues in which a poll has found nothing."""
        return all(queue in watched or _is_empty(pool.processor) for queue, pool in self._pools.items())

    def _wait_for_rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for pool in self._all_pools():
            pool.join(max(end - time.monotonic(), 0.0))

    def _fail(self, error: BaseException) -> None:
        """Take an error of a worker after which the others cannot go on."""
        self._error = self._error or error
        self.wake()


def _is_empty(processor: Processor) -> bool:
    """Return whether a paused queue has nothing to dequeue, or does not exist."""
    return processor.backoff.is_gone or not (processor.backoff.reason or processor.head_priority())


# ---- requests to stop or to load the handlers again ------------------------------------------------------------------


SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stop:
    """Whether a stop was requested, and by what: `asked` is empty until then.

    `at_once`: a second signal came. `status` is the exit status: 0 for an orderly stop, 128 and the number of the
    second signal otherwise. `wake` wakes the main thread; it is called from a signal handler. A signal only sets a flag
    here, which the main thread reads when it is awake.
    """

    def __init__(self, *, reloads: bool = True) -> None:
        """With `reloads`, SIGHUP is a request to load the handlers again, except from a terminal that has ended."""
        self._reloads = reloads
        self.asked = ""
        self.at_once = False
        self.status = 0
        self.wake: Callable[[], None] = lambda: None
        self._reload = False
        self._event = threading.Event()
        self._had_terminal = _has_terminal()

    def listen(self) -> None:
        """Handle the signals from now on; one that was ignored at the start, as by `nohup` and `&`, stays ignored."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals in the block, if it is in the main thread; the others have none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                # None is a handler that is not of Python, and cannot be put back.
                if handler is not None:
                    signal.signal(number, handler)

    def ask(self, why: str) -> None:
        """Request a stop after the running calls."""
        self.asked = self.asked or why
        self._event.set()
        self.wake()

    def sleep(self, seconds: float) -> None:
        """Sleep until a stop is requested, or the seconds are over."""
        self._event.wait(seconds)

    def wants_reload(self) -> bool:
        """Return whether the handlers are to be loaded again, once for each request."""
        asked, self._reload = self._reload, False
        return asked

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self._reloads and number == signal.SIGHUP and not self._has_lost_its_terminal():
            self._reload = True
            self.wake()
        elif not self.asked:
            self.ask(signal.Signals(number).name)
        elif not self.at_once:
            self.asked, self.status, self.at_once = signal.Signals(number).name, 128 + number, True
            self.wake()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _has_lost_its_terminal(self) -> bool:
        """Return whether the signal is the end of the terminal that the program was started on."""
        return self._had_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError:
        return False
    return True
