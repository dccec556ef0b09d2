"""What tmqforward is started with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Final

from qmadmin.configuration import SECONDS_MAX
from qmadmin.forwarder import notices
from qmadmin.forwarder.errors import UsageError
from qmadmin.forwarder.metrics import Address
from qmadmin.shell.results import Notice, Severity
from qmcore import names
from qmcore.errors import InvalidArgumentError

TRANTIME_MAX: Final = SECONDS_MAX

Warn = Callable[[Notice], None]
"""Takes a warning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the forwarder works and on what. Times are seconds; a transaction time of 0 is no limit."""

    device: str
    space: str
    queues: tuple[str, ...]
    services: str
    trantime: int
    idletime: int
    until_empty: bool = False
    metrics: Address | None = None

    @property
    def call_seconds(self) -> float:
        """How long a service may take."""
        return self.trantime or math.inf


def place(arguments: Sequence[str], usual_device: str) -> tuple[str, str]:
    """Return device and queue space from the arguments; the device is the usual one where only one is given."""
    if len(arguments) > 2:
        raise UsageError(f"Invalid argument {arguments[2]}")
    if len(arguments) == 2:
        return arguments[0], arguments[1]
    if not usual_device:
        raise UsageError("QMCONFIG not set")
    if not arguments:
        raise UsageError("no queue space is named")
    return usual_device, arguments[0]


def queue_names(options: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the values of -q, each once, in their order."""
    if not options:
        raise UsageError("no queue is named")
    listed = [name for option in options for name in option.split(",")]
    try:
        return tuple(dict.fromkeys(names.queue_name(name.strip()) for name in listed))
    except InvalidArgumentError as error:
        raise UsageError(f"-q {','.join(options)!r}: {error.message}") from None


def metrics_address(text: str | None, usual: str) -> Address | None:
    """Return where --metrics has the figures served, or else the settings; None where it is empty."""
    chosen = usual if text is None else text
    return Address.parse(chosen) if chosen else None


def transaction_time(text: str | None, usual: int, warn: Warn) -> int:
    """Return the seconds that -t gives, or the usual ones; a value without meaning is warned about and ignored."""
    if text is None:
        return usual
    if not _is_number(text):
        warn(notices.TRANTIME_NOT_NUMERIC())
    elif int(text) > TRANTIME_MAX:
        warn(notices.TRANTIME_TOO_LARGE(limit=TRANTIME_MAX + 1))
    else:
        return int(text)
    return usual


def idle_time(text: str | None, usual: int, warn: Warn) -> int:
    """Return the seconds that -i gives, or the usual ones; a value without meaning is warned about and ignored."""
    if text is None:
        return usual
    if not _is_number(text):
        warn(notices.IDLETIME_NOT_NUMERIC())
    elif int(text) > TRANTIME_MAX:
        # The message catalogue has no number for it.
        warn(Notice(Severity.WARN, f"-i option ignored as argument is too large (must be below {TRANTIME_MAX + 1})"))
    else:
        return int(text)
    return usual


def _is_number(text: str) -> bool:
    # More digits than any number has would cost time to read, and Python refuses them.
    return text.isascii() and text.isdigit() and len(text) < 4000
