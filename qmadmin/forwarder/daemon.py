"""The forwarder from its start to its end: what it opens, and how it lives on when the store fails."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from qmadmin.console.plurals import counted
from qmadmin.consumers.backoff import Pause
from qmadmin.consumers.concurrency_limit import Places
from qmadmin.consumers.dispatcher import Forwarder
from qmadmin.consumers.handler_holder import Slot
from qmadmin.consumers.processor import Feed
from qmadmin.consumers.running_calls import Calls
from qmadmin.consumers.statistics import Figures, Teller
from qmadmin.forwarder import metrics
from qmadmin.forwarder.checking import missing_error_queue
from qmadmin.forwarder.errors import StartError
from qmadmin.forwarder.notify import Notify, for_children
from qmadmin.forwarder.services_file import ServicesFile
from qmadmin.opening import open_device
from qmadmin.version import __version__
from qmcore.errors import QueueError
from qmcore.redacted import redacted

if TYPE_CHECKING:
    from qmadmin.consumers.stop import Stop
    from qmadmin.device import Device
    from qmadmin.forwarder.settings import Settings
    from qmadmin.space import QueueSpace
    from qmcore.records import Forwarding

logger = logging.getLogger("qmadmin.forwarder")

ROLE = "tmqforward"
"""What others see of the process in the queue space."""

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0


class Daemon:
    """Forwards what `settings` say until a stop is asked for, or there is no more to do where that is the end.

    `environ` is the environment of services that are commands; what a service manager says in it is for the daemon.
    """

    def __init__(self, settings: Settings, stop: Stop, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._stop = stop
        self._notify = Notify(environ)
        place = {"QMCONFIG": settings.device, "QMSPACE": settings.space, "QM_SPACE": settings.space}
        self._environ = {**for_children(environ), **place}
        self._described: ServicesFile | None = None
        self._slots: dict[str, Slot] = {}
        self._figures: dict[str, Figures] = {}
        self._pauses: dict[str, Pause] = {}
        self._left: list[Slot] = []
        self._places = Places()

    def run(self) -> None:
        """Forward. A store that fails on the way is opened again, for as long as it takes.

        Raises StartError where it cannot start: nothing has been forwarded then.
        """
        settings = self._settings
        with contextlib.ExitStack() as stack:
            stack.callback(self._close_slots)
            stack.enter_context(metrics.served(settings.metrics, settings.space, lambda: list(self._figures.values())))
            delay, began = _FIRST_DELAY, time.monotonic()
            while (error := self._forward()) is not None and not self._stop.asked:
                if time.monotonic() - began > 2 * _LONGEST_DELAY:
                    delay = _FIRST_DELAY
                began = time.monotonic()
                logger.error("%s: %s; the device is opened again in %g seconds", error.name, error.message, delay)
                self._notify.status(f"The device is opened again: {redacted(error.message)}")
                self._stop.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)
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

    def _close_slots(self) -> None:
        for slot in self._slots.values():
            slot.close()

    def _told(self) -> list[Forwarding]:
        return [figures.forwarding() for figures in self._figures.values()]

    def _forward(self) -> QueueError | None:
        """Forward until the end, or until the store fails: then return the error."""
        try:
            self._open_and_forward()
        except QueueError as error:
            if self._described is None:
                raise StartError(error.message, error.hint) from error
            return error
        return None

    def _open_and_forward(self) -> None:
        settings = self._settings
        with open_device(settings.device) as device, device.open_space(settings.space, role=ROLE) as space:
            if self._described is None:
                self._start(device, space)
            calls = Calls()
            forwarder = Forwarder(
                space,
                calls,
                self._places,
                self._stop,
                idle_seconds=settings.idletime,
                until_empty=settings.until_empty,
                once=settings.once,
                tick=self._report,
            )
            self._stop.wake = functools.partial(_wake, space)
            serve = functools.partial(self._serve, space, forwarder, calls)
            serve()
            self._notify.ready(f"Forwards {_named(self._slots)} of queue space {space.name}")
            grace = 0.0
            try:
                forwarder.run(functools.partial(self._heed, space, serve))
                grace = settings.grace
            finally:
                self._notify.stopping()
                self._tell_of_stop()
                forwarder.finish(grace, self._stop_calls)
                self._report()

    def _start(self, device: Device, space: QueueSpace) -> None:
        """Check what can be wrong before the first message is touched, and get the services ready."""
        settings = self._settings
        if device.readonly:
            raise StartError(f"device {device.path!r} can only be read by this user, but forwarding must write to it")
        described = ServicesFile.read(settings.services)
        queues = self._queues(described)
        served = [space.queue(name) for name in queues]
        slots = self._new_slots(described, queues)
        broken = _broken(slots)
        if len(broken) == len(slots):
            raise next(iter(broken.values()))
        for name, error in broken.items():
            logger.error("queue %r is paused until its service can be loaded: %s", name, error)
        self._described, self._slots = described, slots
        self._clock = device.clock
        self._figures = {name: self._new_figures(name) for name in queues}
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

    def _queues(self, described: ServicesFile) -> tuple[str, ...]:
        queues = self._settings.queues or described.names
        if not queues:
            raise StartError(f"services file {str(described.path)!r} has no services", "Describe one, or name queues.")
        return queues

    def _new_figures(self, name: str) -> Figures:
        return Figures(name, clock=self._clock)

    def _new_slots(self, described: ServicesFile, queues: tuple[str, ...]) -> dict[str, Slot]:
        workers = self._settings.workers
        return {name: Slot(functools.partial(described.service, name, self._environ, workers)) for name in queues}

    def _serve(self, space: QueueSpace, forwarder: Forwarder, calls: Calls) -> None:
        """Have the forwarder serve the queues on the terms that hold now."""
        assert self._described is not None  # noqa: S101 - it was read at the start
        feeds = {}
        for name, slot in self._slots.items():
            terms = self._settings.terms(self._described.described.get(name))
            self._figures[name].set_workers(terms.workers)
            pause = self._pauses.setdefault(name, Pause(name, self._figures[name]))
            pause.renew()
            feeds[name] = Feed(space, name, slot, terms, calls, self._figures[name], pause)
        self._places.serve(set(feeds), self._settings.total_workers or float("inf"))
        self._teller = Teller(space, [self._figures[name] for name in feeds], self._clock)
        forwarder.serve(feeds)

    def _heed(self, space: QueueSpace, serve: Callable[[], None]) -> None:
        """Do what signals ask for while the forwarder goes on."""
        if self._stop.wants_reload():
            self._notify.reloading()
            self._reload(space)
            serve()
            self._notify.ready(f"Forwards {_named(self._slots)} of queue space {space.name}")

    def _reload(self, space: QueueSpace) -> None:
        """Read the services file again; if anything in it cannot be, all stays as it is."""
        fresh: dict[str, Slot] = {}
        try:
            described = ServicesFile.read(self._settings.services)
            queues = self._queues(described)
            for name in queues:
                space.queue(name)
            for name in queues:
                self._settings.terms(described.described.get(name))
            fresh = self._new_slots(described, queues)
            for error in _broken(fresh).values():
                raise error
        except (StartError, QueueError, KeyboardInterrupt) as error:
            # Signals raise nothing here: an interrupt comes out of a module that is loaded.
            why = str(error) or type(error).__name__
            logger.error("the services file was not loaded, and the services stay as they are: %s", why)  # noqa: TRY400
            for slot in fresh.values():
                slot.close()
            return
        self._left = [slot for slot in self._left if slot.is_used]
        for name in self._slots.keys() - fresh.keys():
            slot = self._slots.pop(name)
            self._left.append(slot)
            slot.close()
        for name, slot in fresh.items():
            if name in self._slots:
                self._slots[name].replace(slot)
            else:
                self._slots[name] = slot
                self._figures.setdefault(name, self._new_figures(name))
        self._described = described
        logger.info("the services are loaded again from %r", str(described.path))

    def _report(self) -> None:
        """Let others see how the queues are forwarded."""
        self._notify.alive()
        self._teller.tell()

    def _tell_of_stop(self) -> None:
        if self._stop.at_once:
            return
        if self._stop.asked:
            logger.info(
                "%s: stopping when the message in hand is done; a second signal stops at once", self._stop.asked
            )

    def _stop_calls(self) -> None:
        if self._stop.at_once:
            logger.warning("%s: stopping at once; a message in hand goes back to its queue", self._stop.asked)
        for slot in (*self._slots.values(), *self._left):
            slot.stop_calls()


def _broken(slots: Mapping[str, Slot]) -> dict[str, StartError]:
    """Return which services cannot be loaded, and why."""
    broken = {}
    for name, slot in slots.items():
        try:
            slot.load()
        except StartError as error:
            broken[name] = error
    return broken


def _named(queues: Collection[str]) -> str:
    return ("queue " if len(queues) == 1 else "queues ") + ", ".join(map(repr, queues))


def _wake(space: QueueSpace) -> None:
    # A queue space that is closed, or about to be opened, has nobody asleep in it.
    with contextlib.suppress(QueueError):
        space.wake()
