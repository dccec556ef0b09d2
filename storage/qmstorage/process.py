"""What tells this process from all others, also from one that gets its number later."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_START_TIME_FIELD = 19
"""Of /proc/self/stat behind the command name: the process's start in ticks since the boot."""


def this_process() -> str:
    """Return what tells this process from one that gets its number later."""
    try:
        behind_name = Path("/proc/self/stat").read_text().rpartition(")")[2]
        started = behind_name.split()[_START_TIME_FIELD]
    except OSError:
        started = ""
    # A program that replaces itself with another keeps its number and its start, and loses its locks.
    return f"{os.getpid()}-{started}-{_IMPORTED}"


_IMPORTED = secrets.token_hex(4)
