"""What a process has recorded of itself, and corrects after the server was restarted or its clock was set."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from psycopg import InternalError, NotSupportedError, ProgrammingError
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from qmcore.records import Outcome
from qmstorage.postgres.clock import NOW, ServerClock, Step
from qmstorage.postgres.tables import quoted

if TYPE_CHECKING:
    from qmstorage.postgres.nonblocking_connection import NonblockingConnection

_NOT_WRITABLE: Final = (ProgrammingError, NotSupportedError, InternalError)
"""The schema is gone, or this user may not write."""

_IN_THE_WAY: Final = (DeadlockDetected, LockNotAvailable, QueryCanceled)
"""Others are in the way. The session that shows that the process is alive must not end because of that."""

_A_MOMENT: Final = 500_000
"""Microseconds by which a time that a process has read may be ahead of the server's at most."""


class OwnRecords:
    """What the owners of this process, named by their keys, have recorded in a schema."""

    def __init__(self, schema: str, clock: ServerClock) -> None:
        self._schema = quoted(schema)
        self._clock = clock
        self._followed = 0
        """The number of the last step of the clock that was followed."""

    def outlive(self, connection: NonblockingConnection, boot: str, owner_keys: Collection[int]) -> None:
        """Record that owners live on in another run of the server, so that it shows which die before its next one."""
        if owner_keys:
            _run(connection, f"UPDATE {self._schema}.owner SET boot = '{boot}' WHERE lock IN ({_texts(owner_keys)})")  # noqa: S608 - names of ours

    def follow_clock(self, connection: NonblockingConnection, owner_keys: Collection[int]) -> None:
        """Move the times of open transactions with the server's clock, where that was set.

        A process that connects later, and does not know that it was set, needs them as the clock is by then.
        """
        for step in self._clock.steps_after(self._followed):
            # Noted first: where the answer is lost, a second time would move them twice.
            self._followed = step.number
            if owner_keys:
                _run(connection, self._moving(step, owner_keys))

    def _moving(self, step: Step, owner_keys: Collection[int]) -> str:
        # Of those that were begun before. What was begun after it, and what may have been, stays as it is.
        begun_before = f"started_at < {step.earliest + step.ahead + step.by}"
        if step.by < 0:
            begun_before = f"({begun_before} OR started_at > {NOW} + {_A_MOMENT})"
        return (
            f"UPDATE {self._schema}.trans SET started_at = started_at + {step.by}, deadline = deadline + {step.by}"  # noqa: S608 - names of ours
            f" WHERE state = '{Outcome.ACTIVE.value}' AND deadline IS NOT NULL AND {begun_before}"
            f" AND owner_id IN (SELECT id FROM {self._schema}.owner WHERE lock IN ({_texts(owner_keys)}))"
        )


def _run(connection: NonblockingConnection, statement: str) -> None:
    with contextlib.suppress(*_NOT_WRITABLE, *_IN_THE_WAY):
        connection.ask(statement)


def _texts(keys: Collection[int]) -> str:
    return ", ".join(f"'{key}'" for key in keys)
