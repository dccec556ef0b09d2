"""What the tests of an application need: a clock that they move, and its handlers called where they say so.

The fixtures of `qmadmin.pytest_plugin` are made of it; with another test runner it is used by itself:

    clock = ShiftedClock()
    with qmadmin.create_device(":memory:", clock=clock) as device:
        device.create_space("TEST")
        with device.open_space("TEST") as space, InlineWorker.of(app, space) as worker:
            ship.enqueue(Order(17), delay=60)
            clock.advance(60)
            worker.run()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from qmcore.times import MICROS, SystemClock, span

if TYPE_CHECKING:
    from qmadmin.app import App
    from qmadmin.space import QueueSpace
    from qmcore.message import Message

__all__ = ["InlineWorker", "ShiftedClock"]


class ShiftedClock(SystemClock):
    """The clock of the machine, which a test moves forward: time goes on, so that each wait has an end.

    `open_device` and `create_device` take it as `clock=`. It belongs to this process: others on the same device go by
    their own.
    """

    def __init__(self) -> None:
        self._shift_us = 0

    def advance(self, seconds: float | timedelta) -> None:
        """Move the time forward; a thread that waits meanwhile notices at its next look, within 15 seconds."""
        self._shift_us += span(seconds, "time to advance by")

    def now(self) -> int:
        """Return the time of day in microseconds since 1970, UTC."""
        return super().now() + self._shift_us

    def monotonic(self) -> float:
        """Return seconds on a clock that is never set back."""
        return SystemClock.monotonic() + self._shift_us / MICROS

    def steady(self) -> int:
        """Return microseconds on a clock that is never set back."""
        return super().steady() + self._shift_us

    def now_and_steady(self) -> tuple[int, int]:
        """Return `now` and `steady` of one moment."""
        now, steady = super().now_and_steady()
        return now + self._shift_us, steady + self._shift_us


class InlineWorker:
    """Calls the handlers of an application with what is on their queues, when a test says so."""

    def __init__(self, app: App) -> None:
        """Take an application that uses the queue space of the test; `of` makes it so."""
        self._app = app
        self._raised: list[BaseException] = []
        app.on_failure(self._note)

    @classmethod
    @contextlib.contextmanager
    def of(cls, app: App, space: QueueSpace) -> Iterator[InlineWorker]:
        """Have an application use an open queue space while the block lasts, and give its worker."""
        with app.using(space):
            yield cls(app)

    def _note(self, _message: Message, error: BaseException) -> None:
        self._raised.append(error)

    def run(self, *, raises: bool = True) -> None:
        """Call the handlers until no queue has a message that can be dequeued at the time of the clock.

        What they enqueue is handled too. Then the first exception that one of them raised is raised here; without
        `raises` it only does what it does in production: the message is tried again, or goes to the error queue.
        """
        self._raised.clear()
        self._app.run(until_empty=True)
        if raises and self._raised:
            raise self._raised[0]
