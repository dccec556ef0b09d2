"""What a command of qmspark shows: how far it has come, what came of it, what went wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TextIO

from qmadmin.configuration import Configuration
from qmadmin.console.formats import Document, Format
from qmadmin.console.render import PlainScreen, Screen
from qmadmin.console.results import Afterwards, Notice, Result, Rounds, Severity, Shown


class Outcome(Protocol):
    """What came of a command."""

    def shown(self, form: Format) -> list[Shown]:
        """Return what is shown of it in a format."""


class Report:
    """Shows what comes of a command. `form` is the name of a format; `quiet`: only what is wrong."""

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
        """Show how far the work of the block has come; the block gets a function to be told that, step by step."""
        if self._quiet or not _is_drawn(sys.stderr):
            yield lambda _step, _done, _total: None
            return
        from rich.console import Console

        from qmadmin.spark.progress_meter import Meter

        with Meter(Console(file=sys.stderr, no_color=self._color == "never"), what) as reached:
            yield reached

    def note(self, notice: Notice) -> None:
        """Show a remark before the work begins."""
        if not self._quiet:
            self._screen.notice(notice)

    def show(self, told: Outcome) -> bool:
        """Show what came of it; return whether nothing of that is an error."""
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
