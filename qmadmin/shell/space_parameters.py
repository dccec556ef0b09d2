"""The parameters of queue spaces: declared once, for the commands that create them and change them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Notice
from qmadmin.shell.declare import Option, Positional
from qmadmin.shell.kinds import (
    ErrorQueueName,
    Given,
    Memory,
    MemorySize,
    MemoryUnit,
    Number,
    YesNo,
)
from qmadmin.shell.parameters import fields_given, number, present, unchanged
from qmcore import space
from qmcore.space import ACTIONS_DEFAULT, IPC_KEY_RANGE, SpaceDefinition, rounded_pages

if TYPE_CHECKING:
    from qmadmin.shell.session import Session


def _recorded(shown: str, name: str) -> Option:
    return Option(shown, name, "Recorded, without effect.", number(name), 0)


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
        number("actions"),
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
    number("ipc_key"),
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
QUEUES = Positional("queues", number("queues"), space.ATTRIBUTES["queues"].about, "Number of queues in queue space: ")
LIMITS = (
    Positional(
        "trans",
        number("transactions"),
        space.ATTRIBUTES["transactions"].about,
        "Number of concurrent transactions in queue space: ",
    ),
    Positional(
        "procs",
        number("processes"),
        space.ATTRIBUTES["processes"].said("; one qmadmin may open it in addition."),
        "Number of concurrent processes in queue space: ",
    ),
    Positional(
        "messages", number("messages"), space.ATTRIBUTES["messages"].about, "Number of messages in queue space: "
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
    number("blocking"),
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
        *unchanged(SPACE_OPTIONS),
        *(_present_of_space(positional) for positional in (IPC_KEY, *LIMITS)),
        dataclasses.replace(
            ERROR_QUEUE,
            help=f"{ERROR_QUEUE.help} An empty pair of quotes removes it.",
            prompt="Error queue name{present}: ",
            default=present(_space, "errorq"),
            notice="Error queue name stays '{default}'",
            facts=_present_error_queue,
            clearable=True,
        ),
        INITIALIZE,
        dataclasses.replace(BLOCKING, default=present(_space, "blocking")),
    )


def _present_of_space(positional: Positional) -> Positional:
    what = positional.prompt.removesuffix(": ")
    prompt, stays = f"{what} [default={{default}}]: ", f"{what} stays {{default}}"
    return dataclasses.replace(positional, prompt=prompt, default=present(_space, positional.name), notice=stays)


def _present_error_queue(session: Session, given: Given) -> Mapping[str, str]:
    name = _space(session, given).error_queue
    return {"present": f" [default={name}]" if name else ""}


def _space(session: Session, given: Given) -> SpaceDefinition:
    return session.device.space(given["queue_space_name"]).definition


def space_fields(given: Given, page_size: int) -> dict[str, Any]:
    """Return the fields of a definition that the parameters of a command give, without what is unchanged."""
    fields = fields_given(given)
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
