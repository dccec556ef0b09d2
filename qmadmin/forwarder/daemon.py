"""The forwarder from its start to its end: what it opens, and how it recovers when the store fails.

It notifies the service manager that has started it, such as systemd, with datagrams to the socket that NOTIFY_SOCKET
names, as sd_notify(3) describes. Without the variable none are sent; a manager that does not listen is not an error.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from qmadmin.console import counted
from qmadmin.consumers import Call, Handler, Policy, Reply, Unavailable
from qmadmin.consumers.consumer import Consumer, Stop
from qmadmin.consumers.reopening import reopen_until_stopped
from qmadmin.consumers.statistics import Statistics
from qmadmin.device import Device
from qmadmin.forwarder import StartError
from qmadmin.forwarder.options import Settings
from qmadmin.forwarder.program_log import WORDING
from qmadmin.forwarder.services_file import ServicesFile, missing_error_queue
from qmadmin.monitoring.metrics_server import served
from qmadmin.monitoring.prometheus import ProgramCollector, ServedSpace
from qmadmin.opening import open_device
from qmadmin.space import QueueSpace
from qmadmin.version import __version__
from qmadmin.volume_makers import path_of
from qmcore.errors import QueueError
from qmcore.records import Forwarding

logger = logging.getLogger("qmadmin.forwarder")

ROLE = "tmqforward"
"""The name of the process in the queue space."""


class Daemon:
    """Forwards messages as `settings` say until a stop is requested or, with -e or --once, there is no more to do.

    `environ` is the environment of services that are commands, without the variables of a service manager.
    """

    def __init__(self, settings: Settings, stop: Stop, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._stop = stop
        self._notify = Notify(environ)
        place = {"QMCONFIG": settings.device, "QMSPACE": settings.space, "QM_SPACE": settings.space}
        self._environ = {**for_children(environ), **place}
        self._services: dict[str, ServiceHolder] = {}
        self._consumer: Consumer | None = None
        """None as long as nothing has been forwarded."""
        self._space: QueueSpace | None = None
        """The open queue space; None while it is not open."""

    def run(self) -> None:
        """Forward. If the store fails, it is opened again, however long that takes.

        Raises StartError if it cannot start: nothing has been forwarded then.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._close_services)
            self._serve_metrics(stack)
            reopen_until_stopped(self._forward, self._stop, logger, self._notify.status)
        logger.info(
            "tmqforward stopped: %s; %s forwarded, %s failed",
            self._stop.asked or ("each queue was checked once" if self._settings.once else "its queues are empty"),
            counted(sum(told.successes for told in self._told()), "message"),
            counted(sum(told.failures for told in self._told()), "call"),
        )

    @property
    def has_failures(self) -> bool:
        """Whether a call has failed, or could not be made."""
        return any(told.failures or told.refused or told.trouble for told in self._told())

    def _close_services(self) -> None:
        for service in self._services.values():
            service.close()

    def _serve_metrics(self, stack: contextlib.ExitStack) -> None:
        settings = self._settings
        space = ServedSpace((path_of(settings.device), settings.space), self._statistics, lambda: self._space)
        try:
            stack.enter_context(served(settings.metrics, logger, ProgramCollector(space)))
        except QueueError as error:
            raise StartError(error.message, error.hint) from error

    def _statistics(self) -> list[Statistics]:
        return [] if self._consumer is None else list(self._consumer.statistics.values())

    def _told(self) -> list[Forwarding]:
        return [statistics.forwarding() for statistics in self._statistics()]

    def _forward(self) -> QueueError | None:
        """Forward until the end, or until the store fails: then return the error."""
        try:
            self._open_and_forward()
        except QueueError as error:
            if self._consumer is None:
                raise StartError(error.message, error.hint) from error
            return error
        return None

    def _open_and_forward(self) -> None:
        settings = self._settings
        with open_device(settings.device) as device, device.open_space(settings.space, role=ROLE) as space:
            consumer = self._consumer = self._consumer or self._started(device, space)
            self._space = space
            try:
                self._tell_ready(space)
                consumer.run(space, functools.partial(self._handle_requests, consumer, space), self._notify.stopping)
            finally:
                self._space = None

    def _started(self, device: Device, space: QueueSpace) -> Consumer:
        """Check everything that can be wrong before the first message is taken, and load the services."""
        settings = self._settings
        if device.readonly:
            raise StartError(f"device {device.path!r} can only be read by this user, but forwarding must write to it")
        described = ServicesFile.read(settings.services)
        queues = self._queues(described)
        served = [space.queue(name) for name in queues]
        services = self._new_services(described, queues)
        broken = _broken(services)
        if len(broken) == len(services):
            raise next(iter(broken.values()))
        for name, error in broken.items():
            logger.error("queue %r is paused until its service can be loaded: %s", name, error)
        self._services = services
        policies = self._policies(described, queues)
        consumer = Consumer(self._stop, settings.run_policy, WORDING, device.clock)
        self._serve(consumer, policies)
        logger.info(
            "tmqforward %s started: %s of queue space %r on %r, services of %r, %s",
            __version__,
            _named(queues),
            space.name,
            device.path,
            str(described.path),
            settings.options,
        )
        for queue in served:
            if missing := missing_error_queue(space, queue):
                logger.warning("%s", missing)
        return consumer

    def _queues(self, described: ServicesFile) -> tuple[str, ...]:
        queues = self._settings.queues or described.names
        if not queues:
            raise StartError(f"services file {str(described.path)!r} has no services", "Describe one, or name queues.")
        return queues

    def _new_services(self, described: ServicesFile, queues: tuple[str, ...]) -> dict[str, ServiceHolder]:
        workers = self._settings.workers
        return {
            name: ServiceHolder(functools.partial(described.service, name, self._environ, workers)) for name in queues
        }

    def _policies(self, described: ServicesFile, queues: tuple[str, ...]) -> dict[str, Policy]:
        return {name: self._settings.policy(described.described.get(name)) for name in queues}

    def _serve(self, consumer: Consumer, policies: Mapping[str, Policy]) -> None:
        consumer.serve({name: (service, policies[name]) for name, service in self._services.items()})

    def _handle_requests(self, consumer: Consumer, space: QueueSpace) -> None:
        """Handle requests by signals, while the forwarder goes on."""
        self._notify.alive()
        if self._stop.wants_reload():
            self._notify.reloading()
            self._reload(consumer, space)
            self._tell_ready(space)

    def _tell_ready(self, space: QueueSpace) -> None:
        self._notify.ready(f"Forwards {_named(self._services)} of queue space {space.name}")

    def _reload(self, consumer: Consumer, space: QueueSpace) -> None:
        """Read the services file again; if anything in it is wrong, nothing changes."""
        fresh: dict[str, ServiceHolder] = {}
        try:
            described = ServicesFile.read(self._settings.services)
            queues = self._queues(described)
            for name in queues:
                space.queue(name)
            policies = self._policies(described, queues)
            fresh = self._new_services(described, queues)
            for error in _broken(fresh).values():
                raise error
        except (StartError, QueueError, KeyboardInterrupt) as error:
            # Signals raise nothing here: a KeyboardInterrupt was raised by a module that is being loaded.
            why = str(error) or type(error).__name__
            logger.error("the services file was not loaded, and the services stay as they are: %s", why)  # noqa: TRY400
            for service in fresh.values():
                service.close()
            return
        left = [self._services.pop(name) for name in self._services.keys() - fresh.keys()]
        for name, service in fresh.items():
            if name in self._services:
                self._services[name].replace(service)
            else:
                self._services[name] = service
        self._serve(consumer, policies)
        for service in left:
            service.close()
        logger.info("the services are loaded again from %r", str(described.path))


