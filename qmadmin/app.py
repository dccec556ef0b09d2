"""A worker in Python: functions that are called with the messages of queues.

    app = qmadmin.App("shop.qm", space="QS", create=True)

    @app.handler("orders", workers=4)
    def ship(order: Order) -> None:
        ...

    ship.enqueue(Order(17), delay=60)
    app.run()

It calls them as tmqforward calls its services, by the same code (`consumers`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from qmadmin.consumers.handler_options import policy_of, run_policy_of
from qmcore.errors import InvalidArgumentError, ProtocolError

if TYPE_CHECKING:
    from typing import Unpack

    from qmadmin.bodies import Body
    from qmadmin.connections import DatabaseConnection
    from qmadmin.consumers import Policy
    from qmadmin.consumers.function_consumer import FunctionConsumer
    from qmadmin.consumers.handler_options import HandlerOptions, RunOptions
    from qmadmin.consumers.statistics import Statistics
    from qmadmin.device import Device
    from qmadmin.monitoring.prometheus import MetricsCollector, ServedSpace
    from qmadmin.space import QueueSpace

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound="Callable[..., object]")

ROLE: Final = "consumer"
"""The name of the process in the queue space."""


class AppHandler(Generic[P, R]):
    """A function that an application calls with the messages of a queue. It can be called as before, too."""

    def __init__(self, app: App, queue: str, consumer: str | None, function: Callable[P, R], policy: Policy) -> None:
        functools.update_wrapper(self, function)
        self.app = app
        self.queue = queue
        self.consumer = consumer
        self.policy = policy
        self.function = self.__qmadmin_function__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler of queue {self.queue!r}: {getattr(self.function, '__qualname__', self.function)}>"

    def enqueue(self, body: Body, **options: Any) -> str | None:
        """Put a message on the queue of the handler; `options` are those of `QueueSpace.enqueue`.

        In a handler that is being called it is enqueued when the message of the call is done with, and not at all if
        the call fails. Returns the identifier; None in a coroutine and in a batch, where it has none yet.
        """
        return self.app.enqueue(self.queue, body, **options)


class App:
    """An application with handlers for the messages of a queue space.

    The device is opened at first use, in each process that uses it, also after a fork. With `create`, a device, a queue
    space, queues of handlers and subscriptions that do not exist are made then, with the defaults of the library.
    """

    def __init__(self, device: str | os.PathLike[str], *, space: str, create: bool = False) -> None:
        self._device_path = device
        self._space_name = space
        self._create = create
        self._handlers: dict[str, AppHandler[..., Any]] = {}
        self._hooks: dict[str, list[Callable[..., Any]]] = {"failure": [], "call": [], "start": [], "end": []}
        self._consumers: set[FunctionConsumer] = set()
        # Of all runs in this process, so that what is counted never becomes less.
        self._statistics: dict[str, Statistics] = {}
        self._is_closing = False
        self._opened: QueueSpace | None = None
        self._lent: QueueSpace | None = None
        self._lock = threading.RLock()
        # Registered for good, and not to keep the application alive.
        os.register_at_fork(after_in_child=functools.partial(_begin_in_child, weakref.ref(self)))

    def _begin_in_child(self) -> None:
        # Another thread of the parent may hold it.
        self._lock = threading.RLock()
        self._consumers = set()
        self._statistics = {}

    # ---- queue space -------------------------------------------------------------------------------------------------

    @property
    def device_path(self) -> str | os.PathLike[str]:
        """The path or the URL of the device."""
        return self._device_path

    @property
    def space_name(self) -> str:
        """The name of the queue space."""
        return self._space_name

    @property
    def space(self) -> QueueSpace:
        """The queue space, which is opened at first use; calls in a handler belong to its transaction.

        So they do where something else than the application calls the handler, such as tmqforward.
        """
        from qmadmin.consumers import current

        called = current.space_here()
        if called is not None and self._is_called():
            return called
        with self._lock:
            if self._lent is not None:
                return self._lent
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    @property
    def device(self) -> Device:
        """The device of the queue space."""
        return self.space.device

    def _open(self) -> QueueSpace:
        from qmadmin.opening import open_device

        device = open_device(self.device_path, create=self._create)
        try:
            if self._create:
                device.create_space(self.space_name, exist_ok=True)
            opened = device.open_space(self.space_name, role=ROLE)
            if self._create and not device.readonly:
                self._create_queues(opened, *self._handlers.values())
        except BaseException:
            device.close()
            raise
        return opened

    def _create_queues(self, space: QueueSpace, *handlers: AppHandler[..., Any]) -> None:
        from qmadmin.handler_queues import create_for_handler

        for handler in handlers:
            create_for_handler(space, handler.queue, handler.consumer)

    @contextlib.contextmanager
    def using(self, space: QueueSpace) -> Iterator[App]:
        """Use an open queue space while the block lasts, as in a test; the device of the application is not opened.

        Queues of handlers that it does not have are made in it. It stays open, also after `close()`; hooks that are
        declared in the block end with it. Raises ProtocolError while the application runs.
        """
        if self._consumers:
            raise ProtocolError(
                f"the application runs on queue space {self.space.name!r} and cannot use {space.name!r} meanwhile",
                hint="Stop it first.",
            )
        self._create_queues(space, *self._handlers.values())
        hooks = {when: list(found) for when, found in self._hooks.items()}
        before = self._lent, hooks, self._statistics
        self._lent, self._statistics = space, {}
        try:
            yield self
        finally:
            self._lent, self._hooks, self._statistics = before

    def close(self) -> None:
        """Stop what runs, and close the device after the last call; the next use opens it again."""
        with self._lock:
            self._is_closing = bool(self._consumers)
            for consumer in self._consumers:
                consumer.stop.ask("the application was closed")
            if self._is_closing:
                # A call may have asked for it, and needs the device for its message.
                return
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.device.close()

    def enqueue(self, queue: str, body: Body, **options: Any) -> str | None:
        """Put a message on a queue, as `AppHandler.enqueue` does."""
        from qmadmin.consumers import current

        if options.keys().isdisjoint(("transactional", "connection")) and self._is_called():
            return current.enqueue(queue, body, **options)
        return self.space.enqueue(queue, body, **options)

    def join(self, connection: DatabaseConnection) -> None:
        """Make a database of the application part of the transaction of the message that a handler is called with.

            @app.handler("orders")
            def ship(order: Order) -> None:
                connection = connection_of_this_thread()
                app.join(connection)
                connection.execute("INSERT INTO shipment VALUES (?)", [order.number])

        What is done on the connection from now on is committed together with the message, its reply and all that the
        handler enqueues, or nothing of it. It is `qmadmin.forwarder.join`, which says more. Raises ProtocolError where
        no handler is being called with a message of the queue space.
        """
        from qmadmin.consumers import current
        from qmadmin.joining_databases import join

        if not self._is_called():
            raise current.not_called()
        join(connection)

    def _is_called(self) -> bool:
        """Return whether a handler is being called here with a message of the queue space, whoever calls it."""
        from qmadmin.consumers import current
        from qmadmin.volume_makers import MEMORY, path_of

        space, place = self._lent or self._opened, current.place()
        if place is None or (space is not None and current.is_called_on(space)):
            return place is not None
        path = path_of(self.device_path)
        # Each device in memory is another one, and so is what was lent.
        if self._lent is not None or path == MEMORY or place[1] != self.space_name:
            return False
        with contextlib.suppress(OSError):
            return place[0] == path or Path(place[0]).samefile(path)
        return False

    # ---- handlers ----------------------------------------------------------------------------------------------------

    def handler(
        self, queue: str, *, consumer: str | None = None, **options: Unpack[HandlerOptions]
    ) -> Callable[[Callable[P, R]], AppHandler[P, R]]:
        """Declare the decorated function the handler of a queue; `HandlerOptions` says what the options mean.

        With `consumer` it handles what a queue for several has for that subscription.

        It is called with the `Message`, or with its decoded body where its argument is annotated with a type, such as a
        data class. What it returns is the reply; what it raises is a failure: any exception, `Failure`, `Unavailable`.
        It may be a coroutine function. A handler is called at least once for each message: its effects elsewhere must
        bear to be repeated.

        Raises InvalidArgumentError for a function that cannot be called with one argument, and for a second handler of
        a queue.
        """
        served = queue
        if consumer is not None:
            from qmadmin.subscribing import taken_by

            served = taken_by(queue, consumer)
        policy = policy_of(served, options)

        def declare(function: Callable[P, R]) -> AppHandler[P, R]:
            from qmadmin.consumers.decoding import decoded, is_same, name_of

            if not callable(function):
                raise InvalidArgumentError(f"the handler of queue {served!r} must be a function, got {function!r}")
            present = self._handlers.get(served)
            if present is not None and not is_same(present.function, function):
                raise InvalidArgumentError(
                    f"queue {served!r} has the handler {name_of(present.function)} already, and gets no second one,"
                    f" {name_of(function)}",
                    hint="Call one from the other, or use two queues.",
                )
            decoded(function)
            made = AppHandler(self, queue, consumer, function, policy)
            self._handlers[served] = made
            with self._lock:
                # Otherwise its queue is made when the queue space is opened.
                if self._create and self._opened is not None and not self._opened.device.readonly:
                    self._create_queues(self._opened, made)
            return made

        return declare

    @property
    def handlers(self) -> dict[str, AppHandler[..., Any]]:
        """The handlers by their queues."""
        return dict(self._handlers)

    def on_failure(self, hook: H) -> H:
        """Call the function with the message and the exception, once for each failure.

        It may be the call that fails, its time, its reply, a message that it has enqueued, or the commit. The function
        is called outside the transaction of the message: what it enqueues is sent.
        """
        return self._hooked("failure", hook)

    def around_calls(self, hook: H) -> H:
        """Make each call within the context manager that the function returns for its message.

        What that does is in the time of the call, and what it raises is a failure of it.
        """
        return self._hooked("call", hook)

    def on_start(self, hook: H) -> H:
        """Call the function when the application begins to run, before the first message is taken."""
        return self._hooked("start", hook)

    def on_end(self, hook: H) -> H:
        """Call the function when the application has ended to run, after the last call."""
        return self._hooked("end", hook)

    def _hooked(self, when: str, hook: H) -> H:
        from qmadmin.consumers.decoding import name_of, not_called

        if not callable(hook):
            raise InvalidArgumentError(f"a hook must be a function, got {hook!r}")
        if kind := not_called(hook):
            raise InvalidArgumentError(
                f"hook {name_of(hook)} is {kind}, and a call would do nothing of it",
                hint="Make it a function; around calls it returns a context manager, such as contextlib makes.",
            )
        self._hooks[when].append(hook)
        return hook

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self, **options: Unpack[RunOptions]) -> int:
        """Call the handlers with the messages of their queues until a stop is requested.

        SIGTERM, SIGINT and SIGHUP request it, if this is the main thread, and `stop()` does. Running calls may end
        within `grace` seconds; a second signal ends them at once. If the store fails it is opened again, however long
        that takes. Returns the exit status that a program has then: 0, or 128 and the number of the second signal.
        Raises what kept the first opening from working; `RunOptions` says what the options mean.
        """
        with self._serving_metrics(options):
            consumer = self._new_consumer(options)
            with consumer.stop.listening():
                self._consume(consumer)
            return consumer.stop.status

    async def run_async(self, **options: Unpack[RunOptions]) -> None:
        """Do the same without blocking the event loop; cancelling it requests a stop, which it waits for.

        SIGTERM requests one too, unless the program handles it, as a server does; other signals are the program's.
        """
        from qmadmin.consumers.function_consumer import awaited

        with self._serving_metrics(options):
            consumer = self._new_consumer(options)
            await awaited(functools.partial(self._consume, consumer), consumer.stop)

    @contextlib.contextmanager
    def running(self, **options: Unpack[RunOptions]) -> Iterator[App]:
        """Run in another thread while the block lasts; its end requests a stop and waits for it."""
        from qmadmin.consumers.function_consumer import in_thread

        with self._serving_metrics(options):
            consumer = self._new_consumer(options)
            with in_thread(functools.partial(self._consume, consumer), consumer.stop):
                yield self

    def stop(self) -> None:
        """Request a stop of what runs in this process; any thread and a signal handler may call it."""
        for consumer in tuple(self._consumers):
            consumer.stop.ask("a stop was requested")

    def _new_consumer(self, options: RunOptions) -> FunctionConsumer:
        from qmadmin.consumers.function_consumer import FunctionConsumer
        from qmadmin.consumers.hooks import Hooks

        if not self._handlers:
            raise InvalidArgumentError(
                "the application has no handlers", hint="Declare one with @app.handler(queue) before it runs."
            )
        hooks = Hooks(**{when: tuple(found) for when, found in self._hooks.items()})
        served = {queue: (handler.function, handler.policy) for queue, handler in self._handlers.items()}
        consumer = FunctionConsumer(served, run_policy_of(options), hooks, statistics=self._statistics)
        # From now on `stop()` reaches it.
        self._consumers.add(consumer)
        return consumer

    def _consume(self, consumer: FunctionConsumer) -> None:
        try:
            # Nobody but its owner could open it again.
            if self._lent is not None:
                consumer.consume_on(self._lent)
            else:
                consumer.consume(self._reopened)
        finally:
            with self._lock:
                self._consumers.discard(consumer)
                closes = self._is_closing and not self._consumers
            if closes:
                self.close()

    def _reopened(self, *, afresh: bool) -> QueueSpace:
        """Return the open queue space; opened again where it has failed."""
        if afresh:
            with self._lock:
                failed, self._opened = self._opened, None
            if failed is not None:
                failed.device.close()
        return self.space

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def collector(self, *others: App) -> MetricsCollector:
        """Return the metrics of `run(metrics=...)` for a registry of prometheus-client that the program has.

            prometheus_client.REGISTRY.register(app.collector())

        Whenever the registry asks, they are those of the calls of handlers in this process, and the figures of the
        queue space while it is open here. A registry takes one such collector: `others` are the other applications of
        the process, with other queue spaces, also of the same name on other devices.
        """
        from qmadmin.monitoring.consumer_metrics import CONSUMER
        from qmadmin.monitoring.prometheus import ProgramCollector

        return ProgramCollector(*(each._served_space() for each in (self, *others)), begin=CONSUMER)  # noqa: SLF001 - of this class

    def _served_space(self) -> ServedSpace:
        from qmadmin.monitoring.prometheus import ServedSpace
        from qmadmin.volume_makers import path_of

        named = path_of(self.device_path), self.space_name
        return ServedSpace(named, lambda: list(self._statistics.values()), lambda: self._lent or self._opened)

    def _serving_metrics(self, options: RunOptions) -> contextlib.AbstractContextManager[None]:
        """Serve metrics while the block lasts, if the options say where."""
        from qmadmin.consuming import serving_metrics

        return serving_metrics(options, self.collector)


def _begin_in_child(application: weakref.ref[App]) -> None:
    found = application()
    if found is not None:
        found._begin_in_child()  # noqa: SLF001 - of this module
