"""The formats of results: text for people, JSON or CSV for programs.

Text is lines with styles by name: the same lines on a terminal and in a file. On a terminal, prose is wrapped to its
width, and a table that is wider is shown without empty columns or, if that is not enough, as a block for each row: its
first value, and beneath it the others, each with its title. A script has no width: a table is then always one line for
each row, always with the same columns, `-` for no value, and quotes around a value with blanks.

In JSON each command gives one document, on one line:

    {"command": "qinfo", "rows": [{"queue": "STRING", "messages": 3}], "said": [], "notices": [], "ok": true}

`rows` are the objects that the command is about, `said` its sentences, `notices` its remarks (`severity`, `text`,
`hint`, `number`), which are on stderr too, and `ok` is true if none of them is an error. In CSV a line of keys is
followed by a line for each object; the rest is left out. Output for programs does not depend on verbose mode.
"""

from __future__ import annotations

import csv
import enum
import io
import itertools
import json
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from qmadmin.console import printable, quoted
from qmadmin.console.results import (
    Column,
    Datum,
    Example,
    Heading,
    Labels,
    Line,
    Moment,
    Notice,
    Paragraph,
    Prose,
    Record,
    Result,
    Severity,
    Table,
    Term,
    Value,
    Verbatim,
)
from qmcore import times

Span = tuple[str, str]
"""A piece of text and the name of its style."""

_Rows: TypeAlias = "Sequence[Sequence[str]]"

PROSE_WIDTH = 79
HEAD, LABEL, TERM, PLAIN = "head", "label", "term", ""
_GAP = "  "
_NOTHING = "-"
_VALUE_LEAST = 16
"""The least columns in which a value is wrapped; in fewer, wrapping is left to the terminal."""
_CUT_LEAST = 8
"""The least columns of a value that is cut."""
_SAMPLE = 500
"""The number of rows that determine the widths of columns. A queue may have millions, which are not kept."""


def lines(result: Result, width: int | None) -> Iterator[list[Span]]:
    """Return the lines of a result for a terminal of `width` columns, or for a script where that is None."""
    match result:
        case Line():
            yield from ([(line, PLAIN)] for line in _sentence(printable(result.text), width))
        case Verbatim(found):
            yield from ([(printable(line), PLAIN)] for line in found)
        case Table():
            yield from _table(result, width)
        case Record():
            yield from _record(result, width)
        case Prose(blocks):
            yield from _prose(blocks, min(width or PROSE_WIDTH, PROSE_WIDTH))


