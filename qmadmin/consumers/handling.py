"""How the messages of a queue are handled: what a service and the handler of an application can say of it.

Each key is declared once, as a field of a dataclass, with its allowed values and its meaning: the services file, the
options of handlers and the man pages are faces of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from qmadmin.consumers import BATCH_MAX, WORKERS_MAX, Order, Policy
from qmadmin.settings import SECONDS_MAX
from qmcore import times
from qmcore.attributes import Seconds, Whole, Written
from qmcore.checks import flag_of, number_of
from qmcore.errors import InvalidArgumentError
from qmcore.queue import ATTRIBUTES, RETRY_ATTRIBUTES, RetryPolicy
from qmcore.values import dataclass

_METADATA: Final = "key"


@dataclass(frozen=True, slots=True)
class Form:
    """The allowed values of a key, in words and as a predicate. A `secret` value is never shown.

    `read` converts a value as it is given.
    """

    allowed: str
    allows: Callable[[Any], bool]
    secret: bool = False
    read: Callable[[Any], Any] = lambda value: value


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a service, or an option of a handler: its name, its allowed values, and its meaning.

    `default` is its value if it is not given; a key that is `required` has none. `default_help` describes a default
    that does not explain itself.
    """

    name: str
    form: Form
    help: str
    default: Any
    required: bool
    default_help: str


def required(form: Form, help: str) -> Any:  # noqa: A002 - as click names it
    """Declare a key that has to be given as a field of a dataclass."""
    declared = {"form": form, "help": help, "default_help": ""}
    return dataclasses.field(repr=not form.secret, metadata={_METADATA: declared})


def optional(form: Form, help: str, default: Any = None, *, default_help: str = "") -> Any:  # noqa: A002
    """Declare a key as a field of a dataclass; `default` is its value if it is not given."""
    declared = {"form": form, "help": help, "default_help": default_help or ("" if default else "none")}
    return dataclasses.field(default=default, repr=not form.secret, metadata={_METADATA: declared})


def keys_of(kind: type) -> dict[str, Key]:
    """Return the keys that a dataclass declares by name, in the order of their declaration."""
    return {
        field.name: Key(
            name=field.name,
            default=None if field.default is dataclasses.MISSING else field.default,
            required=field.default is dataclasses.MISSING,
            **field.metadata[_METADATA],
        )
        for field in dataclasses.fields(kind)
        if _METADATA in field.metadata
    }


# ---- forms -----------------------------------------------------------------------------------------------------------


def whole_number(low: int, high: int) -> Form:
    """Return the form of a whole number in a range."""
    return Form(
        f"a whole number from {low} to {high}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high,
        read=_plain,
    )


def seconds(high: int, *, or_none: bool = False) -> Form:
    """Return the form of a number of seconds, which may have decimals, or of text with a unit, such as `10m`.

    `or_none`: 0 is one too.
    """
    return Form(
        f"a number of seconds {'from 0 to' if or_none else 'above 0, at most'} {high}, or a text such as '10m'",
        lambda value: _is_number(value) and math.isfinite(value) and 0 <= value <= high and bool(value or or_none),
        read=_in_seconds,
    )


def _in_seconds(value: object) -> object:
    if isinstance(value, str):
        found = times.in_seconds(value)
        return value if found == value else float(found)
    return value.total_seconds() if isinstance(value, timedelta) else _plain(value)


def _plain(value: object) -> object:
    """Return a number or a flag of another type, such as one of numpy, as Python's; anything else as it is."""
    for found in (flag_of(value), number_of(value)):
        if found is not None:
            return found
    return value


FLAG: Final = Form("True or False", lambda value: isinstance(value, bool), read=_plain)


def one_of(*choices: str) -> Form:
    """Return the form of one of several words."""
    return Form(f"one of {', '.join(choices)}", lambda value: value in choices)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _of_its_queue(name: str) -> Any:
    """Declare a key that holds in place of an attribute of the queue, with the same values."""
    known = ATTRIBUTES[name]
    kind = known.kind

    def allows(value: object) -> bool:
        try:
            kind.kept(value)
        except InvalidArgumentError:
            return False
        return True

    if isinstance(kind, Written):
        form = Form(one_of(*kind.words).allowed, allows)
    elif isinstance(kind, Seconds):
        form = Form(f"whole seconds from 0 to {kind.most}, or a text such as '10m'", allows, read=_in_whole_seconds)
    else:
        form = Form(f"a {'whole ' if isinstance(kind, Whole) else ''}number from {kind.least} to {kind.most}", allows)
    return optional(form, known.about, default_help="that of the queue")


def _in_whole_seconds(value: object) -> object:
    seconds = _in_seconds(value)
    return int(seconds) if isinstance(seconds, float) and seconds.is_integer() else seconds


# ---- keys ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How the messages of a queue are handled, as far as that is said of one queue alone; the fields are keys."""

    workers: int | None = optional(
        whole_number(1, WORKERS_MAX), "The maximum number of concurrent calls.", default_help="that of `--workers`"
    )
    order: str = optional(
        one_of("skip", "strict", "parallel"),
        "How the order of the queue is kept. With `strict` a message that failed is tried again before any other, so"
        " that all messages behind it wait; there is only one worker. With `skip` the others go first while it waits"
        " for its next try. With `parallel` several workers take messages in order, and may finish in any order.",
        "",
        default_help="that of `--order`",
    )
    batch: int | None = optional(
        whole_number(1, BATCH_MAX),
        "The maximum number of messages that a worker takes at once; they are processed one after the other, and"
        " committed together.",
        default_help="that of `--batch`",
    )
    timeout: float | None = optional(
        seconds(SECONDS_MAX), "The seconds that a call may take.", default_help="that of `-t`"
    )
    retries: int | None = _of_its_queue("retries")
    retry_delay: int | None = _of_its_queue("retry_delay")
    retry_growth: str | None = _of_its_queue("retry_growth")
    retry_factor: float | None = _of_its_queue("retry_factor")
    retry_maximum: int | None = _of_its_queue("retry_maximum")
    retry_jitter: float | None = _of_its_queue("retry_jitter")

    @property
    def retry_policy(self) -> RetryPolicy:
        """How a request that failed is tried again."""
        return RetryPolicy(**{name: getattr(self, name) for name in RETRY_ATTRIBUTES})

    def conflict(self) -> str:
        """Return which keys conflict, and why; empty if none do."""
        if self.order == "strict" and (self.workers or 1) > 1:
            return f'order = "strict" requires workers = 1, got {self.workers}'
        return ""

    def policy(self, usual: Policy, order: str = "") -> Policy:
        """Return the policy of the queue: what is not said of it is as usual, and its order as that word says.

        Raises ValueError for a strict order with several workers.
        """
        workers = self.workers or usual.workers
        return dataclasses.replace(
            usual,
            workers=workers,
            order=Order(self.order or order or ("parallel" if workers > 1 else "skip")),
            batch=self.batch or usual.batch,
            seconds=min(self.timeout or math.inf, usual.seconds),
            retry_policy=self.retry_policy,
        )
