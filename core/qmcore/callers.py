"""Who makes a call: a thread for itself, or for a task of asyncio, whose connection only its event loop may use."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

Ask = Callable[[Callable[[], Awaitable[T]]], T]
"""Has the task await something, and returns what came of it, to the thread that makes a call for the task."""

_task: contextvars.ContextVar[object] = contextvars.ContextVar("qmadmin_task", default=None)

make_for = _task.set
"""Says for which task the calls in this context are made."""


def caller() -> object:
    """Return who makes the calls of this thread: the task that it makes them for, or the number of the thread."""
    return _task.get() or threading.get_ident()


def kind_of_caller() -> str:
    """Return what a sentence calls it."""
    return "thread" if _task.get() is None else "task"


class TaskConnection:
    """A connection of the application for asyncio, given by the task for which a thread makes one call."""

    def __init__(self, connection: object, ask: Ask[object]) -> None:
        self.connection = connection
        self.ask = ask
        self.found: object = None
        """What the store has found it to be."""
