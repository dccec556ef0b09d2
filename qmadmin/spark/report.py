"""The output of a command of qmspark: its progress, its result, and errors."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from qmadmin.configuration import Configuration
from qmadmin.console.formats import Format, write_document
from qmadmin.console.render import format_for, is_drawn, screen_for
from qmadmin.console.results import Afterwards, Notice, Result, Rounds, Severity, Shown


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
        self._form = format_for(sys.stdout, form or settings.format)
        self._screen = screen_for(sys.stdout, sys.stderr, os.environ, settings)

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[str, int, int], None]]:
        """Show the progress of the block, which gets a function that takes it, step by step."""
        if self._quiet or not is_drawn(sys.stderr, os.environ):
            yield lambda _step, _done, _total: None
            return
        from rich.console import Console

        from qmadmin.console.styled import Meter

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
            write_document(self._command, self._screen.write, results, notices)
        else:
            self._screen.show(results, form=self._form)
        self._screen.flush()
