"""Starts the capacity command of a queue, once the engine has found that its use crossed the high limit.

The content of a device does not prove who wrote it. Therefore a command runs by itself only if nobody but its user can
write the device; otherwise the user's own settings have to name the device or the command. An administrator can switch
off all commands of a device.

No process waits for the command: a small shell starts `qmadmin.capacity.command_runner` in the background of a session
of its own and ends at once; the runner runs the command and logs its output and its end.
"""

from __future__ import annotations

import _thread
import dataclasses
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import qmadmin
import qmcore
from qmcore.errors import QueueError
from qmcore.values import dataclass

if TYPE_CHECKING:
    from qmadmin.volume_makers import VolumeMaker
    from qmcore.definitions import OpenSpace
    from qmcore.port import Unit, Volume
    from qmcore.queue import Queue, QueueDefinition
    from qmcore.space import Space
    from qmcore.transitions import Reached

logger = logging.getLogger("qmadmin.capacity")

_SEARCHED = [Path(package).absolute().parent for package in (*qmadmin.__path__, *qmcore.__path__)]
"""The directories of the packages, which may be ones that only this application searches."""

_RUNNER = "import sys; sys.path += sys.argv[1:3]; from qmadmin.capacity.command_runner import main; main(sys.argv[3:])"
_IN_THE_BACKGROUND = '"$@" &'
_PATIENCE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class CapacityEvent:
    """The use of a queue crossed its high limit, and this process is the one that runs the command.

    `device` is the value of QMCONFIG with which the command can open the device; it may contain a password.
    `level` is the high limit as it was written, such as `80%` or `100m`; `value` is the use that crossed it, in the
    unit of the limit; `delivery` is `persist` or `nonpersist`: the messages to which the limit applies.
    """

    device: str = dataclasses.field(repr=False)
    space: str
    queue: str
    command: str
    level: str
    value: int
    delivery: str


def start(event: CapacityEvent) -> None:
    """Start the command of the event and return, without waiting for anything that it does.

    It never raises: a failure to start the command is logged under `qmadmin.capacity`. Only exceptions that a signal
    handler of the application raises meanwhile, such as KeyboardInterrupt, are passed on.
    """
    try:
        shell = _background(_runner(event), event.device)
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        _refused(event, str(error))
        return
    try:
        # Not with threading, which waits until the thread runs, for ever if the interpreter is about to end.
        _thread.start_new_thread(_wait_for_shell, (shell, event))
    except (RuntimeError, MemoryError):
        # The system refuses a thread, or Python does during its shutdown. The shell takes a millisecond or two.
        _wait_for_shell(shell, event, _PATIENCE_SECONDS)


def _runner(event: CapacityEvent) -> list[bytes]:
    """Return the command line of the runner.

    It is isolated from Python's environment variables of the application, and from installed packages: it requires only
    these packages and the standard library. The names in the event are passed as UTF-8 in any locale.
    """
    isolated = [os.fsencode(_python()), b"-I", b"-S", b"-X", b"utf8", b"-c", _RUNNER.encode()]
    names = (event.space, event.queue, event.command, event.level, str(event.value), event.delivery)
    return [*isolated, *map(os.fsencode, _SEARCHED), *(name.encode() for name in names)]


