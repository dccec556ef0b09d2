"""What is owed to others once a transaction of an application is committed, and the thread that sees to it."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable

from qmcore.errors import QueueError
from qmstorage.notifications import Notifications

_FIRST_LOOK_SECONDS, _LONGEST_PAUSE_SECONDS = 0.01, 1.0
"""Seconds between two looks whether a transaction of the application has ended, at first and at last."""

_IDLE_SECONDS = 1.0
"""How long the thread stays when nothing is owed: whoever commits often has the same one."""


@dataclasses.dataclass
class Owed:
    """What is to be done once a transaction is committed, whose number is known on some stores."""

    notifications: Notifications = dataclasses.field(default_factory=Notifications)
    actions: list[Callable[[], None]] = dataclasses.field(default_factory=list)
    number: str = ""
    is_committing: bool = False
    """Whether its commit is under way, and not only awaited."""

    def __bool__(self) -> bool:
        return bool(self.notifications.turns or self.actions)


@dataclasses.dataclass
class _Followed:
    owed: Owed
    next_look: float = 0.0
    pause: float = _FIRST_LOOK_SECONDS


class CommitFollower:
    """One thread of a volume, while there is something to do, for all transactions whose ends are to be awaited."""

    def __init__(self, is_in_progress: Callable[[Owed], bool], settle: Callable[[Owed], None]) -> None:
        self._is_in_progress = is_in_progress
        self._settle = settle
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._followed: list[_Followed] = []
        self._thread: threading.Thread | None = None

    def follow(self, owed: Owed) -> None:
        """Do what is owed once the transaction is over."""
        if self._pid != os.getpid():
            # What was owed before a fork is the parent's affair, which may have held the lock.
            self._begin()
        with self._changed:
            self._followed.append(_Followed(owed))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="qmadmin-follow", daemon=True)
                self._thread.start()
            else:
                self._changed.notify()

    def _serve(self) -> None:
        while due := self._due():
            over = [each for each in due if self._is_over(each)]
            if over:
                self._settle_together([each.owed for each in over])

    def _due(self) -> list[_Followed]:
        """Wait until some are to be looked at, and return them; none if nothing was owed for a while."""
        with self._changed:
            if not self._followed:
                self._changed.wait(_IDLE_SECONDS)
            while self._followed:
                now = time.monotonic()
                due = [each for each in self._followed if each.next_look <= now]
                if due:
                    return due
                self._changed.wait(min(each.next_look for each in self._followed) - now)
            self._thread = None
            return []

    def _is_over(self, followed: _Followed) -> bool:
        try:
            if self._is_in_progress(followed.owed):
                followed.next_look = time.monotonic() + followed.pause
                followed.pause = min(2 * followed.pause, _LONGEST_PAUSE_SECONDS)
                return False
        except QueueError:
            # Housekeeping starts what was claimed, once this process has left the queue space.
            self._forget(followed)
            return False
        self._forget(followed)
        return True

    def _forget(self, followed: _Followed) -> None:
        with self._changed:
            self._followed.remove(followed)

    def _settle_together(self, owed: list[Owed]) -> None:
        """Do what is owed after several commits: the waiters of all of them are woken at once."""
        together = Owed()
        for each in owed:
            together.notifications.add(each.notifications)
            together.actions += each.actions
        self._settle(together)
