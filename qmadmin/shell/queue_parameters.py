"""The parameters of queues: declared once, for the commands that create them and change them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from qmadmin.shell import notices
from qmadmin.shell.declare import Option, Positional
from qmadmin.shell.kinds import (
    CapacityCommand,
    Choice,
    Decimal,
    Exceptions,
    Expiration,
    Given,
    HighLimit,
    LowLimit,
    MemoryThreshold,
    Order,
    QueueNameOrNone,
    Retention,
    Span,
    YesNo,
)
from qmadmin.shell.parameters import fields_given, number, present, unchanged
from qmcore import queue
from qmcore.backoff import FACTOR_DEFAULT, FACTOR_MAX, Growth
from qmcore.limits import Threshold
from qmcore.queue import DELAY_MAX, KEPT, Delivery, QueueDefinition

if TYPE_CHECKING:
    from qmadmin.shell.session import Session


DELIVERY = Choice("delivery policy", tuple(delivery.value for delivery in KEPT))

QUEUE_OPTIONS = (
    Option(
        "-d persist|nonpersist",
        "delivery",
        queue.ATTRIBUTES["delivery"].said(
            ": on disk (persist, the default), or in memory that is lost on restart (nonpersist)."
        ),
        DELIVERY,
        "persist",
    ),
    Option(
        "-n nhigh,nlow,ncmd",
        "memory_threshold",
        "The capacity limits and the command for non-persistent messages: like high, low and cmd, in bytes (b),"
        " blocks (B) or percent (%), separated by commas.",
        MemoryThreshold(),
        Threshold.none(),
    ),
    Option(
        "-e default_relative_expiration_time",
        "expiration",
        queue.ATTRIBUTES["expiration"].said(
            ": a number of seconds after they were enqueued (+seconds, or +10m, +2h, +1d), or never (none, the"
            " default)."
        ),
        Expiration(),
    ),
    Option(
        "-E errorq",
        "error_queue",
        queue.ATTRIBUTES["error_queue"].said("; an empty pair of quotes means that of the queue space."),
        QueueNameOrNone(),
        "",
        extension=True,
    ),
    Option(
        "-x {y|n}",
        "keep_expired",
        queue.ATTRIBUTES["keep_expired"].said(" (y) or are removed (n, the default)."),
        YesNo(),
        False,
        extension=True,
    ),
    Option(
        "-R seconds|forever",
        "retention",
        queue.ATTRIBUTES["retention"].said(": seconds, or 10m, 2h, 1d, or forever."),
        Retention(),
        0,
        extension=True,
    ),
    Option(
        "-G none|linear|exponential",
        "retry_growth",
        queue.ATTRIBUTES["retry_growth"].said("; none is the default."),
        Choice("retry growth", tuple(growth.value for growth in Growth)),
        "none",
        extension=True,
    ),
    Option(
        "-F factor",
        "retry_factor",
        queue.ATTRIBUTES["retry_factor"].said(f": 1 to {FACTOR_MAX}; {FACTOR_DEFAULT:g} is the default."),
        Decimal("retry factor", 1, FACTOR_MAX),
        FACTOR_DEFAULT,
        extension=True,
    ),
    Option(
        "-M seconds",
        "retry_maximum",
        queue.ATTRIBUTES["retry_maximum"].said(" (the default). Seconds, or 10m, 2h, 1d."),
        Span("maximum retry delay", most=DELAY_MAX),
        0,
        extension=True,
    ),
    Option(
        "-J fraction",
        "retry_jitter",
        queue.ATTRIBUTES["retry_jitter"].said("; 0 is the default."),
        Decimal("retry jitter", 0, 1),
        0.0,
        extension=True,
    ),
    Option(
        "-D seconds",
        "default_delay",
        queue.ATTRIBUTES["default_delay"].said(": seconds, or 10m, 2h, 1d."),
        Span("default delay", most=DELAY_MAX),
        0,
        extension=True,
    ),
)
"""The options of qcreate and qchange."""

GROUPING = Option(
    "-g",
    "grouping",
    "Keep the messages of one transaction together: one consumer at a time gets them. This cannot be changed later.",
    extension=True,
)

SEVERAL = Option(
    "-m",
    "multiple_consumers",
    "For several consumers: each that subscribes (qsubscribe) gets all messages. This cannot be changed later.",
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
        queue.ATTRIBUTES["out_of_order"].said(
            ": none, top (before all others), msgid (before a certain message), or both, separated by a comma."
        ),
        "Out-of-ordering enqueueing (top, msgid, [default={default}]): ",
        default="none",
        notice="Default out-of-ordering enqueueing is {default}",
        metavar="out-of-order",
    ),
    Positional(
        "retries",
        number("retries", queue.ATTRIBUTES),
        "How often a message that is rolled back returns to the queue. After that it goes to the error queue.",
        "Retries [default={default}]: ",
        default="0",
        notice="Default number of retries is {default}",
    ),
    Positional(
        "delay",
        Span("retry delay", most=DELAY_MAX, not_numeric=notices.DELAY_NOT_NUMERIC),
        queue.ATTRIBUTES["retry_delay"].said(": seconds, or 10m, 2h, 1d."),
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
"""The arguments that qchange has too, in the order of both commands."""


def changing_queue() -> tuple[Option | Positional, ...]:
    """Return the options and arguments of qchange, whose defaults are the present attributes of the queue."""
    return (*unchanged(QUEUE_OPTIONS), *(_present_of_queue(positional) for positional in POSITIONALS))


def _present_of_queue(positional: Positional) -> Positional:
    if positional.name == "cmd":
        stays = "Queue capacity command stays '{default}'"
        return dataclasses.replace(positional, default=present(_queue, "cmd"), notice=stays, clearable=True)
    return dataclasses.replace(
        positional, default=_low if positional.name == "low" else present(_queue, positional.name)
    )


def _low(session: Session, given: Given) -> str:
    """Return the present low limit, or zero if its unit is no longer that of the high limit."""
    now = _queue(session, given).threshold.low
    unit = given["high"].unit
    return str(now) if now.unit is unit and now.value < given["high"].value else f"0{unit.value}"


def _queue(session: Session, given: Given) -> QueueDefinition:
    return session.opened().queue(given["queue_name"]).definition


def queue_fields(given: Given) -> dict[str, Any]:
    """Return the fields of a definition that the parameters of qcreate or qchange give, without what is unchanged."""
    fields = fields_given(given)
    fields["threshold"] = Threshold(fields.pop("high"), fields.pop("low"), fields.pop("command"))
    for name, words in (("delivery", Delivery), ("retry_growth", Growth)):
        if name in fields:
            fields[name] = words(fields[name])
    return fields
