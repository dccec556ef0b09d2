"""The event loop in which the coroutines of all handlers run, in a thread of its own while there is one of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from qmadmin.consumers import Wording


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
