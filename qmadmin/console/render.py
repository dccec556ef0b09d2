"""Draws results and notices: results on stdout, notices on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import shutil
import stat
from typing import IO, TYPE_CHECKING, Protocol, TextIO

from qmadmin.console import layout
from qmadmin.console.escapes import printable
from qmadmin.console.formats import CsvTable, Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from qmadmin.console.layout import Span
    from qmadmin.console.results import Notice, Result


def fsync(descriptor: int) -> None:
    """Bring a file or a directory to the disk, as far as its file system can be asked to."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems, as CIFS and FUSE, know no such request: of a directory, or at all.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


class OutputLostError(Exception):
    """The output cannot be written: its reader is gone (then `quiet`), or the disk is full."""

    def __init__(self, cause: OSError) -> None:
        self.reason = str(cause.strerror or cause)
        super().__init__(f"cannot write the output: {self.reason}")
        self.quiet = isinstance(cause, BrokenPipeError)


class Screen(Protocol):
    """Where a session shows what it has to show."""

    def prepare(self) -> None:
        """Refuse, before a command does anything, what cannot be shown here; UsageError."""

    def show(self, results: Iterable[Result], *, form: Format = Format.PLAIN, paged: bool = False) -> None:
        """Draw results as lines.

        They go through a pager if they are `paged` and longer than the screen.
        """

    def write(self, text: str) -> None:
        """Write what is for programs, as it is."""

    def notice(self, notice: Notice, place: str = "") -> None:
        """Draw a notice; `place` is where the line that caused it stands."""

    def prompt(self, text: str) -> None:
        """Write a prompt of the plain kind, without an end of line."""

    def tick(self, text: str) -> None:
        """Write a piece of a line that shows progress."""

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]] | None:
        """Return what shows how far some work has come, `total` in all; None if this screen shows no such thing."""

    def flush(self) -> None:
        """Bring everything out, before somebody else writes to the same place."""

    def settle(self) -> None:
        """Bring everything out and, where that is a file, to the disk."""

    def descriptor(self) -> int | None:
        """Return where a child process writes what belongs here, everything before being out; None for stdout."""


def window(stream: IO[str]) -> os.terminal_size:
    """Return the size of a terminal as it is now; COLUMNS and LINES may be older than the last change."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        found = os.terminal_size((0, 0))
    return found if all(found) else shutil.get_terminal_size()


def lines(results: Iterable[Result], form: Format, out: IO[str]) -> Iterator[list[Span]]:
    """Yield the lines of results: laid out for the width of the terminal, or for a script."""
    width = window(out).columns if form is Format.TABLE else None
    if form is Format.CSV:
        yield from ([(line, layout.PLAIN)] for line in CsvTable().lines(results))
        return
    for result in results:
        yield from layout.lines(result, width)


def sync(descriptor: int) -> None:
    """Bring what was written to the disk, where it goes into a file; OutputLostError if that fails."""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fsync(descriptor)
    except OSError as error:
        raise OutputLostError(error) from error


def sentence(notice: Notice, place: str = "") -> str:
    """Return a notice in one line, without its hint."""
    where = f" ({place})" if place else ""
    return f"{notice.severity.value}: {printable(notice.text)}{where}"


@dataclasses.dataclass(slots=True)
class PlainScreen:
    """Text without styles. `hints` are for a person."""

    out: TextIO
    err: TextIO
    hints: bool = False
    _in_line: bool = False

    def prepare(self) -> None:
        """Do nothing: it is there."""

    def show(
        self,
        results: Iterable[Result],
        *,
        form: Format = Format.PLAIN,
        paged: bool = False,  # noqa: ARG002 - nobody turns pages
    ) -> None:
        """Write the lines of the results."""
        for spans in lines(results, form, self.out):
            self.write(_text(spans) + "\n")

    def notice(self, notice: Notice, place: str = "") -> None:
        """Write a notice, behind everything that was shown before it."""
        hint = f"\n  {printable(notice.hint)}" if self.hints and notice.hint else ""
        self.prompt(f"{sentence(notice, place)}{hint}\n")

    def prompt(self, text: str) -> None:
        """Write to stderr; where that is closed nobody wants to know."""
        self.flush()
        with contextlib.suppress(OSError):
            self.err.write(text)
            self.err.flush()

    def tick(self, text: str) -> None:
        """Write a piece of a line, at once."""
        self._out(text)
        self.flush_out()
        self._in_line = not text.endswith("\n")

    def progress(
        self,
        what: str,  # noqa: ARG002 - a line cannot be taken back
        total: int | None,  # noqa: ARG002
    ) -> AbstractContextManager[Callable[[int], None]] | None:
        """Return None."""
        return None

    def flush(self) -> None:
        """End a line of progress that was broken off, and bring everything out."""
        if self._in_line:
            self._in_line = False
            self._out("\n")
        self.flush_out()

    def settle(self) -> None:
        """Bring everything out and, where that is a file, to the disk; a stream without a descriptor is none."""
        self.flush()
        with contextlib.suppress(io.UnsupportedOperation):
            sync(self.out.fileno())

    def descriptor(self) -> int | None:
        """Return None."""
        self.flush()
        return None

    def write(self, text: str) -> None:
        """Write a text, which begins a line, or goes on with one that was written before."""
        if self._in_line:
            self._in_line = False
            self._out("\n")
        self._out(text)

    def flush_out(self) -> None:
        """Bring out what has been written."""
        try:
            self.out.flush()
        except OSError as error:
            raise OutputLostError(error) from error

    def _out(self, text: str) -> None:
        try:
            self.out.write(text)
        except OSError as error:
            raise OutputLostError(error) from error


def _text(spans: Iterable[Span]) -> str:
    return "".join(text for text, _ in spans).rstrip()
