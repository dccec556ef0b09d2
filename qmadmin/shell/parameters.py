"""The parameters of queues and queue spaces: declared once, for the commands that create them and change them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from qmadmin.console.results import Notice
from qmadmin.shell import notices
from qmadmin.shell.declare import Option, Positional
from qmadmin.shell.kinds import (
    CapacityCommand,
    Choice,
    ErrorQueueName,
    Exceptions,
    Expiration,
    Given,
    HighLimit,
    LowLimit,
    Memory,
    MemorySize,
    MemoryThreshold,
    MemoryUnit,
    Number,
    Order,
    QueueNameOrNone,
    Retention,
    Span,
    YesNo,
)
from qmcore import queue, space
from qmcore.attributes import Attribute, plain
from qmcore.limits import Threshold
from qmcore.queue import DELAY_MAX, KEPT, Delivery, QueueDefinition
from qmcore.space import ACTIONS_DEFAULT, IPC_KEY_RANGE, SpaceDefinition, rounded_pages

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

DELIVERY = Choice("delivery policy", tuple(delivery.value for delivery in KEPT))


UNCHANGED: Final = object()
"""The value of an option that is not given to a command that changes attributes."""

_NAMES = {
    "qorder": "order",
    "delay": "retry_delay",
    "cmd": "command",
    "ipckey": "ipc_key",
    "trans": "transactions",
    "procs": "processes",
    "errorq": "error_queue",
}
"""The names of attributes whose parameters have other names."""


def _number(attribute: str, of: Mapping[str, Attribute] = space.ATTRIBUTES) -> Number:
    """Return the kind of a parameter that is a number, as its attribute is declared."""
    kind = of[attribute].kind
    return Number(kind.called(), kind.least, kind.most)


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
)
"""The options of qcreate and qchange."""

GROUPING = Option(
    "-g",
    "grouping",
    "Keep the messages of one transaction together: one consumer at a time gets them. This cannot be changed later.",
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
        _number("retries", queue.ATTRIBUTES),
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
    return (*_unchanged(QUEUE_OPTIONS), *(_present_of_queue(positional) for positional in POSITIONALS))


def _present_of_queue(positional: Positional) -> Positional:
    if positional.name == "cmd":
        stays = "Queue capacity command stays '{default}'"
        return dataclasses.replace(positional, default=_had(_queue, "cmd"), notice=stays, clearable=True)
    return dataclasses.replace(positional, default=_low if positional.name == "low" else _had(_queue, positional.name))


def _low(session: Session, given: Given) -> str:
    """Return the present low limit, or zero if its unit is no longer that of the high limit."""
    now = _queue(session, given).threshold.low
    unit = given["high"].unit
    return str(now) if now.unit is unit and now.value < given["high"].value else f"0{unit.value}"


def _queue(session: Session, given: Given) -> QueueDefinition:
    return session.opened().queue(given["queue_name"]).definition


def queue_fields(given: Given) -> dict[str, Any]:
    """Return the fields of a definition that the parameters of qcreate or qchange give, without what is unchanged."""
    fields = _fields(given)
    fields["threshold"] = Threshold(fields.pop("high"), fields.pop("low"), fields.pop("command"))
    if "delivery" in fields:
        fields["delivery"] = Delivery(fields["delivery"])
    return fields


# ---- queue spaces ----------------------------------------------------------------------------------------------------


def _recorded(shown: str, name: str) -> Option:
    return Option(shown, name, "Recorded, without effect.", _number(name), 0)


RECORDED = (
    _recorded("-o overflow_memory", "overflow"),
    _recorded("-H handles", "handles"),
    _recorded("-C cursors", "cursors"),
    _recorded("-O owners", "owners"),
    _recorded("-Q tmp_queues", "temporary_queues"),
    _recorded("-f filter_memory", "filter_memory"),
)
"""Parameters without effect, recorded for scripts that give them."""

SPACE_OPTIONS = (
    Option(
        "-A actions",
        "actions",
        "Concurrent actions beyond one for each process; an action is a dequeue that waits.",
        _number("actions"),
        ACTIONS_DEFAULT,
    ),
    Option(
        "-n nonpersistent_msg_memory[b,B]",
        "memory",
        space.ATTRIBUTES["memory"].said(
            " in bytes (b), rounded down to whole pages, or in blocks (B), which are pages of the device and the"
            " default unit. Without memory every enqueue of such a message fails."
        ),
        MemorySize(),
        Memory(0, MemoryUnit.BYTES),
    ),
    *RECORDED,
)

IPC_KEY = Positional(
    "ipckey",
    _number("ipc_key"),
    "A number that no other queue space has; it should be above 32768 and below 262143.",
    "IPC Key for queue space: ",
    metavar="ipckey",
)
PAGES = Positional(
    "pages",
    Number("size in disk pages", 1),
    space.ATTRIBUTES["pages"].said(". One page, and one for each queue, are overhead; the rest holds messages."),
    "Size of queue space in disk pages: ",
)
QUEUES = Positional("queues", _number("queues"), space.ATTRIBUTES["queues"].about, "Number of queues in queue space: ")
LIMITS = (
    Positional(
        "trans",
        _number("transactions"),
        space.ATTRIBUTES["transactions"].about,
        "Number of concurrent transactions in queue space: ",
    ),
    Positional(
        "procs",
        _number("processes"),
        space.ATTRIBUTES["processes"].said("; one qmadmin may open it in addition."),
        "Number of concurrent processes in queue space: ",
    ),
    Positional(
        "messages", _number("messages"), space.ATTRIBUTES["messages"].about, "Number of messages in queue space: "
    ),
)
ERROR_QUEUE = Positional(
    "errorq",
    ErrorQueueName(),
    space.ATTRIBUTES["error_queue"].said(
        "; it is only named here, and has to be created with qcreate. Without one such messages are lost."
    ),
    "Error queue name: ",
    default="",
    notice="No default error queue name: messages that are out of retries will be lost",
)
INITIALIZE = Positional(
    "inityn",
    YesNo(),
    "Whether disk space for its pages is allocated now, so that a full disk is noticed now. Otherwise, and always on"
    " PostgreSQL, it is allocated when it is needed.",
    "Initialize extents (y, n [default=n]): ",
    default="n",
)
BLOCKING = Positional(
    "blocking",
    _number("blocking"),
    "Recorded, without effect.",
    "Blocking factor [default={default}]: ",
    default="16",
    notice="Default blocking factor is {default}",
)
CREATING = (IPC_KEY, PAGES, QUEUES, *LIMITS, ERROR_QUEUE, INITIALIZE, BLOCKING)
"""The parameters of a new queue space after its name."""


def changing_space() -> tuple[Option | Positional, ...]:
    """Return the options and arguments of qspacechange, whose defaults are the present attributes."""
    return (
        *_unchanged(SPACE_OPTIONS),
        *(_present_of_space(positional) for positional in (IPC_KEY, *LIMITS)),
        dataclasses.replace(
            ERROR_QUEUE,
            help=f"{ERROR_QUEUE.help} An empty pair of quotes removes it.",
            prompt="Error queue name{present}: ",
            default=_had(_space, "errorq"),
            notice="Error queue name stays '{default}'",
            facts=_present_error_queue,
            clearable=True,
        ),
        INITIALIZE,
        dataclasses.replace(BLOCKING, default=_had(_space, "blocking")),
    )


def _present_of_space(positional: Positional) -> Positional:
    what = positional.prompt.removesuffix(": ")
    prompt, stays = f"{what} [default={{default}}]: ", f"{what} stays {{default}}"
    return dataclasses.replace(positional, prompt=prompt, default=_had(_space, positional.name), notice=stays)


def _present_error_queue(session: Session, given: Given) -> Mapping[str, str]:
    name = _space(session, given).error_queue
    return {"present": f" [default={name}]" if name else ""}


def _space(session: Session, given: Given) -> SpaceDefinition:
    return session.device.space(given["queue_space_name"]).definition


def space_fields(given: Given, page_size: int) -> dict[str, Any]:
    """Return the fields of a definition that the parameters of a command give, without what is unchanged."""
    fields = _fields(given)
    if "memory" in fields:
        fields["memory"] = fields["memory"].in_bytes(page_size)
    return fields


def doubtful_key(new: SpaceDefinition) -> list[Notice]:
    """Return a warning about a key that Tuxedo's guide advises against."""
    least, most = IPC_KEY_RANGE
    if least <= new.ipc_key <= most:
        return []
    return [Notice.warning(f"IPC key {new.ipc_key} of queue space {new.name!r} is outside {least}..{most}")]


