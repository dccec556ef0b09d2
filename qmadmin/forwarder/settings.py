"""What tmqforward is started with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Final

from qmadmin.console.results import Entry, Notice, Severity
from qmadmin.consumers.policy import Order, Policy, RunPolicy
from qmadmin.forwarder.descriptions import Description
from qmadmin.forwarder.errors import StartError, UsageError
from qmadmin.forwarder.metrics import Address
from qmadmin.settings import SECONDS_MAX
from qmcore import names, times
from qmcore.errors import InvalidArgumentError

TRANTIME_MAX: Final = SECONDS_MAX

FORGETTING_WORKERS: Final = 32
"""Calls of a service at a time with -f, where nothing says how many."""

TRANTIME_NOT_NUMERIC = Entry(1602, Severity.WARN, "-t option ignored as argument must be numeric")
TRANTIME_TOO_LARGE = Entry(1603, Severity.WARN, "-t option ignored as argument is too large (must be below {limit})")
IDLETIME_NOT_NUMERIC = Entry(1604, Severity.WARN, "-i option ignored as argument must be numeric")

CATALOGUE = (TRANTIME_NOT_NUMERIC, TRANTIME_TOO_LARGE, IDLETIME_NOT_NUMERIC)
"""The sentences of Tuxedo's message catalogue that concern the forwarder, by number."""

Warn = Callable[[Notice], None]
"""Takes a warning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the forwarder works, on what, and how. Times are seconds; a transaction time of 0 means no limit.

    `queues` is empty where all services of the file are served. `workers`, `order` and `batch` hold where the services
    file says nothing; `total_workers` 0 means no limit. `pace` is the delay of -f, None without it, and `blocktime` the
    value of -b.
    """

    device: str
    space: str
    queues: tuple[str, ...]
    services: str
    trantime: int
    idletime: int
    grace: int = 30
    workers: int = 1
    total_workers: int = 0
    order: str = ""
    batch: int = 1
    until_empty: bool = False
    once: bool = False
    gives_up: bool = False
    transactional: bool = True
    pace: int | None = None
    blocktime: int | None = None
    metrics: Address | None = None

    @property
    def call_seconds(self) -> float:
        """How long a service may take."""
        if self.blocktime is not None:
            return self.blocktime or math.inf
        return self.trantime or math.inf

    @property
    def options(self) -> str:
        """What of this Tuxedo's options say, as they would be written, and whether each queue is looked at once."""
        flags = {"-e": self.until_empty, "-d": self.gives_up, "-n": not self.transactional, "--once": self.once}
        numbers = {"-t": self.trantime, "-i": self.idletime, "-f": self.pace, "-b": self.blocktime}
        said = [f"{option} {number}" for option, number in numbers.items() if number is not None]
        return " ".join((*said, *(option for option, given in flags.items() if given)))

    @property
    def run_policy(self) -> RunPolicy:
        """How the forwarder runs, and when it ends."""
        return RunPolicy(
            idle_seconds=self.idletime,
            grace_seconds=self.grace,
            total_workers=self.total_workers or math.inf,
            until_empty=self.until_empty,
            once=self.once,
        )

    def policy(self, description: Description | None) -> Policy:
        """Return by which policy a queue is served whose service is described so; with None nothing is known of it.

        Raises StartError where they contradict each other.
        """
        said = description or Description(name="")
        workers = said.workers or self.workers
        order = Order(said.order or self.order or ("parallel" if workers > 1 else "skip"))
        try:
            return Policy(
                seconds=min(said.timeout or math.inf, self.call_seconds),
                workers=workers,
                # What tells the client of a failure, and the end of its request, are one commit of their own; --once
                # takes one message; the calls of a batch have no time between them.
                batch=1 if self.gives_up or self.once or self.pace else said.batch or self.batch,
                order=order,
                transactional=self.transactional,
                answers=self.pace is None,
                pace=self.pace or 0,
                gives_up=self.gives_up,
            )
        except ValueError:
            raise StartError(
                f"service {said.name!r} has {workers} workers, and a strict order requires one",
                "Use one worker, or another order.",
            ) from None


def place(arguments: Sequence[str], usual_device: str) -> tuple[str, str]:
    """Return device and queue space from the arguments; the device is the usual one where only one is given."""
    if len(arguments) > 2:
        raise UsageError(f"Invalid argument {arguments[2]}")
    if len(arguments) == 2:
        return arguments[0], arguments[1]
    if not arguments:
        raise UsageError("no queue space is named")
    if not usual_device:
        raise UsageError(f"QMCONFIG not set, and no device is named before queue space {arguments[0]!r}")
    return usual_device, arguments[0]


def queue_names(options: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the values of -q, each once, in their order."""
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
    too_large = TRANTIME_TOO_LARGE(limit=TRANTIME_MAX + 1)
    return _number(text, usual, warn, TRANTIME_NOT_NUMERIC(), too_large)


def idle_time(text: str | None, usual: int, warn: Warn) -> int:
    """Return the seconds that -i gives, or the usual ones; a value without meaning is warned about and ignored."""
    return _number(text, usual, warn, IDLETIME_NOT_NUMERIC(), _too_large("-i"))


def other_time(option: str, text: str | None, warn: Warn) -> int | None:
    """Return the seconds that an option gives, None without it; a value without meaning is warned about and ignored."""
    if text is None:
        return None
    value = _number(text, -1, warn, _not_numeric(option), _too_large(option))
    return None if value < 0 else value


def block_time(text: str | None, warn: Warn, *, has_meaning: bool) -> int | None:
    """Return the seconds that -b gives, which has a meaning with -n or -f only."""
    value = other_time("-b", text, warn)
    if value is not None and not has_meaning:
        warn(Notice(Severity.WARN, "-b option ignored as neither -n nor -f is given"))
        return None
    return value


def worker_count(asked: int | None, usual: int, *, forgets: bool) -> int:
    """Return how many calls of a service run at a time; where nobody waits for them that are more."""
    if asked is not None:
        return asked
    return max(usual, FORGETTING_WORKERS) if forgets else usual


def _number(text: str | None, usual: int, warn: Warn, not_numeric: Notice, too_large: Notice) -> int:
    if text is None:
        return usual
    text = times.in_seconds(text)
    if not _is_number(text):
        warn(not_numeric)
    elif int(text) > TRANTIME_MAX:
        warn(too_large)
    else:
        return int(text)
    return usual


def _not_numeric(option: str) -> Notice:
    # The message catalogue has no number for these two.
    return Notice(Severity.WARN, f"{option} option ignored as argument must be numeric")


def _too_large(option: str) -> Notice:
    return Notice(Severity.WARN, f"{option} option ignored as argument is too large (must be below {TRANTIME_MAX + 1})")


def _is_number(text: str) -> bool:
    # More digits than any number has would cost time to read, and Python refuses them.
    return text.isascii() and text.isdigit() and len(text) < 4000
