"""What an attached process knows of a queue space: its definitions, kept until they change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from qmcore.errors import BadQueueError, BadResourceError
from qmcore.port import Unit
from qmcore.queue import Queue
from qmcore.space import Space


@dataclasses.dataclass(frozen=True, slots=True)
class Definitions:
    """A queue space and its queues at one generation."""

    generation: int
    space: Space
    queues: Mapping[str, Queue]
    by_id: Mapping[int, Queue]

    def queue(self, name: str) -> Queue:
        """Return the queue of that name, or raise BadQueueError."""
        queue = self.queues.get(name)
        if queue is None:
            raise BadQueueError(
                f"there is no queue {name!r} in queue space {self.space.name!r}",
                hint="List the queues with qinfo, or create it with qcreate.",
                queue=name,
                space=self.space.name,
            )
        return queue

    @property
    def error_queue(self) -> Queue | None:
        """The error queue of the queue space, if it was named and created."""
        return self.queues.get(self.space.definition.error_queue)


class OpenSpace:
    """A queue space that a process has open. Its definitions are read again when their generation is another one."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self._known: Definitions | None = None

    def definitions(self, unit: Unit) -> Definitions:
        """Return the definitions as they are now."""
        generation = unit.generation(self.space.id)
        known = self._known
        if known is None or known.generation != generation:
            known = self._known = self._read(unit, generation)
        return known

    def _read(self, unit: Unit, generation: int | None) -> Definitions:
        space = unit.space(self.space.name)
        if generation is None or space is None or space.incarnation != self.space.incarnation:
            raise no_such_space(self.space.name)
        queues = unit.queues(space.id)
        return Definitions(generation, space, {queue.name: queue for queue in queues}, {q.id: q for q in queues})


def no_such_space(name: str) -> BadResourceError:
    """Return the diagnostic for a queue space that is not there, or no longer."""
    return BadResourceError(
        f"there is no queue space {name!r} on the device",
        hint="List the queue spaces with qspacelist, or create it with qspacecreate.",
        space=name,
    )
