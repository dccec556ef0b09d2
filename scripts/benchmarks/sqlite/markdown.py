"""The figures of a run as tables of Markdown, for the README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.figures import number
from benchmarks.sqlite.rows import OURS, RAW

Result = Mapping[str, Any]


def markdown(result: Mapping[str, Any]) -> str:
    """Return two tables: the ratios of all subjects to raw, and what only the engine has."""
    rows: dict[str, dict[str, Result]] = {}
    for row in result["results"]:
        rows.setdefault(row["title"], {})[row["subject"]] = row
    subjects = [RAW, OURS, *(name for name in result["subjects"] if name not in {RAW, OURS} and _has(rows, name))]
    shared = {title: found for title, found in rows.items() if len(found) > 1 and _is_compared(found)}
    own = {title: found[OURS] for title, found in rows.items() if title not in shared and OURS in found}
    compared = [_ratios(title, found, subjects) for title, found in shared.items()]
    return "\n".join(
        [
            f"{machine.sentence(result['machine'])}; {result['when'][:10]}.",
            "",
            *_table(["", f"{RAW}, a second", *subjects[1:]], compared),
            "",
            *_table(["", OURS, "ratio"], [[title, _value(row), _ratio(row)] for title, row in own.items()]),
        ]
    )


def _has(rows: Mapping[str, Mapping[str, Result]], subject: str) -> bool:
    return any(subject in found for found in rows.values())


def _is_compared(found: Mapping[str, Result]) -> bool:
    return any(row["ratio"] is not None for row in found.values())


def _ratios(title: str, found: Mapping[str, Result], subjects: Sequence[str]) -> list[str]:
    raw = number(found[RAW]["median"]) if RAW in found else ""
    return [title, raw, *(_ratio(found.get(name)) for name in subjects[1:])]


def _ratio(row: Result | None) -> str:
    if row is None or row["ratio"] is None:
        return ""
    return f"{row['ratio']:.2f}"


def _value(row: Result) -> str:
    unit = row["unit"]
    return f"{number(row['median'])}{unit if unit.startswith('%') else ' ' + unit}"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(line[column]) for line in [head, *body]) for column in range(len(head))]
    lines = [head, ["-" * width for width in widths], *body]
    for line in lines:
        yield "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
