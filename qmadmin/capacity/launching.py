"""Starting the capacity commands of queues, where the administrator has not switched them off.

What stands in a device proves nothing about who wrote it. So a command runs by itself only where nobody but its user
can write the device; elsewhere the user's own settings have to name the device or the command.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin.volume_makers import VolumeMaker
from qmcore.acts import thresholds
from qmcore.errors import QueueError
from qmcore.purpose import Purpose
from qmcore.queue import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qmadmin.volume_makers import VolumeMaker
    from qmcore.definitions import OpenSpace
    from qmcore.port import Unit, Volume
    from qmcore.queue import Queue, QueueDefinition
    from qmcore.records import CommandClaim
    from qmcore.space import Space

logger = logging.getLogger("qmadmin.capacity")

_ADVICE = "name the device or the command in [capacity] of your settings, qmadmin.toml(5)"


def warn(space: str, definition: QueueDefinition, refusal: Callable[[str], str]) -> None:
    """Log a warning for each capacity command of a queue that is not run as this user, as `refusal` tells."""
    for command in definition.commands:
        if why := refusal(command):
            logger.warning("queue %r of queue space %r: its command %s", definition.name, space, _refused(command, why))


def _refused(command: str, why: str) -> str:
    return f"{command!r} is not run, as it may be another user's: {why}; {_ADVICE}"


class Commands:
    """The capacity commands of a queue space's queues; `config` is what QMCONFIG says for them.

    `refusal` tells why a command is not run as this user, empty where it is.
    """

    def __init__(self, config: str, main: Volume, volume: Volume, space: Space, refusal: Callable[[str], str]) -> None:
        self._refusal = refusal
        self._config = config
        self._main = main
        self._volume = volume
        self._space = space

    def start(self, opened: OpenSpace, claim: CommandClaim) -> None:
        """Start a command that this process has claimed. Its failure is logged, and nobody else's."""

        def claimed(unit: Unit) -> Queue | None:
            return opened.definitions(unit).by_id.get(claim.queue_id) if unit.is_claimed(claim) else None

        try:
            queue = self._volume.read(claimed)
            if queue is not None:
                self._start(queue, claim)
                self._volume.write(lambda unit: thresholds.settle(unit, opened, claim), Purpose.HOLDING)
        except QueueError as error:
            logger.error("a capacity command of queue space %r is left to others: %s", self._space.name, error)  # noqa: TRY400

    def _start(self, queue: Queue, claim: CommandClaim) -> None:
        from qmadmin import capacity

        threshold = queue.definition.memory_threshold if claim.memory else queue.definition.threshold
        event = capacity.CapacityEvent(
            device=self._config,
            space=self._space.name,
            queue=queue.name,
            command=threshold.command,
            level=str(threshold.high),
            value=claim.value,
            delivery=(Delivery.NONPERSIST if claim.memory else Delivery.PERSIST).value,
        )
        if why := self._why_not(threshold.command):
            logger.warning(
                "queue %r of queue space %r has reached %s (%d), and its command %s",
                queue.name,
                self._space.name,
                threshold.high,
                claim.value,
                why,
            )
        else:
            capacity.start(event)

    def _why_not(self, command: str) -> str:
        if not self._main.read(lambda unit: unit.device()).commands:
            return "is switched off on this device"
        why = self._refusal(command)
        return why and _refused(command, why)


def refusal(maker: VolumeMaker, paths: Sequence[str], command: str) -> str:
    """Return why a command is not run as this user; empty where it is run.

    `paths` are those of the device and of the volume that the command stands in.
    """
    device, *others = paths
    why = next(filter(None, map(maker.other_writers, (device, *others))), "")
    return why and _unless_named(why, device, command)


def _unless_named(why: str, device: str, command: str) -> str:
    from qmadmin.configuration import Configuration, ConfigurationError

    try:
        configuration = Configuration.load(os.environ)
        named = configuration.capacity
        if command in named.commands or any(_is_device(each, device) for each in named.devices):
            return _why_not_believed(configuration.file)
    except ConfigurationError as error:
        return f"{why}, and {error}"
    return why


def _is_device(config: str, path: str) -> bool:
    from qmadmin.volume_makers import path_of

    try:
        return path_of(os.path.expanduser(config)) == path  # noqa: PTH111 - it may be a URL
    except QueueError:
        return False


def _why_not_believed(file: str) -> str:
    """Return why settings prove nothing either; empty for a file that only its user, or root, can write."""
    found = Path(file).stat()
    if found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""
    return f"others may write the settings file {file!r} too"
