"""A handler that is a function in Python, called in the thread of whoever calls the handler."""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from qmadmin.consumers.deadlines import Deadlines, Watch
from qmadmin.consumers.function_outcome import is_coroutine_function, raise_failure_of, reply_of
from qmadmin.consumers.handler import Call, Failure, Handler, Reply, too_late

if TYPE_CHECKING:
    from qmadmin.consumers.event_loop import EventLoop
    from qmcore.message import Message

_A_MOMENT = 0.0005


def handler_of(function: Callable[[Message], object], loop: EventLoop) -> Handler:
    """Return a handler that calls a function; what one returns that is a coroutine function runs in the event loop."""
    if not is_coroutine_function(function):
        return FunctionHandler(function)
    from qmadmin.consumers.coroutine_handler import CoroutineHandler

    return CoroutineHandler(function, loop)


class FunctionHandler(Handler):
    """Calls `function` with the message.

    It returns the reply's body as bytes or str, a `Reply`, or None for a reply of zero length. Whatever it raises is
    a failure, also when it would end the process.
    """

    def __init__(self, function: Callable[[Message], object]) -> None:
        self.function = function
        self._deadlines = Deadlines("qmadmin-deadlines")

    def call(self, call: Call) -> Reply:
        """Work on a message."""
        try:
            answer = self.function(call.request) if call.seconds == math.inf else self._within(call)
        except BaseException as error:  # noqa: BLE001 - it raises
            raise_failure_of(error)
        return reply_of(answer)

    def close(self) -> None:
        """End the thread that watches the calls."""
        self._deadlines.close()

    def _within(self, call: Call) -> object:
        """Call the function; an exception is raised in it when its time is over, and none is raised behind it."""
        thread = threading.get_ident()
        watch = Watch(time.monotonic() + call.left(), functools.partial(_raise_in, thread, _TimeIsUp))
        answer: object = None
        error: BaseException | None = None
        try:
            self._deadlines.add(watch)
            try:
                answer = self.function(call.request)
            except BaseException as raised:  # noqa: BLE001 - whatever it is, the watch ends first
                error = raised
            if not watch.end():
                _await_exception(watch, thread)
                raise Failure(too_late(call)) from None
        except _TimeIsUp:
            raise Failure(too_late(call)) from None
        else:
            if error is not None:
                raise error
            return answer
        finally:
            self._deadlines.remove(watch)
            # The exception knows this frame, which should not know it in turn.
            error = None


class _TimeIsUp(BaseException):
    """The call has taken too long. Not an Exception, because a function may catch those for reasons of its own."""


def _await_exception(watch: Watch, thread: int) -> None:
    """Wait until the exception of a watch has been raised in this thread; here, if it has not been before.

    One more is raised in place of taking back what may be pending: CPython 3.11 would then look for it at each step, as
    long as the process lives, and stand still at the first function that a debugger follows.
    """
    try:
        while not watch.acted:
            time.sleep(_A_MOMENT)
        _raise_in(thread, _TimeIsUp)
        while True:
            time.sleep(_A_MOMENT)
    except _TimeIsUp:
        return


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread, in place of one that has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
