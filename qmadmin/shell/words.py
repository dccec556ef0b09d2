r"""A line taken apart into words.

Words are separated by blanks and tabs. A word that contains some stands in double quotes, where `\"` is a double
quote, or in single quotes, where everything is itself. Quotes inside a word mean nothing.
"""

from __future__ import annotations

import dataclasses

from qmadmin.shell import notices
from qmadmin.shell.notices import UsageError

BLANKS = " \t"
QUOTES = "\"'"


@dataclasses.dataclass(frozen=True, slots=True)
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
            hint=f"Write {open_quote} at the end of the argument, or leave it away.",
        )
    return words


def head(line: str) -> tuple[str, str]:
    """Return the first word of a line and the rest of the line, each empty if there is nothing."""
    stripped = line.strip(BLANKS)
    end = next((at for at, char in enumerate(stripped) if char in BLANKS), len(stripped))
    return stripped[:end], stripped[end:].lstrip(BLANKS)


def split_unfinished(line: str) -> tuple[list[Word], Word]:
    """Return the words before the cursor of a line that is being written, and the one at the cursor."""
    try:
        words, open_quote = _words(line)
    except UsageError:
        # Nothing can follow here, which a quoted word as the first of all says.
        return [], Word("", quoted=True, start=len(line))
    if words and (open_quote or not (words[-1].quoted or line[-1] in BLANKS)):
        return words[:-1], words[-1]
    return words, Word("", start=len(line))


def answer(line: str) -> str:
    """Return what a line says in answer to a prompt: all of it, or what stands in quotes if that is all of it."""
    line = line.strip(BLANKS)
    if line[:1] in QUOTES:
        words = split(line)
        if len(words) == 1:
            return words[0].text
    return line


def quote(text: str) -> str:
    """Write a word so that `split` reads it back."""
    if text and not text.startswith(("-", *QUOTES)) and not any(blank in text for blank in BLANKS):
        return text
    if "\\" in text and "'" not in text:
        return f"'{text}'"
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def _words(line: str) -> tuple[list[Word], str]:
    """Return the words, and the quote that the last of them lacks."""
    words = []
    at, end = 0, len(line)
    while at < end:
        if line[at] in BLANKS:
            at += 1
            continue
        start = at
        if line[at] not in QUOTES:
            while at < end and line[at] not in BLANKS:
                at += 1
            words.append(Word(line[start:at], start=start))
            continue
        text, at = _quoted(line, at)
        if at > end:
            return [*words, Word(text, quoted=True, start=start)], line[start]
        if at < end and line[at] not in BLANKS:
            raise UsageError.of(
                notices.NO_WHITE_SPACE(), line[start:], hint='Separate arguments by blanks; a quote inside is \\".'
            )
        words.append(Word(text, quoted=True, start=start))
    return words, ""


def _quoted(line: str, start: int) -> tuple[str, int]:
    """Return the text in quotes and the place behind the closing one, which is behind the line if there is none."""
    mark = line[start]
    text = ""
    at = start + 1
    while at < len(line):
        if mark == '"' and line.startswith('\\"', at):
            text += '"'
            at += 2
        elif line[at] == mark:
            return text, at + 1
        else:
            text += line[at]
            at += 1
    return text, len(line) + 1
