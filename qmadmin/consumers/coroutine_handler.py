"""A handler that is a coroutine function in Python: its calls run concurrently in one event loop.

The loop runs in a thread of its own while there is one of them. A consumer has it ready before it knows whether any is
a coroutine function, so that asyncio is loaded with the first.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from qmadmin.consumers import Call, Failure, Handler, Reply, Wording, too_late
from qmcore.message import Message

if TYPE_CHECKING:
    import asyncio

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
        import asyncio

        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Cancel it, in the thread of the loop."""
        if self._task is not None:
            self._task.cancel()

    def reply(self) -> Reply:
        """Return the reply, or raise how the call failed."""
        from qmadmin.consumers.function_handler import raise_failure_of, reply_of

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


# ---- the event loop --------------------------------------------------------------------------------------------------


class EventLoop:
    """An event loop for several handlers: it runs from the first `enter` to the last `leave`."""

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        import asyncio

        with self._lock:
            self._users += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop, self._wording), name="qmadmin-event-loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def leave(self) -> None:
        """Release the loop; the last user ends it, and what still runs in it is cancelled."""
        with self._lock:
            self._users -= 1
            if self._users or self._loop is None or self._thread is None:
                return
            self._loop.call_soon_threadsafe(_cancel_and_stop, self._loop)
            self._thread.join()
            self._loop = self._thread = None


def _run(loop: asyncio.AbstractEventLoop, wording: Wording) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        while not _has_stopped(loop, wording):
            pass
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _has_stopped(loop: asyncio.AbstractEventLoop, wording: Wording) -> bool:
    """Run the loop; return whether it was stopped."""
    try:
        loop.run_forever()
    except BaseException:
        # A task of a handler raised an exception to end the process.
        wording.logger.exception("a task of a %s ended the event loop, which goes on", wording.handler)
        return False
    return True


def _cancel_and_stop(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio

    for task in asyncio.all_tasks(loop):
        task.cancel()
    # After the tasks were cancelled.
    loop.call_soon(loop.stop)
