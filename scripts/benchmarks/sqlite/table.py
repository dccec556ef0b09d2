"""The figures of a run for people, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.figures import cell


def table(result: Mapping[str, Any]) -> str:
    """Return a run's result as text: the machine, the figures, and what was left out."""
    return "\n".join([*_head(result), "", *_lines(result["results"]), *_notes(result)])


def _head(result: Mapping[str, Any]) -> list[str]:
    options = result["options"]
    return [
        f"{machine.sentence(result['machine'])}; {result['when'][:10]}",
        f"bodies of 1 KiB, {options['rounds']} interleaved rounds of at most {options['seconds']:g} s each",
        "median, half of the spread, ratio to raw where nothing else is said (median of the ratios of each round)",
    ]


def _lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    title = ""
    for row in rows:
        if row["title"] != title:
            title = row["title"]
            lines.append(f"{title} [{row['unit']}]")
        lines.append(f"    {row['subject']:16}{row['durability']:20}{cell(row)}")
    return lines


def _notes(result: Mapping[str, Any]) -> list[str]:
    lines = [""] if result["complete"] else ["", "the time was over before all rounds were done"]
    if result["machine"]["file_system"] in machine.IN_MEMORY:
        lines.append("the files were in memory, where nothing is durable; --directory names a place on a disk")
    for name, subject in result["subjects"].items():
        lines.append(f"{name}: " + "; ".join(filter(None, [subject["version"], subject["note"]])))
    return lines
