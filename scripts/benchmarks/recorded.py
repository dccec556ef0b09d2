"""The results that are kept in the repository, and what has become worse since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).with_name("recorded")

_NOISE = 0.05
"""The share of a value that it may be worse without a word, however little the rounds differ."""

_NEGLIGIBLE = {"ms": 1.0, "s": 0.05, "MiB": 1.0, "bytes": 16.0, "%": 1.0, "% of a core": 0.1}
"""As much may any value be worse, by its unit."""

_SAME = ("processor", "cores", "python")

_AS_FAST = 0.15
"""By which share the speed of a Python may differ that is still the same: builds of one version differ by a factor."""


def comparison(result: Mapping[str, Any], before: Mapping[str, Any], subject: str, more_is_better: str) -> list[str]:
    """Return sentences that say which rows of a subject are worse than in a result before, beyond the spread of both.

    A row that has a ratio in both is compared by that, and any other by its value, where the machine is the same. In
    rows of the unit `more_is_better` and in ratios more is better, in all others less. Each row has the keys of
    `figures.summary`, row, title, subject and unit.
    """
    when = before["when"][:10]
    amounts, known_amounts = _amounts(result), _amounts(before)
    # An amount that only one of them has is of rows that only one of them has.
    if any(amounts[name] != known_amounts[name] for name in amounts.keys() & known_amounts.keys()):
        return [f"not compared with {when}: that was measured with other numbers"]
    same_machine = _is_same(result["machine"], before["machine"])
    known = {row["row"]: row for row in before["results"] if row["subject"] == subject}
    worse, compared = [], 0
    for row in result["results"]:
        then = known.get(row["row"])
        if row["subject"] != subject or then is None:
            continue
        if row["ratio"] is not None and then["ratio"] is not None:
            compared += 1
            worse += _worse_ratio(row, then, when)
        elif same_machine:
            compared += 1
            worse += _worse_value(row, then, when, more_is_better=row["unit"] == more_is_better)
    if not worse:
        return [f"nothing of {compared} rows is worse than on {when} beyond the spread"]
    return [f"worse than on {when} beyond the spread, of {compared} rows:", *worse]


def read(path: Path) -> dict[str, Any] | None:
    """Return a result that was written as JSON, or None where there is none."""
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _is_same(box: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether values of the one can be compared with values of the other."""
    if any(box[name] != other[name] for name in _SAME):
        return False
    # What was recorded before it was measured does not have it.
    speed, before = box.get("python_ns"), other.get("python_ns")
    return speed is None or before is None or abs(speed - before) <= _AS_FAST * before


def _amounts(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return how much was done of everything, which rounds and seconds do not change."""
    return {name: value for name, value in result["options"].items() if name not in {"rounds", "seconds"}}


def _worse_ratio(row: Mapping[str, Any], then: Mapping[str, Any], when: str) -> list[str]:
    if row["ratio_most"] >= then["ratio_least"] or row["ratio"] >= then["ratio"] * (1 - _NOISE):
        return []
    spread = f"{then['ratio_least']:.2f} to {then['ratio_most']:.2f}"
    return [f"  {row['title']}: {row['ratio']:.2f} of {row['against']}, {then['ratio']:.2f} on {when} ({spread})"]


def _worse_value(row: Mapping[str, Any], then: Mapping[str, Any], when: str, *, more_is_better: bool) -> list[str]:
    apart = row["most"] < then["least"] if more_is_better else row["least"] > then["most"]
    difference = abs(row["median"] - then["median"])
    if not apart or difference <= max(_NOISE * then["median"], _NEGLIGIBLE.get(row["unit"], 0)):
        return []
    spread = f"{then['least']:g} to {then['most']:g}"
    return [f"  {row['title']}: {row['median']:g} {row['unit']}, {then['median']:g} on {when} ({spread})"]
