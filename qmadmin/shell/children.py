"""Shell commands that a command line runs: how they ended, for the person who typed it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from qmadmin.console.results import Notice, Severity
from qmadmin.shell.notices import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qmadmin.shell.session import Session

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
"""How a shell command ends that was interrupted and did not take it for something else, as an editor does."""


def checked(command: str) -> str:
    """Return a command line for sh; UsageError if it cannot be one."""
    if "\0" in command:
        raise UsageError("A shell command cannot contain the character NUL")
    return command


def cannot_be_run(error: OSError) -> UsageError:
    """Return what is said where not even the shell can be started."""
    return UsageError(f"Shell command cannot be run: {error.strerror}")


def ended(session: Session, command: str, status: int, interrupts: Sequence[int]) -> list[Notice]:
    """Return what there is to say of the end of a shell command; in a script its interrupt is one of the script."""
    if interrupts and session.at_terminal:
        session.screen.prompt("\n")
    elif interrupts and status in _INTERRUPTED:
        raise KeyboardInterrupt
    if status == 0:
        return []
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return [Notice(Severity.ERROR, f"Shell command {how}: {command}")]
