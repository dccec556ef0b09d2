"""Work that is done aside, by a thread, so that a person who types never waits for it for long."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Aside:
    """One thread that works off what it is given, and is waited for only so long.

    The thread is begun with the first work, and does not keep the program from ending.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._works: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._last: _Work | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the last work is not done yet."""
        return self._last is not None and not self._last.done.is_set()

    def find(self, work: Callable[[], T], otherwise: T) -> T:
        """Return what the work returns; `otherwise` if that takes too long, or an earlier one still does."""
        if self.is_busy:
            return otherwise
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="qmadmin-aside", daemon=True)
            self._thread.start()
        self._last = wanted = _Work(work)
        self._works.put(wanted)
        if not wanted.done.wait(self._seconds):
            return otherwise
        if wanted.error is not None:
            raise wanted.error
        found: T = wanted.found
        return found

    def _work(self) -> None:
        while True:
            self._works.get().do()


class _Work:
    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self.done = threading.Event()
        self.found: Any = None
        self.error: BaseException | None = None

    def do(self) -> None:
        try:
            self.found = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
            self.error = error
        self.done.set()
