"""Draws results and notices: results on stdout, notices on stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Protocol, TextIO

from qmadmin.console import formats, printable
from qmadmin.console.formats import CsvTable, Format, Span

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from qmadmin.console.results import Notice, Result
    from qmadmin.settings import ShellSettings


def fsync(descriptor: int) -> None:
    """Sync a file or a directory, if its file system supports that."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems, such as CIFS and FUSE, do not support it, either for directories or at all.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


class OutputLostError(Exception):
    """The output cannot be written: its reader is gone (then `quiet`), or the disk is full."""

    def __init__(self, cause: OSError) -> None:
        self.reason = str(cause.strerror or cause)
        super().__init__(f"cannot write the output: {self.reason}")
        self.quiet = isinstance(cause, BrokenPipeError)


class Screen(Protocol):
    """The screen on which a session shows its output."""

    def prepare(self) -> None:
        """Raise UsageError, before a command does anything, if its output cannot be shown here."""

    def show(self, results: Iterable[Result], *, form: Format = Format.PLAIN, paged: bool = False) -> None:
        """Draw results as lines.

        They go through a pager if they are `paged` and longer than the screen.
        """

    def write(self, text: str) -> None:
        """Write output for programs, unchanged."""

    def notice(self, notice: Notice, place: str = "") -> None:
        """Draw a notice; `place` is where the line that caused it stands."""

    def prompt(self, text: str) -> None:
        """Write a plain prompt, without a line end."""

    def tick(self, text: str) -> None:
        """Write a piece of a line that shows progress."""

    def progress(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]] | None:
        """Return a display of the progress of some work, `total` in all; None if this screen shows none."""

    def flush(self) -> None:
        """Flush everything, before another program writes to the same place."""

    def settle(self) -> None:
        """Flush everything and, if it goes to a file, sync it."""

    def descriptor(self) -> int | None:
        """Return the descriptor for the output of a child process, after flushing; None for stdout."""


def window(stream: IO[str]) -> os.terminal_size:
    """Return the size of a terminal as it is now; COLUMNS and LINES may be older than the last change."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        found = os.terminal_size((0, 0))
    return found if all(found) else shutil.get_terminal_size()


def lines(results: Iterable[Result], form: Format, out: IO[str]) -> Iterator[list[Span]]:
    """Yield the lines of results: formatted for the width of the terminal, or for a script."""
    width = window(out).columns if form is Format.TABLE else None
    if form is Format.CSV:
        yield from ([(line, formats.PLAIN)] for line in CsvTable().lines(results))
        return
    for result in results:
        yield from formats.lines(result, width)


def is_drawn(stream: IO[str], environ: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal that can be drawn on."""
    return stream.isatty() and environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


def format_for(stream: IO[str], name: str) -> Format:
    """Return the format of that name; `auto` is a table at a terminal, and plain otherwise."""
    if name == "auto":
        return Format.TABLE if stream.isatty() else Format.PLAIN
    return Format(name)


def screen_for(out: TextIO, err: TextIO, environ: Mapping[str, str], settings: ShellSettings) -> Screen:
    """Return the screen of a user: one with styles if the terminal can be drawn on."""
    if not is_drawn(out, environ):
        return PlainScreen(out, err, hints=True)
    from qmadmin.console.styled import StyledScreen

    return StyledScreen(out, err, environ, settings)


def sync(descriptor: int) -> None:
    """Sync what was written, if it goes to a file; OutputLostError if that fails."""
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
    """Text without styles. `hints`: hints are shown, for a user."""

    out: TextIO
    err: TextIO
    hints: bool = False
    _in_line: bool = False

    def prepare(self) -> None:
        """Do nothing: it is always available."""

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
        """Write a notice, after everything that was shown before it."""
        hint = f"\n  {printable(notice.hint)}" if self.hints and notice.hint else ""
        self.prompt(f"{sentence(notice, place)}{hint}\n")

    def prompt(self, text: str) -> None:
        """Write to stderr, if it is open."""
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
        """End an unfinished line of progress, and flush everything."""
        if self._in_line:
            self._in_line = False
            self._out("\n")
        self.flush_out()

    def settle(self) -> None:
        """Flush everything and, if it goes to a file, sync it; a stream without a descriptor is not a file."""
        self.flush()
        with contextlib.suppress(io.UnsupportedOperation):
            sync(self.out.fileno())

    def descriptor(self) -> int | None:
        """Return None."""
        self.flush()
        return None

    def write(self, text: str) -> None:
        """Write a text, which begins a line or continues one."""
        if self._in_line:
            self._in_line = False
            self._out("\n")
        self._out(text)

    def flush_out(self) -> None:
        """Flush what has been written."""
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
