"""The parameters of a queue: declared once, for qcreate, which fixes them, and for qchange, which changes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

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
from qmcore.attributes import plain
from qmcore.limits import Threshold
from qmcore.queue import ATTRIBUTES, DELAY_MAX, KEPT, RETRIES_MAX, Delivery, QueueDefinition

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

DELIVERY = Choice("delivery policy", tuple(delivery.value for delivery in KEPT))


UNCHANGED: Final = object()
"""The value of an option that is not given to a command that changes attributes."""

_NAMES = {"qorder": "order", "delay": "retry_delay", "cmd": "command"}
"""The names of attributes whose parameters have other names."""


OPTIONS = (
    Option(
        "-d",
        "delivery",
        ATTRIBUTES["delivery"].said(
            ": on disk (persist, the default), or in memory that is lost on restart (nonpersist)."
        ),
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
        Threshold.none(),
    ),
    Option(
        "-e",
        "expiration",
        ATTRIBUTES["expiration"].said(
            ": a number of seconds after they were enqueued (+seconds, or +10m, +2h, +1d), or never (none, the"
            " default)."
        ),
        Expiration(),
        "default_relative_expiration_time",
    ),
    Option(
        "-E",
        "error_queue",
        ATTRIBUTES["error_queue"].said("; an empty pair of quotes means that of the queue space."),
        QueueNameOrNone(),
        "errorq",
        "",
        extension=True,
    ),
    Option(
        "-x",
        "keep_expired",
        ATTRIBUTES["keep_expired"].said(" (y) or are removed (n, the default)."),
        YesNo(),
        "{y|n}",
        False,
        extension=True,
    ),
    Option(
        "-R",
        "retention",
        ATTRIBUTES["retention"].said(": seconds, or 10m, 2h, 1d, or forever."),
        Retention(),
        "seconds|forever",
        0,
        extension=True,
    ),
)
"""The options of both commands."""

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
        ATTRIBUTES["out_of_order"].said(
            ": none, top (before all others), msgid (before a certain message), or both, separated by a comma."
        ),
        "Out-of-ordering enqueueing (top, msgid, [default={default}]): ",
        default="none",
        notice="Default out-of-ordering enqueueing is {default}",
        metavar="out-of-order",
    ),
    Positional(
        "retries",
        Number("number of retries", most=RETRIES_MAX),
        "How often a message that is rolled back returns to the queue. After that it goes to the error queue.",
        "Retries [default={default}]: ",
        default="0",
        notice="Default number of retries is {default}",
    ),
    Positional(
        "delay",
        Span("retry delay", most=DELAY_MAX, not_numeric=notices.DELAY_NOT_NUMERIC),
        ATTRIBUTES["retry_delay"].said(": seconds, or 10m, 2h, 1d."),
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
"""The arguments that can be changed, in the order of both commands."""


def changing() -> tuple[Option | Positional, ...]:
    """Return the options and arguments of qchange, whose defaults are the present attributes of the queue."""
    options = [dataclasses.replace(option, default=UNCHANGED) for option in OPTIONS]
    return (*options, *(_present(positional) for positional in POSITIONALS))


def _present(positional: Positional) -> Positional:
    if positional.name == "cmd":
        stays = "Queue capacity command stays '{default}'"
        return dataclasses.replace(positional, default=_had("command"), notice=stays, clearable=True)
    return dataclasses.replace(
        positional, default=_low if positional.name == "low" else _had(_NAMES.get(positional.name, positional.name))
    )


def _had(attribute: str) -> Callable[[Session, Given], str]:
    return lambda session, given: str(plain(_definition(session, given))[attribute])


def _low(session: Session, given: Given) -> str:
    """Return the present low limit, or zero if its unit is no longer that of the high limit."""
    now = _definition(session, given).threshold.low
    unit = given["high"].unit
    return str(now) if now.unit is unit and now.value < given["high"].value else f"0{unit.value}"


def _definition(session: Session, given: Given) -> QueueDefinition:
    return session.opened().queue(given["queue_name"]).definition


def defined(given: Given) -> dict[str, Any]:
    """Return the fields of a definition that the parameters of qcreate or qchange give, without what is unchanged."""
    fields = {_NAMES.get(name, name): value for name, value in given_of(**given).items()}
    fields["threshold"] = Threshold(fields.pop("high"), fields.pop("low"), fields.pop("command"))
    if "delivery" in fields:
        fields["delivery"] = Delivery(fields["delivery"])
    return fields


def given_of(**changes: Any) -> dict[str, Any]:
    """Return the changes without unchanged values."""
    return {name: value for name, value in changes.items() if value is not UNCHANGED}
