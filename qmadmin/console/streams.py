"""The standard streams of a program: what may be closed when it starts, or has nobody who reads it when it ends."""

from __future__ import annotations

import contextlib
import io
import os
import sys

import click

from qmcore.redacted import redacted


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
