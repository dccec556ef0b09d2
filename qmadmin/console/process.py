"""The process that a program runs in: its exit statuses, standard streams and signals, and what Ctrl-C means in it."""

from __future__ import annotations

import contextlib
import enum
import io
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

import click

from qmcore.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@enum.unique
class Exit(enum.IntEnum):
    """How a program ended."""

    OK = 0
    """Every command succeeded."""
    FAILED = 1
    """At least one command failed, or the output could not be written."""
    UNUSABLE = 2
    """The program could not start: wrong arguments, no device, no permission."""
    NOT_FORWARDED = 3
    """A queue that was asked for is forwarded by nobody."""
    INTERRUPTED = 130
    """An interrupt (Ctrl-C) ended a script."""
    TERMINATED = 143
    """A termination signal ended the program."""


def fill_standard_descriptors() -> None:
    """Lead a standard stream that is closed to nowhere: else the next file opened would be taken for it by a child."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is the one that is missing.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def take_every_character() -> None:
    """See that all that is written comes out, if need be as an escape; a stream that was closed drops it."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(descriptor, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_quietly() -> None:
    """Flush the output while its loss can still be ignored; at the very end Python would complain of it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(*lines: str) -> None:
    """Write to stderr, without empty lines; where it cannot be written the exit status has to do."""
    with contextlib.suppress(OSError):
        click.echo(redacted("\n".join(line for line in lines if line)), err=True)


class _Note:
    """A handler that notes a first interrupt, and raises a second one."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        if self.came:
            raise KeyboardInterrupt
        self.came = True


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Finish the work inside before an interrupt is raised; a second interrupt breaks it off.

    A command that changes something is thus either done or not begun when the prompt comes back.
    """
    note = _Note()
    with _handled(note):
        yield
    if note.came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def let_through() -> Iterator[None]:
    """Inside of what is held back: let an interrupt through at once, be it one that came before.

    For what may take long and has changed nothing yet, such as to wait.
    """
    note = signal.getsignal(signal.SIGINT)
    if not isinstance(note, _Note):
        yield
        return
    if note.came:
        raise KeyboardInterrupt
    with _handled(signal.default_int_handler):
        yield


@contextlib.contextmanager
def left_to_the_child() -> Iterator[list[int]]:
    """Leave an interrupt to the child process, and pass it by here; the list that is returned notes the signal.

    A handler that does nothing is set, rather than none: a child would inherit that the signal is ignored.
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


def make_fit() -> None:
    """Make sure that the standard streams can be used, and that signals arrive."""
    fill_standard_descriptors()
    take_every_character()
    take_signals()


def take_signals() -> None:
    """Hear how child processes end, and what asks a program to end, whatever was ignored or blocked before.

    Where SIGCHLD is ignored, the system forgets how they ended, and a failure would be taken for a success.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NEEDED)
