"""Errors at the start of the forwarder, and descriptions of how processes ended."""

import signal

STOPS = "the forwarder stops"
"""The reason of a call that `stop_calls` has ended."""


class StartError(Exception):
    """The forwarder cannot start; the text is one sentence without a full stop, and `hint` says what to do."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class UsageError(StartError):
    """An argument is missing, or has no meaning."""


def end_of(status: int) -> str:
    """Return how a process has ended: its exit status, or the signal whose number is negative here."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"
