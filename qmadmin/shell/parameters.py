"""The parameters of a queue: declared once, for qcreate, which fixes them, and for qchange, which changes them."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

from qmadmin.shell import notices
from qmadmin.shell.declare import Option, Positional
from qmadmin.shell.kinds import (
    CapacityCommand,
    Choice,
    Exceptions,
    Expiration,
    Given,
    HighLimit,
    LowLimit,
    MemoryThreshold,
    Number,
    Order,
    QueueNameOrNone,
    Retention,
    Span,
    YesNo,
)
from qmcore import queue
from qmcore.queue import KEPT, QueueDefinition

if TYPE_CHECKING:
    from collections.abc import Callable

    from qmadmin.shell.session import Session

DELIVERY = Choice("delivery policy", tuple(delivery.value for delivery in KEPT))


class Unchanged(enum.Enum):
    """The value of an option of qchange that is not given."""

    UNCHANGED = enum.auto()


UNCHANGED = Unchanged.UNCHANGED

OPTIONS = (
    Option(
        "-d",
        "delivery",
        "Where messages are kept whose senders do not say: on disk (persist, the default), or in memory that is lost"
        " on restart (nonpersist).",
        DELIVERY,
        "persist|nonpersist",
        "persist",
    ),
    Option(
        "-n",
        "memory_threshold",
        "The capacity limits and the command for non-persistent messages: like high, low and cmd, in bytes (b),"
        " blocks (B) or percent (%), separated by commas.",
        MemoryThreshold(),
        "nhigh,nlow,ncmd",
    ),
    Option(
        "-e",
        "expiration",
        "When messages expire whose senders do not say: a number of seconds after they were enqueued (+seconds, or"
        " +10m, +2h, +1d), or never (none, the default).",
        Expiration(),
        "default_relative_expiration_time",
    ),
    Option(
        "-E",
        "error_queue",
        "The error queue of its messages, in place of that of the queue space; an empty pair of quotes means that of"
        " the queue space.",
        QueueNameOrNone(),
        "errorq",
        "",
        extension=True,
    ),
    Option(
        "-x",
        "keep_expired",
        "Whether messages that expire go to the error queue (y) or are removed (n, the default).",
        YesNo(),
        "{y|n}",
        False,
        extension=True,
    ),
    Option(
        "-R",
        "retention",
        "How long messages are retained after they were consumed: seconds, or 10m, 2h, 1d, or forever.",
        Retention(),
        "seconds|forever",
        0,
        extension=True,
    ),
)
"""What can be given to both."""

GROUPING = Option(
    "-g",
    "grouping",
    "Keep the messages of one transaction together: one consumer at a time gets them. This cannot be changed later.",
    default=False,
    extension=True,
)

ORDER = Positional(
    "qorder",
    Order(),
    "The order in which messages are dequeued, most significant first, separated by commas: priority, time,"
    " expiration, and at the end fifo or lifo. This cannot be changed later.",
    "Queue order (priority, time, fifo, lifo): ",
    default="fifo",
    notice="Default queue order is {default}",
)

POSITIONALS = (
    Positional(
        "out_of_order",
        Exceptions(),
        "Which exceptions to the order an enqueue may ask for: none, top (before all others), msgid (before a certain"
        " message), or both, separated by a comma.",
        "Out-of-ordering enqueueing (top, msgid, [default={default}]): ",
        default="none",
        notice="Default out-of-ordering enqueueing is {default}",
        metavar="out-of-order",
    ),
    Positional(
        "retries",
        Number("number of retries", most=queue.RETRIES_MAX),
        "How often a message that is rolled back returns to the queue. After that it goes to the error queue.",
        "Retries [default={default}]: ",
        default="0",
        notice="Default number of retries is {default}",
    ),
    Positional(
        "delay",
        Span("retry delay", most=queue.DELAY_MAX, not_numeric=notices.DELAY_NOT_NUMERIC),
        "How long a message is unavailable after a rollback: seconds, or 10m, 2h, 1d.",
        "Retry delay in seconds [default={default}]: ",
        default="0",
        notice="Default retry delay is {default} seconds",
    ),
    Positional(
        "high",
        HighLimit(),
        "The use of the queue at which the capacity command is run: a number of bytes (b), blocks (B), messages (m), or"
        " percent of the queue space (%).",
        "High limit for queue capacity warning (b for bytes used, B for blocks used,\n"
        "% for percent used, m for messages [default={default}]): ",
        default="100%",
        notice="Default high limit for queue capacity warning is {default}",
    ),
    Positional(
        "low",
        LowLimit(),
        "The use to which the queue must fall before the command is run again, in the unit of the high limit.",
        "Reset (low) limit for queue capacity warning [default={default}]: ",
        default=lambda _session, given: f"0{given['high'].unit.value}",
        notice="Default low limit for queue capacity warning is {default}",
    ),
    Positional(
        "cmd",
        CapacityCommand(),
        "The shell command that is run at the high limit: at most 127 bytes.",
        "Queue capacity command: ",
        default="",
        notice="No default queue capacity command",
    ),
)
"""What can be changed, in the order of both commands."""


def changing() -> tuple[Option | Positional, ...]:
    """Return the options and arguments of qchange, whose defaults are what the queue has."""
    options = [dataclasses.replace(option, default=UNCHANGED) for option in OPTIONS]
    return (*options, *(_present(positional) for positional in POSITIONALS))


def _present(positional: Positional) -> Positional:
    if positional.name == "cmd":
        return dataclasses.replace(
            positional,
            default=_had["cmd"],
            notice="Queue capacity command stays '{default}'",
            clearable=True,
        )
    return dataclasses.replace(positional, default=_had[positional.name])


def _low(session: Session, given: Given) -> str:
    """Return the present low limit, or zero where the unit is not that of the high limit any more."""
    now = _definition(session, given).threshold.low
    unit = given["high"].unit
    return str(now) if now.unit is unit and now.value < given["high"].value else f"0{unit.value}"


def _definition(session: Session, given: Given) -> QueueDefinition:
    return session.opened().queue(given["queue_name"]).definition


_had: dict[str, Callable[[Session, Given], str]] = {
    "out_of_order": lambda session, given: str(_definition(session, given).out_of_order),
    "retries": lambda session, given: str(_definition(session, given).retries),
    "delay": lambda session, given: str(_definition(session, given).retry_delay),
    "high": lambda session, given: str(_definition(session, given).threshold.high),
    "low": _low,
    "cmd": lambda session, given: _definition(session, given).threshold.command,
}


def given_of(**changes: Any) -> dict[str, Any]:
    """Return the changes without those that were not asked for."""
    return {name: value for name, value in changes.items() if value is not UNCHANGED}
