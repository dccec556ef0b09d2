"""What the queue spaces and queues of an archive are called where it is imported."""

from __future__ import annotations

from collections.abc import Mapping

from qmadmin.archive.rows import Standing


class Names:
    """What queue spaces and queues of an archive are called on a device."""

    def __init__(self, spaces: Mapping[str, str], queues: Mapping[str, str]) -> None:
        self._spaces = spaces
        self._queues = queues

    def space(self, name: str) -> str:
        """Return the name of a queue space on the device."""
        return self._spaces.get(name, name)

    def queue(self, space: str, name: str) -> str:
        """Return the name of a queue on the device; one of a queue space goes before one of all."""
        return self._queues.get(f"{space}/{name}", self._queues.get(name, name))

    def standing(self, of: Standing) -> Standing:
        """Return where messages of the archive stand on the device."""
        space, queue, state, memory = of
        return self.space(space), self.queue(space, queue), state, memory
