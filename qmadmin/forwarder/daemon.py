"""The forwarder from its start to its end: what it opens, and how it lives on when the store fails."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.feed import Feed
from qmadmin.forwarder.figures import Figures, Teller
from qmadmin.forwarder.loop import Forwarder
from qmadmin.forwarder.notify import Notify, for_children
from qmadmin.forwarder.services_file import ServicesFile
from qmadmin.forwarder.stop import StopNow
from qmadmin.opening import open_device
from qmadmin.version import __version__
from qmcore.errors import QueueError
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.forwarder.service import Service
    from qmadmin.forwarder.settings import Settings
    from qmadmin.forwarder.stop import Stop
    from qmadmin.space import QueueSpace

logger = logging.getLogger("qmadmin.forwarder")

ROLE = "tmqforward"
"""What others see of the process in the queue space."""

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0


class Daemon:
    """Forwards what `settings` say until a stop is asked for, or the queues are empty where that is the end.

    `environ` is the environment of services that are commands; what a service manager says in it is for the daemon.
    """

    def __init__(self, settings: Settings, stop: Stop, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._stop = stop
        self._notify = Notify(environ)
        self._environ = {**for_children(environ), "QMCONFIG": settings.device, "QM_SPACE": settings.space}
        self._services: dict[str, Service] = {}
        self._figures = {name: Figures(name) for name in settings.queues}
        self._forwarded = 0
        self._failed = 0

    def run(self) -> None:
        """Forward. A store that fails on the way is opened again, for as long as it takes.

        Raises StartError where it cannot start: nothing has been forwarded then.
        """
        with contextlib.suppress(StopNow):
            described = ServicesFile.read(self._settings.services)
            delay, began = _FIRST_DELAY, time.monotonic()
            while (error := self._forward(described)) is not None and not self._stop.asked:
                if time.monotonic() - began > 2 * _LONGEST_DELAY:
                    delay = _FIRST_DELAY
                began = time.monotonic()
                logger.error("%s: %s; the device is opened again in %g seconds", error.name, error.message, delay)
                self._notify.status(f"The device is opened again: {redacted(error.message)}")
                self._stop.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)
        self._notify.stopping()
        logger.info(
            "tmqforward stopped: %s; %d messages forwarded, %d calls failed",
            self._stop.asked or "its queues are empty",
            self._forwarded,
            self._failed,
        )

    def _forward(self, described: ServicesFile) -> QueueError | None:
        """Forward until the end, or until the store fails: then return the error."""
        try:
            self._open_and_forward(described)
        except QueueError as error:
            if not self._services:
                raise StartError(error.message, error.hint) from error
            return error
        return None

    def _open_and_forward(self, described: ServicesFile) -> None:
        settings = self._settings
        with open_device(settings.device) as device, device.open_space(settings.space, role=ROLE) as space:
            if not self._services:
                self._start(device, space, described)
            feeds = [
                Feed(space, self._figures[name], service, settings.call_seconds, self._stop)
                for name, service in self._services.items()
            ]
            teller = Teller(space, self._figures.values())
            forwarder = Forwarder(
                space, feeds, teller, self._stop, idle_seconds=settings.idletime, until_empty=settings.until_empty
            )
            self._stop.wake = space.wake
            self._notify.ready(f"Forwards {_named(settings.queues)} of queue space {space.name}")
            try:
                forwarder.run()
            except KeyboardInterrupt:
                self._stop.ask("KeyboardInterrupt")
            finally:
                self._forwarded += sum(feed.forwarded for feed in feeds)
                self._failed += sum(feed.failed for feed in feeds)

    def _start(self, device: Device, space: QueueSpace, described: ServicesFile) -> None:
        """Check everything that can be wrong before the first message is touched, and get the services ready."""
        settings = self._settings
        if device.readonly:
            raise StartError(f"device {device.path!r} can only be read by this user, and forwarding writes to it")
        for name in settings.queues:
            space.queue(name)
        self._services = {name: described.service(name, self._environ) for name in settings.queues}
        logger.info(
            "tmqforward %s started: %s of queue space %r on %r, services of %r, -t %d -i %d%s",
            __version__,
            _named(settings.queues),
            space.name,
            device.path,
            str(described.path),
            settings.trantime,
            settings.idletime,
            " -e" if settings.until_empty else "",
        )


def _named(queues: Sequence[str]) -> str:
    return ("queue " if len(queues) == 1 else "queues ") + ", ".join(map(repr, queues))
