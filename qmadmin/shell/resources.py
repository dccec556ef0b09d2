"""Commands on the resources of a queue space: pages and other limits, processes, memory, and open transactions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from qmadmin.console import counted
from qmadmin.console.results import Column, Field, Line, Moment, Notice, Outcome, Record, Shown, Table, field, table_of
from qmadmin.shell import notices, space_parameters
from qmadmin.shell.declare import Confirmation, Group, Needs, Option, Positional
from qmadmin.shell.kinds import Candidate, Given, Memory, Number, SpaceName
from qmadmin.shell.notices import UsageError
from qmadmin.shell.parameters import UNCHANGED, given_of
from qmadmin.shell.spaces import SPACES, no_table
from qmcore.device import PAGE_SIZE
from qmcore.errors import BadResourceError, InUseError, QueueError
from qmcore.space import PAGE_QUANTUM, rounded_pages

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
    memory for non-persistent messages cannot be changed while another process is attached or a transaction is open;
    changing it loses those messages.

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
)


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
    if isinstance(error, InUseError):
        return notices.PROCESSES_ATTACHED(space=given["queue_space_name"])
    return no_table("ipcrm")(error, given, session) if isinstance(error, BadResourceError) else None


@SPACES.command(
    "ipcrm",
    Option("-f", "force", "Remove it even if other processes have it open."),
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


# ---- transactions ----------------------------------------------------------------------------------------------------


TRANSACTIONS = Group("Transactions", needs=Needs.OPEN_SPACE)


@TRANSACTIONS.command("qprinttrans", short="qpt", shows_only=True)
def qprinttrans(session: Session) -> Outcome:
    """List the outstanding transactions of the open queue space, the oldest first.

    It shows the index that qcommittrans and qaborttrans use, the identifier and state of the transaction, when it was
    begun, its process and whether that is alive, and how many messages it has dequeued, has locked, and has enqueued
    that are stored in the queue space already. Others can see a transaction from its first dequeue on.

        qprinttrans
    """
    space = session.opened()
    infos = space.transactions()
    session.transactions = tuple(info.id for info in infos)
    if infos:
        return table_of(infos, _LISTED)
    return session.nothing(f"Queue space '{space.name}' has no outstanding transactions", _LISTED)


_LISTED = (
    Column("index", "Index", right=True),
    Column("transaction", "Transaction", of="id"),
    Column("state", "State"),
    Column("since", "Since", of="since_us"),
    Column("role", "Owner", of=lambda info: info.owner and info.owner.role),
    Column("pid", "Process", right=True, of=lambda info: info.owner and info.owner.pid),
    Column("host", "Host", of=lambda info: info.owner and info.owner.host),
    Column("alive", "Alive", of=lambda info: "yes" if info.owner and info.owner.alive else "no"),
    Column("dequeued", "Dequeued", right=True),
    Column("locked", "Locked", right=True),
    Column("enqueued", "Enqueued", right=True, of="spilled"),
)


@dataclasses.dataclass(frozen=True)
class TransactionIndex(Number):
    """The index of a transaction in the last listing."""

    what: str = "transaction index"

    def candidates(self, session: Session, _begun: str, /) -> Iterable[Candidate]:
        """Return the transactions of the last listing."""
        return [Candidate(str(index), name) for index, name in enumerate(session.transactions)]


TRANINDEX = Positional(
    "tranindex",
    TransactionIndex(),
    "The index of the transaction in the last list of qprinttrans.",
    "Transaction index: ",
)


def _meant(session: Session, given: Given) -> TransactionInfo:
    """Return the transaction with an index of the last listing, as it is now."""
    index: int = given["tranindex"]
    if index >= len(session.transactions):
        raise UsageError(f"The last list of transactions has no index {index}", hint="List them with qprinttrans.")
    name = session.transactions[index]
    for info in session.opened().transactions():
        if info.id == name:
            return info
    raise UsageError(f"Transaction {index} ({name}) has ended meanwhile", hint="List them again with qprinttrans.")


def _described(info: TransactionInfo) -> str:
    count = info.dequeued + info.locked + info.spilled
    whose = f" of {info.owner}" if info.owner else ""
    return f"transaction {info.index} ({info.id}){whose} with {counted(count, 'message')}"


@TRANSACTIONS.command(
    "qcommittrans",
    TRANINDEX,
    short="qcommit",
    confirm=Confirmation(
        lambda session, given: f"Commit {_described(_meant(session, given))}", "Transaction not committed"
    ),
)
def qcommittrans(session: Session, tranindex: int) -> Outcome:
    """Commit a prepared transaction, whatever its coordinator decides.

    An active transaction is refused: only its own process can commit it. This release does not prepare transactions.

        qcommittrans 0
    """
    info = _meant(session, {"tranindex": tranindex})
    session.opened().commit_transaction(info.id)
    return Line(f"Transaction {tranindex} committed", {"transaction": info.id})


@TRANSACTIONS.command(
    "qaborttrans",
    TRANINDEX,
    short="qabort qrollbacktrans",
    confirm=Confirmation(
        lambda session, given: f"Roll back {_described(_meant(session, given))}", "Transaction not rolled back"
    ),
)
def qaborttrans(session: Session, tranindex: int) -> Outcome:
    """Roll back a transaction, even one that its process is still using.

    The messages that it has dequeued come back and have used up a try; a message without tries left goes to the error
    queue, or stays if there is none. The next dequeue or the commit of its process is refused with QMEABORTED. In
    Tuxedo only a prepared transaction can be rolled back by others.

        qaborttrans 0
    """
    info = _meant(session, {"tranindex": tranindex})
    session.opened().abort_transaction(info.id)
    return Line(f"Transaction {tranindex} rolled back", {"transaction": info.id})
