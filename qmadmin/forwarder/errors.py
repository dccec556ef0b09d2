"""Why the forwarder cannot start, and how what it calls comes to an end."""

import signal

STOPS = "the forwarder stops"
"""Why a call ended that `stop_calls` has ended."""


class StartError(Exception):
    """The forwarder cannot start; the text is one sentence without a full stop. `hint` is what helps to mend it."""

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
