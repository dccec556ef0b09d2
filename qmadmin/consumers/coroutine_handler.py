"""A handler that is a coroutine function in Python: its calls run concurrently in one event loop."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any, Final

from qmadmin.consumers import Call, Failure, Handler, Reply, too_late
from qmadmin.consumers.event_loop import EventLoop
from qmadmin.consumers.function_handler import raise_failure_of, reply_of
from qmcore.message import Message

_GRACE_SECONDS: Final = 0.5
"""How many seconds to wait for a coroutine that was cancelled."""


class CoroutineHandler(Handler):
    """Calls a coroutine function with the message, in the event loop, and waits for its result.

    What it returns and raises means the same as with any function. It is cancelled when its time is over.
    """

    def __init__(self, function: Callable[[Message], Any], loop: EventLoop) -> None:
        self._function = function
        self._shared = loop
        self._loop = loop.enter()

    def call(self, call: Call) -> Reply:
        """Work on a message."""
        running = _Running(self._function, call.request)
        self._loop.call_soon_threadsafe(running.begin)
        left = call.left()
        if not running.ended.wait(None if left == math.inf else max(left, 0.0)):
            self._loop.call_soon_threadsafe(running.cancel)
            running.ended.wait(_GRACE_SECONDS)
            raise Failure(too_late(call))
        return running.reply()

    def close(self) -> None:
        """Release the event loop."""
        self._shared.leave()


class _Running:
    """A running coroutine: `ended` is set when it has finished."""

    def __init__(self, function: Callable[[Message], Any], request: Message) -> None:
        self.ended = threading.Event()
        self._function = function
        self._request = request
        self._task: asyncio.Task[None] | None = None
        self._answer: object = None
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Begin, in the thread of the loop and the context of the caller."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Cancel it, in the thread of the loop."""
        if self._task is not None:
            self._task.cancel()

    def reply(self) -> Reply:
        """Return the reply, or raise how the call failed."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise_failure_of(error)
        finally:
            del error
        return reply_of(self._answer)

    async def _run(self) -> None:
        try:
            self._answer = await self._function(self._request)
        except BaseException as error:  # noqa: BLE001 - it is an error of the call, and not of the loop
            self._error = error
        finally:
            self.ended.set()
