"""A consumer: it has handlers work on the messages of queues.

consumer = Consumer(stop)
consumer.serve({"ORDERS": (FunctionHandler(ship), Policy(workers=4))})
consumer.run(space)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qmadmin.consumers.backoff import Backoff
from qmadmin.consumers.dispatcher import Dispatcher
from qmadmin.consumers.handler import Handler
from qmadmin.consumers.policy import Policy, RunPolicy, Wording
from qmadmin.consumers.processor import Processor
from qmadmin.consumers.statistics import Statistics
from qmadmin.consumers.stop import Stop
from qmadmin.consumers.worker_pool import ConcurrencyLimit
from qmadmin.space import QueueSpace
from qmcore.times import Clock, SystemClock


class Consumer:
    """Has handlers work on the messages of queues until a stop is asked for, or there is no more to do.

    What it knows of its queues - `statistics` by queue, and which of them pause - outlives the queue space in which it
    works: where the store fails, it may run again when the queue space is open again. Whoever made a handler closes it.
    """

    def __init__(
        self,
        stop: Stop,
        policy: RunPolicy = RunPolicy(),  # noqa: B008 - it never changes
        wording: Wording | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.statistics: dict[str, Statistics] = {}
        self._stop = stop
        self._policy = policy
        self._wording = wording or Wording()
        self._clock = clock or SystemClock()
        self._limit = ConcurrencyLimit()
        self._backoffs: dict[str, Backoff] = {}
        self._served: Mapping[str, tuple[Handler, Policy]] = {}
        self._dispatcher: Dispatcher | None = None

    def serve(self, queues: Mapping[str, tuple[Handler, Policy]]) -> None:
        """Serve these queues from now on, also while it runs. Calls that run are not disturbed.

        A queue that pauses is tried again at once.
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
        """Work on the queues of a queue space; returns when a stop was asked for, or there is no more to do.

        It works in the thread that calls it and in others. `between` is called about once a second and whenever that
        thread is awake, `ending` before calls that run are waited for. Raises QueueError where the store has failed,
        and what a worker has raised that is not an error of a handler; calls that run are not waited for then.
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
            known = dispatcher.calls, self.statistics[queue], self._backoffs[queue], self._wording
            processors[queue] = Processor(dispatcher.space, handler, policy, *known)
        dispatcher.serve(processors)
