"""The application of a project: its queue space, opened once in each process, and the handlers of its modules."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.utils.module_loading import module_has_submodule

from qmadmin.app import App
from qmadmin.consumers import current
from qmadmin.django.project import Configured, configured

if TYPE_CHECKING:
    from typing import Unpack

    from qmadmin.app import AppHandler
    from qmadmin.consumers.handler_options import HandlerOptions
    from qmadmin.space import QueueSpace

P = ParamSpec("P")
R = TypeVar("R")

LABEL = "qmadmin"
"""What Django knows the application in INSTALLED_APPS by."""

HANDLERS = "handlers"
"""The module of an application in INSTALLED_APPS that declares handlers."""


class ProjectApp(App):
    """The application whose device and queue space the setting QMADMIN names, which tests may change.

    As before and after a request, connections of Django that are broken or too old are closed around each call.
    """

    def __init__(self) -> None:
        super().__init__("", space="")
        self._found: Configured | None = None
        self.around_calls(_without_old_connections)

    @property
    def device_path(self) -> str:
        """The path or the URL of the device."""
        return configured().device

    @property
    def space_name(self) -> str:
        """The name of the queue space."""
        return configured().space

    @property
    def space(self) -> QueueSpace:
        """The queue space of the setting, which is opened at first use."""
        if self._lent is None:
            self._follow(configured())
        return super().space

    def handler(
        self, queue: str, *, consumer: str | None = None, **options: Unpack[HandlerOptions]
    ) -> Callable[[Callable[P, R]], AppHandler[P, R]]:
        """Declare the decorated function the handler of a queue, as `qmadmin.App.handler` does."""
        declare = super().handler(queue, consumer=consumer, **options)
        return lambda function: declare(_awaited_without_old_connections(function))

    def _follow(self, found: Configured) -> None:
        if found == self._found:
            return
        with self._lock:
            if self._found is not None:
                self.close()
            self._found = found


@contextlib.contextmanager
def _without_old_connections(_message: object) -> Iterator[None]:
    close_old_connections()
    try:
        yield
    finally:
        # Django takes a connection that takes part in a transaction of others for forgotten.
        if not current.has_joined():
            close_old_connections()


def _awaited_without_old_connections(function: Callable[P, R]) -> Callable[P, R]:
    """Return a coroutine function with the same around it; another function as it is.

    A coroutine runs in another thread than the hooks, and uses Django's connections in that of `sync_to_async`.
    """
    from qmadmin.consumers.decoding import is_coroutine_function

    if not is_coroutine_function(function):
        return function
    from asgiref.sync import sync_to_async

    close_old = sync_to_async(close_old_connections)

    @functools.wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> Any:
        await close_old()
        try:
            return await cast("Awaitable[Any]", function(*args, **kwargs))
        finally:
            await close_old()

    return cast("Callable[P, R]", called)


def project_app() -> ProjectApp:
    """Return the application of the project, with the handlers that were declared so far."""
    try:
        its: ProjectApp = apps.get_app_config(LABEL).app
    except LookupError:
        raise ImproperlyConfigured("'qmadmin.django' is not in INSTALLED_APPS") from None
    return its


def app() -> App:
    """Return the application of the project: a `qmadmin.App`, with the handlers of all applications in INSTALLED_APPS.

    Their modules `handlers` are imported. Raises what they raise, and ImproperlyConfigured for a wrong setting.
    """
    configured()
    for name in handler_modules():
        import_module(name)
    return project_app()


def handler_modules() -> list[str]:
    """Return the names of the modules `handlers` of the applications in INSTALLED_APPS, in their order."""
    return [f"{each.name}.{HANDLERS}" for each in apps.get_app_configs() if module_has_submodule(each.module, HANDLERS)]


def handler(
    queue: str, *, consumer: str | None = None, **options: Unpack[HandlerOptions]
) -> Callable[[Callable[P, R]], AppHandler[P, R]]:
    """Declare the decorated function the handler of a queue of the project, as `qmadmin.App.handler` does.

        # shop/handlers.py
        @handler("orders", workers=4)
        def ship(order: Order) -> None:
            ...

    `manage.py qmadmin_run` finds those in modules `handlers` of applications in INSTALLED_APPS.
    `ship.enqueue(order, connection=connection)` sends to it. Nothing is opened by the declaration.
    """
    return project_app().handler(queue, consumer=consumer, **options)


def space() -> QueueSpace:
    """Return the queue space of the setting QMADMIN, which is opened at first use and shared by all threads.

    In a file it is opened with the first connection of Django to the database, so that no transaction is open then.
    Raises ImproperlyConfigured for a wrong setting, BadResourceError where `migrate` has not made it yet.
    """
    return project_app().space


def close() -> None:
    """Close the queue space; the next use opens it again. PostgreSQL drops no database that somebody is using."""
    project_app().close()


def create() -> None:
    """Create the device, the queue space and the queues of the setting where they do not exist, and open them."""
    from qmadmin.opening import open_device

    found = configured()
    with contextlib.closing(open_device(found.device, create=True)) as device:
        device.create_space(found.space, exist_ok=True)
        with device.open_space(found.space) as opened:
            for queue in found.queues:
                opened.create_queue(queue, exist_ok=True)
    space()
