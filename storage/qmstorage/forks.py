"""What a fork of the process means for open volumes."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forking(Protocol):
    """A volume that can be left to the parent process."""

    def pause(self) -> bool:
        """Wait until no work is being done and allow none to begin, because the process is about to fork."""

    def resume(self) -> None:
        """Allow work again, after the fork."""

    def give_to_parent(self, *, idle: bool) -> None:
        """Close, in a forked process, what it has inherited."""


class Forks:
    """The open volumes that a fork of this process has to prepare.

    The set changes while the program runs, as does what it protects: SQLite's own table of open files, which belongs to
    the process and not to a connection.
    """

    def __init__(self) -> None:
        self._volumes: weakref.WeakSet[Forking] = weakref.WeakSet()
        self._paused: list[Forking] = []
        self._turn = threading.Lock()
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def add(self, volume: Forking) -> None:
        """Prepare a volume for forks from now on."""
        self._volumes.add(volume)

    def discard(self, volume: Forking) -> None:
        """Prepare a volume for forks no longer."""
        self._volumes.discard(volume)

    def _before(self) -> None:
        # Threads that fork at the same time do so one after the other.
        self._turn.acquire()
        self._paused = [volume for volume in list(self._volumes) if volume.pause()]

    def _in_parent(self) -> None:
        for volume in self._paused:
            volume.resume()
        self._paused = []
        self._turn.release()

    def _in_child(self) -> None:
        for volume in list(self._volumes):
            volume.give_to_parent(idle=volume in self._paused)
        self._paused = []
        self._volumes.clear()
        self._turn = threading.Lock()


FORKS = Forks()
