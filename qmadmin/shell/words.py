r"""The splitting of a line into words.

Words are separated by blanks and tabs. A word that contains any is in double quotes, within which `\"` is a double
quote, or in single quotes, within which every character stands for itself. Quotes inside a word have no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from qmadmin.console import quoted
from qmadmin.shell import notices
from qmadmin.shell.notices import UsageError
from qmcore.values import dataclass

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
