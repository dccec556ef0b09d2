"""The figures of a run as tables of Markdown, for the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.figures import markdown_table, number
from benchmarks.sqlite.rows import OURS, RAW

Result = Mapping[str, Any]


def markdown(result: Mapping[str, Any]) -> str:
    """Return two tables: the ratios of all subjects to raw, and what else is told of the engine.

    "(-)" marks what is not synced.
    """
    rows: dict[str, dict[str, Result]] = {}
    for row in result["results"]:
        rows.setdefault(row["title"], {})[row["subject"]] = row
    subjects = [RAW, OURS, *(name for name in result["subjects"] if name not in {RAW, OURS} and _has(rows, name))]
    shared = {title: found for title, found in rows.items() if len(found) > 1 and _is_compared(found)}
    own = {title: found for title, found in rows.items() if title not in shared and OURS in found}
    told = [[title, _value(found[OURS]), _beside(found)] for title, found in own.items()]
    compared = [_ratios(title, found, subjects) for title, found in shared.items()]
    return "\n".join(
        [
            f"{machine.sentence(result['machine'])}; {result['when'][:10]}.",
            "",
            *markdown_table(["", f"{RAW}, a second", *subjects[1:]], compared),
            "",
            *markdown_table(["", OURS, "ratio, or others"], told),
        ]
    )


def _has(rows: Mapping[str, Mapping[str, Result]], subject: str) -> bool:
    return any(subject in found for found in rows.values())


def _is_compared(found: Mapping[str, Result]) -> bool:
    return any(row["ratio"] is not None for row in found.values())


def _ratios(title: str, found: Mapping[str, Result], subjects: Sequence[str]) -> list[str]:
    raw = number(found[RAW]["median"]) + _mark(found[RAW]) if RAW in found else ""
    return [title, raw, *(_ratio(found.get(name)) for name in subjects[1:])]


def _ratio(row: Result | None) -> str:
    if row is None or row["ratio"] is None:
        return ""
    return f"{row['ratio']:.2f}{_mark(row)}"


def _mark(row: Result) -> str:
    """Return what marks a value of commits that are not synced."""
    return " (-)" if row["durability"].startswith("-") else ""


def _beside(found: Mapping[str, Result]) -> str:
    """Return the ratio of ours; where there is none, the values of the others."""
    return _ratio(found[OURS]) or ", ".join(f"{name} {_value(row)}" for name, row in found.items() if name != OURS)


def _value(row: Result) -> str:
    unit = row["unit"]
    return f"{number(row['median'])}{unit if unit.startswith('%') else ' ' + unit}"
