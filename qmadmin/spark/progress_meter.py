"""How far an export or an import has come: a bar at a terminal, with its rate and the time that is left."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from qmadmin.console import figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

SECONDS = 0.5
"""How long work may take without a bar."""


class Meter:
    """A bar on a terminal while the block runs, from half a second on; it is gone afterwards.

    The block gets a function to be told at which step it is, and how many messages of how many are done with in it.
    Until then the bar only moves, beside `what`.
    """

    def __init__(self, console: Console, what: str, *, after: float = SECONDS) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TextColumn("{task.fields[told]}", markup=False),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._what = what
        self._task: TaskID | None = None
        self._began: tuple[float, int] | None = None
        self._state = (0, 0)
        self._lock = threading.Lock()
        self._timer = threading.Timer(after, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Callable[[str, int, int], None]:
        self._timer.start()
        return self._reach

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            # What comes too late finds that it has begun already.
            begun, self._task = self._task, TaskID(-1)
            if begun is not None:
                self._progress.stop()

    def _begin(self) -> None:
        with self._lock:
            if self._task is None:
                self._task = self._progress.add_task(self._what, total=None, told="")
                self._show()
                self._progress.start()

    def _reach(self, step: str, done: int, total: int) -> None:
        with self._lock:
            if step != self._what or self._began is None:
                self._what, self._began = step, (time.monotonic(), done)
            self._state = (done, total)
            if self._task is not None:
                self._show()

    def _show(self) -> None:
        done, total = self._state
        if self._task is None or self._began is None:
            return
        began, already = self._began
        if done:
            told = told_of(done, total, done - already, time.monotonic() - began)
            self._progress.update(self._task, description=self._what, completed=done, total=total, told=told)
        else:
            # Only moving, so that it does not look as if nothing happened before the first part is done.
            self._progress.reset(self._task, description=self._what, total=None, told="")


def told_of(done: int, total: int, new: int, seconds: float) -> str:
    """Return how far it is, how fast, and how long it takes yet; `new` messages came in the last `seconds`."""
    share = f"{100 * done // total}%"
    if not new or not seconds:
        return share
    rate = new / seconds
    left = figures.span((total - done) / rate)
    return f"{share}  {figures.rate(rate)}/s  {left} left"
