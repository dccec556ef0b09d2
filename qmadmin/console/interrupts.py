"""What Ctrl-C means while something else than a prompt is going on."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class _Note:
    """A handler that notes a first interrupt, and raises a second one."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Finish the work inside before an interrupt is raised; a second interrupt breaks it off.

    A command that changes something is thus either done or not begun when the prompt comes back.
    """
    note = _Note()
    with _handled(note):
        yield
    if note.came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """Inside of what is held back: let an interrupt through at once, be it one that came before.

    For what may take long and has changed nothing yet, such as to wait.
    """
    note = signal.getsignal(signal.SIGINT)
    if not isinstance(note, _Note):
        yield
        return
    if note.came:
        raise KeyboardInterrupt
    with _handled(signal.default_int_handler):
        yield


@contextlib.contextmanager
def left_to_the_child() -> Iterator[list[int]]:
    """Leave an interrupt to the child process, and pass it by here; the list that is returned notes the signal.

    A handler that does nothing is set, rather than none: a child would inherit that the signal is ignored.
    """
    came: list[int] = []
    with _handled(lambda number, _frame: came.append(number)):
        yield came


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
