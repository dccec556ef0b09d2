"""What identifies this process, also against one that gets the same number later."""

from __future__ import annotations

import os
from pathlib import Path

_STATE_FIELD, _START_TIME_FIELD = 0, 19
"""Fields of /proc/self/stat after the command name: its state, and its start in ticks since the boot."""

_DEAD = frozenset("ZXx")
"""The states of a process that is dead and not reaped yet."""


def this_process() -> str:
    """Return what distinguishes this process from one that gets its number later."""
    started = (_state("self") or ("", ""))[1]
    # A program that replaces itself with another keeps its number and its start, and loses its locks.
    return f"{os.getpid()}-{started}-{_IMPORTED}"


def is_running(process: str) -> bool:
    """Return whether the process with this identity runs; False where the system does not show it."""
    pid, started, _ = process.split("-")
    state = _state(pid)
    return state is not None and state[0] not in _DEAD and state[1] == started


def _state(pid: str) -> tuple[str, str] | None:
    """Return the state of a process and when it started; None where there is none, or the system does not show it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[_STATE_FIELD], fields[_START_TIME_FIELD]


_IMPORTED = os.urandom(4).hex()
