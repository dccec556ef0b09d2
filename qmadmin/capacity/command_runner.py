"""The program that runs one capacity command: it starts it, logs its output and its end, and ends with it.

No process waits for this one. It starts for each run, so it imports little.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qmadmin import ulog
from qmadmin.capacity import CapacityEvent
from qmadmin.configuration import Configuration, ConfigurationError
from qmadmin.console import end_of

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("qmadmin.capacity")

LOGGED_BYTES = 64 * 1024
"""How much of a command's output, from its beginning, is logged; the rest is read and counted."""

_CHUNK = 64 * 1024
_LAST_CHUNKS = 16
"""The most reads of what an ended command left in the pipe; other processes may go on writing to it."""

_ENDING = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
_PYTHONS_OWN = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""The signals that Python ignores in its own process, which are restored in the command."""


def main(arguments: Sequence[str]) -> None:
    """Run the command of a capacity event, given as the texts of its fields; QMCONFIG names the device."""
    space, queue, command, level, value, delivery = arguments
    event = CapacityEvent(os.environ["QMCONFIG"], space, queue, command, level, int(value), delivery)
    _open_log()
    about = f"queue {queue!r} of queue space {space!r}: capacity command {command!r}"
    try:
        signals = _take_signals()
        process = _started(event)
    except (OSError, ValueError) as error:
        logger.error("%s cannot be started: %s", about, error)  # noqa: TRY400 - the sentence says it all
        return
    logger.info(
        "%s starts as process group %d: %s reached %s (%s)", about, process.pid, event.value, event.level, delivery
    )
    _Run(process, about, signals).follow()


def _open_log() -> None:
    try:
        ulog.install("capacity", os.environ, log=Configuration.load(os.environ).log)
    except ConfigurationError as error:
        # No user can be told, and the command has to run nevertheless.
        ulog.install("capacity", os.environ)
        logger.warning("%s; the log has its default form and place", error)


class _Run:
    """A started command, until it has ended and no process is left that could write to its output."""

    def __init__(self, process: subprocess.Popen[bytes], about: str, signals: int) -> None:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        self._process = process
        self._about = about
        self._began = time.monotonic()
        self._signals = signals
        self._pipe = process.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._output = _Output()
        self._selector = selectors.DefaultSelector()

    def follow(self) -> None:
        """Read and log until the end, or until a signal asks for it."""
        self._selector.register(self._signals, selectors.EVENT_READ)
        self._selector.register(self._pipe, selectors.EVENT_READ)
        running = reading = True
        while running or reading:
            ready = [key.fd for key, _ in self._selector.select()]
            received = os.read(self._signals, _CHUNK) if self._signals in ready else b""
            if asked := _ENDING.intersection(received):
                self._give_up(signal.Signals(min(asked)), running=running)
                return
            if reading and self._pipe in ready:
                reading = self._read()
            if running and self._process.poll() is not None:
                running = False
                reading = reading and self._read_what_is_left()
                self._tell_how_it_ended()

    def _read(self) -> bool:
        """Read once, and return whether there may be more some time."""
        try:
            chunk = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return True
        if chunk:
            self._output.take(chunk)
            return True
        self._selector.unregister(self._pipe)
        self._output.end()
        return False

    def _read_what_is_left(self) -> bool:
        return all(self._read() for _ in range(_LAST_CHUNKS))

    def _tell_how_it_ended(self) -> None:
        status = self._process.returncode
        logger.log(
            logging.WARNING if status else logging.INFO,
            "%s: %s after %.3f seconds",
            self._about,
            end_of(status),
            time.monotonic() - self._began,
        )

    def _give_up(self, asked: signal.Signals, *, running: bool) -> None:
        if running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, asked)
        self._output.end()
        logger.warning(
            "%s: %s, which is passed on to its process group; how it ends is not logged"
            if running
            else "%s: %s; the output of processes that it left running is no longer logged",
            self._about,
            asked.name,
        )


class _Output:
    """Logs the output of a command, line by line, up to a limit, and counts the rest."""

    def __init__(self) -> None:
        self._room = LOGGED_BYTES
        self._line = b""
        self._left_out = 0

    def take(self, chunk: bytes) -> None:
        """Log the lines that a piece of output completes."""
        kept, rest = chunk[: self._room], chunk[self._room :]
        self._room -= len(kept)
        *lines, self._line = (self._line + kept).split(b"\n")
        for line in lines:
            _log_output(line)
        if rest and not self._left_out:
            self._log_unfinished_line()
            logger.warning("output: the rest is left out, after %d bytes", LOGGED_BYTES)
        self._left_out += len(rest)

    def end(self) -> None:
        """Log an unfinished line, and how much was left out."""
        self._log_unfinished_line()
        if self._left_out:
            logger.warning("output: %d bytes were left out", self._left_out)

    def _log_unfinished_line(self) -> None:
        if self._line:
            _log_output(self._line)
        self._line = b""


def _log_output(line: bytes) -> None:
    """Log a line; control characters, and bytes that are not text, are shown by their numbers."""
    text = line.removesuffix(b"\r").decode(errors="backslashreplace")
    logger.info(
        "output: %s", "".join(char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in text)
    )


def _started(event: CapacityEvent) -> subprocess.Popen[bytes]:
    """Start the administrator's line as system(3) does, in a process group of its own."""
    facts = {
        "QMCONFIG": event.device,
        "QMSPACE": event.space,
        "QM_SPACE": event.space,
        "QM_QUEUE": event.queue,
        "QM_LEVEL": event.level,
        "QM_VALUE": str(event.value),
        "QM_DELIVERY": event.delivery,
    }
    return subprocess.Popen(
        ["/bin/sh", "-c", "--", event.command],
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | facts,
        process_group=0,
    )


def _take_signals() -> int:
    """Return a descriptor from which signals are read as bytes, each byte a signal's number.

    In the command, handled signals have their default actions again. So have signals that the application ignores or
    blocks, which concerns the application and not the command of an administrator.
    """
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in signal.valid_signals() - _PYTHONS_OWN:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in {signal.SIGCHLD, signal.SIGHUP} | _ENDING:
        signal.signal(number, _noted)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return reading


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal: it is read as a byte."""
