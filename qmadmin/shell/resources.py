"""Commands on the resources of a queue space: pages and other limits, processes, and memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from qmadmin.console.results import Column, Field, Line, Moment, Notice, Outcome, Record, Shown, Table, field
from qmadmin.shell import notices, space_parameters
from qmadmin.shell.declare import Confirmation, Option, Positional
from qmadmin.shell.kinds import Given, Memory, Number, SpaceName
from qmadmin.shell.notices import UsageError
from qmadmin.shell.parameters import UNCHANGED, given_of
from qmadmin.shell.spaces import SPACES, no_table
from qmcore.device import PAGE_SIZE
from qmcore.errors import BadResourceError, InUseError, QueueError
from qmcore.space import PAGE_QUANTUM, rounded_pages
from qmcore.times import MICROS
from qmcore.two_phase import OUR_FORMAT

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmcore.attached import TransactionInfo


@SPACES.command(
    "qaddext",
    Positional("queue_space_name", SpaceName(), "The queue space that gets more pages.", "Queue space name: "),
    Positional(
        "pages",
        Number("size of the extent in disk pages", PAGE_QUANTUM),
        "The number of pages, rounded down to a multiple of four.",
        "Size of extent in disk pages: ",
    ),
    failure=no_table("Add extent"),
)
def qaddext(session: Session, queue_space_name: str, pages: int) -> Outcome:
    """Give a queue space more pages.

    The pages come from the entries of the device list that are in the same file as the queue space. They become one
    more extent in the table of contents, which has room for 100, and can never be taken back.

    Unlike in Tuxedo, the queue space may be in use and stays open: attached processes go on, no message is lost, and
    the new pages can be used at once.

        qaddext myqueuespace 50
    """
    what = f"Extending queue space '{queue_space_name}'"
    initialized = session.device.space(queue_space_name).initialized
    with session.progress(what, 100 if initialized else None) as reached:
        extended = session.device.extend_space(queue_space_name, pages, progress=reached)
    total = extended.definition.pages
    return [
        *space_parameters.rounding(pages),
        Line(
            f"Queue space '{queue_space_name}' extended by {rounded_pages(pages)} pages to {total}",
            {"queue_space": queue_space_name, "added": rounded_pages(pages), "pages": total},
        ),
    ]


@SPACES.command(
    "qspacechange",
    Positional("queue_space_name", SpaceName(), "The queue space to change.", "Queue space name: "),
    *space_parameters.changing_space(),
    Option(
        "-q queues",
        "queues",
        "The most queues it can have. Each takes one page away from messages; qaddext adds pages.",
        space_parameters.QUEUES.kind,
        UNCHANGED,
        extension=True,
    ),
    short="qspch",
)
def qspacechange(session: Session, *, queue_space_name: str, inityn: bool, **given: Any) -> Outcome:
    """Change the parameters of a queue space.

    An option that is left out, or an empty answer, leaves that parameter unchanged. Use qaddext to add pages.

    Unlike in Tuxedo, the queue space may be in use and stays open. No limit can be set below what is in use. Only the
    memory for non-persistent messages cannot be changed while another process is attached or a transaction is open or
    prepared; changing it loses those messages.

        qspacechange -A 100 myqueuespace 230458 10 20 5000 errq n 16
    """
    device = session.device
    old = device.space(queue_space_name).definition
    new = dataclasses.replace(old, **space_parameters.space_fields(given, device.info.page_size))
    lost = device.space_usage(queue_space_name).memory if new.memory != old.memory else 0
    with session.progress(f"Changing queue space '{queue_space_name}'", 100 if inityn else None) as reached:
        device.change_space(new, initialize=inityn, progress=reached)
    shown: list[Shown] = []
    if new.ipc_key != old.ipc_key:
        shown += space_parameters.doubtful_key(new)
    shown += space_parameters.without_effect(given_of(**given))
    shown += space_parameters.initialization(device.path, wanted=inityn)
    if lost:
        shown.append(Notice.warning(f"the non-persistent messages of queue space {queue_space_name!r} are lost"))
    return [*shown, Line(f"Queue space '{queue_space_name}' changed", {"queue_space": queue_space_name})]


@SPACES.command(
    "qsize",
    *space_parameters.SPACE_OPTIONS,
    space_parameters.PAGES,
    space_parameters.QUEUES,
    *space_parameters.LIMITS,
    shows_only=True,
)
def qsize(session: Session, *, pages: int, queues: int, memory: Memory, **rest: Any) -> Outcome:
    """Show what a queue space with these parameters would need.

    It shows the pages on disk and the memory for non-persistent messages. Unlike in Tuxedo, nothing else is reserved:
    transactions, processes, messages and actions are only limits, and no semaphores are needed.

        qsize -n 50B 200 3 3 3 12
    """
    page_size = session.device.info.page_size if session.has_device else PAGE_SIZE
    total = rounded_pages(pages)
    if total <= 1 + queues:
        raise UsageError(
            f"{total} pages are too few for {queues} queues: one page, and one for each queue, hold no messages",
            hint=f"Give more than {1 + queues} pages, in a multiple of {PAGE_QUANTUM}.",
        )
    shared = memory.in_bytes(page_size)
    disk = total * page_size
    return [
        *space_parameters.rounding(pages),
        *space_parameters.without_effect(rest),
        Record(
            "What the queue space would need",
            (
                Field("Disk", f"{disk} bytes in {total} pages", {"pages": total, "disk": disk}),
                field("message_pages", "Pages for messages", total - 1 - queues),
                Field("Shared memory", f"{shared} bytes for non-persistent messages", {"shared_memory": shared}),
                Field("Semaphores", "none are needed", {"semaphores": 0}),
            ),
        ),
    ]


@SPACES.command(
    "ipcs",
    Positional("queue_space_name", SpaceName(), "The queue space.", "Queue space name: "),
    failure=no_table("ipcs"),
    shows_only=True,
)
def ipcs(session: Session, queue_space_name: str) -> Outcome:
    """List the resources that a queue space has in addition to its file.

    It lists the attached processes, including this program if it has the queue space open, the files of the memory for
    non-persistent messages, and, with their process, since when and for how long, the coordinators of transactions over
    several volumes that have a branch here, and suspended transactions. A branch that decides, and has dequeued, is not
    known as one yet. The branch of a coordinator that is dead waits for recovery, which asks who decides (qprinttrans).
    There are no semaphores, and no shared memory that a shutdown leaves behind.

        ipcs QSPACE
    """
    processes = session.device.attached(queue_space_name)
    rows: list[tuple[str | int | Moment | None, ...]] = [
        ("process", each.role, each.pid, each.host, Moment(each.since_us), _alive(each.alive), None, None)
        for each in processes
    ]
    now_us = session.device.clock.now()
    for info in session.device.transactions(queue_space_name):
        since_us = info.since_us if info.suspended_us is None else info.suspended_us
        if kind := _kind(info):
            pid, host = (None, None) if info.owner is None else (info.owner.pid, info.owner.host)
            age = max(0, now_us - since_us) // MICROS
            rows.append((kind, info.name, pid, host, Moment(since_us), _alive(info.lives), None, age))
    files = session.device.memory_files(queue_space_name)
    rows += [("memory", file.path, None, None, None, None, file.size, None) for file in files]
    if rows:
        return Table(_COLUMNS, rows)
    return session.nothing(f"Queue space '{queue_space_name}' has no attached processes and no memory", _COLUMNS)


_COLUMNS = (
    Column("kind", "Kind"),
    Column("name", "Name"),
    Column("pid", "Process", right=True),
    Column("host", "Host"),
    Column("since", "Since"),
    Column("state", "State"),
    Column("bytes", "Bytes", right=True),
    Column("age", "Age (s)", right=True),
)


def _kind(info: TransactionInfo) -> str:
    """Return what a transaction is among the resources; empty where it is none of them."""
    if info.suspended_us is not None:
        return "suspended"
    is_ours = info.xid is not None and info.xid.format_id == OUR_FORMAT
    return "coordinator" if is_ours and not info.state.is_heuristic else ""


def _alive(alive: bool) -> str:
    return "alive" if alive else "dead"


def _removal(session: Session, given: Given) -> str:
    name = given["queue_space_name"]
    session.device.space(name)
    action = f"Remove the memory of queue space '{name}'"
    try:
        used = session.device.space_usage(name).memory
    except QueueError:
        # A damaged memory can be removed nevertheless.
        return action
    return f"{action} with {used} bytes of non-persistent messages" if used else action


def _refused(error: QueueError, given: Given, session: Session) -> Notice | None:
    if isinstance(error, InUseError) and not error.xid:
        return notices.PROCESSES_ATTACHED(space=given["queue_space_name"])
    return no_table("ipcrm")(error, given, session) if isinstance(error, BadResourceError) else None


@SPACES.command(
    "ipcrm",
    Option("-f", "force", "Remove it even if other processes have it open, or a prepared transaction needs it."),
    Positional("queue_space_name", SpaceName(), "The queue space.", "Queue space name: "),
    confirm=Confirmation(_removal, "Memory of queue space '{queue_space_name}' not removed"),
    failure=_refused,
)
def ipcrm(session: Session, queue_space_name: str, force: bool) -> Outcome:
    """Remove the memory of a queue space; its non-persistent messages are lost.

    It is closed first if it is open. Without -f it is refused while other processes have the queue space open, or a
    prepared transaction has messages in it. The memory is created again when it is needed. The highest use of the
    limits of the queue space is counted from now on.

        ipcrm -y QSPACE
    """
    if session.space is not None and session.space.name == queue_space_name:
        session.close_space()
    session.device.clear_memory(queue_space_name, force=force)
    return Line(f"Memory of queue space '{queue_space_name}' removed", {"queue_space": queue_space_name})
