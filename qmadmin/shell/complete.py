"""Completion of a command line: commands, options, and values that exist on the device."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.shell import lines, redirection
from qmadmin.shell.kinds import Candidate, Kind
from qmadmin.shell.notices import UsageError
from qmcore.errors import QueueError

if TYPE_CHECKING:
    from qmadmin.shell.declare import Command
    from qmadmin.shell.lines import Word
    from qmadmin.shell.session import Session

log = logging.getLogger("qmadmin.shell")


def line(session: Session, text: str) -> tuple[int, list[Candidate]]:
    """Return the candidates for the end of a command line, and how many characters of it they replace."""
    if text.lstrip(lines.BLANKS).startswith("!"):
        return _files(text)
    before, at = lines.split_unfinished(text)
    replaced = len(text) - at.start
    if not before:
        return replaced, [] if at.quoted else _commands(session, at.text)
    try:
        command, arguments = session.catalogue.find(text.lstrip(lines.BLANKS))
    except UsageError:
        return 0, []
    if sign := redirection.unfinished(command, arguments + text[len(text.rstrip(lines.BLANKS)) :]):
        return _elsewhere(*sign)
    if command.takes_rest and (begun := _rest(command, text)):
        return line(session, begun)
    return replaced, _arguments(session, command, before[1:], at)


def _arguments(session: Session, command: Command, before: Sequence[Word], at: Word) -> list[Candidate]:
    kind = _slot(command, before, at)
    if kind is None:
        return _flags(command, before, at)
    begun, kept = _last_of_list(kind, at.text)
    found = _values(session, kind, begun)
    return [Candidate(lines.quote(kept + value.text), value.about) for value in found]


def answer(session: Session, kind: Kind[Any], text: str) -> tuple[int, list[Candidate]]:
    """Return the candidates for the answer to a prompt, and how many characters of it they replace."""
    begun, _ = _last_of_list(kind, text.lstrip(lines.BLANKS))
    return len(begun), _values(session, kind, begun)


_SHELL_WORD = re.compile(r"(?:[^\s\\!;|&<>()=`\"']|\\.)*$")
"""The end of a shell command, which may be the beginning of a file name."""
_SPECIAL = re.compile(r"[^\w@%+:,./~-]")
"""Characters that mean something other to the shell than a part of a name."""


def _rest(command: Command, text: str) -> str:
    """Return the rest of a line as a command line, once it has a command."""
    _, behind = lines.head(text)
    first = next(redirection.arguments(command, behind), None)
    begun = "" if first is None else text[text.rindex(behind) + first.start :]
    return begun if any(blank in begun for blank in lines.BLANKS) else ""


def _elsewhere(sign: str, text: str) -> tuple[int, list[Candidate]]:
    """Return the candidates for the target of a redirection."""
    if sign == redirection.PIPE:
        return _files(text)
    before, at = lines.split_unfinished(text)
    return len(text) - at.start, [] if before else [Candidate(lines.quote(file)) for file in _begun(at.text)]


def _files(text: str) -> tuple[int, list[Candidate]]:
    """Return the files that the end of a shell command could name, quoted for the shell."""
    found = _SHELL_WORD.search(text)
    begun = found.group() if found else ""
    plain = re.sub(r"\\(.)", r"\1", begun)
    if not plain:
        return 0, []
    return len(begun), [Candidate(_SPECIAL.sub(r"\\\g<0>", file)) for file in _begun(plain)]


def _begun(plain: str) -> list[str]:
    """Return the files whose names begin like this, with the same spelling of the beginning."""
    home = os.path.expanduser("~") if plain.startswith("~/") else ""  # noqa: PTH111 - a text in place of a text
    path = home + plain[1:] if home else plain
    found = sorted(glob.glob(glob.escape(path) + "*"))  # noqa: PTH207 - paths are offered as they were begun
    files = [file + "/" * Path(file).is_dir() for file in found]
    return ["~" + file.removeprefix(home) if home else file for file in files]


def _commands(session: Session, begun: str) -> list[Candidate]:
    """Return the names that begin like this; abbreviations too, if anything was typed."""
    named = [Candidate(c.name, c.summary) for c in session.catalogue.commands if not c.raw and c.name.startswith(begun)]
    if not begun:
        return named
    return named + [
        Candidate(short, f"{command.name}: {command.summary}")
        for command in session.catalogue.commands
        for short in command.short
        if short.startswith(begun)
    ]


def _slot(command: Command, before: Sequence[Word], at: Word) -> Kind[Any] | None:
    """Return the kind of the argument at the cursor; None if only an option or nothing is possible."""
    kinds = {flag: option.kind for option in command.options for flag in option.flags}
    arguments, left = 0, list(before)
    while left:
        word = left.pop(0)
        if word.quoted or word.text not in kinds:
            arguments += 1
            continue
        kind = kinds[word.text]
        if kind is not None:
            if not left:
                return kind
            left.pop(0)
    if at.text.startswith("-") and not at.quoted:
        return None
    return command.positionals[arguments].kind if arguments < len(command.positionals) else None


def _flags(command: Command, before: Sequence[Word], at: Word) -> list[Candidate]:
    given = {word.text for word in before}
    return [
        Candidate(flag, option.help)
        for option in command.options
        for flag in option.flags
        if flag.startswith(at.text) and given.isdisjoint(option.flags) and at.text
    ]


def _last_of_list(kind: Kind[Any], text: str) -> tuple[str, str]:
    """Return the last value of a list, and the text before it."""
    if not kind.separator:
        return text, ""
    kept, separator, begun = text.rpartition(kind.separator)
    return begun, kept + separator


def _values(session: Session, kind: Kind[Any], begun: str) -> list[Candidate]:
    try:
        found: Iterable[Candidate] = kind.candidates(session, begun)
    except QueueError:
        # Without a device, for example, nothing can be offered; the command will say why.
        return []
    except Exception:
        log.warning("nothing can be offered for %r", begun, exc_info=True)
        return []
    return [candidate for candidate in found if candidate.text.startswith(begun)]
