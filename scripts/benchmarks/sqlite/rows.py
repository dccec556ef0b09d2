"""What is measured has a row, and each subject of it a value for each round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.figures import summary

PER_SECOND = "messages/s"
"""The unit of rows in which more is better; in all others less is."""

RAW, OURS = "raw", "qmadmin"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the result, for each of its subjects."""

    name: str
    title: str
    unit: str = PER_SECOND
    against: tuple[str, str] | None = None
    """Row and subject of the values that its own are divided by, each of the same round."""


@dataclasses.dataclass(frozen=True)
class Task:
    """What is measured of a subject once in each round: the values of one or more rows, by their names."""

    subject: str
    durability: str
    measure: Callable[[], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Turn:
    """Tasks that are done next to each other, so that they can be compared."""

    tasks: Sequence[Task]
    rounds: int = 1_000_000
    """In how many rounds it is done, at most."""
    last: bool = False
    """Whether it is done once, after all rounds, because it uses up what the others need."""


class Values:
    """All values that were found, and what could not be."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.failures: dict[str, list[str]] = {}
        """For each subject the sentences that say why something is missing."""
        self._rows = {row.name: row for row in rows}
        self._found: dict[tuple[str, str], dict[int, float]] = {}
        self._durability: dict[tuple[str, str], str] = {}

    def add(self, number: int, task: Task, values: Mapping[str, float]) -> None:
        """Keep what a task has measured in round `number`."""
        for name, value in values.items():
            self._found.setdefault((name, task.subject), {})[number] = value
            self._durability[name, task.subject] = task.durability

    def fail(self, task: Task, sentence: str) -> None:
        """Keep that a task could not be done."""
        known = self.failures.setdefault(task.subject, [])
        if sentence not in known:
            known.append(sentence)

    def results(self) -> list[dict[str, Any]]:
        """Return one mapping for each row and subject, in the order of the rows."""
        order = {name: place for place, name in enumerate(self._rows)}
        found = sorted(self._found.items(), key=lambda item: order[item[0][0]])
        return [self._result(self._rows[name], subject, values) for (name, subject), values in found]

    def _result(self, row: Row, subject: str, values: Mapping[int, float]) -> dict[str, Any]:
        bars = self._found.get(row.against, {}) if row.against else {}
        # A round in which one of the two failed compares nothing.
        rounds = [number for number in values if number in bars]
        if not rounds:
            rounds, bars = list(values), {}
        figures = summary([values[number] for number in rounds], [bars[number] for number in rounds] if bars else None)
        return {
            "row": row.name,
            "title": row.title,
            "unit": row.unit,
            "subject": subject,
            "durability": self._durability[row.name, subject],
            "values": [_rounded(value) for value in values.values()],
            "against": " of ".join(row.against) if row.against and bars else None,
            **{name: value if value is None else _rounded(value) for name, value in figures.items()},
        }


def _rounded(value: float) -> float:
    """Return a value with the digits that a measurement can have."""
    return float(f"{value:.5g}")
