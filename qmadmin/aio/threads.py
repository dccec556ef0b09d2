"""The threads of an event loop: the work that blocks is done in them, and its results are handed to the loop.

A call either raises CancelledError and has done nothing, or its result reaches the caller. Work that no thread has
begun is withdrawn by a cancellation; the end of what was begun is awaited, which takes as long as the store does, and
the cancellation takes effect at the next await.
"""

from __future__ import annotations

import asyncio
import collections
import contextvars
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from qmcore.callers import Ask, make_for
from qmcore.errors import NotOpenError, ProtocolError

logger = logging.getLogger("qmadmin.aio")

T = TypeVar("T")

THREADS = 16
"""How many threads a device has at most: so many calls are in the store at a time, and share commits."""


_LOOK_SECONDS = 1.0
"""How often a thread looks whether the event loop that it waits for is still there."""


def something(_result: object) -> bool:
    """Return that a result, whatever it is, means that something was done."""
    return False


class _Work(Generic[T]):
    """A call, from where it was asked for until its result is known."""

    __slots__ = ("_call", "_context", "_right", "error", "future", "is_done", "question", "result")

    result: T

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._context = contextvars.copy_context()
        self._context.run(make_for, asyncio.current_task())
        # To pop it is one step: whoever does, the thread or a cancellation, has it.
        self._right = [True]
        self.future: asyncio.Future[None] | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self.question: _Question | None = None

    def withdraw(self) -> bool:
        """Return whether it will not be done; that is too late when a thread has begun."""
        try:
            return self._right.pop()
        except IndexError:
            return False

    def do(self) -> bool:
        """Do it, unless it was withdrawn."""
        if not self.withdraw():
            return False
        try:
            self.result = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self.error = error
        return True

    def outcome(self) -> T:
        """Return the result, or raise the error."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            # An exception refers to this frame; a reference back would keep both until the garbage collector runs.
            del error
        return self.result


class _Question:
    """Something that the thread which does a work has its task await."""

    def __init__(self, awaited: Callable[[], Awaitable[object]], *, shields: bool) -> None:
        self._awaited = awaited
        self._shields = shields
        self.answer: Future[object] = Future()

    async def put(self) -> asyncio.CancelledError | None:
        """Await it, and let the thread go on; return a cancellation that came meanwhile.

        The thread gets that, too, unless it is shielded: then what is awaited comes to its end.
        """
        missed: asyncio.CancelledError | None = None
        try:
            if self._shields:
                asked = asyncio.ensure_future(self._awaited())
                while not asked.done():
                    try:
                        await asyncio.wait((asked,))
                    except asyncio.CancelledError as cancelled:
                        missed = cancelled
                self.answer.set_result(asked.result())
            else:
                self.answer.set_result(await self._awaited())
        except asyncio.CancelledError as cancelled:
            self.answer.set_exception(cancelled)
            return cancelled
        except Exception as error:  # noqa: BLE001 - it is the thread's
            self.answer.set_exception(error)
        except BaseException:
            self.answer.set_exception(_loop_ended())
            raise
        return missed


class _AskingWork(_Work[T]):
    """A call that is given what has its task await something."""

    __slots__ = ("_is_left", "_loop", "_shields")

    def __init__(self, call: Callable[[Ask[Any]], T], loop: asyncio.AbstractEventLoop, *, shields: bool) -> None:
        super().__init__(lambda: call(self.ask))
        self._loop = loop
        self._shields = shields
        self._is_left = False

    def do(self) -> bool:
        """Do it, unless it was withdrawn."""
        try:
            return super().do()
        finally:
            # It refers to this.
            del self._call

    def ask(self, awaited: Callable[[], Awaitable[Any]]) -> Any:
        """Have the task await something, and return what came of it: for the thread."""
        question = _Question(awaited, shields=self._shields)
        try:
            self._loop.call_soon_threadsafe(self._hear, question)
        except RuntimeError as error:
            raise _loop_ended() from error
        while not wait((question.answer,), _LOOK_SECONDS).done:
            if self._is_left or self._loop.is_closed():
                raise _loop_ended()
        return question.answer.result()

    def _hear(self, question: _Question) -> None:
        self.question = question
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def leave(self) -> None:
        """Answer no more questions."""
        self._is_left = True


def _loop_ended() -> ProtocolError:
    return ProtocolError(
        "the event loop ended under a call with connection=", hint="Await what was begun before the loop ends."
    )


class _Results:
    """What threads have done and the loop does not know yet; one call to the loop tells of all that came until then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: collections.deque[_Work[Any]] = collections.deque()
        self._is_told = False

    def add(self, work: _Work[Any]) -> None:
        self._done.append(work)
        if self._is_told:
            return
        self._is_told = True
        try:
            self._loop.call_soon_threadsafe(self._hand_over)
        except RuntimeError:
            # What was enqueued is there. A message that was taken outside a transaction has no reader any more.
            logger.error("an event loop was closed before the results of %d calls reached it", len(self._done))  # noqa: TRY400
            self._done.clear()

    def _hand_over(self) -> None:
        # Before: what is added behind the last look below calls again.
        self._is_told = False
        while self._done:
            work = self._done.popleft()
            work.is_done = True
            if work.future is not None and not work.future.done():
                work.future.set_result(None)


