"""Files that commands read and write, and redirection of their output: `> FILE`, `>> FILE` or `| SHELL COMMAND`.

A sign is unquoted and precedes a word at the end of its line. A line that Tuxedo's qmadmin accepts keeps its meaning:
after a command that does more than show something, the signs are arguments as long as the command can take them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qmadmin.console.render import fsync
from qmadmin.shell import lines
from qmadmin.shell.notices import UsageError
from qmadmin.shell.read import stands_for_option

if TYPE_CHECKING:
    from qmadmin.shell.declare import Command
    from qmadmin.shell.lines import Word
    from qmadmin.shell.session import Session

APPEND, WRITE, PIPE = ">>", ">", "|"


class Redirection(NamedTuple):
    """A sign and its target: a file, or a command line for sh."""

    sign: str
    target: str


class _Found(NamedTuple):
    """A sign, its place in the line, and the number of arguments before it."""

    sign: str
    start: int
    arguments: int

    @property
    def end(self) -> int:
        """The place after the sign."""
        return self.start + len(self.sign)


def parted(command: Command, line: str) -> tuple[str, Redirection | None]:
    """Return the arguments of a command without its redirection, and the redirection."""
    for found in _signs(command, line):
        target = _target(found, line)
        if target and (command.shows_only or _is_one_too_many(command, found, line)):
            return line[: found.start].rstrip(lines.BLANKS), Redirection(found.sign, target)
    return line, None


def refuse_unfinished(command: Command, line: str) -> None:
    """Refuse a redirection without a target, of a command that only shows something: the sign is hardly a name."""
    found = next(_signs(command, line), None) if command.shows_only else None
    if found is None:
        return
    rest = line[found.end :].strip(lines.BLANKS)
    if not rest:
        what, example = ("shell command", "less") if found.sign == PIPE else ("file", "FILE")
        raise UsageError(
            f"No {what} is named after {found.sign}", hint=f"Name it: {command.name} {found.sign} {example}"
        )
    if len(list(_words(rest))) > 1:
        raise UsageError(
            f"More than a file is named after {found.sign}",
            hint="The name of the file ends the line; put one with blanks in quotes.",
        )


def unfinished(command: Command, line: str) -> tuple[str, str] | None:
    """Return the first sign that an unfinished line can have, and the text after it."""
    for found in _signs(command, line):
        if command.shows_only or found.arguments >= len(command.positionals):
            return found.sign, line[found.end :]
    return None


def arguments(command: Command, line: str) -> Iterator[Word]:
    """Yield the words of a line, which may be unfinished, that are neither an option nor the value of one."""
    count, is_value, options_are_over = 0, False, False
    for word in _words(line):
        if is_value:
            is_value = False
        elif not options_are_over and stands_for_option(command, word, count):
            is_value = _needs_a_value(command, word.text)
            options_are_over = word.text == "--"
        else:
            yield word
            count += 1


def _signs(command: Command, line: str) -> Iterator[_Found]:
    """Yield the arguments that begin with a sign."""
    if command.raw:
        return
    for count, word in enumerate(arguments(command, line)):
        if sign := _sign(word):
            yield _Found(sign, word.start, count)


def _words(line: str) -> Iterator[Word]:
    """Yield the words up to the first with an error in its quotes, which is refused when the arguments are read."""
    with contextlib.suppress(UsageError):
        yield from lines.each(line)


def _sign(word: Word) -> str:
    return "" if word.quoted else next((sign for sign in (APPEND, WRITE, PIPE) if word.text.startswith(sign)), "")


def _needs_a_value(command: Command, text: str) -> bool:
    """Return whether a word of options leaves the value of its last one to the next word."""
    kinds = {option.flag: option.kind for option in command.options}
    if text.startswith("--"):
        return False
    for at, letter in enumerate(text[1:], start=2):
        if kinds.get(f"-{letter}") is not None:
            return at == len(text)
    return False


def _target(found: _Found, line: str) -> str:
    """Return the target after a sign; empty if that is not a single file."""
    rest = line[found.end :].strip(lines.BLANKS)
    if found.sign == PIPE:
        return rest
    try:
        named = lines.split(rest)
    except UsageError:
        return ""
    return named[0].text if len(named) == 1 else ""


def _is_one_too_many(command: Command, found: _Found, line: str) -> bool:
    """Return whether the command cannot take the sign, and the words after it, as arguments."""
    try:
        more = len(lines.split(line[found.start :]))
    except UsageError:
        return True
    return found.arguments + more > len(command.positionals)


# ---- files other than the device -------------------------------------------------------------------------------------


_BESIDE = ("", "-wal", "-shm")
_DATABASE = b"SQLite format 3\0"


def for_us_only(path: str, flags: int) -> int:
    """Open a file that only its owner can read, whatever the umask: the device protects the same bodies."""
    return os.open(path, flags, 0o600)


def sync_directory(directory: Path) -> None:
    """Sync the name of a new file, so that messages that have left their queue are not lost with it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_the_device(session: Session, file: str) -> None:
    """Refuse a name that leads to a file of the device.

    Writing would destroy it; and when a process that uses the device closes the file, its locks are dropped.
    """
    try:
        found = os.stat(file)  # noqa: PTH116 - one call
    except OSError:
        return
    if any(os.path.samestat(found, own) for own in _own(session)):
        raise UsageError(f"File {file} belongs to the device {session.path}", hint="Name another file.")


def refuse_a_database(file: str) -> None:
    """Refuse to overwrite a database: a file of another device, a backup, or an unknown volume.

    Reading a file of the device of this session could drop its locks: that is refused before.
    """
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116 - one call
            return
        with Path(file).open("rb") as found:
            is_database = found.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return
    if is_database:
        raise UsageError(f"File {file} is a database", hint="Name another file.")


def _own(session: Session) -> Iterator[os.stat_result]:
    for volume in session.files():
        beside = Path(f"{volume}-run")
        for path in (*(Path(f"{volume}{end}") for end in _BESIDE), *(beside.rglob("*") if beside.is_dir() else ())):
            if path.exists():
                yield path.stat()
