"""The process of a program: its exit statuses, standard streams and signals, and the handling of Ctrl-C."""

from __future__ import annotations

import contextlib
import enum
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from qmcore.redacted import redacted

if TYPE_CHECKING:
    from types import FrameType


@enum.unique
class Exit(enum.IntEnum):
    """The exit status of a program."""

    OK = 0
    """Every command succeeded."""
    FAILED = 1
    """At least one command failed, or the output could not be written."""
    UNUSABLE = 2
    """The program could not start: wrong arguments, no device, no permission."""
    NOT_FORWARDED = 3
    """A named queue is not forwarded."""
    INTERRUPTED = 130
    """An interrupt (Ctrl-C) ended a script."""
    TERMINATED = 143
    """A termination signal ended the program."""


def fill_standard_descriptors() -> None:
    """Open closed standard streams on /dev/null: otherwise the next file opened would become one of a child."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is the missing one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def escape_unencodable() -> None:
    """Make every character writable, if need be as an escape; a stream that was closed drops all."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_quietly() -> None:
    """Flush the output while errors can still be ignored; at exit Python would report them."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(*lines: str) -> None:
    """Write to stderr, without empty lines; if that fails, only the exit status reports the problem."""
    with contextlib.suppress(OSError):
        click.echo(redacted("\n".join(line for line in lines if line)), err=True)


def refuse(sentence: str, more: str) -> Exit:
    """Say why a program cannot begin, and what to do; return its exit status."""
    say(f"ERROR: {sentence}", more)
    return Exit.UNUSABLE


_SLEEP_SECONDS = 1.0


class _Note:
    """A handler that notes a first interrupt, and raises a second one."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True


@contextlib.contextmanager
def deferring_interrupts() -> Iterator[None]:
    """Finish the block before an interrupt is raised; a second interrupt aborts it.

    A command that changes something is thus either complete or not begun when the prompt returns.
    """
    note = _Note()
    with _handled(note):
        yield
    if note.came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """Within a deferred block: raise an interrupt at once, even one that came before.

    For operations that may take long and have changed nothing yet, such as a wait.
    """
    note = signal.getsignal(signal.SIGINT)
    if not isinstance(note, _Note):
        yield
        return
    if note.came:
        raise KeyboardInterrupt
    with _handled(signal.default_int_handler):
        yield


def sleep(seconds: float) -> None:
    """Sleep for these seconds; an interrupt ends it within a second.

    An interrupt that arrives right before a sleep of Python is noticed only when that is over.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _SLEEP_SECONDS))


@contextlib.contextmanager
def leaving_interrupts_to_child() -> Iterator[list[int]]:
    """Leave an interrupt to the child process, and ignore it here; the yielded list notes the signal.

    An empty handler is set instead of ignoring the signal, because a child would inherit that.
    """
    came: list[int] = []
    with _handled(lambda number, _frame: came.append(number)):
        yield came


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


_NEEDED: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def prepare_process() -> None:
    """Make the standard streams usable, and signals effective."""
    fill_standard_descriptors()
    escape_unencodable()
    take_signals()


def take_signals() -> None:
    """Reset signals about ended children and termination that the parent has ignored or blocked.

    If SIGCHLD is ignored, the system drops the exit status of children, and a failure would look like a success.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NEEDED)
