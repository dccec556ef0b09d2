"""Requests to a consumer, by signals or otherwise: to stop, to stop at once, to load its handlers again."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stop:
    """Whether a stop was requested, and by what: `asked` is empty until then.

    `at_once`: a second signal came. `status` is the exit status: 0 for an orderly stop, 128 and the number of the
    second signal otherwise. `wake` wakes the main thread; it is called from a signal handler. A signal only sets a flag
    here, which the main thread reads when it is awake.
    """

    def __init__(self) -> None:
        self.asked = ""
        self.at_once = False
        self.status = 0
        self.wake: Callable[[], None] = lambda: None
        self._reload = False
        self._event = threading.Event()
        self._had_terminal = _has_terminal()

    def listen(self) -> None:
        """Handle the signals from now on; one that was ignored at the start, as by `nohup` and `&`, stays ignored."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)

    def ask(self, why: str) -> None:
        """Request a stop after the running calls."""
        self.asked = self.asked or why
        self._event.set()
        self.wake()

    def sleep(self, seconds: float) -> None:
        """Sleep until a stop is requested, or the seconds are over."""
        self._event.wait(seconds)

    def wants_reload(self) -> bool:
        """Return whether the handlers are to be loaded again, once for each request."""
        asked, self._reload = self._reload, False
        return asked

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and not self._has_lost_its_terminal():
            self._reload = True
            self.wake()
        elif not self.asked:
            self.ask(signal.Signals(number).name)
        elif not self.at_once:
            self.asked, self.status, self.at_once = signal.Signals(number).name, 128 + number, True
            self.wake()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _has_lost_its_terminal(self) -> bool:
        """Return whether the signal is the end of the terminal that the program was started on."""
        return self._had_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError:
        return False
    return True