def _broken(services: Mapping[str, ServiceHolder]) -> dict[str, StartError]:
    """Return which services cannot be loaded, and why."""
    broken = {}
    for name, service in services.items():
        try:
            service.load()
        except StartError as error:
            broken[name] = error
    return broken


def _named(queues: Collection[str]) -> str:
    return ("queue " if len(queues) == 1 else "queues ") + ", ".join(map(repr, queues))


class ServiceHolder(Handler):
    """A handler that passes calls on to the service that it holds.

    A service that cannot be loaded is tried again whenever it is needed. One that is replaced, or whose holder is
    closed, is closed itself after its running calls.
    """

    def __init__(self, load: Callable[[], Handler]) -> None:
        self._lock = threading.Lock()
        self._loaded = _LoadedService(load)
        self._leaving: list[_LoadedService] = []

    def load(self) -> None:
        """Load the service now, or raise StartError."""
        self._loaded.load()

    def ready(self) -> None:
        """Raise Unavailable if the service cannot be loaded."""
        self._loaded.service().ready()

    def call(self, call: Call) -> Reply | None:
        """Call the service with a message."""
        with self._lock:
            loaded = self._loaded
            loaded.users += 1
        try:
            return loaded.service().call(call)
        finally:
            self._leave(loaded)

    def replace(self, other: ServiceHolder) -> None:
        """Take over the service of another holder, for calls that begin from now on."""
        with self._lock:
            before, self._loaded = self._loaded, other._loaded
            self._leaving.append(before)
        self._retire(before)

    def stop_calls(self) -> None:
        """End at once what the service, and those that it has replaced, run outside this process."""
        with self._lock:
            services = [self._loaded, *self._leaving]
        for loaded in services:
            loaded.stop_calls()

    def close(self) -> None:
        """Close the service after its running calls."""
        self._retire(self._loaded)

    def _retire(self, loaded: _LoadedService) -> None:
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


