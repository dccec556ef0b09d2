"""Commands on queue spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.shell import notices
from qmadmin.shell.declare import Confirmation, Failure, Group, Needs, Option, Positional
from qmadmin.shell.kinds import ErrorQueueName, Given, Memory, MemorySize, Number, SpaceName, YesNo
from qmadmin.shell.results import Column, Field, Line, Moment, Notice, Outcome, Record, Severity, Shown, Table, field
from qmcore.errors import BadResourceError, QueueError
from qmcore.space import ACTIONS_DEFAULT, IPC_KEY_RANGE, Space, SpaceDefinition, SpaceUsage, rounded_pages

if TYPE_CHECKING:
    from qmadmin.shell.session import Session

SPACES = Group("Queue spaces")


def no_table(operation: str) -> Failure:
    """Return what names the table that is missing, when a command finds no queue space of the name."""

    def sentence(error: QueueError, given: Given, session: Session) -> Notice | None:
        if not isinstance(error, BadResourceError):
            return None
        space = given["queue_space_name"]
        return notices.NO_TABLE(operation=operation, space=space, extent=0, config=session.path)

    return sentence


def _count(what: str, least: int = 1) -> Number:
    return Number(what, least=least)


@SPACES.command(
    "qspacecreate",
    Option(
        "-A",
        "actions",
        "Concurrent actions beyond one for each process; an action is a dequeue that waits.",
        _count("number of actions", 0),
        "actions",
        ACTIONS_DEFAULT,
    ),
    Option(
        "-n",
        "memory",
        "Memory for non-persistent messages in bytes (b), rounded down to whole pages, or in blocks (B), which are"
        " pages of the device and meant where no letter follows. Without it every enqueue of one fails.",
        MemorySize(),
        "nonpersistent_msg_memory[b,B]",
    ),
    Option("-o", "overflow", "Recorded, without effect.", _count("overflow memory", 0), "overflow_memory", 0),
    Option("-H", "handles", "Recorded, without effect.", _count("number of handles", 0), "handles", 0),
    Option("-C", "cursors", "Recorded, without effect.", _count("number of cursors", 0), "cursors", 0),
    Option("-O", "owners", "Recorded, without effect.", _count("number of owners", 0), "owners", 0),
    Option("-Q", "temporary_queues", "Recorded, without effect.", _count("temporary queues", 0), "tmp_queues", 0),
    Option("-f", "filter_memory", "Recorded, without effect.", _count("filter memory", 0), "filter_memory", 0),
    Positional("queue_space_name", SpaceName(), "Its name: 1 to 15 bytes.", "Queue space name: "),
    Positional(
        "ipckey",
        _count("IPC key"),
        "A number of its own, better above 32768 and below 262143.",
        "IPC Key for queue space: ",
        metavar="ipckey",
    ),
    Positional(
        "pages",
        _count("size in disk pages"),
        "Its size in pages of the device, rounded down to a multiple of four. One page, and one for each queue, are"
        " overhead; the rest holds messages.",
        "Size of queue space in disk pages: ",
    ),
    Positional(
        "queues", _count("number of queues"), "The most queues it can have.", "Number of queues in queue space: "
    ),
    Positional(
        "trans",
        _count("number of transactions"),
        "The most transactions at one time.",
        "Number of concurrent transactions in queue space: ",
    ),
    Positional(
        "procs",
        _count("number of processes"),
        "The most processes that may have it open at one time, this program among them.",
        "Number of concurrent processes in queue space: ",
    ),
    Positional(
        "messages",
        _count("number of messages"),
        "The most messages it can hold.",
        "Number of messages in queue space: ",
    ),
    Positional(
        "errorq",
        ErrorQueueName(),
        "The queue for messages that are out of retries; it is only named here, and made with qcreate. Without one such"
        " messages are lost.",
        "Error queue name: ",
        default="",
        notice="No default error queue name: messages that are out of retries will be lost",
    ),
    Positional(
        "inityn",
        YesNo(),
        "Whether its pages are taken from the disk now, so that a full disk is found now; else when they are needed.",
        "Initialize extents (y, n [default=n]): ",
        default="n",
    ),
    Positional(
        "blocking",
        _count("blocking factor", 0),
        "Recorded, without effect.",
        "Blocking factor [default=16]: ",
        default="16",
        notice="Default blocking factor is 16",
    ),
    short="qspc",
)
def qspacecreate(
    session: Session,
    *,
    queue_space_name: str,
    ipckey: int,
    pages: int,
    queues: int,
    trans: int,
    procs: int,
    messages: int,
    errorq: str,
    inityn: bool,
    blocking: int,
    actions: int,
    memory: Memory | None,
    overflow: int,
    handles: int,
    cursors: int,
    owners: int,
    temporary_queues: int,
    filter_memory: int,
) -> Outcome:
    """Create a queue space.

    Its pages come from the entries of the device list. Everything but the last three values must be given. At a
    terminal a bar shows how many of the pages are initialized; elsewhere, in verbose mode, a dot for each 5 %.

        qspacecreate -n 50B myqueuespace 230458 200 3 3 3 12 errq n 16
    """
    shown: list[Shown] = []
    least, most = IPC_KEY_RANGE
    if not least <= ipckey <= most:
        shown.append(
            Notice(Severity.WARN, f"IPC key {ipckey} of queue space {queue_space_name!r} is outside {least}..{most}")
        )
    if rounded_pages(pages) != pages:
        shown.append(Notice(Severity.INFO, f"{pages} pages are rounded down to {rounded_pages(pages)}"))
    recorded = {
        "-o": overflow,
        "-H": handles,
        "-C": cursors,
        "-O": owners,
        "-Q": temporary_queues,
        "-f": filter_memory,
    }
    without_effect = [flag for flag, value in recorded.items() if value]
    if without_effect:
        shown.append(Notice(Severity.INFO, f"{', '.join(without_effect)}: recorded, but without effect"))
    definition = SpaceDefinition(
        name=queue_space_name,
        ipc_key=ipckey,
        pages=rounded_pages(pages),
        queues=queues,
        transactions=trans,
        processes=procs,
        messages=messages,
        error_queue=errorq,
        blocking=blocking,
        actions=actions,
        memory=memory.in_bytes(session.device.info.page_size) if memory else 0,
        overflow=overflow,
        handles=handles,
        cursors=cursors,
        owners=owners,
        temporary_queues=temporary_queues,
        filter_memory=filter_memory,
    )
    with session.progress(f"Creating queue space '{queue_space_name}'", 100 if inityn else None) as reached:
        session.device.create_space(definition, initialize=inityn, progress=reached)
    return [*shown, Line(f"Queue space '{queue_space_name}' created")]


@SPACES.command(
    "qspacelist",
    Positional(
        "queue_space_name", SpaceName(), "The queue space; all where it is empty.", "Queue space name: ", default=""
    ),
    short="qspl",
)
def qspacelist(session: Session, queue_space_name: str) -> Outcome:
    """List the parameters of one queue space or of all.

    A table of all; one queue space, or all in verbose mode, with every parameter and how much of each limit is in use.
    """
    spaces = [session.device.space(queue_space_name)] if queue_space_name else session.device.spaces()
    if not spaces:
        return Notice(Severity.INFO, f"device {session.path!r} has no queue space")
    if queue_space_name or session.detailed:
        return [_space_record(space, session.device.space_usage(space.name)) for space in spaces]
    return Table(
        (
            Column("queue_space", "Queue space"),
            Column("ipckey", "IPC key", right=True),
            Column("pages", "Pages", right=True),
            Column("queues", "Queues", right=True),
            Column("transactions", "Trans", right=True),
            Column("processes", "Procs", right=True),
            Column("messages", "Messages", right=True),
            Column("error_queue", "Error queue"),
        ),
        [
            (d.name, d.ipc_key, d.pages, d.queues, d.transactions, d.processes, d.messages, d.error_queue or None)
            for d in (space.definition for space in spaces)
        ],
    )


def _space_record(space: Space, usage: SpaceUsage) -> Record:
    d = space.definition
    return Record(
        f"Queue space '{space.name}'",
        (
            Field("", None, {"queue_space": space.name}),
            field("ipckey", "IPC key", d.ipc_key),
            field("pages", "Pages", d.pages),
            _of("message_pages", "Pages for messages", usage.pages, d.capacity),
            _of("queues", "Queues", usage.queues, d.queues),
            _of("transactions", "Concurrent transactions", usage.transactions, d.transactions),
            _of("processes", "Concurrent processes", usage.processes, d.processes),
            _of("messages", "Messages", usage.messages, d.messages),
            field("error_queue", "Error queue", d.error_queue or None),
            _of("actions", "Additional actions", usage.actions, d.actions),
            _of("memory", "Non-persistent memory", usage.memory, d.memory, "bytes "),
            Field("Overflow memory", f"{d.overflow} bytes", {"overflow_memory": d.overflow}),
            field("blocking", "Blocking factor", d.blocking),
            Field("Initialized", "yes" if space.initialized else "no", {"initialized": space.initialized}),
            field("created", "Created", Moment(space.created_at)),
        ),
    )


def _of(key: str, label: str, used: int, limit: int, unit: str = "") -> Field:
    """Return a limit under its key, and how much of it is in use under the same with `_used`."""
    return Field(label, f"{used} of {limit} {unit}in use", {key: limit, f"{key}_used": used})


@SPACES.command(
    "qopen",
    Positional("queue_space_name", SpaceName(), "The queue space to open.", "Queue space name: "),
    failure=no_table("xa_open"),
)
def qopen(session: Session, queue_space_name: str) -> Outcome:
    """Open a queue space.

    The one that is open is closed before, even if the other cannot be opened, so that what follows never reaches the
    wrong one. There is no current queue then. A queue that was named as error queue but not created is warned about.
    """
    shown: list[Shown] = []
    closed = session.close_space()
    if closed and closed != queue_space_name:
        shown.append(Line(f"Queue space '{closed}' closed"))
    space = session.open_space(queue_space_name)
    return [*shown, Line(f"Queue space '{space.name}' opened"), *missing_error_queue(session)]


@SPACES.command("qclose", needs=Needs.OPEN_SPACE)
def qclose(session: Session) -> Outcome:
    """Close the open queue space."""
    return Line(f"Queue space '{session.close_space()}' closed")


def missing_error_queue(session: Session) -> list[Notice]:
    """Return warnings where the open queue space, or one of its queues, names an error queue that is not created."""
    space = session.opened()
    queues = space.queues()
    named = [(f"queue space '{space.name}'", space.definition.error_queue)]
    named += [(f"queue '{queue.name}'", queue.definition.error_queue) for queue in queues]
    there = {queue.name for queue in queues}
    return [
        Notice(
            Severity.WARN,
            f"error queue '{name}' of {whose} is not created: messages out of retries will be lost",
            f"Create it: qcreate {name}",
        )
        for whose, name in named
        if name and name not in there
    ]


def _destruction(session: Session, given: Given) -> str:
    name = given["queue_space_name"]
    try:
        usage = session.device.space_usage(name)
    except BadResourceError:
        # What a creation that was cut short has listed and not made can be destroyed too.
        if not any(row.name.rpartition(".")[0] == name for row in session.device.table_of_contents()):
            raise
        return f"Destroy queue space '{name}'"
    if not usage.queues:
        return f"Destroy queue space '{name}'"
    return (
        f"Destroy queue space '{name}' with {_number(usage.queues, 'queue')} and {_number(usage.messages, 'message')}"
    )


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@SPACES.command(
    "qspacedestroy",
    Option("-f", "force", "Also if processes have it open or it holds messages.", default=False),
    Positional("queue_space_name", SpaceName(), "The queue space to destroy.", "Queue space name: "),
    short="qspds",
    confirm=Confirmation(_destruction, "Queue space '{queue_space_name}' not destroyed"),
    failure=no_table("Destroy queue space"),
)
def qspacedestroy(session: Session, queue_space_name: str, force: bool) -> Outcome:
    """Destroy a queue space with its queues.

    It is closed first if it is the one that is open. Without -f it is refused while other processes have the queue
    space open, or a queue of it holds messages.
    """
    if session.space is not None and session.space.name == queue_space_name:
        session.close_space()
    session.device.destroy_space(queue_space_name, force=force)
    return Line(f"Queue space '{queue_space_name}' destroyed")
