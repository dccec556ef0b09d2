"""The parameters of a queue space: declared once, for qspacecreate, qspacechange and qsize."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Notice, Severity
from qmadmin.shell.declare import Option, Positional
from qmadmin.shell.kinds import ErrorQueueName, Given, Memory, MemorySize, MemoryUnit, Number, YesNo
from qmadmin.shell.parameters import UNCHANGED, given_of
from qmcore.attributes import plain
from qmcore.space import ACTIONS_DEFAULT, ATTRIBUTES, IPC_KEY_RANGE, SpaceDefinition, rounded_pages

if TYPE_CHECKING:
    from qmadmin.shell.session import Session


_NAMES = {"ipckey": "ipc_key", "trans": "transactions", "procs": "processes", "errorq": "error_queue"}
"""The names of attributes whose parameters have other names."""


def _number(attribute: str) -> Number:
    """Return the kind of a parameter that is a number, as its attribute is declared."""
    kind = ATTRIBUTES[attribute].kind
    return Number(kind.called(), kind.least, kind.most)


def _recorded(flag: str, name: str, metavar: str) -> Option:
    return Option(flag, name, "Recorded, without effect.", _number(name), metavar, 0)


RECORDED = (
    _recorded("-o", "overflow", "overflow_memory"),
    _recorded("-H", "handles", "handles"),
    _recorded("-C", "cursors", "cursors"),
    _recorded("-O", "owners", "owners"),
    _recorded("-Q", "temporary_queues", "tmp_queues"),
    _recorded("-f", "filter_memory", "filter_memory"),
)
"""Parameters without effect, recorded for scripts that give them."""

OPTIONS = (
    Option(
        "-A",
        "actions",
        "Concurrent actions beyond one for each process; an action is a dequeue that waits.",
        _number("actions"),
        "actions",
        ACTIONS_DEFAULT,
    ),
    Option(
        "-n",
        "memory",
        ATTRIBUTES["memory"].said(
            " in bytes (b), rounded down to whole pages, or in blocks (B), which are pages of the device and the"
            " default unit. Without memory every enqueue of such a message fails."
        ),
        MemorySize(),
        "nonpersistent_msg_memory[b,B]",
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
    ATTRIBUTES["pages"].said(". One page, and one for each queue, are overhead; the rest holds messages."),
    "Size of queue space in disk pages: ",
)
QUEUES = Positional("queues", _number("queues"), ATTRIBUTES["queues"].about, "Number of queues in queue space: ")
LIMITS = (
    Positional(
        "trans",
        _number("transactions"),
        ATTRIBUTES["transactions"].about,
        "Number of concurrent transactions in queue space: ",
    ),
    Positional(
        "procs",
        _number("processes"),
        ATTRIBUTES["processes"].said("; one qmadmin may open it in addition."),
        "Number of concurrent processes in queue space: ",
    ),
    Positional("messages", _number("messages"), ATTRIBUTES["messages"].about, "Number of messages in queue space: "),
)
ERROR_QUEUE = Positional(
    "errorq",
    ErrorQueueName(),
    ATTRIBUTES["error_queue"].said(
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


def changing() -> tuple[Option | Positional, ...]:
    """Return the options and arguments of qspacechange, whose defaults are the present attributes."""
    options = [dataclasses.replace(option, default=UNCHANGED) for option in OPTIONS]
    return (
        *options,
        *(_present(positional) for positional in (IPC_KEY, *LIMITS)),
        dataclasses.replace(
            ERROR_QUEUE,
            help=f"{ERROR_QUEUE.help} An empty pair of quotes removes it.",
            prompt="Error queue name{present}: ",
            default=_had("errorq"),
            notice="Error queue name stays '{default}'",
            facts=_present_error_queue,
            clearable=True,
        ),
        INITIALIZE,
        dataclasses.replace(BLOCKING, default=_had("blocking")),
    )


def _present(positional: Positional) -> Positional:
    what = positional.prompt.removesuffix(": ")
    return dataclasses.replace(
        positional,
        prompt=f"{what} [default={{default}}]: ",
        default=_had(positional.name),
        notice=f"{what} stays {{default}}",
    )


def _present_error_queue(session: Session, given: Given) -> Mapping[str, str]:
    name = _definition(session, given).error_queue
    return {"present": f" [default={name}]" if name else ""}


def _definition(session: Session, given: Given) -> SpaceDefinition:
    return session.device.space(given["queue_space_name"]).definition


def _had(parameter: str) -> Callable[[Session, Given], str]:
    return lambda session, given: str(plain(_definition(session, given))[_NAMES.get(parameter, parameter)])


def defined(given: Given, page_size: int) -> dict[str, Any]:
    """Return the fields of a definition that the parameters of a command give, without what is unchanged."""
    fields = {_NAMES.get(name, name): value for name, value in given_of(**given).items()}
    if "memory" in fields:
        fields["memory"] = fields["memory"].in_bytes(page_size)
    return fields


def doubtful_key(new: SpaceDefinition) -> list[Notice]:
    """Return a warning about a key that Tuxedo's guide advises against."""
    least, most = IPC_KEY_RANGE
    if least <= new.ipc_key <= most:
        return []
    return [Notice(Severity.WARN, f"IPC key {new.ipc_key} of queue space {new.name!r} is outside {least}..{most}")]


def without_effect(recorded: Mapping[str, Any]) -> list[Notice]:
    """Return a notice about given options that have no effect."""
    flags = [option.flag for option in RECORDED if recorded.get(option.name)]
    return [Notice(Severity.INFO, f"{', '.join(flags)}: recorded, but without effect")] if flags else []


def initialization(device: str, *, wanted: bool) -> list[Notice]:
    """Return a notice if the disk space of a device cannot be allocated in advance."""
    if not wanted or "://" not in device:
        return []
    return [Notice(Severity.INFO, "no disk is allocated now: PostgreSQL takes it when messages need it")]


def rounding(pages: int) -> list[Notice]:
    """Return a notice about a number of pages that is rounded down."""
    if rounded_pages(pages) == pages:
        return []
    return [Notice(Severity.INFO, f"{pages} pages are rounded down to {rounded_pages(pages)}")]