# ---- notifications to the service manager ----------------------------------------------------------------------------


VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""The variables of the service manager, which are for this process and not for those that it starts."""

_SEND_SECONDS: Final = 1.0
"""How many seconds to wait for a slow manager."""


class Notify:
    """Notifies the service manager of the state of the process.

    `environ` is the environment that the manager has given the process. A program that ends by itself calls
    `stopping` too.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_seconds = _watchdog_seconds(environ)
        self._next_sign = 0.0

    def ready(self, status: str = "") -> None:
        """Report that the start, or a reload, is complete."""
        self._say("READY=1", *_told(status))

    def reloading(self) -> None:
        """Report that the settings are being read again; `ready` follows, even if that fails."""
        self._say("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Report that the process is about to end."""
        self._say("STOPPING=1")

    def status(self, text: str) -> None:
        """Report in one line what the process is doing."""
        self._say(*_told(text))

    def alive(self) -> None:
        """Send the heartbeat if it is due; to be called about once a second."""
        now = time.monotonic()
        if self._watchdog_seconds is not None and now >= self._next_sign:
            self._next_sign = now + self._watchdog_seconds / 2
            self._say("WATCHDOG=1")

    def _say(self, *lines: str) -> None:
        if self._address is None or not lines:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(_SEND_SECONDS)
            channel.sendto("\n".join(lines).encode(errors="backslashreplace"), self._address)


def for_children(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of processes that this one starts, without the variables of the manager."""
    return {name: value for name, value in environ.items() if name not in VARIABLES}


def _address(named: str) -> bytes | None:
    """Return the address of the manager: a path, or an abstract address, which is written with a leading @."""
    if named.startswith("@"):
        return b"\0" + os.fsencode(named[1:])
    return os.fsencode(named) if named.startswith("/") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the seconds within which the manager expects a heartbeat; None if it expects none of this process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        seconds = int(environ.get("WATCHDOG_USEC", "")) / 1_000_000
    except ValueError:
        return None
    return seconds if seconds > 0 else None


def _told(status: str) -> list[str]:
    return [f"STATUS={' '.join(status.split())}"] if status else []
