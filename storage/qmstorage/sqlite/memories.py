"""The memories of queue spaces on SQLite: files that the connection of the volume has attached."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from qmcore.queue import Queue
from qmcore.space import Space
from qmstorage.sqlite.memory_files import MemoryFiles, memory_files
from qmstorage.sqlite.unit import read_once
from qmstorage.statements import Texts


class FileMemories:
    """The memories that a volume uses; `alone` keeps out all who write, in this process and in others."""

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        texts: Texts,
        attached: MemoryFiles,
        alone: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._path = path
        self._connection = connection
        self._texts = texts
        self._attached = attached
        self._alone = alone

    def attach(self, space: Space, queues: Sequence[Queue]) -> bool:
        """Open the memory of a queue space for its non-persistent messages; return whether it had to be made."""
        with self._alone():
            return self._attached.attach(space, queues)

    def detach(self, space: Space) -> None:
        """Let go of the memory of a queue space, once for each time that it was attached."""
        with self._alone():
            self._attached.detach(space)

    def remove(self, space: Space, *, unused: bool = False) -> None:
        """Remove the memory of a queue space; with `unused` only where no process is attached to the queue space."""
        with self._alone():
            if not unused or not self._has_owners(space):
                self._attached.remove(space)

    def files(self, space: Space) -> list[tuple[str, int]]:
        """Return the files of a queue space's memory, and their sizes in bytes."""
        return memory_files(self._path, space)

    def _has_owners(self, space: Space) -> bool:
        return bool(read_once(self._connection, self._texts, self._path, lambda unit: unit.owners.of_space(space.id)))
