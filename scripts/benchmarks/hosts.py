"""The processes that hold the subjects, and the order in which subjects take their turns."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

SCRIPTS = Path(__file__).parents[1]

T = TypeVar("T")


class SubjectError(Exception):
    """A subject cannot be measured; the text says why."""


class Host:
    """The process that holds a subject; it is asked as benchmarks.client says."""

    def __init__(self, name: str, python: str, subject: str) -> None:
        """Start it; `subject` is `module:Class`. SubjectError where the packages of the subject are absent."""
        paths = [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.name = name
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.client", subject],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        try:
            self.facts = self._answer()
        except SubjectError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, do: str, place: str, **facts: object) -> dict[str, Any]:
        """Have it do something; SubjectError where that failed."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, "place": place, **facts}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def durability(self, *works: str) -> str:
        """Say in how many synced commits the works that clients do with a message are done."""
        commits: list[int] = [self.facts["commits"][work] for work in works]
        if not all(commits):
            return "- (not synced)"
        return f"{sum(commits)} synced {'commit' if sum(commits) == 1 else 'commits'}"

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process has ended"}
        if "error" in answer:
            raise SubjectError(answer["error"])
        return answer


def in_turn(subjects: Sequence[T], number: int) -> Iterator[T]:
    """Return the subjects in the order of round `number`.

    Whoever comes first after a pause has an advantage, so that is another one in each round.
    """
    first = number % max(len(subjects), 1)
    yield from subjects[first:]
    yield from subjects[:first]
