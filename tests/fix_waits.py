"""An event loop that drives waits: one thread, which sleeps on one descriptor for all of them."""

from __future__ import annotations

import collections
import math
import selectors
import time
from collections.abc import Callable
from typing import Any, Self

from qmadmin.space import QueueSpace
from qmcore.acts.waiting import Wait
from qmcore.errors import QueueError
from qmcore.port import WakeupAddress
from qmcore.records import Nothing
from qmcore.times import Clock, SystemClock
from tests.fix_store import attachment_of

DEADLINE = 240.0
"""Seconds, for what hangs."""


def waits(space: QueueSpace) -> int:
    """Return how many wait for messages of the queue space."""
    attachment = attachment_of(space)
    return sum(attachment.volume.read(lambda unit: unit.waits.of_space(attachment.opened.space.id)).values())


class Loop:
    """An event loop of one thread, which drives the waits of one queue space."""

    def __init__(self, space: QueueSpace, clock: Clock | None = None) -> None:
        self._space = space
        self._attachment = attachment_of(space)
        self._clock = clock or SystemClock()
        self._wakeups = self._attachment.volume.wakeups.new_set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeups, selectors.EVENT_READ)
        self.open: dict[Wait[Any, WakeupAddress], str] = {}
        """The waits that are driven, and the queue of each."""
        self.got: list[Any] = []
        """What came of those that have ended: a text, an error, or None."""
        self.looks: collections.Counter[str] = collections.Counter()
        """How often messages of each queue were looked for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for wait in list(self.open):
            self.give_up(wait)
        self._selector.close()
        self._wakeups.close()

    def add(
        self,
        queue: str,
        *,
        stop: Callable[[], bool] | None = None,
        seconds: float = math.inf,
        due_us: int | None = None,
        **chosen: Any,
    ) -> Wait[Any, WakeupAddress]:
        """Let one more wait for a message of a queue, after a look that has found none."""
        queue_id = self._space.queue(queue).id

        def attempt() -> str | Nothing:
            self.looks[queue] += 1
            message = self._space.dequeue(queue, **chosen)
            return Nothing((queue_id,), due_us) if message is None else message.text

        volume, opened = self._attachment.volume, self._attachment.opened
        wait: Wait[Any, WakeupAddress] = Wait(
            attempt,
            Nothing((queue_id,), None),
            lambda wait: self._wakeups.wakeup(wait, in_turn=wait.in_turn),
            volume,
            opened,
            self._clock,
            seconds,
            stop,
            in_turn=not chosen,
        )
        self.open[wait] = queue
        return wait

    def give_up(self, wait: Wait[Any, WakeupAddress]) -> None:
        del self.open[wait]
        wait.give_up()

    def seconds(self) -> float:
        """Return for how long the loop may sleep if nobody wakes it."""
        return min((wait.seconds() for wait in self.open), default=math.inf)

    def is_told(self) -> bool:
        """Return whether there is something to look at now."""
        return bool(self._selector.select(0))

    def turn(self, seconds: float = DEADLINE) -> None:
        """Sleep once, and let those look that were woken, or whose time has come."""
        told = self._selector.select(max(min(self.seconds(), seconds), 0))
        woken = dict.fromkeys(self._wakeups.woken()) if told else {}
        for wait in list(self.open):
            if wait in woken or wait.seconds() <= 0:
                self._look(wait, woken=wait in woken)

    def settle(self) -> None:
        """Let all look until they are registered, and have nothing to do any more before the next check."""
        while self.seconds() < 100:
            self.turn()

    def run_until(self, reached: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not reached():
            assert time.monotonic() < end, f"{len(self.open)} wait, {len(self.got)} messages"
            self.turn(1)

    def _look(self, wait: Wait[Any, WakeupAddress], *, woken: bool) -> None:
        try:
            found = wait.look(woken=woken)
            if isinstance(found, Nothing) and not wait.is_over():
                return
        except QueueError as error:
            found = error
        self.got.append(None if isinstance(found, Nothing) else found)
        self.give_up(wait)
