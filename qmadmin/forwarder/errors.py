"""Why the forwarder cannot start, and why it ends calls."""

STOPS = "the forwarder stops"
"""Why a call ended that `stop_calls` has ended."""


class StartError(Exception):
    """The forwarder cannot start; the text is one sentence without a full stop. `hint` is what helps to mend it."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class UsageError(StartError):
    """An argument is missing, or has no meaning."""
