"""A queue space that consumes without an application, and the metrics of either while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmadmin.consumers import Wording
from qmadmin.consumers.function_consumer import FunctionConsumer
from qmadmin.consumers.handler_options import policy_of, run_policy_of
from qmadmin.consumers.hooks import Hooks
from qmcore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from qmadmin.consumers.statistics import Statistics
    from qmadmin.monitoring.prometheus import MetricsCollector
    from qmadmin.space import QueueSpace


def consume(
    space: QueueSpace,
    queues: Sequence[str],
    function: Callable[..., object],
    run_options: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Call a function with the messages of queues of an open queue space; a failure of the store is raised."""
    if not queues:
        raise InvalidArgumentError("there is no queue to consume messages of", hint="Name one.")
    if not callable(function):
        raise InvalidArgumentError(f"the handler must be a function, got {function!r}")
    served = {queue: (function, policy_of(queue, options)) for queue in queues}
    statistics: dict[str, Statistics] = {}
    consumer = FunctionConsumer(served, run_policy_of(run_options), Hooks(), statistics=statistics)

    def collector() -> MetricsCollector:
        from qmadmin.monitoring.consumer_metrics import CONSUMER
        from qmadmin.monitoring.prometheus import ProgramCollector, ServedSpace

        return ProgramCollector(
            ServedSpace((space.device.path, space.name), lambda: list(statistics.values()), lambda: space),
            begin=CONSUMER,
        )

    with serving_metrics(run_options, collector), consumer.stop.listening():
        consumer.consume_on(space)


def serving_metrics(
    run_options: Mapping[str, Any], collector: Callable[[], MetricsCollector]
) -> contextlib.AbstractContextManager[None]:
    """Serve the metrics of a collector while the block lasts, if the options of a run say where."""
    where = run_options.get("metrics")
    if where is None:
        return contextlib.nullcontext()
    from qmadmin.monitoring.metrics_server import Address, served

    return served(Address.parse(str(where)), Wording().logger, collector())