def _python() -> str:
    """Return the path of the interpreter; a server that embeds Python may have put its own path in that place."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed = [str(Path(prefix, "bin", version)) for prefix in (sys.exec_prefix, sys.base_exec_prefix)]
    own = [sys.executable] if Path(sys.executable or "").name.lower().startswith(("python", "pypy")) else []
    for path in own + installed:
        if Path(path).is_file():
            return path
    raise FileNotFoundError(f"there is no Python interpreter at {' or '.join(own + installed)}")


def _background(runner: list[bytes], device: str) -> subprocess.Popen[bytes]:
    """Start the runner in a session of its own, detached from this process, and return the shell that does it.

    The device is passed in the environment: it may contain a password, and every user can see arguments.
    """
    # The first process of a container inherits every orphan, and has to reap its children itself.
    first = os.getpid() == 1
    return subprocess.Popen(
        runner if first else [b"/bin/sh", b"-c", _IN_THE_BACKGROUND.encode(), b"sh", *runner],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"QMCONFIG": device},
        start_new_session=True,
    )


def _wait_for_shell(shell: subprocess.Popen[bytes], event: CapacityEvent, seconds: float | None = None) -> None:
    """Wait for the shell, which may take long: some sleep and try again when they cannot fork."""
    try:
        status = shell.wait(seconds)
    except subprocess.TimeoutExpired:
        # The subprocess module keeps it, and reaps it when the next process is started.
        return
    if status:
        _refused(event, f"the process that starts it ended with status {status}")


def _refused(event: CapacityEvent, reason: str) -> None:
    logger.error(
        "queue %r of queue space %r: capacity command %r cannot be started: %s",
        event.queue,
        event.space,
        event.command,
        reason,
    )


_ADVICE = "name the device or the command in [capacity] of your settings, qmadmin.toml(5)"


def warn(space: str, definition: QueueDefinition, refusal: Callable[[str], str]) -> None:
    """Log a warning for each capacity command of a queue that is not run as this user, according to `refusal`."""
    for command in definition.commands:
        if why := refusal(command):
            logger.warning(
                "queue %r of queue space %r: its command %s", definition.name, space, _is_not_run(command, why)
            )


def _is_not_run(command: str, why: str) -> str:
    return f"{command!r} is not run, as it may be another user's: {why}; {_ADVICE}"


class CapacityCommands:
    """The capacity commands of the queues of a queue space; `config` is the value of QMCONFIG for them.

    `main` returns the volume that QMCONFIG names, `refusal` why a command is not run as this user; empty if it is.
    """

    def __init__(
        self, config: str, main: Callable[[], Volume], volume: Volume, space: Space, refusal: Callable[[str], str]
    ) -> None:
        self._refusal = refusal
        self._config = config
        self._main = main
        self._volume = volume
        self._space = space

    def start(self, opened: OpenSpace, claim: Reached) -> None:
        """Start a command that this process has claimed. A failure is only logged."""
        # The runner, which imports this module, does not need the engine.
        from qmcore.acts import thresholds
        from qmcore.purpose import Purpose

        def claimed(unit: Unit) -> Queue | None:
            return (
                opened.definitions(unit).by_id.get(claim.queue_id) if unit.capacity_commands.is_claimed(claim) else None
            )

        try:
            queue = self._volume.read(claimed)
            if queue is not None:
                self._start(queue, claim)
                self._volume.write(lambda unit: thresholds.settle(unit, opened, claim), Purpose.HOLDING)
        except QueueError as error:
            logger.error("a capacity command of queue space %r is left to other processes: %s", self._space.name, error)  # noqa: TRY400

    def _start(self, queue: Queue, claim: Reached) -> None:
        from qmcore.queue import Delivery

        threshold = queue.definition.memory_threshold if claim.memory else queue.definition.threshold
        event = CapacityEvent(
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
            start(event)

    def _why_not(self, command: str) -> str:
        if not self._main().read(lambda unit: unit.device.info()).commands:
            return "is switched off on this device"
        why = self._refusal(command)
        return why and _is_not_run(command, why)


def refusal(maker: VolumeMaker, paths: Sequence[str], command: str) -> str:
    """Return why a command is not run as this user; empty if it is run.

    `paths` are those of the device and of the volume of the queue.
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
            return why_untrusted(configuration.file)
    except ConfigurationError as error:
        return f"{why}, and {error}"
    return why


def _is_device(config: str, path: str) -> bool:
    from qmadmin.volume_makers import path_of

    try:
        return path_of(os.path.expanduser(config)) == path  # noqa: PTH111 - it may be a URL
    except QueueError:
        return False


def why_untrusted(file: str) -> str:
    """Return why the settings cannot be trusted either; empty for a file that only its user, or root, can write."""
    found = Path(file).stat()
    if found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""
    return f"others may write the settings file {file!r} too"
