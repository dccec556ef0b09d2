"""The processes attached to a queue space, its open transactions, and the files of its memory."""

from __future__ import annotations

from datetime import datetime

from qmcore import times
from qmcore.records import Outcome
from qmcore.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedProcess:
    """A process attached to a queue space.

    `alive` False is one that died and that housekeeping has not removed yet. `waits` is how many blocking dequeues it
    has.
    """

    pid: int
    host: str
    role: str
    since_us: int
    alive: bool
    waits: int = 0

    @property
    def since(self) -> datetime:
        """Since when it is attached (UTC)."""
        return times.to_datetime(self.since_us)

    def __str__(self) -> str:
        return f"{self.role} {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """A transaction that has neither been committed nor rolled back.

    `index` numbers those of one listing from 0, the longest first. `owner` is None where its process has left without
    ending it. `dequeued` messages go when it commits, `locked` ones stay, `spilled` ones arrive; what it enqueues and
    its process still keeps is not known to others.
    """

    index: int
    id: str
    state: Outcome
    since_us: int
    deadline_us: int | None
    owner: AttachedProcess | None
    dequeued: int
    locked: int
    spilled: int

    @property
    def since(self) -> datetime:
        """When it was begun (UTC)."""
        return times.to_datetime(self.since_us)

    @property
    def deadline(self) -> datetime | None:
        """When others roll it back (UTC), if ever."""
        return None if self.deadline_us is None else times.to_datetime(self.deadline_us)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file that holds non-persistent messages of a queue space, and its size in bytes."""

    path: str
    size: int
