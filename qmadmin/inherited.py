"""What a program inherits from whoever started it, made fit for what it does."""

from __future__ import annotations

import signal
from typing import Final

from qmadmin.console.streams import fill_standard_descriptors, take_every_character

_NEEDED: Final = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def make_fit() -> None:
    """Have standard streams that can be used, and signals that arrive."""
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
