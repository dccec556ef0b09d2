"""A watch on queues of a queue space: it tells when messages arrive on those that are served for long."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from qmcore.acts import watching
from qmcore.acts.waiting import CHECK_SECONDS, seconds_until
from qmcore.errors import OperatingSystemError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.attachment import Attachment
    from qmcore.port import Unit
    from qmcore.times import Clock


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The result of a look at queues: the names of those to dequeue from, and in how many seconds to look again."""

    queues: tuple[str, ...]
    seconds: float


class QueueWatch(watching.Watch):
    """Tells when messages arrive on queues, which are given by name and may change while it is open."""

    def __init__(self, attachment: Attachment, clock: Clock) -> None:
        super().__init__(attachment.volume, attachment.opened)
        self._attachment = attachment
        self._clock = clock
        self._hears_from = 0.0

    def look(self, names: Sequence[str]) -> WatchResult:
        """Return the queues on which a dequeue should be tried; from now on, messages on the others wake the watch.

        A queue that is missing or stopped is to be tried: the dequeue says why. Before, dead processes are cleaned up
        after, unless that was done in the last second: their messages may be the only ones.
        Raises SystemFailureError if as many calls wait already as the queue space has actions for.
        """
        # A full disk is reported by the dequeue, and does not prevent a look.
        with contextlib.suppress(OperatingSystemError):
            self._attachment.do_housekeeping(waits=True)
        while True:
            seen = self._volume.read(lambda unit: watching.look(unit, self._opened, names, self._clock.now()))
            if not self.register(seen.empty):
                return WatchResult(
                    seen.found, min(seconds_until(seen.next_due_us, self._clock), self._reliable_seconds())
                )
            self._hears_from = self._clock.monotonic() + self._volume.wakeups.deaf_seconds

    def _reliable_seconds(self) -> float:
        """Return for how many seconds wake-ups are reliable."""
        if not self._volume.wakeups.deaf_seconds:
            return inf
        deaf = self._hears_from - self._clock.monotonic()
        return deaf if deaf > 0 else CHECK_SECONDS

    def hear(self, names: Sequence[str]) -> None:
        """Let messages on these queues wake the watch from now on, also on those that have messages now.

        Raises SystemFailureError as `look` does.
        """
        if self.register(self._ids(names)):
            self._hears_from = self._clock.monotonic() + self._volume.wakeups.deaf_seconds

    def wake(self) -> None:
        """Let the thread that waits on the watch look now; another thread may call it."""
        self._volume.wakeups.wake([self._wakeup.address])

    def leave(self, names: Sequence[str]) -> None:
        """Stop the notifications of messages of these queues, until the next look at them."""
        self.unregister(self._ids(names))

    def _ids(self, names: Sequence[str]) -> list[int]:
        def ids(unit: Unit) -> list[int]:
            known = self._opened.definitions(unit).queues
            return [known[name].id for name in names if name in known]

        return self._volume.read(ids)
