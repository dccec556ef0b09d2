"""The screen of a terminal: the same lines with styles and bars, drawn by rich, and a pager for long output.

Only the severity of a notice has a colour, so that everything is legible on light and dark backgrounds; NO_COLOR
removes it too.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text
from rich.theme import Theme

from qmadmin.configuration import Configuration
from qmadmin.console import formats, printable, rate, render, span
from qmadmin.console.formats import Format, Span
from qmadmin.console.process import leaving_interrupts_to_child
from qmadmin.console.render import PlainScreen, sentence, window
from qmadmin.console.results import Notice, Result, Severity

if TYPE_CHECKING:
    import os

    from qmadmin.settings import ShellSettings

STYLES = {"bar.back": "dim", "bar.complete": "bold", "bar.finished": "bold", "bar.pulse": "bold"}
"""The styles of a bar in rich."""
SECONDS = 0.5
"""How many seconds work may take without a bar."""


class _Delayed(abc.ABC):
    """A bar on a terminal while the block runs, from half a second on; it is gone afterwards."""

    def __init__(self, console: Console, what: str, total: int | None, ending: str, after: float) -> None:
        # What comes from an archive or a device may look like markup.
        self._columns = TextColumn("{task.description}", markup=False), BarColumn(20), TextColumn(ending, markup=False)
        self._console = console
        self._what = what
        self._total = total
        self._timer = threading.Timer(after, self._begin)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._is_over = False
        self._shown: tuple[Progress, TaskID] | None = None

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()
        with self._lock:
            # Late calls find that it is over.
            self._is_over = True
            if self._shown is not None:
                self._shown[0].stop()
                self._shown = None

    def _begin(self) -> None:
        with self._lock:
            if self._is_over:
                return
            progress = Progress(
                *self._columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._shown = progress, progress.add_task(self._what, total=self._total, told="")
            self._show(*self._shown)
            progress.start()

    @abc.abstractmethod
    def _show(self, progress: Progress, task: TaskID) -> None:
        """Show what is done."""


class Bar(_Delayed):
    """A bar whose block gets a function that takes how much is done, of `total`; None if that is unknown."""

    def __init__(self, console: Console, what: str, total: int | None, *, after: float = SECONDS) -> None:
        # Without a total there is no percentage.
        super().__init__(console, what, total, "{task.completed}" if total is None else "{task.percentage:.0f}%", after)
        self._done = 0

    def __enter__(self) -> Callable[[int], None]:
        self._timer.start()
        return self._reach

    def _reach(self, done: int) -> None:
        with self._lock:
            self._done = done
            if self._shown is not None:
                self._show(*self._shown)

    def _show(self, progress: Progress, task: TaskID) -> None:
        progress.update(task, completed=self._done)


class Meter(_Delayed):
    """A bar for work in steps, whose block gets a function that takes the step, how much of it is done, and its total.

    Until its first call the bar only moves, beside `what`.
    """

    def __init__(self, console: Console, what: str, *, after: float = SECONDS) -> None:
        super().__init__(console, what, None, "{task.fields[told]}", after)
        self._began: tuple[float, int] | None = None
        self._state = (0, 0)

    def __enter__(self) -> Callable[[str, int, int], None]:
        self._timer.start()
        return self._reach

    def _reach(self, step: str, done: int, total: int) -> None:
        with self._lock:
            if step != self._what or self._began is None:
                self._what, self._began = step, (time.monotonic(), done)
            self._state = (done, total)
            if self._shown is not None:
                self._show(*self._shown)

    def _show(self, progress: Progress, task: TaskID) -> None:
        done, total = self._state
        if self._began is None:
            return
        began, already = self._began
        if done:
            told = told_of(done, total, done - already, time.monotonic() - began)
            progress.update(task, description=self._what, completed=done, total=total, told=told)
        else:
            # The moving bar shows activity before the first part is done.
            progress.reset(task, description=self._what, total=None, told="")


def told_of(done: int, total: int, new: int, seconds: float) -> str:
    """Return the progress, the rate, and the remaining time; `new` messages were done in the last `seconds`."""
    share = f"{100 * done // total}%"
    if not new or not seconds:
        return share
    speed = new / seconds
    left = span((total - done) / speed)
    return f"{share}  {rate(speed)}/s  {left} left"


_SAMPLE = "x"
_HANGING = "  "
"""The indentation of each line of a hint, which distinguishes a wrapped hint from the next output."""

_THEME = Theme(
    {
        formats.HEAD: "bold",
        formats.LABEL: "dim",
        formats.TERM: "bold",
        "hint": "dim",
        Severity.ERROR.value: "bold red",
        Severity.WARN.value: "bold magenta",
        Severity.INFO.value: "bold",
        **STYLES,
    },
    inherit=False,
)


class StyledScreen(PlainScreen):
    """A terminal."""

    def __init__(
        self, out: TextIO, err: TextIO, environ: Mapping[str, str], settings: ShellSettings | None = None
    ) -> None:
        super().__init__(out, err)
        self._environ = environ
        self._settings = settings or Configuration("", {}, environ).qmadmin
        self._output = self._console(out)
        self._errors = self._console(err)
        self._marks: dict[str, tuple[str, str]] = {}
        """The control sequences around each style that was drawn."""

    def show(self, results: Iterable[Result], *, form: Format = Format.TABLE, paged: bool = False) -> None:
        """Draw results for the present width of the terminal, as they arrive."""
        size = window(self._output.file)
        lines = render.lines(results, form, self._output.file)
        pager = self._pager if paged else ""
        if pager:
            begun = list(_first_rows(lines, size))
            if sum(_rows(line, size) for line in begun) >= size.lines:
                self._page(itertools.chain(begun, lines), pager)
                return
            lines = iter(begun)
        for line in lines:
            self.write(self._styled(line) + "\n")
        self.flush()

    def notice(self, notice: Notice, place: str = "") -> None:
        """Draw a notice, its hint dimmed beneath."""
        severity = notice.severity.value
        text = Text(sentence(notice, place))
        text.stylize(severity, 0, len(severity) + 1)
        columns = window(self._errors.file).columns
        drawn = _drawn(self._errors, text, columns)
        if notice.hint:
            hint = _drawn(self._errors, Text(printable(notice.hint), style="hint"), max(columns - len(_HANGING), 1))
            drawn += "".join(f"\n{_HANGING}{line}" for line in hint.split("\n"))
        self.prompt(drawn + "\n")

    def progress(self, what: str, total: int | None) -> Bar | None:
        """Return a bar on stderr, if that is a terminal too."""
        if not self._errors.is_terminal:
            return None
        self.flush()
        return Bar(self._errors, printable(what), total)

    def settle(self) -> None:
        """Flush everything: a terminal has no disk."""
        self.flush()

    def _console(self, stream: TextIO) -> Console:
        return Console(
            file=stream,
            theme=_THEME,
            markup=False,
            highlight=False,
            emoji=False,
            no_color=self._settings.color == "never",
            _environ=self._environ,
        )

    def _styled(self, spans: Sequence[Span]) -> str:
        """Return a line with the control sequences of its styles.

        rich draws each style once: line by line it took most of the time of a long listing.
        """
        line = ""
        for text, style in spans:
            if style not in self._marks:
                before, _, after = _drawn(self._output, Text(_SAMPLE, style)).partition(_SAMPLE)
                self._marks[style] = before, after
            before, after = self._marks[style]
            line += before + text + after
        return line

    def _page(self, lines: Iterable[Sequence[Span]], pager: str) -> None:
        """Pass the lines to the pager until it is left."""
        self.flush()
        with leaving_interrupts_to_child() as interrupts:
            child = subprocess.Popen(  # noqa: S602 - PAGER is a shell command
                pager, shell=True, stdin=subprocess.PIPE, env=dict(self._environ), text=True, errors="backslashreplace"
            )
            # The user may leave the pager before the end.
            with contextlib.suppress(BrokenPipeError), child:
                assert child.stdin is not None  # noqa: S101 - a pipe was asked for
                for line in lines:
                    child.stdin.write(self._styled(line) + "\n")
        if interrupts:
            self.prompt("\n")

    @property
    def _pager(self) -> str:
        """The pager's command line; empty if there is none that could be run."""
        pager = self._settings.pager or ("less -FRX" if shutil.which("less") else "more")
        program = next((word for word in pager.split() if "=" not in word), "cat")
        return pager if program != "cat" and shutil.which(program) else ""


def _drawn(console: Console, text: Text, width: int | None = None) -> str:
    """Return the text with the control sequences of its styles, wrapped to a width if there is one."""
    with console.capture() as captured:
        console.print(text, soft_wrap=width is None, width=width)
    return captured.get().rstrip("\n")


def _rows(line: Sequence[Span], size: os.terminal_size) -> int:
    """Return how many rows of the terminal a line occupies."""
    return 1 + max(sum(formats.columns(text) for text, _ in line) - 1, 0) // size.columns


def _first_rows(lines: Iterator[list[Span]], size: os.terminal_size) -> Iterator[list[Span]]:
    """Take lines until they fill the terminal."""
    rows = 0
    for line in lines:
        yield line
        rows += _rows(line, size)
        if rows >= size.lines:
            return
