"""The formats of results: text for people, JSON or CSV for programs.

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
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from qmadmin.console import layout
from qmadmin.console.results import Datum, Line, Moment, Notice, Record, Result, Severity, Table
from qmcore import times


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


def _sentences(result: Result) -> list[str]:
    if isinstance(result, Table | Record):
        return []
    return ["".join(text for text, _ in spans) for spans in layout.lines(result, None)]


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
