"""The calls that run: which take too long, and which are given back when their consumer has to stop."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from qmadmin.consumers.handler import Call, too_late

if TYPE_CHECKING:
    from qmadmin.transacting import Transaction

LATE_SECONDS = 3.0
"""How long a handler has to end a call by itself when its time is over."""


@dataclasses.dataclass(slots=True, eq=False)
class RunningCall:
    """A call that runs, in its transaction. Who ends it, its own thread or the main thread, is decided once.

    `abandoned` is called where the main thread does, with the reason where it is a try of the message, else None.
    """

    call: Call
    transaction: Transaction
    abandoned: Callable[[str | None], None]
    _ended: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def end(self) -> bool:
        """Return whether it is for the caller to end the call; only the first one who asks is told so."""
        return self._ended.acquire(blocking=False)


class RunningCalls:
    """The calls that run now; none begins when all were given back."""

    def __init__(self) -> None:
        self._is_over = False
        self._lock = threading.Lock()
        self._running: set[RunningCall] = set()

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, running: RunningCall) -> bool:
        """Note a call that begins; False means that it must not, because all were given back."""
        with self._lock:
            if not self._is_over:
                self._running.add(running)
            return not self._is_over

    def end(self, running: RunningCall) -> bool:
        """Note that a call has come back; False means that it is too late, and its transaction rolled back."""
        self._running.discard(running)
        return running.end()

    def give_up_late(self) -> None:
        """Roll back the transactions of calls that should long have ended; that is a try of their messages."""
        for running in [each for each in self._running.copy() if each.call.left() < -LATE_SECONDS]:
            if running.end():
                self._running.discard(running)
                reason = too_late(running.call)
                running.transaction.give_up(reason, only=running.call.request.msgid)
                running.abandoned(reason)

    def next_late(self) -> float:
        """Return the seconds until a call that runs now has to be given up."""
        return min((each.call.left() + LATE_SECONDS for each in self._running.copy()), default=float("inf"))

    def return_all(self, reason: str) -> int:
        """Roll back the transactions of all calls, because they cannot be waited for; that is no try."""
        with self._lock:
            self._is_over = True
        returned = [running for running in self._running.copy() if running.end()]
        for running in returned:
            self._running.discard(running)
            running.transaction.return_untried(reason)
            running.abandoned(None)
        return len(returned)
