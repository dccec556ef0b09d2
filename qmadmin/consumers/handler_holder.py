"""The place of a queue's service, which can be filled, and filled anew, while the queue is served."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from qmadmin.consumers.handler import Unavailable
from qmadmin.forwarder.errors import StartError

if TYPE_CHECKING:
    from qmadmin.consumers.handler import Service


class Slot:
    """Holds the service of a queue. One that cannot be loaded is tried again whenever it is asked for.

    A service that is replaced, or whose slot is closed, is closed itself when the calls that it runs are done.
    """

    def __init__(self, load: Callable[[], Service]) -> None:
        self._lock = threading.Lock()
        self._tenant = _Tenant(load)
        self._leaving: list[_Tenant] = []

    @contextlib.contextmanager
    def service(self) -> Iterator[Service]:
        """Give the service for a call, or raise Unavailable where it cannot be loaded."""
        with self._lock:
            tenant = self._tenant
            tenant.users += 1
        try:
            yield tenant.service()
        finally:
            self._leave(tenant)

    @property
    def is_used(self) -> bool:
        """Whether a call of its service runs, or of one that it has replaced."""
        return self._tenant.users > 0 or bool(self._leaving)

    def load(self) -> None:
        """Load the service now, or raise StartError."""
        self._tenant.load()

    def replace(self, other: Slot) -> None:
        """Take over the service of another slot, for the calls that begin from now on."""
        with self._lock:
            before, self._tenant = self._tenant, other._tenant
            before.users += 1
            before.is_leaving = True
            self._leaving.append(before)
        self._leave(before)

    def stop_calls(self) -> None:
        """End at once what the service runs outside of this process, and so for those that it has replaced."""
        with self._lock:
            tenants = [self._tenant, *self._leaving]
        for tenant in tenants:
            tenant.stop_calls()

    def close(self) -> None:
        """Close the service when its calls are done."""
        with self._lock:
            tenant = self._tenant
            tenant.users += 1
        tenant.is_leaving = True
        self._leave(tenant)

    def _leave(self, tenant: _Tenant) -> None:
        with self._lock:
            tenant.users -= 1
            is_last = tenant.is_leaving and not tenant.users
            if is_last and tenant in self._leaving:
                self._leaving.remove(tenant)
        if is_last:
            tenant.close()


class _Tenant:
    """A service and how many use it."""

    def __init__(self, load: Callable[[], Service]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._service: Service | None = None
        self.users = 0
        self.is_leaving = False

    def service(self) -> Service:
        try:
            return self.load()
        except StartError as error:
            raise Unavailable(str(error)) from error

    def load(self) -> Service:
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
