"""The figures of a run for people: a block for each measure, in it a line for each subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.figures import cell, markdown_table, number


def table(result: Mapping[str, Any]) -> str:
    """Return a run's result as text: the machine, the figures, and what was left out."""
    return "\n".join([*_head(result), *_blocks(result["results"]), *_notes(result)])


def markdown(result: Mapping[str, Any]) -> str:
    """Return a table of Markdown, for the README: the rates of the bar, and the ratios of all others to it."""
    bar, *others = (name for name, subject in result["subjects"].items() if not subject["note"])
    found = {(row["measure"], row["clients"], row["subject"]): row for row in result["results"]}
    lines = []
    for measure, clients in dict.fromkeys((row["measure"], row["clients"]) for row in _in_order(result)):
        rows = [found.get((measure, clients, name)) for name in others]
        first = found.get((measure, clients, bar))
        ratios = ["" if row is None or row["ratio"] is None else f"{row['ratio']:.2f}" for row in rows]
        title = next(row["title"] for row in (first, *rows) if row is not None)
        lines.append([title, _clients(clients), "" if first is None else number(first["median"]), *ratios])
    return "\n".join(
        [
            f"{machine.sentence(result['machine'])}; PostgreSQL {result['server']['version']}; {result['when'][:10]}.",
            "",
            *markdown_table(["", "", f"{bar}, a second", *others], lines),
        ]
    )


def _in_order(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows by what was measured, in its order, and by numbers of clients."""
    titles = list(dict.fromkeys(row["title"] for row in result["results"]))
    return sorted(result["results"], key=lambda row: (titles.index(row["title"]), row["clients"]))


def _head(result: Mapping[str, Any]) -> list[str]:
    box, server, options = result["machine"], result["server"], result["options"]
    amount = f"{options['operations']:,} operations (at most {options['seconds']:g} s)"
    return [
        machine.sentence(box),
        f"PostgreSQL {server['version']} {server['place']}; "
        + ", ".join(f"{name}={value}" for name, value in server["settings"].items()),
        f"1 KiB a message, {amount}, {options['rounds']} interleaved rounds, backlog {options['backlog']:,}",
        "per second: median, spread of the rounds, ratio to the first line (median of the ratios of each round)",
    ]


def _blocks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for title in dict.fromkeys(row["title"] for row in rows):
        block = [row for row in rows if row["title"] == title]
        counts = sorted({row["clients"] for row in block})
        lines += ["", f"{title:40}" + "".join(f"{_clients(count):>21}" for count in counts)]
        for subject in dict.fromkeys(row["subject"] for row in block):
            found = {row["clients"]: row for row in block if row["subject"] == subject}
            name = f"  {subject:16}{found[counts[0]]['durability']:22}"
            lines.append(name + "".join(_cell(found.get(count)) for count in counts))
    return lines


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return f"{'-':>21}"
    return cell(row)


def _notes(result: Mapping[str, Any]) -> list[str]:
    lines = [""] if result["complete"] else ["", "the time was over before all rounds were done"]
    for name, subject in result["subjects"].items():
        lines.append(f"{name}: {subject['version']}" if not subject["note"] else f"{name}: {subject['note']}")
    return lines
