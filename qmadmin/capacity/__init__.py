"""Starts the capacity command of a queue, once the engine has found that its use crossed the high limit.

The command belongs to nobody who waits for it: a small shell starts `qmadmin.capacity.command_runner` in the background
of a session of its own and ends at once; the runner runs the command and writes to the log how it went.
"""

from __future__ import annotations

import _thread
import dataclasses
import logging
import os
import subprocess
import sys
from pathlib import Path

import qmadmin
import qmcore

logger = logging.getLogger("qmadmin.capacity")

_SEARCHED = [Path(package).absolute().parent for package in (*qmadmin.__path__, *qmcore.__path__)]
"""Where the packages were found, which may be directories that only this application searches."""

_RUNNER = "import sys; sys.path += sys.argv[1:3]; from qmadmin.capacity.command_runner import main; main(sys.argv[3:])"
_IN_THE_BACKGROUND = '"$@" &'
_PATIENCE_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityEvent:
    """The use of a queue crossed its high limit, and this process is the one that runs the command.

    `device` is what QMCONFIG says for whoever is to open the device; there may be a password in it.
    `level` is the high limit as it was written, such as `80%` or `100m`; `value` is the use that crossed it, in the
    unit of the limit; `delivery` is `persist` or `nonpersist`, after the messages that the limit counts.
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

    It never raises: what keeps the command from being started is logged, under `qmadmin.capacity`. Only what a signal
    handler of the application raises meanwhile, as the keyboard's interrupt does, goes through.
    """
    try:
        shell = _background(_runner(event), event.device)
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        _refused(event, str(error))
        return
    try:
        # Not by threading, which waits for the thread to run, and for ever where the interpreter is about to end.
        _thread.start_new_thread(_wait_for_shell, (shell, event))
    except (RuntimeError, MemoryError):
        # The system refuses a thread, or this Python does so late. The shell takes a millisecond or two.
        _wait_for_shell(shell, event, _PATIENCE_SECONDS)


def _runner(event: CapacityEvent) -> list[bytes]:
    """Return the words that start the runner.

    It is isolated from what the application's environment says about Python, and from what the interpreter finds
    installed: it needs these packages and the standard library. The names in the event go as UTF-8 in any locale.
    """
    isolated = [os.fsencode(_python()), b"-I", b"-S", b"-X", b"utf8", b"-c", _RUNNER.encode()]
    names = (event.space, event.queue, event.command, event.level, str(event.value), event.delivery)
    return [
        *isolated,
        *map(os.fsencode, _SEARCHED),
        *(name.encode() for name in names),
    ]


def _python() -> str:
    """Return the interpreter's program; a server that embeds Python may have put its own name in that place."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed = [str(Path(prefix, "bin", version)) for prefix in (sys.exec_prefix, sys.base_exec_prefix)]
    own = [sys.executable] if Path(sys.executable or "").name.lower().startswith(("python", "pypy")) else []
    for path in own + installed:
        if Path(path).is_file():
            return path
    raise FileNotFoundError(f"there is no Python interpreter at {' or '.join(own + installed)}")


def _background(runner: list[bytes], device: str) -> subprocess.Popen[bytes]:
    """Start the runner in a session of its own, as nobody's child, and return the shell that does it.

    The device goes in the environment: there may be a password in its name, and arguments are for all to see.
    """
    # The first process of a container adopts every orphan, and so has to know its children itself.
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
    """Wait for the shell, which is not always short: some sleep and try again when they may not fork."""
    try:
        status = shell.wait(seconds)
    except subprocess.TimeoutExpired:
        # The subprocess module remembers it, and lays it to rest when a process is started next.
        return
    if status:
        _refused(event, f"what starts it ended with status {status}")


def _refused(event: CapacityEvent, reason: str) -> None:
    logger.error(
        "queue %r of queue space %r: capacity command %r cannot be started: %s",
        event.queue,
        event.space,
        event.command,
        reason,
    )