def without_effect(recorded: Mapping[str, Any]) -> list[Notice]:
    """Return a notice about given options that have no effect."""
    flags = [option.flag for option in RECORDED if recorded.get(option.name)]
    return [Notice.info(f"{', '.join(flags)}: recorded, but without effect")] if flags else []


def initialization(device: str, *, wanted: bool) -> list[Notice]:
    """Return a notice if the disk space of a device cannot be allocated in advance."""
    if not wanted or "://" not in device:
        return []
    return [Notice.info("no disk is allocated now: PostgreSQL takes it when messages need it")]


def rounding(pages: int) -> list[Notice]:
    """Return a notice about a number of pages that is rounded down."""
    if rounded_pages(pages) == pages:
        return []
    return [Notice.info(f"{pages} pages are rounded down to {rounded_pages(pages)}")]


# ---- both ------------------------------------------------------------------------------------------------------------


def _unchanged(options: Sequence[Option]) -> list[Option]:
    return [dataclasses.replace(option, default=UNCHANGED) for option in options]


def _had(definition: Callable[[Session, Given], object], parameter: str) -> Callable[[Session, Given], str]:
    """Return the default of a parameter that may stay as it is."""
    return lambda session, given: str(plain(definition(session, given))[_NAMES.get(parameter, parameter)])


def _fields(given: Given) -> dict[str, Any]:
    return {_NAMES.get(name, name): value for name, value in given_of(**given).items()}


def given_of(**changes: Any) -> dict[str, Any]:
    """Return the changes without unchanged values."""
    return {name: value for name, value in changes.items() if value is not UNCHANGED}
