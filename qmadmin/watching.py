"""Watching queues, for a program that serves them for long."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from qmcore.acts import watching
from qmcore.acts.waiting import CHECK_SECONDS, seconds_until
from qmcore.errors import OperatingSystemError

if TYPE_CHECKING:
    from qmadmin.device import Attachment
    from qmcore.port import Unit
    from qmcore.times import Clock


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a look at queues has found: the names of those to dequeue from, and in how many seconds to look again."""

    queues: tuple[str, ...]
    seconds: float


class QueueWatch(watching.Watch):
    """Tells when messages come to queues, which are given by name and may change while it is open."""

    def __init__(self, attachment: Attachment, clock: Clock) -> None:
        super().__init__(attachment.volume, attachment.opened)
        self._attachment = attachment
        self._volume = attachment.volume
        self._opened = attachment.opened
        self._clock = clock
        self._hears_from = 0.0

    def look(self, names: Sequence[str]) -> Seen:
        """Return which queues a dequeue should be tried on; from now on the watch is told of messages of the others.

        A queue that is absent or stopped is one to try: the dequeue tells why. What others have left behind is ended
        before, if that was not done in the last second: it may be all that comes.
        Raises SystemFailureError where as many wait already as the queue space has actions for.
        """
        # A full disk is told by those who take messages, and keeps nobody from looking.
        with contextlib.suppress(OperatingSystemError):
            self._attachment.look_after(waits=True)
        while True:
            seen = self._volume.read(lambda unit: watching.look(unit, self._opened, names, self._clock.now()))
            if not self.register(seen.empty):
                return Seen(seen.found, min(seconds_until(seen.next_due_us, self._clock), self._heard_seconds()))
            self._hears_from = self._clock.monotonic() + self._volume.deaf_seconds

    def _heard_seconds(self) -> float:
        """Return how long one may rely on being told."""
        if not self._volume.deaf_seconds:
            return inf
        deaf = self._hears_from - self._clock.monotonic()
        return deaf if deaf > 0 else CHECK_SECONDS

    def leave(self, names: Sequence[str]) -> None:
        """Be told of messages of these queues no longer, until the next look at them."""
        self.unregister(self._ids(names))

    def _ids(self, names: Sequence[str]) -> list[int]:
        def ids(unit: Unit) -> list[int]:
            known = self._opened.definitions(unit).queues
            return [known[name].id for name in names if name in known]

        return self._volume.read(ids)
