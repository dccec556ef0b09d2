"""The output of a command of qmspark: its progress, its result, and errors."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from qmadmin import console as figures
from qmadmin.configuration import Configuration
from qmadmin.console.formats import Document, Format
from qmadmin.console.render import PlainScreen, Screen
from qmadmin.console.results import Afterwards, Notice, Result, Rounds, Severity, Shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class Outcome(Protocol):
    """The outcome of a command."""

    def shown(self, form: Format) -> list[Shown]:
        """Return the outcome in a format."""


class Report:
    """Shows the outcome of a command. `form` is the name of a format; `quiet`: only errors and warnings."""

    def __init__(self, command: str, *, form: str | None, quiet: bool, configuration: Configuration) -> None:
        self._command = command
        self._quiet = quiet
        settings = configuration.qmadmin
        self._color = settings.color
        chosen = form or settings.format
        if chosen == "auto":
            chosen = (Format.TABLE if sys.stdout.isatty() else Format.PLAIN).value
        self._form = Format(chosen)
        self._screen: Screen = PlainScreen(sys.stdout, sys.stderr, hints=True)
        if _is_drawn(sys.stdout):
            from qmadmin.console.styled import StyledScreen

            self._screen = StyledScreen(sys.stdout, sys.stderr, os.environ, settings)

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show the progress of the block, which gets a function that takes it, step by step."""
        if self._quiet or not _is_drawn(sys.stderr):
            yield lambda _step, _done, _total: None
            return
        from rich.console import Console

        with Meter(Console(file=sys.stderr, no_color=self._color == "never"), what) as reached:
            yield reached

    def note(self, notice: Notice) -> None:
        """Show a remark before the work begins."""
        if not self._quiet:
            self._screen.notice(notice)

    def show(self, told: Outcome) -> bool:
        """Show the outcome; return whether nothing in it is an error."""
        shown = told.shown(self._form)
        notices = [each for each in shown if isinstance(each, Notice)]
        self._write([each for each in shown if not isinstance(each, Notice | Rounds | Afterwards)], notices)
        for notice in notices:
            if not (self._quiet and notice.severity is Severity.INFO):
                self._screen.notice(notice)
        return not any(notice.severity is Severity.ERROR for notice in notices)

    def fail(self, sentence: str, hint: str) -> None:
        """Show why the command has failed."""
        notice = Notice(Severity.ERROR, sentence, hint)
        if self._form is Format.JSON:
            self._write([], [notice])
        self._screen.notice(notice)

    def _write(self, results: Sequence[Result], notices: Sequence[Notice]) -> None:
        if self._quiet:
            return
        if self._form is Format.JSON:
            document = Document(self._command, self._screen.write)
            for result in results:
                document.add(result)
            for notice in notices:
                document.note(notice)
            document.end(complete=True)
        else:
            self._screen.show(results, form=self._form)
        self._screen.flush()


def _is_drawn(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


SECONDS = 0.5
"""How many seconds work may take without a bar."""


class Meter:
    """A bar on a terminal while the block runs, from half a second on; it is gone afterwards.

    The block gets a function that takes the current step, and how many of its messages are done. Until its first call
    the bar only moves, beside `what`.
    """

    def __init__(self, console: Console, what: str, *, after: float = SECONDS) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

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
        self._is_over = False
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
            # Late calls find that it is over.
            self._is_over = True
            if self._task is not None:
                self._progress.stop()
                self._task = None

    def _begin(self) -> None:
        with self._lock:
            if not self._is_over:
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
            # The moving bar shows activity before the first part is done.
            self._progress.reset(self._task, description=self._what, total=None, told="")


def told_of(done: int, total: int, new: int, seconds: float) -> str:
    """Return the progress, the rate, and the remaining time; `new` messages were done in the last `seconds`."""
    share = f"{100 * done // total}%"
    if not new or not seconds:
        return share
    rate = new / seconds
    left = figures.span((total - done) / rate)
    return f"{share}  {figures.rate(rate)}/s  {left} left"
