"""A consumer: it calls handlers with the messages of queues.

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
    """Calls handlers with the messages of queues until a stop is requested, or there is no more to do.

    Its knowledge of the queues - `statistics` by queue, and which of them are paused - outlives the open queue space:
    after a failure of the store it can run again when the queue space is open again. The caller closes the handlers.
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
            known = dispatcher.calls, self.statistics[queue], self._backoffs[queue], self._wording
            processors[queue] = Processor(dispatcher.space, handler, policy, *known)
        dispatcher.serve(processors)
