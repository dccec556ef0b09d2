"""What a client has tried and what came of it, in a file that survives the client.

A client does one operation at a time. A line tells what it is about to do, the next one what came of it; where that
line is absent the client was killed in between, and the outcome is unknown.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from collections.abc import Iterator
from pathlib import Path


class Outcome(enum.Enum):
    """What came of an operation."""

    DONE = "done"
    """The call returned."""

    NOTHING = "nothing"
    """The call raised an error that promises that nothing has happened."""

    UNKNOWN = "unknown"
    """The call raised OutcomeUnknownError, or the client was killed in it."""


@dataclasses.dataclass
class Operation:
    """One operation on a queue space: it makes messages and takes messages, all or nothing."""

    made: list[str]
    """The names of the messages that it enqueues."""

    took: list[str]
    """The names of those that it dequeues. What a dequeue outside of a transaction takes is known when it is done."""

    blind: bool
    """Whether it is a dequeue outside of a transaction: where its outcome is unknown, so is what it took."""

    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""
    """The class of the error that was raised."""


class Journal:
    """The journal of one client, open for writing."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, *, made: list[str] | None = None, took: list[str] | None = None, blind: bool = False) -> None:
        """Write what is going to be done."""
        self._write({"made": made or [], "took": took or [], "blind": blind})

    def end(self, outcome: Outcome, took: list[str] | None = None, error: str = "") -> None:
        """Write what came of it, on the disk when this returns."""
        self._write({"outcome": outcome.value, "took": took or [], "error": error})
        os.fdatasync(self._file)

    def _write(self, facts: dict[str, object]) -> None:
        os.write(self._file, json.dumps(facts).encode() + b"\n")


def read(path: Path) -> Iterator[Operation]:
    """Yield the operations of a journal in their order."""
    operation: Operation | None = None
    for line in path.read_bytes().splitlines(keepends=True):
        # A write of one line is whole or absent when its process is killed; the machine is not.
        facts = json.loads(line)
        if "outcome" not in facts:
            if operation is not None:
                yield operation
            operation = Operation(facts["made"], facts["took"], facts["blind"])
        else:
            assert operation is not None
            operation.outcome = Outcome(facts["outcome"])
            operation.took += facts["took"]
            operation.error = facts["error"]
            yield operation
            operation = None
    if operation is not None:
        yield operation
