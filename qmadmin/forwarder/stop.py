"""How the forwarder is told to stop: one signal asks it to, a second makes it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from qmcore.errors import QueueError

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("qmadmin.forwarder")

T = TypeVar("T")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopNow(BaseException):
    """A second signal came: whatever is being done ends here."""


class Stop:
    """Whether a stop has been asked for, and by what: `asked` is empty until then.

    `wake` ends what the forwarder sleeps on. `shielded` says that what is being done must not be cut short, because it
    takes only a moment: then a second signal changes nothing, and a third one ends the process like any other.
    """

    def __init__(self) -> None:
        self.asked = ""
        self.status = 0
        """The exit status: 0 for a stop in good order, 128 and the signal's number otherwise."""
        self.shielded = False
        self.wake: Callable[[], None] = _nothing
        self._event = threading.Event()

    def listen(self) -> None:
        """Hear the signals from now on; one that the caller wants ignored, as `nohup` and `&` do, stays ignored."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)

    def ask(self, why: str) -> None:
        """Ask for a stop after the message that is in hand."""
        self.asked = why
        self._event.set()
        # A queue space that is closed, or about to be opened, has nobody asleep in it.
        with contextlib.suppress(QueueError):
            self.wake()

    def sleep(self, seconds: float) -> None:
        """Sleep until a stop is asked for, or the seconds are over."""
        self._event.wait(seconds)

    def unshielded(self, act: Callable[[], T]) -> T:
        """Do something long in the midst of what is shielded; a second signal ends it with StopNow."""
        self.shielded = False
        try:
            if self.status:
                raise StopNow
            return act()
        finally:
            self.shielded = True

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self.asked:
            logger.info("%s: stopping when the message in hand is done; a second signal stops at once", name)
            self.ask(name)
        elif not self.status:
            logger.warning("%s: stopping at once; a message in hand goes back to its queue", name)
            self.asked, self.status = name, 128 + number
            if not self.shielded:
                self.shielded = True
                raise StopNow
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _nothing() -> None:
    pass
