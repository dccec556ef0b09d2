"""Points at which tests observe or stop a device at work. They cost nothing where there is no action.

Each durable step has a point before it and one after it, on every store that has the step:

| step | what it is |
| --- | --- |
| queue | a work waits for the writer, on SQLite; this has one point, at its start |
| write | works are written into the open database transaction; nothing else sees them yet |
| commit | they are committed, those of several threads together |
| sync | commits are written to the disk, on SQLite; PostgreSQL's commit does that itself |
| wake-up | waiters are notified of a message |
| wait | a call sleeps until it is woken, or its time is over |

A test puts an action at a point: it may note what it gets, wait for another thread, raise, or end the process. What it
raises stands for a failure of the step: at BEFORE_SYNC an OSError is a disk that fails.

    commits = []
    device.probe.at(Point.AFTER_COMMIT, commits.append)
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from qmcore.definitions import OpenSpace
    from qmcore.port import Volume
    from qmcore.records import Owner


class Point(enum.Enum):
    """A point of a step, and what an action there gets."""

    QUEUED = "how many works of this process wait for the writer, with this one and the one that is under way"
    BEFORE_WRITE = "how many works come next in one transaction, which is about to begin and may have to wait"
    AFTER_WRITE = "how many works were written in it"
    BEFORE_COMMIT = "how many works the commit is of"
    AFTER_COMMIT = "how many works the commit was of"
    BEFORE_SYNC = "the last commit that the sync will be of, by its number in this process"
    AFTER_SYNC = "the last commit that the sync was of"
    BEFORE_WAKE_UP = "whom it is for: addresses of waiters, or numbers of queues"
    AFTER_WAKE_UP = "whom it was for"
    BEFORE_WAIT = "for how many seconds at most"
    AFTER_WAIT = "whether it was woken"


Action: TypeAlias = Callable[[Any], object]


class Attached(Protocol):
    """This process's attachment to a queue space."""

    volume: Volume
    opened: OpenSpace

    @property
    def owner(self) -> Owner:
        """Our owner record."""

    def do_housekeeping(self, *, now: bool = False) -> None:
        """Do the housekeeping that is due, or do it `now`."""


class Probe:
    """The points of an open device, and the attachments of the process; a fork keeps it together with the device."""

    actions: Mapping[Point, tuple[Action, ...]] = MappingProxyType({})
    """The actions at points. Those of the class are for a process that has no device yet, and never changed in place:
    `Probe.actions = {...}` applies to all that it opens."""

    attachments: Mapping[str, Attached] = MappingProxyType({})
    """This process's attachments by the names of their queue spaces."""

    def at(self, point: Point, action: Action) -> None:
        """Add an action that is run whenever the point is reached, by the thread that reaches it, after others."""
        self.actions = {**self.actions, point: (*self.actions.get(point, ()), action)}

    def leave(self, point: Point) -> None:
        """Remove the actions of a point."""
        self.actions = {each: actions for each, actions in self.actions.items() if each is not point}

    def reach(self, point: Point, fact: object) -> None:
        """Run the actions of a point. Called only where there are `actions`, so that otherwise it costs one look."""
        for action in self.actions.get(point, ()):
            action(fact)
