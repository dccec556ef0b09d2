"""Noticing signals while a call waits, for interfaces that promise to come back from one."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from qmcore.errors import QueueError

if TYPE_CHECKING:
    Handler = Callable[[int, FrameType | None], Any]


class SignalWatch:
    """Notices the signals that this program handles: `seen` is true from the first on, and `wake` is called.

    The handlers run as they would without it, and whatever one raises goes on. Only the main thread gets signals;
    in others nothing is ever seen. A signal that is ignored, or has no handler, interrupts nothing.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.seen = False
        self._wake = wake
        self._handlers: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            try:
                self._watch()
            except BaseException:
                self._give_back()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def _watch(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._handle)

    def _give_back(self) -> None:
        for number, handler in self._handlers.items():
            # A handler may have put another one in its place.
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        self._handlers[number](number, frame)
        with contextlib.suppress(QueueError):
            self._wake()
