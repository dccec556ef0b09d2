"""What a fork of the process means for open volumes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

_LIBRARY_SECONDS: Final = 2.0
"""How long a fork waits for calls into a library: one that makes a connection may take long, but not in its locks."""

_ENDING_SECONDS: Final = 0.001
"""How often a fork looks whether a thread has ended."""


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
        self._calls: dict[int, threading.Lock] = {}
        self._callers: dict[int, int] = {}
        """The threads that have called such a library: the numbers that the system has, by what Python calls them.

        Python gives a name again once the thread that had it has ended, so that there are no more than were ever alive.
        """
        # A thread that forks may come upon a call that its garbage collection makes.
        self._turn = threading.RLock()
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def add(self, volume: Forking) -> None:
        """Prepare a volume for forks from now on."""
        self._volumes.add(volume)

    def discard(self, volume: Forking) -> None:
        """Prepare a volume for forks no longer."""
        self._volumes.discard(volume)

    @contextlib.contextmanager
    def held_off(self) -> Iterator[None]:
        """Have forks wait for a call into a library that locks what all its users share, as TLS does to connect.

        A child that is forked meanwhile has the lock, but not the thread that would release it.
        """
        thread, calling = threading.get_ident(), threading.Lock()
        with self._turn:
            outer = self._calls.get(thread)
            self._calls[thread] = calling
            self._callers[thread] = threading.get_native_id()
        try:
            with calling:
                yield
        finally:
            if outer is None:
                self._calls.pop(thread, None)
            else:
                self._calls[thread] = outer

    def _before(self) -> None:
        # Threads that fork at the same time do so one after the other.
        self._turn.acquire()
        end = time.monotonic() + _LIBRARY_SECONDS
        for thread, calling in list(self._calls.items()):
            if thread != threading.get_ident() and calling.acquire(timeout=max(end - time.monotonic(), 0)):
                calling.release()
        while self._is_ending() and time.monotonic() < end:
            time.sleep(_ENDING_SECONDS)
        self._paused = [volume for volume in list(self._volumes) if volume.pause()]

    def _is_ending(self) -> bool:
        """Return whether one of the callers is about to end: gone for Python, it lets the library clean up behind it.

        That takes a lock which each new thread takes that uses the library.
        """
        alive = sys._current_frames()  # noqa: SLF001 - its name is that in the documentation
        for thread, number in list(self._callers.items()):
            if thread not in alive:
                if Path(f"/proc/self/task/{number}").exists():
                    return True
                self._callers.pop(thread, None)
        return False

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
        self._calls.clear()
        self._callers.clear()
        self._turn = threading.RLock()


FORKS = Forks()
