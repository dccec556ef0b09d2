"""Commands on what a queue space has beside its file: attached processes, and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.console.results import Column, Line, Moment, Notice, Outcome, Severity, Table
from qmadmin.shell import notices
from qmadmin.shell.declare import Confirmation, Option, Positional
from qmadmin.shell.kinds import Given, SpaceName
from qmadmin.shell.spaces import SPACES, no_table
from qmcore.errors import BadResourceError, InUseError, QueueError

if TYPE_CHECKING:
    from qmadmin.shell.session import Session


@SPACES.command(
    "ipcs",
    Positional("queue_space_name", SpaceName(), "The queue space.", "Queue space name: "),
    failure=no_table("ipcs"),
    looks=True,
)
def ipcs(session: Session, queue_space_name: str) -> Outcome:
    """List the resources that a queue space has in addition to its file.

    It lists the attached processes, including this program if it has the queue space open, and the files of the memory
    for non-persistent messages. There are no semaphores, and no shared memory that a shutdown leaves behind.

        ipcs QSPACE
    """
    processes = session.device.attached(queue_space_name)
    rows: list[tuple[str | int | Moment | None, ...]] = [
        ("process", each.role, each.pid, each.host, Moment(each.since_us), "alive" if each.alive else "dead", None)
        for each in processes
    ]
    files = session.device.memory_files(queue_space_name)
    rows += [("memory", file.path, None, None, None, None, file.size) for file in files]
    table = Table(_COLUMNS, rows)
    if rows:
        return table
    notice = Notice(Severity.INFO, f"Queue space '{queue_space_name}' has no attached processes and no memory")
    return [notice, table] if session.modes.format.is_for_programs else notice


_COLUMNS = (
    Column("kind", "Kind"),
    Column("name", "Name"),
    Column("pid", "Process", right=True),
    Column("host", "Host"),
    Column("since", "Since"),
    Column("state", "State"),
    Column("bytes", "Bytes", right=True),
)


def _removal(session: Session, given: Given) -> str:
    name = given["queue_space_name"]
    session.device.space(name)
    action = f"Remove the memory of queue space '{name}'"
    try:
        used = session.device.space_usage(name).memory
    except QueueError:
        # A memory that is damaged can be removed all the same.
        return action
    return f"{action} with {used} bytes of non-persistent messages" if used else action


def _refused(error: QueueError, given: Given, session: Session) -> Notice | None:
    if isinstance(error, InUseError):
        return notices.PROCESSES_ATTACHED(space=given["queue_space_name"])
    return no_table("ipcrm")(error, given, session) if isinstance(error, BadResourceError) else None


@SPACES.command(
    "ipcrm",
    Option("-f", "force", "Remove it even if other processes have it open.", default=False),
    Positional("queue_space_name", SpaceName(), "The queue space.", "Queue space name: "),
    confirm=Confirmation(_removal, "Memory of queue space '{queue_space_name}' not removed"),
    failure=_refused,
)
def ipcrm(session: Session, queue_space_name: str, force: bool) -> Outcome:
    """Remove the memory of a queue space; its non-persistent messages are lost.

    It is closed first if it is open. Without -f it is refused while other processes have the queue space open. The
    memory is created again when it is needed. The highest use of the limits of the queue space is counted from now on.

        ipcrm -y QSPACE
    """
    if session.space is not None and session.space.name == queue_space_name:
        session.close_space()
    session.device.clear_memory(queue_space_name, force=force)
    return Line(f"Memory of queue space '{queue_space_name}' removed", {"queue_space": queue_space_name})
