"""The place of a queue's service, which can be filled, and filled again, while the queue is served."""

from __future__ import annotations

import threading
from collections.abc import Callable

from qmadmin.consumers.handler import Call, Handler, Reply, Unavailable
from qmadmin.forwarder.errors import StartError


class ServiceHolder(Handler):
    """A handler that passes calls on to the service that it holds.

    A service that cannot be loaded is tried again whenever it is asked for. One that is replaced, or whose holder is
    closed, is closed itself when the calls that it runs are done.
    """

    def __init__(self, load: Callable[[], Handler]) -> None:
        self._lock = threading.Lock()
        self._loaded = _LoadedService(load)
        self._leaving: list[_LoadedService] = []

    def load(self) -> None:
        """Load the service now, or raise StartError."""
        self._loaded.load()

    def ready(self) -> None:
        """Raise Unavailable where the service cannot be loaded."""
        self._loaded.service().ready()

    def call(self, call: Call) -> Reply | None:
        """Have the service work on a message."""
        with self._lock:
            loaded = self._loaded
            loaded.users += 1
        try:
            return loaded.service().call(call)
        finally:
            self._leave(loaded)

    def replace(self, other: ServiceHolder) -> None:
        """Take over the service of another holder, for the calls that begin from now on."""
        with self._lock:
            before, self._loaded = self._loaded, other._loaded
            self._leaving.append(before)
        self._dismiss(before)

    def stop_calls(self) -> None:
        """End at once what the service runs outside of this process, and so for those that it has replaced."""
        with self._lock:
            services = [self._loaded, *self._leaving]
        for loaded in services:
            loaded.stop_calls()

    def close(self) -> None:
        """Close the service when its calls are done."""
        self._dismiss(self._loaded)

    def _dismiss(self, loaded: _LoadedService) -> None:
        with self._lock:
            loaded.users += 1
            loaded.is_leaving = True
        self._leave(loaded)

    def _leave(self, loaded: _LoadedService) -> None:
        with self._lock:
            loaded.users -= 1
            is_last = loaded.is_leaving and not loaded.users
            if is_last and loaded in self._leaving:
                self._leaving.remove(loaded)
        if is_last:
            loaded.close()


class _LoadedService:
    """A service and how many use it."""

    def __init__(self, load: Callable[[], Handler]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._service: Handler | None = None
        self.users = 0
        self.is_leaving = False

    def service(self) -> Handler:
        try:
            return self.load()
        except StartError as error:
            raise Unavailable(str(error)) from error

    def load(self) -> Handler:
        with self._lock:
            if self._service is None:
                self._service = self._load()
            return self._service

    def stop_calls(self) -> None:
        if self._service is not None:
            self._service.stop_calls()

    def close(self) -> None:
        if self._service is not None:
            self._service.close()
