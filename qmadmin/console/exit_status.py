"""Exit statuses of the programs."""

from __future__ import annotations

import enum


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
