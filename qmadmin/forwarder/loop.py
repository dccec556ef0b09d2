"""The forwarder's work: a message from each of its queues in turn, and sleep while there is none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from qmadmin.forwarder.figures import Teller
from qmcore.errors import BadQueueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmadmin.forwarder.feed import Feed
    from qmadmin.forwarder.stop import Stop
    from qmadmin.space import QueueSpace


class Forwarder:
    """Forwards the messages of queues until a stop is asked for.

    `idle_seconds` is the longest sleep while there are no messages; a message that comes ends it. 0 is no sleep.
    `until_empty`: it also ends when none of the queues has a message that can be dequeued.
    """

    def __init__(
        self,
        space: QueueSpace,
        feeds: Sequence[Feed],
        teller: Teller,
        stop: Stop,
        *,
        idle_seconds: float,
        until_empty: bool,
    ) -> None:
        self._space = space
        self._teller = teller
        self._feeds = feeds
        self._stop = stop
        self._idle_seconds = idle_seconds
        self._until_empty = until_empty

    def run(self) -> None:
        """Forward; returns when a stop was asked for, or the queues are empty.

        Raises QueueError where the store has failed, and StopNow where a second signal came.
        """
        self._stop.shielded = True
        while not self._stop.asked:
            if self._forward_round():
                continue
            if self._until_empty and all(feed.is_drained() for feed in self._feeds):
                return
            self._rest()

    def _forward_round(self) -> bool:
        """Forward at most one message of each queue, so that none is kept waiting by another's many."""
        took = False
        self._teller.tell()
        for feed in self._feeds:
            if not self._stop.asked and not feed.pause_left():
                took = feed.forward_one() or took
        return took

    def _rest(self) -> None:
        pauses = {feed.queue: left for feed in self._feeds if (left := feed.pause_left())}
        awake = [feed.queue for feed in self._feeds if feed.queue not in pauses]
        if not awake:
            self._stop.sleep(min(Teller.SECONDS, *pauses.values()))
        elif seconds := min([self._idle_seconds, *pauses.values()]):
            # A queue that was destroyed just now is found missing, and told of, in the next round.
            with contextlib.suppress(BadQueueError):
                self._space.wait_for_any(awake, seconds, self._should_wake)

    def _should_wake(self) -> bool:
        """Look once more, now that whoever brings a message rings: one may have come before."""
        return bool(self._stop.asked) or self._forward_round()
