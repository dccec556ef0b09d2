"""A bar that shows how far some work has come, where it takes so long that somebody wonders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"bar.back": "dim", "bar.complete": "bold", "bar.finished": "bold", "bar.pulse": "bold"}
"""The styles that rich draws a bar with."""
SECONDS = 0.5
"""How long work may take without a bar."""


class Bar:
    """A bar on a terminal while the block runs, from half a second on; it is gone afterwards.

    The block gets a function to be told how much is done, of `total`; None where that is not known.
    """

    def __init__(self, console: Console, what: str, total: int | None, *, after: float = SECONDS) -> None:
        self._columns = [TextColumn("{task.description}", markup=False), BarColumn(20)]
        # How much there is cannot be told in percent where it is not known.
        self._columns.append(TextColumn("{task.completed}" if total is None else "{task.percentage:.0f}%"))
        self._console = console
        self._what = what
        self._total = total
        self._timer = threading.Timer(after, self._begin)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._done = 0
        self._ended = False
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Callable[[int], None]:
        self._timer.start()
        return self._reach

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._shown is not None:
                self._shown[0].stop()

    def _reach(self, done: int) -> None:
        with self._lock:
            self._done = done
            if self._shown is not None:
                progress, task = self._shown
                progress.update(task, completed=done)

    def _begin(self) -> None:
        with self._lock:
            if self._ended:
                return
            progress = Progress(
                *self._columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            task = progress.add_task(self._what, total=self._total, completed=self._done)
            self._shown = progress, task
            progress.start()
