"""The memories of queue spaces, in which their non-persistent messages are: a part of the port (`qmcore.port`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from qmcore.queue import Queue
from qmcore.space import Space


class Memories(Protocol):
    """The memories that a process uses; `Unit.memory` gives the messages in one."""

    def attach(self, space: Space, queues: Sequence[Queue]) -> bool:
        """Open the memory of a queue space for its non-persistent messages; return whether it had to be made."""

    def detach(self, space: Space) -> None:
        """Let go of the memory of a queue space, once for each time that it was attached."""

    def remove(self, space: Space, *, unused: bool = False) -> None:
        """Remove the memory of a queue space; with `unused` only where no process is attached to the queue space."""

    def files(self, space: Space) -> list[tuple[str, int]]:
        """Return the files of a queue space's memory, and their sizes in bytes; a database has a schema instead."""