def _sentence(text: str, width: int | None) -> list[str]:
    """Return the lines of a sentence, which breaks at blanks only."""
    if width is None or columns(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def cell(value: Value, *, scripted: bool) -> str:
    """Return a value as text; for a script times have no blanks."""
    if value is None:
        return _NOTHING
    if isinstance(value, Moment):
        day, clock, zone = times.show(value.micros).split()
        return f"{day}T{clock}{zone}" if scripted else f"{day} {clock} {zone}"
    return printable(str(value))


def _quoted(text: str) -> str:
    """Return a cell that a script can separate from the next one."""
    return quoted(text) if not text or " " in text else text


def _table(table: Table, width: int | None) -> Iterator[list[Span]]:
    rows = ([cell(value, scripted=width is None) for value in row] for row in table.rows)
    if width is None:
        rows = ([_quoted(text) for text in row] for row in rows)
    shown: Sequence[Column] = table.columns
    sample: _Rows = list(itertools.islice(rows, _SAMPLE))
    if width is not None and len(sample) < _SAMPLE and _total(_widths(shown, sample)) > width:
        shown, sample = _without_empty(shown, sample)
    widths = _widths(shown, sample)
    titles = [column.title for column in shown]
    everything: Iterable[Sequence[str]] = itertools.chain(sample, rows)
    if width is not None and _total(widths) > width:
        fitting = _cut_to_fit(shown, widths, width)
        if fitting is None:
            return _blocks(titles, everything, width)
        widths = fitting
        everything = ([shortened(text, most) for text, most in zip(row, fitting, strict=True)] for row in everything)
    right = [column.right for column in shown]
    return itertools.chain(
        [[(_row(titles, widths, right), HEAD)]], ([(_row(row, widths, right), PLAIN)] for row in everything)
    )


def _cut_to_fit(shown: Sequence[Column], widths: Sequence[int], width: int) -> list[int] | None:
    """Return the widths of the columns, one of them cut so that all fit; None if that is not enough."""
    fitting = [
        max(_CUT_LEAST, wide - max(0, _total(widths) - width)) if column.cut else wide
        for column, wide in zip(shown, widths, strict=True)
    ]
    return fitting if _total(fitting) <= width else None


def shortened(text: str, width: int) -> str:
    """Return as much of a text as fits, with an ellipsis if it was cut."""
    if columns(text) <= width:
        return text
    while text and columns(text) > width - 1:
        text = text[:-1]
    return f"{text}\N{HORIZONTAL ELLIPSIS}" if width > 0 else ""


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _widths(shown: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[int]:
    return [max(map(columns, texts)) for texts in zip([column.title for column in shown], *rows, strict=True)]


def _without_empty(
    shown: Sequence[Column], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[Column], Sequence[Sequence[str]]]:
    """Leave out the columns that are empty in all rows."""
    kept = [at for at in range(len(shown)) if at == 0 or any(row[at] != _NOTHING for row in rows)]
    return [shown[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _row(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        " " * (width - columns(text)) + text if to_right else text + " " * (width - columns(text))
        for text, width, to_right in zip(texts, widths, right, strict=True)
    ]
    return _GAP.join(padded).rstrip()


def _blocks(titles: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> Iterator[list[Span]]:
    """Return a table that is too wide as a block for each row: its first value, then its other values by title."""
    for row in rows:
        yield [(row[0], HEAD)]
        line: list[Span] = []
        for title, text in zip(titles[1:], row[1:], strict=True):
            if text == _NOTHING:
                continue
            field = [(f"{_GAP}{title}: ", LABEL), (text, PLAIN)]
            if line and sum(columns(piece) for piece, _ in line + field) > width:
                yield line
                line = []
            line += field
        if line:
            yield line


def _record(record: Record, width: int | None) -> list[list[Span]]:
    fields = [(field.label, cell(field.value, scripted=width is None)) for field in record.fields if field.label]
    return [[(printable(record.title), HEAD)], *_labelled(fields, width)]


def _labelled(fields: Sequence[tuple[str, str]], width: int | None) -> Iterator[list[Span]]:
    """Yield values after their labels, one under the other; a long one continues under its beginning."""
    label_width = max(columns(label) for label, _ in fields) + 1
    indent = len(_GAP) + label_width + 1
    for label, text in fields:
        first, *rest = _wrap_value(text, None if width is None else width - indent)
        yield [(f"{_GAP}{label + ':':<{label_width}} ", LABEL), (first, PLAIN)]
        yield from ([(" " * indent + line, PLAIN)] for line in rest)


def _wrap_value(text: str, room: int | None) -> list[str]:
    if room is None or columns(text) <= room or room < _VALUE_LEAST:
        return [text]
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [text]


def _prose(blocks: Iterable[object], width: int) -> list[list[Span]]:
    found: list[list[Span]] = []
    previous: object = None
    for block in blocks:
        if previous is not None and not (isinstance(block, Term) and isinstance(previous, Term)):
            found.append([])
        previous = block
        match block:
            case Heading(text):
                found += [[(line, HEAD)] for line in _wrap(text, width, "", _GAP * 4)]
            case Paragraph(text):
                found += [[(line, PLAIN)] for line in _wrap(text, width, _GAP, _GAP)]
            case Term(term, text):
                found += [[(line, TERM)] for line in _wrap(term, width, _GAP, _GAP * 4)]
                found += [[(line, PLAIN)] for line in _wrap(text, width, _GAP * 3, _GAP * 3)]
            case Labels(pairs):
                found += _labelled(pairs, width)
            case Example(examples):
                found += [[(_GAP * 3 + line, PLAIN)] for line in examples]
    return found


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    found = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in found]


# ---- formats ---------------------------------------------------------------------------------------------------------


@enum.unique
class Format(enum.Enum):
    """The format of results."""

    TABLE = "table"
    """Formatted for the width of a terminal."""
    PLAIN = "plain"
    """One line for each row, always the same columns, `-` for no value."""
    JSON = "json"
    """One document for each command."""
    CSV = "csv"
    """Comma-separated values under their keys."""

    @property
    def is_for_programs(self) -> bool:
        """Whether stdout has only data."""
        return self in (Format.JSON, Format.CSV)


def objects(result: Result) -> Iterator[Mapping[str, Datum]]:
    """Yield the objects of a result for programs."""
    match result:
        case Table(columns, rows):
            keys = [column.key for column in columns]
            yield from (dict(zip(keys, row, strict=True)) for row in rows)
        case Record(_, fields):
            yield {key: value for field in fields for key, value in field.data.items()}
        case Line() if result.data:
            yield result.data
        case _:
            pass


class CsvTable:
    """The lines of one command in CSV: a line of keys whenever they change, and no sentences."""

    def __init__(self) -> None:
        self._shown: list[str] | None = None

    def lines(self, results: Iterable[Result]) -> Iterator[str]:
        """Yield the lines of results, of which more may follow."""
        for result in results:
            for keys, row in _csv_rows(result):
                if keys != self._shown:
                    self._shown = keys
                    yield _csv_line(keys)
                if row is not None:
                    yield _csv_line([_cell(value) for value in row])


def _csv_rows(result: Result) -> Iterator[tuple[list[str], Iterable[Datum] | None]]:
    if isinstance(result, Table):
        # A table without rows has a line of keys too.
        yield [column.key for column in result.columns], None
    for found in () if isinstance(result, Line) else objects(result):
        yield list(found), found.values()


def _csv_line(values: Iterable[Any]) -> str:
    line = io.StringIO()
    # A value with a character of the line end is put into quotes; the line end itself is written by the caller.
    csv.writer(line, lineterminator=_END).writerow(values)
    return line.getvalue().removesuffix(_END)


_END = "\r\n"


class Document:
    """The JSON document of one command, written as its results come."""

    def __init__(self, command: str, write: Callable[[str], None]) -> None:
        self._command = command
        self._write = write
        self._begin()

    def _begin(self) -> None:
        self._said: list[str] = []
        self._notices: list[dict[str, Any]] = []
        self._rows = 0
        self._ok = True
        self._write(f'{{"command": {json.dumps(self._command)}, "rows": [')

    def again(self) -> None:
        """Write the end, and begin another document of the same command."""
        self.end(complete=True)
        self._begin()

    def add(self, result: Result) -> None:
        """Write the objects of a result, and keep its sentences for the end."""
        self._said += _sentences(result)
        for found in objects(result):
            separator = ", " if self._rows else ""
            self._rows += 1
            self._write(separator + json.dumps({key: _plain(value) for key, value in found.items()}))

    def note(self, notice: Notice) -> None:
        """Keep a notice for the end."""
        self._ok = self._ok and notice.severity is not Severity.ERROR
        self._notices.append(
            {
                "severity": notice.severity.value,
                "text": notice.text,
                "hint": notice.hint or None,
                "number": notice.number,
            }
        )

    def end(self, *, complete: bool) -> None:
        """Write the end; `complete` is false where the command was interrupted."""
        ok = json.dumps(complete and self._ok)
        said, notices = json.dumps(self._said), json.dumps(self._notices)
        self._write(f'], "said": {said}, "notices": {notices}, "ok": {ok}}}\n')


def write_document(
    command: str, write: Callable[[str], None], results: Iterable[Result], notices: Iterable[Notice]
) -> None:
    """Write the JSON document of a command whose results and notices are known."""
    document = Document(command, write)
    for result in results:
        document.add(result)
    for notice in notices:
        document.note(notice)
    document.end(complete=True)


def _sentences(result: Result) -> list[str]:
    if isinstance(result, Table | Record):
        return []
    return ["".join(text for text, _ in spans) for spans in lines(result, None)]


def _cell(value: Datum) -> Any:
    """Return a value for CSV, which has no objects, and writes true and false as JSON does."""
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, Mapping | list | bool) else plain


def _plain(value: Datum) -> Any:
    if isinstance(value, Moment):
        return times.iso(value.micros)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [{key: _plain(one) for key, one in each.items()} for each in value]
    return value
