"""What tells this process from all others, also from one that gets its number later."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

_STATE_FIELD, _START_TIME_FIELD = 0, 19
"""Of /proc/self/stat behind the command name: whether it runs, and the process's start in ticks since the boot."""

_DEAD = frozenset("ZXx")
"""The states of a process that is dead, and that nobody has asked about yet."""


def this_process() -> str:
    """Return what tells this process from one that gets its number later."""
    started = (_state("self") or ("", ""))[1]
    # A program that replaces itself with another keeps its number and its start, and loses its locks.
    return f"{os.getpid()}-{started}-{_IMPORTED}"


def is_running(process: str) -> bool:
    """Return whether a process runs that has told what tells it from others; not so where the system tells nothing."""
    pid, started, _ = process.split("-")
    state = _state(pid)
    return state is not None and state[0] not in _DEAD and state[1] == started


def _state(pid: str) -> tuple[str, str] | None:
    """Return the state of a process and when it has started; None where there is none, or the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[_STATE_FIELD], fields[_START_TIME_FIELD]


_IMPORTED = secrets.token_hex(4)
