"""Starting the capacity commands of queues, where the administrator has not switched them off."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from qmcore.errors import QueueError
from qmcore.queue import Delivery

if TYPE_CHECKING:
    from qmcore.port import Claim, Volume
    from qmcore.queue import Queue
    from qmcore.space import Space

logger = logging.getLogger("qmadmin.capacity")


class Commands:
    """The capacity commands of a queue space's queues."""

    def __init__(self, path: str, main: Volume, volume: Volume, space: Space) -> None:
        self._path = path
        self._main = main
        self._volume = volume
        self._space = space

    def start(self, claim: Claim) -> None:
        """Start a command that this process has claimed. Its failure is logged, and nobody else's."""
        try:
            queues = self._volume.read(lambda unit: unit.queues(self._space.id))
            queue = next((queue for queue in queues if queue.id == claim.queue_id), None)
            if queue is not None:
                self._start(queue, claim)
            self._volume.write(lambda unit: unit.settle_claim(claim), durable=False)
        except QueueError as error:
            logger.error("a capacity command of queue space %r is left to others: %s", self._space.name, error)  # noqa: TRY400

    def _start(self, queue: Queue, claim: Claim) -> None:
        from qmadmin import capacity

        threshold = queue.definition.memory_threshold if claim.memory else queue.definition.threshold
        event = capacity.CapacityEvent(
            device=self._path,
            space=self._space.name,
            queue=queue.name,
            command=threshold.command,
            level=str(threshold.high),
            value=claim.value,
            delivery=(Delivery.NONPERSIST if claim.memory else Delivery.PERSIST).value,
        )
        if self._main.read(lambda unit: unit.device()).commands:
            capacity.start(event)
        else:
            logger.warning(
                "queue %r of queue space %r has reached %s (%d), and its command is switched off on this device",
                queue.name,
                self._space.name,
                threshold.high,
                claim.value,
            )
