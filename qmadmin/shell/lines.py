r"""Sources of commands and answers - a command file, the standard input, or arguments of the program - and their words.

Words are separated by blanks and tabs. A word that contains any is in double quotes, within which `\"` is a double
quote, or in single quotes, within which every character stands for itself. Quotes inside a word have no meaning.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from qmadmin.console import quoted
from qmadmin.console.process import Exit
from qmadmin.console.results import Line, Notice
from qmadmin.shell import notices
from qmadmin.shell.notices import InputEndedError, UsageError
from qmcore import names
from qmcore.redacted import redacted
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.shell.kinds import Kind
    from qmadmin.shell.session import Session


BLANKS = " \t"
QUOTES = "\"'"
_blanks = re.compile(r"[ \t]*")
_no_blanks = re.compile(r"[^ \t]*")


@dataclass(frozen=True, slots=True)
class Word:
    """A word, where it began in its line, and whether it was quoted: a quoted word is never an option."""

    text: str
    quoted: bool = False
    start: int = 0


def split(line: str) -> list[Word]:
    """Return the words of a line; UsageError for a quote that is not closed or is followed by more text."""
    words, open_quote = _words(line)
    if open_quote:
        raise UsageError(
            f"The quote {open_quote} is not closed: {line[words[-1].start :]}",
            hint=f"Write {open_quote} at the end of the argument, or leave it out.",
        )
    return words


def each(line: str) -> Iterator[Word]:
    """Yield the words of a line one by one; a quote that is not closed ends with the line.

    Raises UsageError when it reaches a quote that is followed by more text.
    """
    for word, _ in _each(line):
        yield word


def head(line: str) -> tuple[str, str]:
    """Return the first word of a line and the rest of the line, each empty if there is nothing."""
    stripped = line.strip(BLANKS)
    end = _before_blanks(stripped, 0)
    return stripped[:end], stripped[end:].lstrip(BLANKS)


def split_unfinished(line: str) -> tuple[list[Word], Word]:
    """Return the words before the cursor of an unfinished line, and the one at the cursor."""
    try:
        words, open_quote = _words(line)
    except UsageError:
        # Nothing can follow here; a quoted first word says so.
        return [], Word("", quoted=True, start=len(line))
    if words and (open_quote or not (words[-1].quoted or line[-1] in BLANKS)):
        return words[:-1], words[-1]
    return words, Word("", start=len(line))


def answer(line: str) -> str:
    """Return the answer in a line: all of it, or the text in quotes if the whole line is quoted."""
    line = line.strip(BLANKS)
    if line[:1] in QUOTES:
        words = split(line)
        if len(words) == 1:
            return words[0].text
    return line


def quote(text: str) -> str:
    """Write a word so that `split` reads it back."""
    if text and not text.startswith(("-", ">", "|", *QUOTES)) and not any(blank in text for blank in BLANKS):
        return text
    return quoted(text)


def _words(line: str) -> tuple[list[Word], str]:
    """Return the words, and the quote that is not closed, or an empty text."""
    words, open_quote = [], ""
    for word, open_quote in _each(line):  # noqa: B007 - only the last one may lack it
        words.append(word)
    return words, open_quote


def _each(line: str) -> Iterator[tuple[Word, str]]:
    """Yield the words, each with its quote if that is not closed."""
    end = len(line)
    start = _after_blanks(line, 0)
    while start < end:
        if line[start] not in QUOTES:
            at = _before_blanks(line, start)
            yield Word(line[start:at], start=start), ""
        else:
            text, at = _quoted(line, start)
            if at < end and line[at] not in BLANKS:
                raise UsageError.of(
                    notices.NO_WHITE_SPACE(), line[start:], hint='Separate arguments by blanks; a quote inside is \\".'
                )
            yield Word(text, quoted=True, start=start), line[start] if at > end else ""
        start = _after_blanks(line, at)


def _after_blanks(line: str, start: int) -> int:
    return _blanks.match(line, start).end()  # type: ignore[union-attr] # it matches nothing too


def _before_blanks(line: str, start: int) -> int:
    return _no_blanks.match(line, start).end()  # type: ignore[union-attr] # as above


def _quoted(line: str, start: int) -> tuple[str, int]:
    """Return the text in quotes and the place after the closing one, which is past the line if there is none."""
    mark = line[start]
    begin = start + 1
    end = line.find(mark, begin)
    while mark == '"' and end > begin and line[end - 1] == "\\":
        end = line.find(mark, end + 1)
    text = line[begin:] if end < 0 else line[begin:end]
    if mark == '"':
        text = text.replace('\\"', '"')
    return text, (len(line) if end < 0 else end) + 1


PROMPT = "> "
YES_OR_NO = ("y", "yes", "n", "no")


def refuse_what_is_not_text(text: str, name: str) -> None:
    """Refuse a script that is not text before it begins.

    It may be a device, whose messages would be executed as commands; or half of it was lost in a power failure.
    """
    if "\0" in text:
        raise UsageError(
            f"{name} is not a command file: it is not text", hint="Name a file that has a command on each line."
        )


def refuse_file_that_is_not_text(script: io.BufferedReader, name: str) -> None:
    """Refuse a file that is not text, and stay at its beginning; of a pipe the first block is checked."""
    refuse_what_is_not_text(script.peek().decode("latin-1"), name)
    if stat.S_ISREG(os.fstat(script.fileno()).st_mode):
        refuse_what_is_not_text(script.read().decode("latin-1"), name)
        script.seek(0)


class Asking(Protocol):
    """The source of answers."""

    @property
    def patient(self) -> bool:
        """Whether a user can be asked again; otherwise a refused answer ends the command."""

    def ask(self, prompt: str, kind: Kind[Any], /) -> str:
        """Return the line that answers a prompt; InputEndedError at the end of the input."""

    def tell(self, text: str) -> None:
        """Show a line among the prompts."""

    def warn(self, notice: Notice) -> None:
        """Show why a prompt is repeated."""


class Dialogue(Asking, Protocol):
    """The source of command lines and of the answers to prompts."""

    def command(self) -> str | None:
        """Return the next command line without its end, or None at the end."""

    def place(self) -> str:
        """Return the place of the line that was read last; empty if a user has just typed it."""

    def pass_over(self, count: int, /) -> str:
        """Drop up to `count` answers that are no longer asked for; return their places, empty if there were none.

        A line that is certainly a command is not dropped.
        """

    def pass_over_yes_or_no(self) -> str:
        """Drop the next line if it answers a confirmation that is no longer asked for; return its place."""

    def interrupted(self) -> None:
        """Note that a command was interrupted."""


class Script:
    """Lines of a stream: commands, and after each command the answers to its prompts, one line for each.

    With `leaves_defaults` the answers that are missing at the end are the defaults.
    """

    patient = False

    def __init__(self, stream: TextIO, name: str, session: Session, *, leaves_defaults: bool = False) -> None:
        self._stream = stream
        self._name = name
        self._session = session
        self._number = 0
        self._unread = ""
        self._leaves_defaults = leaves_defaults
        # Not the target of a redirection of one of its commands.
        self._shown = session.output

    def command(self) -> str | None:
        """Return the next command line, None at the end; with echo on it is repeated."""
        line = self._read()
        if line is not None:
            self._echo(PROMPT + line)
        return line

    def ask(self, prompt: str, _kind: Kind[Any], /) -> str:
        """Return the next line; with echo on, prompt and answer are repeated as a terminal would show them."""
        line = self._read()
        if line is None:
            raise InputEndedError(prompt, leaves_defaults=self._leaves_defaults)
        self._echo(prompt + line)
        return line

    def interrupted(self) -> None:
        """Do nothing: a script ends with its interrupt."""

    def tell(self, text: str) -> None:
        """Show a line where prompts are shown."""
        self._echo(text)

    def warn(self, notice: Notice) -> None:
        """Show a notice, for the reader only: a script is not asked again."""
        self._session.screen.notice(notice, self.place())

    def place(self) -> str:
        """Return the name of the script and the number of the line read last."""
        return f"{self._name}, line {self._number}"

    def pass_over(self, count: int, /) -> str:
        """Drop up to `count` lines and return their numbers."""
        first = self._number + 1
        for _ in range(count):
            line = self._read()
            if line is None:
                break
            if self._is_command(line):
                self._unread = line + "\n"
                self._number -= 1
                break
            self._echo(line)
        if self._number < first:
            return ""
        lines = f"line {first}" if self._number == first else f"lines {first}-{self._number}"
        return f"{self._name}, {lines}"

    def pass_over_yes_or_no(self) -> str:
        """Drop the next line if it is y or n, and return its number."""
        line = self._read()
        if line is None:
            return ""
        if answer(line).lower() not in YES_OR_NO:
            self._unread = line + "\n"
            self._number -= 1
            return ""
        self._echo(line)
        return self.place()

    def _is_command(self, line: str) -> bool:
        """Return whether a line that may be an answer begins with the full name of a command.

        An abbreviation may well be the name of a queue, and `echo` the beginning of a capacity command.
        """
        name, _ = head(line)
        return name != "echo" and any(name == command.name for command in self._session.catalogue.commands)

    def _read(self) -> str | None:
        line, self._unread = self._unread or _next(self._stream, self._name, self._session), ""
        if not line:
            return None
        self._number += 1
        if self._number == 1:
            line = line.removeprefix("\ufeff")
            # Nothing more is known about a standard input; later lines that are not text are refused one by one.
            try:
                refuse_what_is_not_text(line, self._name)
            except UsageError as refusal:
                self._session.status = Exit.FAILED
                self._session.screen.notice(refusal.notice)
                return None
        return line.rstrip("\r\n")

    def _echo(self, text: str) -> None:
        if not self._session.modes.echo:
            return
        text = redacted(text)
        if self._session.modes.format.is_for_programs:
            self._session.screen.prompt(text + "\n")
        else:
            self._shown.show(Line(line) for line in text.split("\n"))


class CommandArguments(Script):
    """Commands in the arguments of the program, each a script of its own with its answers."""

    def __init__(self, commands: Sequence[str], session: Session) -> None:
        super().__init__(io.StringIO(), "-c", session, leaves_defaults=True)
        self._left = list(commands)

    def command(self) -> str | None:
        """Return the next command line, None after the last."""
        while (line := super().command()) is None and self._left:
            text = self._left.pop(0)
            self._stream, self._name, self._number = io.StringIO(text), f"-c {names.shown(text)}", 0
        return line


class Person:
    """A user at a terminal, who is asked again after a wrong answer, and gives no answers in advance."""

    patient = True
    _session: Session

    def interrupted(self) -> None:
        """Do nothing: the terminal itself forgets what was typed ahead."""

    def tell(self, text: str) -> None:
        """Show a line among the prompts."""
        self._session.screen.prompt(text + "\n")

    def warn(self, notice: Notice) -> None:
        """Show why a prompt is repeated."""
        self._session.screen.notice(notice)

    def place(self) -> str:
        """Return nothing: the user has just typed it."""
        return ""

    def pass_over(self, _count: int, /) -> str:
        """Drop nothing: a user answers only what is asked."""
        return ""

    def pass_over_yes_or_no(self) -> str:
        """Drop nothing."""
        return ""


class Keyboard(Person):
    """A user whose terminal cannot be drawn on: plain lines, with the prompts on stderr."""

    def __init__(self, stream: TextIO, session: Session) -> None:
        self._stream = stream
        self._session = session

    def command(self) -> str | None:
        """Return the next command line, None at the end."""
        return self._read(PROMPT)

    def ask(self, prompt: str, _kind: Kind[Any], /) -> str:
        """Return the answer to a prompt."""
        line = self._read(prompt)
        if line is None:
            raise InputEndedError(prompt)
        return line

    def _read(self, prompt: str) -> str | None:
        self._session.screen.prompt(prompt)
        try:
            line = _next(self._stream, "the terminal", self._session)
        except KeyboardInterrupt:
            self._session.screen.prompt("\n")
            raise
        if not line:
            self._session.screen.prompt("\n")
            return None
        return line.rstrip("\r\n")


def _next(stream: TextIO, name: str, session: Session) -> str:
    """Return the next line with its end; empty at the end of the stream, or if it cannot be read any more."""
    try:
        return stream.readline()
    except OSError as error:
        session.status = Exit.FAILED
        session.screen.notice(Notice.error(f"Failed to read from {name}: {error.strerror}"))
        return ""
