"""Which store messages stand in: on disk, or in the memory of the queue space."""

from __future__ import annotations

from qmcore.message import EnqueueControl
from qmcore.port import Unit
from qmcore.queue import Delivery, Queue
from qmcore.store import Store


def stores(unit: Unit, space_id: int) -> tuple[Store, ...]:
    """Return the stores of a queue space, the one on disk first."""
    memory = unit.memory(space_id)
    return (unit,) if memory is None else (unit, memory)


def delivery_of(queue: Queue, control: EnqueueControl) -> Delivery:
    """Return where a message is to be kept: as its sender says, else as the queue says."""
    asked = control.delivery
    return queue.definition.delivery if asked is None or asked is Delivery.DEFAULT else asked