class Threads:
    """A bounded number of threads, begun as they are needed, for the tasks of one event loop of one process."""

    def __init__(self, path: str, most: int = THREADS) -> None:
        self.is_closed = False
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._pid = os.getpid()
        self._queue: SimpleQueue[_Work[Any] | None] = SimpleQueue()
        self._results = _Results(self._loop)
        self._threads: list[threading.Thread] = []
        self._open = 0
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        # The threads of a device that is never closed end with it, or with the process, after what they are doing.
        self._end = weakref.finalize(self, _end, self._queue, self._threads, self._pid)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop whose tasks use them."""
        return self._loop

    def check_here(self) -> None:
        """Refuse a call in another process or another event loop, and from where no event loop runs."""
        if self._pid != os.getpid():
            raise ProtocolError(
                f"device {self._path!r} was opened by process {self._pid}, from which this one was forked",
                hint="Open it again in this process.",
            )
        if asyncio.get_running_loop() is not self._loop:
            raise ProtocolError(
                f"device {self._path!r} was opened in another event loop than this call is made in",
                hint="Open it in each event loop that uses it.",
            )

    async def do(
        self, call: Callable[[], T], is_nothing: Callable[[T], bool] = something, *, withdraws: bool = True
    ) -> T:
        """Have a thread call a function, in the context of this task, and return its result.

        `is_nothing` tells of a result whether nothing was done, so that a cancellation can still take its place.
        With `withdraws` False no cancellation keeps the function from being called.
        """
        self.check_here()
        if self.is_closed:
            raise self.closed()
        return await self._do(call, is_nothing, withdraws=withdraws)

    def closed(self) -> NotOpenError:
        """Return the error of a call on a device that is closed."""
        return NotOpenError(f"device {self._path!r} is closed", path=self._path)

    def end(self) -> None:
        """Let the threads end."""
        self.is_closed = True
        self._end()

    async def do_asking(
        self,
        call: Callable[[Ask[Any]], T],
        is_nothing: Callable[[T], bool] = something,
        *,
        withdraws: bool = True,
        shields: bool = False,
    ) -> T:
        """Do the same with a function that has this task await something: what only its event loop may do.

        A cancellation is also that of what the function has the task await, unless it `shields` that.
        """
        self.check_here()
        if self.is_closed:
            raise self.closed()
        work = _AskingWork(call, self._loop, shields=shields)
        try:
            return await self._done(work, is_nothing, withdraws=withdraws)
        finally:
            work.leave()

    async def _do(self, call: Callable[[], T], is_nothing: Callable[[T], bool], *, withdraws: bool) -> T:
        return await self._done(_Work(call), is_nothing, withdraws=withdraws)

    async def _done(self, work: _Work[T], is_nothing: Callable[[T], bool], *, withdraws: bool = True) -> T:
        self._begin(work)
        missed: asyncio.CancelledError | None = None
        try:
            while not work.is_done:
                work.future = self._loop.create_future()
                try:
                    await work.future
                except asyncio.CancelledError as cancelled:
                    if withdraws and work.withdraw():
                        raise
                    missed = cancelled
                if work.question is not None:
                    question, work.question = work.question, None
                    missed = await question.put() or missed
        finally:
            self._finish()
        if missed is not None:
            if is_nothing(work.result) if work.error is None else isinstance(work.error, asyncio.CancelledError):
                raise missed
            self.cancel_later()
        return work.outcome()

    async def close(self, last: Callable[[], None]) -> None:
        """Refuse more calls, and call `last` when all that were begun are done; no cancellation keeps it from that."""
        self.check_here()
        if self.is_closed:
            return
        self.is_closed = True
        is_cancelled = False
        while self._open:
            try:
                await self._idle.wait()
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled:
            self.cancel_later()
        try:
            await self._do(last, something, withdraws=False)
        finally:
            self.end()

    def cancel_later(self) -> None:
        """Let a cancellation that came too late for a call take effect at the next await of its task.

        Where the task ends before, its result counts; where whoever cancelled it has taken that back, as a timeout does
        at the end of its block, nothing is left to do.
        """
        task = asyncio.current_task()
        if task is None:
            return
        asked = task.cancelling()

        def cancel() -> None:
            if not task.done() and task.cancelling() >= asked:
                task.uncancel()
                task.cancel()

        self._loop.call_soon(cancel)

    def _begin(self, work: _Work[Any]) -> None:
        self._open += 1
        self._idle.clear()
        if len(self._threads) < min(self._open, self._most):
            thread = threading.Thread(
                target=_serve, args=(self._queue, self._results), name=f"qmadmin-aio {self._path}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._queue.put(work)

    def _finish(self) -> None:
        self._open -= 1
        if not self._open:
            self._idle.set()


def _serve(queue: SimpleQueue[_Work[Any] | None], results: _Results) -> None:
    while (work := queue.get()) is not None:
        if work.do():
            results.add(work)
        # It has the result, and must not live until the next call.
        del work


def _end(queue: SimpleQueue[_Work[Any] | None], threads: list[threading.Thread], pid: int) -> None:
    if pid == os.getpid():
        for _ in threads:
            queue.put(None)
