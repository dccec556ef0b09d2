"""The waits of the tasks of an event loop: one thread, and one watch, for all of them on a queue space.

The thread sleeps on a watch of all queues that tasks wait on, which is one action of the queue space however many tasks
there are. When it is woken it looks once which queues have messages, and tells the loop, which wakes tasks: of those
that take any message of a queue one, and each that has found one wakes two more; of those that choose all, when
something new has come. A task that was woken and leaves without having looked passes that on.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from qmcore.acts.waiting import CHECK_SECONDS
from qmcore.errors import QueueError, may_pass

if TYPE_CHECKING:
    from qmadmin.queue_watch import QueueWatch
    from qmadmin.space import QueueSpace

_FEW = 10
"""Up to so many tasks that choose messages look each second, for what may have been missed; more every ten seconds."""

_LONG_SECONDS = 10.0


class Waiting:
    """The wait of a task for messages of some queues."""

    def __init__(self, waits: Waits, queues: Sequence[str], *, chooses: bool) -> None:
        self.queues = tuple(dict.fromkeys(queues))
        self.chooses = chooses
        self.error: QueueError | None = None
        self.is_woken = False
        self._waits = waits
        self._future: asyncio.Future[None] | None = None

    def wake(self, error: QueueError | None = None) -> None:
        """Let the task look, or end its wait with an error."""
        self.error = error or self.error
        self.is_woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def sleep(self, until: float) -> None:
        """Sleep until woken, or until a moment of the loop's clock; raise the error that has ended the wait."""
        self._waits.listen(self.queues)
        loop = asyncio.get_running_loop()
        if not self.is_woken:
            self._future = loop.create_future()
            timer = None if until == math.inf else loop.call_at(until, self._end_sleep)
            try:
                await self._future
            finally:
                self._future = None
                if timer is not None:
                    timer.cancel()
        self.is_woken = False
        if self.error is not None:
            raise self.error

    def _end_sleep(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Waits:
    """All waits of the tasks of a loop for messages of a queue space."""

    def __init__(self, loop: asyncio.AbstractEventLoop, open_space: Callable[[], QueueSpace], name: str) -> None:
        self._loop = loop
        self._open_space = open_space
        self._name = name
        self._takers: dict[str, dict[Waiting, None]] = {}
        self._choosers: dict[str, dict[Waiting, None]] = {}
        self._heard: frozenset[str] = frozenset()
        """The queues of which messages wake the thread, as far as the loop knows."""
        self._choosers_looked = 0.0
        self._lock = threading.Lock()
        self._watch: QueueWatch | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def enter(self, queues: Sequence[str], *, chooses: bool) -> Waiting:
        """Note a wait; it may be woken from now on, also while its task looks for the first time."""
        waiting = Waiting(self, queues, chooses=chooses)
        for queue in waiting.queues:
            (self._choosers if chooses else self._takers).setdefault(queue, {})[waiting] = None
        return waiting

    def leave(self, waiting: Waiting, *, passes_on: bool) -> None:
        """Forget a wait.

        What it was woken for and did not look for is passed on to another. With `passes_on` it has found something, or
        an error that others should find, and two more look.
        """
        kind = self._choosers if waiting.chooses else self._takers
        for queue in waiting.queues:
            present = kind[queue]
            del present[waiting]
            if not present:
                del kind[queue]
            elif not waiting.chooses and (passes_on or waiting.is_woken):
                self._wake_takers(queue, 2 if passes_on else 1)

    def listen(self, queues: Sequence[str]) -> None:
        """Have the thread listen to queues, if it does not yet."""
        if self._heard.issuperset(queues):
            return
        with self._lock:
            if self._watch is not None:
                self._watch.wake()
            elif self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._serve, name=f"qmadmin-aio waits {self._name}", daemon=True)
                self._thread.start()

    def wake_all(self, error: QueueError | None = None) -> None:
        """Let all tasks look, or end their waits with an error."""
        for waiting in [each for kind in (self._takers, self._choosers) for waits in kind.values() for each in waits]:
            waiting.wake(copy.copy(error))

    def close(self, error: QueueError) -> threading.Thread | None:
        """Listen no more, and end all waits with an error; return the thread, which is about to end."""
        self._closed.set()
        self.wake_all(error)
        with self._lock:
            if self._watch is not None:
                self._watch.wake()
            return self._thread

    def _wake_takers(self, queue: str, count: int) -> None:
        for waiting in self._takers.get(queue, ()):
            if not waiting.is_woken:
                waiting.wake()
                count -= 1
                if not count:
                    return

    def _tell(self, found: Sequence[str], heard: frozenset[str], *, rung: bool) -> None:
        """Wake those who wait on queues that have messages."""
        new, self._heard = heard - self._heard, heard
        now = self._loop.time()
        choosing = sum(len(self._choosers.get(queue, ())) for queue in found)
        looks = rung or now - self._choosers_looked >= (CHECK_SECONDS if choosing <= _FEW else _LONG_SECONDS)
        if looks:
            self._choosers_looked = now
        for queue in found:
            self._wake_takers(queue, 1)
            if looks or queue in new:
                for waiting in self._choosers.get(queue, ()):
                    waiting.wake()
        # Those who began to wait while the thread unregistered their queue, or ended.
        self.listen(tuple(self._waited_for()))

    def _fail(self, error: QueueError) -> None:
        """End all waits, because they cannot be served."""
        self._heard = frozenset()
        self.wake_all(error)

    def _waited_for(self) -> frozenset[str]:
        """Return the queues that tasks wait on. The thread calls this too: to copy a dict is one step."""
        return frozenset(self._takers) | frozenset(self._choosers)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            try:
                with self._open_space() as space, space.watch() as watch:
                    self._look_on(watch)
            except QueueError as error:
                if not may_pass(error):
                    self._on_loop(functools.partial(self._fail, error))
                # As other waits do: the store may be back, or free, by then; or the tasks have heard of the error.
                self._closed.wait(CHECK_SECONDS)
            with self._lock:
                if self._closed.is_set() or not self._waited_for():
                    self._thread = None
                    break
        self._on_loop(functools.partial(self._tell, (), frozenset(), rung=False))

    def _look_on(self, watch: QueueWatch) -> None:
        """Look each time that messages come, until nobody waits for any."""
        try:
            with self._lock:
                self._watch = watch
            heard: frozenset[str] = frozenset()
            rung = True
            while not self._closed.is_set():
                wanted = self._waited_for()
                if not rung:
                    # Once a second, and not each time that a task goes to work on a message.
                    if not wanted:
                        return
                    watch.leave(sorted(heard - wanted))
                    heard &= wanted
                heard |= wanted
                watch.hear(sorted(heard))
                seen = watch.look(sorted(heard))
                if not self._on_loop(functools.partial(self._tell, seen.queues, heard, rung=rung)):
                    return
                rung = watch.wait(min(seen.seconds, CHECK_SECONDS))
        finally:
            with self._lock:
                self._watch = None

    def _on_loop(self, act: Callable[[], None]) -> bool:
        """Have the loop do something; return whether it goes on."""
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            self._closed.set()
            return False
        return True
