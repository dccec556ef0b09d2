"""A consumer of functions, as a program has it: from the hooks of its start to those of its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from qmadmin.consumers import Handler, Policy, RunPolicy, Wording
from qmadmin.consumers.consumer import Consumer, Stop
from qmadmin.consumers.decoding import decoded
from qmadmin.consumers.function_handler import EventLoop, handler_of
from qmadmin.consumers.hooks import HookedHandler, Hooks
from qmadmin.consumers.reopening import reopen_until_stopped
from qmcore.errors import InvalidArgumentError, QueueError

if TYPE_CHECKING:
    from qmadmin.consumers.statistics import Statistics
    from qmadmin.space import QueueSpace


class Opens(Protocol):
    """Returns a queue space that is open, `afresh` after it has failed."""

    def __call__(self, *, afresh: bool) -> QueueSpace:
        """Return it."""


class FunctionConsumer:
    """Calls functions with the messages of their queues, until `stop` is asked or there is no more to do."""

    def __init__(
        self,
        served: Mapping[str, tuple[Callable[..., object], Policy]],
        policy: RunPolicy,
        hooks: Hooks,
        wording: Wording | None = None,
        statistics: dict[str, Statistics] | None = None,
    ) -> None:
        self.stop = Stop(reloads=False)
        self._served = served
        self._policy = policy
        self._hooks = hooks
        self._wording = wording or Wording()
        self._statistics = statistics
        self._consumer: Consumer | None = None
        self._opens: Opens
        self._handlers: dict[str, tuple[Handler, Policy]] = {}

    def consume(self, opens: Opens) -> None:
        """Do so on the queue space that `opens` returns.

        Raises QueueError if it cannot begin; later failures of the store are waited for.
        """
        self._opens = opens
        with self._prepared():
            reopen_until_stopped(self._serve, self.stop, self._wording.logger)

    def consume_on(self, space: QueueSpace) -> None:
        """Do so on an open queue space. Raises QueueError if it cannot begin, or the store fails."""
        with self._prepared():
            self._started(space).run(space)

    @contextlib.contextmanager
    def _prepared(self) -> Iterator[None]:
        """Make the handlers, and call the hooks of the start and the end."""
        with contextlib.ExitStack() as stack:
            loop = EventLoop(self._wording)
            for queue, (function, policy) in self._served.items():
                handler = HookedHandler(handler_of(decoded(function), loop), self._hooks, self._wording)
                stack.callback(handler.close)
                self._handlers[queue] = handler, policy
            for hook in self._hooks.end:
                stack.callback(self._end, hook)
            for hook in self._hooks.start:
                hook()
            yield

    def _serve(self) -> QueueError | None:
        """Serve until the end, or until the store fails: then return the error."""
        try:
            space = self._opens(afresh=self._consumer is not None)
            consumer = self._consumer or self._started(space)
            consumer.run(space)
        except QueueError as error:
            if self._consumer is None:
                raise
            return error
        return None

    def _started(self, space: QueueSpace) -> Consumer:
        for name in self._handlers:
            queue = space.queue(name)
            if queue.definition.multiple_consumers:
                subscribed = ", ".join(repr(each.name) for each in space.subscriptions(name)) or "none"
                raise InvalidArgumentError(
                    f"queue {name!r} has several consumers, and its handler is for none of them",
                    hint=f"Name one by consumer=; its subscriptions are: {subscribed}.",
                    queue=name,
                )
        consumer = self._consumer = Consumer(
            self.stop, self._policy, self._wording, space.device.clock, self._statistics
        )
        consumer.serve(self._handlers)
        return consumer

    def _end(self, hook: Callable[[], object]) -> None:
        try:
            hook()
        except Exception:
            self._wording.logger.exception("a hook at the end of %s failed", self._wording.consumer)


@contextlib.contextmanager
def in_thread(consume: Callable[[], None], stop: Stop) -> Iterator[None]:
    """Consume in a thread while the block lasts, and raise at its end what that has raised."""
    aside = _Aside(consume)
    thread = threading.Thread(target=aside.call, name="qmadmin-app", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.ask("the block has ended")
        thread.join()
    if aside.error is not None:
        raise aside.error


async def awaited(consume: Callable[[], None], stop: Stop) -> None:
    """Consume in a thread, and await its end; a cancellation requests a stop, whose end is awaited too.

    So does SIGTERM where nothing else handles it: a server that runs this has its own way to stop.
    """
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    aside = _Aside(consume, lambda: loop.call_soon_threadsafe(tell))
    with contextlib.ExitStack() as stack:
        # Only in the main thread, and not on every system.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                loop.add_signal_handler(signal.SIGTERM, stop.ask, "SIGTERM")
                stack.callback(loop.remove_signal_handler, signal.SIGTERM)
        threading.Thread(target=aside.call, name="qmadmin-app", daemon=True).start()
        cancelled: asyncio.CancelledError | None = None
        while not done.done():
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError as error:
                cancelled = error
                stop.ask("it was cancelled")
    if aside.error is not None:
        raise aside.error
    if cancelled is not None:
        raise cancelled


class _Aside:
    """A function that is called in a thread, and what it has raised; `told` is called at its end."""

    def __init__(self, function: Callable[[], None], told: Callable[[], Any] = lambda: None) -> None:
        self.error: BaseException | None = None
        self._function = function
        self._told = told

    def call(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - it is raised where the thread was started
            self.error = error
        finally:
            # The loop may have ended meanwhile.
            with contextlib.suppress(RuntimeError):
                self._told()
