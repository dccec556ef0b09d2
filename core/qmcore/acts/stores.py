"""Which store messages stand in: on disk, or in the memory of the queue space."""

from __future__ import annotations

from qmcore.port import Unit
from qmcore.store import Store


def stores(unit: Unit, space_id: int) -> tuple[Store, ...]:
    """Return the stores of a queue space, the one on disk first."""
    memory = unit.memory(space_id)
    return (unit,) if memory is None else (unit, memory)
