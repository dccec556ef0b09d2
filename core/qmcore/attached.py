"""The processes attached to a queue space, its open transactions, and the files of its memory."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import NamedTuple

from qmcore import times
from qmcore.records import Outcome
from qmcore.values import dataclass
from qmcore.xid import Xid


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


class DeciderReach(enum.Enum):
    """Whether the decider of a branch in doubt can be reached, so that the branch ends by itself."""

    YES = "yes"
    NO = "no"
    NEVER = "never"
    """Only an administrator can end the branch: it is a copy, or an earlier state of the decider was restored."""


class DeciderSeen(NamedTuple):
    """Whether a decider can be reached, and why not."""

    reached: DeciderReach
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """A transaction that is open, suspended or prepared, or that an administrator has ended for its coordinator.

    `index` numbers those of one listing from 0, the longest first, and `id` is a number of 16 hexadecimal digits.
    `owner` is None where its process has left; a suspended one is still that of the process that has suspended it.
    `dequeued` messages go when it commits, `locked` ones stay, `spilled` ones arrive; what it enqueues and its process
    still keeps is not known to others.

    A branch of a distributed transaction has an `xid`, else None. `consumer` tells whose a prepared one was, also when
    that process is gone. One that has ended heuristically has no messages any more; `ended_by` tells who ended it, with
    the user, the program and its machine. Of a branch of `qmadmin.transaction` `decider` tells which queue space
    decides, on which device, and `decided` what that is, "committed" or "rolled back", where it was ended otherwise.
    `reached` tells whether the decider can be reached, where that was asked for, and `unreached` why not. One that
    `presumes_abort` has no decider, as `decider` says then: it is rolled back when its process is dead.
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
    xid: Xid | None = None
    prepared_us: int | None = None
    consumer: str = ""
    ended_us: int | None = None
    ended_by: str = ""
    suspended_us: int | None = None
    decider: str = ""
    presumes_abort: bool = False
    decided: str = ""
    reached: DeciderReach | None = None
    unreached: str = ""

    @property
    def messages(self) -> int:
        """How many messages it has, whatever for."""
        return self.dequeued + self.locked + self.spilled

    @property
    def name(self) -> str:
        """What commands take for it: the text of its xid, or else its id."""
        return self.id if self.xid is None else str(self.xid)

    @property
    def whose(self) -> str:
        """Whose it is, or was; empty where nobody knows."""
        return self.consumer or ("" if self.owner is None else str(self.owner))

    @property
    def lives(self) -> bool:
        """Whether the process that began it lives, and is attached."""
        return self.owner is not None and self.owner.alive

    @property
    def prepared(self) -> datetime | None:
        """Since when it is prepared (UTC), if it is or was."""
        return None if self.prepared_us is None else times.to_datetime(self.prepared_us)

    @property
    def suspended(self) -> datetime | None:
        """Since when it is suspended (UTC), if it is."""
        return None if self.suspended_us is None else times.to_datetime(self.suspended_us)

    @property
    def ended(self) -> datetime | None:
        """When it ended heuristically (UTC), if it did."""
        return None if self.ended_us is None else times.to_datetime(self.ended_us)

    @property
    def since(self) -> datetime:
        """When it was begun (UTC)."""
        return times.to_datetime(self.since_us)

    @property
    def deadline(self) -> datetime | None:
        """When others roll it back (UTC), if ever."""
        return None if self.deadline_us is None else times.to_datetime(self.deadline_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionInfo:
    """A decision to commit a transaction of `qmadmin.transaction`, of which a branch elsewhere is still to be told.

    `xid` is that of the branch, and `participant` the queue space that it is in, and the device.
    """

    xid: Xid
    participant: str
    decided_us: int

    @property
    def decided(self) -> datetime:
        """When it was decided (UTC)."""
        return times.to_datetime(self.decided_us)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file that holds non-persistent messages of a queue space, and its size in bytes."""

    path: str
    size: int
