"""What is told of the values of several rounds."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def summary(values: Sequence[float], bars: Sequence[float] | None) -> dict[str, Any]:
    """Return the median and the spread of values, one of each round, and the ratios to others of the same rounds.

    What disturbs the machine for a while disturbs all that is measured in a round.
    """
    ratios = [value / bar for value, bar in zip(values, bars, strict=True)] if bars else []
    return {
        "median": statistics.median(values),
        "least": min(values),
        "most": max(values),
        "ratio": round(statistics.median(ratios), 3) if ratios else None,
        "ratio_least": round(min(ratios), 3) if ratios else None,
        "ratio_most": round(max(ratios), 3) if ratios else None,
    }


def cell(row: Mapping[str, Any]) -> str:
    """Return median, spread and ratio of what `summary` told, in 20 columns."""
    spread = (row["most"] - row["least"]) / 2 / abs(row["median"]) if row["median"] else 0
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return f"{number(row['median']):>9} {f'±{spread:.0%}':>5}{ratio:>6}"


def number(value: float) -> str:
    """Return a value with the digits that matter."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table of Markdown."""
    widths = [max(len(line[column]) for line in [head, *body]) for column in range(len(head))]
    for line in [head, ["-" * width for width in widths], *body]:
        yield "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
