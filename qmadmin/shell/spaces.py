"""Commands on queue spaces."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmadmin.console import counted
from qmadmin.console.results import (
    Column,
    Field,
    Line,
    Moment,
    Notice,
    Outcome,
    Record,
    Shown,
    field,
    hidden,
    of_missing,
    table_of,
)
from qmadmin.shell import notices, space_parameters
from qmadmin.shell.declare import Confirmation, Failure, Group, Needs, Option, Positional
from qmadmin.shell.kinds import Given, SpaceName, VolumeName
from qmadmin.shell.notices import UsageError
from qmcore.errors import BadResourceError, QueueError
from qmcore.space import Space, SpaceDefinition, rounded_pages
from qmcore.volume_record import PRESENT

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmcore.volume_record import MissingVolume

SPACES = Group("Queue spaces", "spaces")


def no_table(operation: str) -> Failure:
    """Return the sentence of the catalogue for a command that finds no queue space of that name."""

    def sentence(error: QueueError, given: Given, session: Session) -> Notice | None:
        if not isinstance(error, BadResourceError):
            return None
        space = given["queue_space_name"]
        return notices.NO_TABLE(operation=operation, space=space, extent=0, config=session.path)

    return sentence


@SPACES.command(
    "qspacecreate",
    *space_parameters.SPACE_OPTIONS,
    Option(
        "-V volume",
        "volume",
        "The file or schema of the device list that it is put on: its path, or the index of an entry. Otherwise it is"
        " the one with the most free pages.",
        VolumeName(),
        None,
        extension=True,
    ),
    Option(
        "-r",
        "take_back",
        "Take back, with its messages and limits, a queue space that was given up and that a file still has; only its"
        " name is needed.",
        extension=True,
    ),
    Positional("queue_space_name", SpaceName(), "Its name: 1 to 15 bytes.", "Queue space name: "),
    *(dataclasses.replace(parameter, unless=("take_back",)) for parameter in space_parameters.CREATING),
    short="qspc",
)
def qspacecreate(
    session: Session,
    *,
    queue_space_name: str,
    pages: int,
    inityn: bool,
    volume: str | int | None,
    take_back: bool,
    **given: Any,
) -> Outcome:
    """Create a queue space.

    Its pages come from the entries of one file of the device list, or schema. All values but the last three are
    required. At a terminal a bar shows how many of the pages are initialized; elsewhere, in verbose mode, a dot for
    each 5 %.

    If a file was lost, its queue spaces were given up, and it comes back, qcheck names those that still hold messages.
    None of the same name is created in that file before it is taken back with -r, or destroyed.

        qspacecreate -n 50B myqueuespace 230458 200 3 3 3 12 errq n 16
    """
    if take_back:
        return _taken_back(session, queue_space_name, {"pages": pages, "inityn": inityn, "volume": volume, **given})
    fields = space_parameters.space_fields(given, session.device.info.page_size)
    definition = SpaceDefinition(name=queue_space_name, pages=rounded_pages(pages), **fields)
    with session.progress(f"Creating queue space '{queue_space_name}'", 100 if inityn else None) as reached:
        session.device.create_space(definition, volume=volume, initialize=inityn, progress=reached)
    return [
        *space_parameters.doubtful_key(definition),
        *space_parameters.rounding(pages),
        *space_parameters.without_effect(given),
        *space_parameters.initialization(session.device.path, wanted=inityn),
        _told(queue_space_name, "created"),
    ]


def _taken_back(session: Session, name: str, given: Mapping[str, Any]) -> Line:
    defaults = {option.name: option.default for option in space_parameters.SPACE_OPTIONS}
    if any(value != defaults.get(parameter) for parameter, value in given.items()):
        raise UsageError("Option -r takes the name of a queue space alone: all else is as it was")
    session.device.take_back_space(name)
    return _told(name, "taken back")


@SPACES.command(
    "qspacelist",
    Positional(
        "queue_space_name", SpaceName(), "The queue space; an empty answer means all.", "Queue space name: ", default=""
    ),
    short="qspl",
    shows_only=True,
)
def qspacelist(session: Session, queue_space_name: str) -> Outcome:
    """List the parameters of one queue space or of all.

    All queue spaces are listed in a table; one queue space, or all in verbose mode, with every parameter, how much of
    each limit is in use, and the highest use since the queue space was created, or since ipcrm.

    The state of its file or schema is present, or says why it is not. If it is not, nothing else is known of the queue
    space, and the exit status is 1.

        qspacelist QSPACE
    """
    if queue_space_name:
        missing = session.device.missing_volume_of(queue_space_name)
        if missing is None:
            return _record(session, session.device.space(queue_space_name))
        return [_missing_record(queue_space_name, missing), Notice.error(str(missing), missing.advice)]
    found = session.device.missing_volumes()
    told = session.not_told(of_missing(found))
    gone = {name: volume for volume in found for name in volume.spaces}
    listed = gone | {space.name: space for space in session.device.spaces()}
    return [*told, *_listed(session, [(name, listed[name]) for name in sorted(listed)])]


def _listed(session: Session, found: Sequence[tuple[str, Space | MissingVolume]]) -> Sequence[Shown]:
    """Return the queue spaces by name; of one whose volume is missing, nothing else is known."""
    if not found:
        return [Notice.info(f"device {session.path!r} has no queue space")]
    if session.detailed:
        return [
            _record(session, each) if isinstance(each, Space) else _missing_record(name, each) for name, each in found
        ]
    # One that is destroyed meanwhile is nowhere.
    places = session.device.places()

    def limit(of: str) -> Callable[[tuple[str, Space | MissingVolume]], Any]:
        return lambda row: getattr(row[1].definition, of) if isinstance(row[1], Space) else None

    columns = (
        Column("queue_space", "Queue space", of=lambda row: row[0]),
        Column("ipckey", "IPC key", right=True, of=limit("ipc_key")),
        Column("pages", "Pages", right=True, of=limit("pages")),
        Column("queues", "Queues", right=True, of=limit("queues")),
        Column("transactions", "Trans", right=True, of=limit("transactions")),
        Column("processes", "Procs", right=True, of=limit("processes")),
        Column("messages", "Messages", right=True, of=limit("messages")),
        Column("error_queue", "Error queue", of=lambda row: limit("error_queue")(row) or None),
        Column("volume", "Volume", cut=True, of=lambda row: places.get(row[0])),
        Column("volume_state", "State", of=lambda row: PRESENT if isinstance(row[1], Space) else row[1].state),
    )
    return [table_of(found, columns)]


_UNKNOWN = (
    "ipckey", "pages", "message_pages", "message_pages_used", "queues", "queues_used", "queues_highest", "transactions",
    "transactions_used", "transactions_highest", "processes", "processes_used", "processes_highest", "messages",
    "messages_used", "messages_highest", "error_queue", "actions", "actions_used", "actions_highest", "memory",
    "memory_used", "overflow_memory", "blocking", "handles", "cursors", "owners", "temporary_queues", "filter_memory",
    "initialized", "created",
)  # fmt: skip
"""The keys of what is not known of a queue space whose volume is missing."""


def _missing_record(name: str, volume: MissingVolume) -> Record:
    return Record(
        f"Queue space '{name}'",
        (
            hidden(queue_space=name, **dict.fromkeys(_UNKNOWN)),
            field("volume", "Volume", volume.path),
            field("volume_state", "State of volume", volume.state),
        ),
    )


def _record(session: Session, space: Space) -> Record:
    usage, volume = session.device.space_usage(space.name), session.device.places().get(space.name)
    d, most = space.definition, usage.highest
    return Record(
        f"Queue space '{space.name}'",
        (
            hidden(queue_space=space.name),
            field("ipckey", "IPC key", d.ipc_key),
            field("pages", "Pages", d.pages),
            _of("message_pages", "Pages for messages", usage.pages, d.capacity),
            _of("queues", "Queues", usage.queues, d.queues, most.queues),
            _of("transactions", "Concurrent transactions", usage.transactions, d.transactions, most.transactions),
            _of("processes", "Concurrent processes", usage.processes, d.processes, most.processes),
            _of("messages", "Messages", usage.messages, d.messages, most.messages),
            field("error_queue", "Error queue", d.error_queue or None),
            _of("actions", "Additional actions", usage.actions, d.actions, most.actions),
            _of("memory", "Non-persistent memory", usage.memory, d.memory, unit="bytes "),
            Field("Overflow memory", f"{d.overflow} bytes", {"overflow_memory": d.overflow}),
            field("blocking", "Blocking factor", d.blocking),
            _recorded(space),
            Field("Initialized", "yes" if space.initialized else "no", {"initialized": space.initialized}),
            field("created", "Created", Moment(space.created_at)),
            field("volume", "Volume", volume),
            field("volume_state", "State of volume", PRESENT),
        ),
    )


def _recorded(space: Space) -> Field:
    """Return the attributes of the queue space without effect, which are shown to users if any are set."""
    names = ("handles", "cursors", "owners", "temporary_queues", "filter_memory")
    values = {name: space.attributes[name] for name in names}
    text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value)
    return Field("Without effect" if text else "", text, values)


def _of(key: str, label: str, used: int, limit: int, most: int | None = None, unit: str = "") -> Field:
    """Return a limit under its key, its use under the key with `_used`, and its highest use with `_highest`."""
    text, values = f"{used} of {limit} {unit}in use", {key: limit, f"{key}_used": used}
    if most is not None:
        text, values = f"{text}, highest {most}", values | {f"{key}_highest": most}
    return Field(label, text, values)


@SPACES.command(
    "qopen",
    Positional("queue_space_name", SpaceName(), "The queue space to open.", "Queue space name: "),
    failure=no_table("xa_open"),
    shows_only=True,
    lasts=True,
)
def qopen(session: Session, queue_space_name: str) -> Outcome:
    """Open a queue space.

    An open queue space is closed first, even if the other one cannot be opened, so that later commands never reach the
    wrong one; there is then no current queue. A warning names an error queue that has not been created.

        qopen QSPACE
    """
    shown: list[Shown] = []
    closed = session.close_space()
    if closed and closed != queue_space_name:
        shown.append(_told(closed, "closed"))
    space = session.open_space(queue_space_name)
    return [*shown, _told(space.name, "opened"), *missing_error_queue(session)]


@SPACES.command("qclose", needs=Needs.OPEN_SPACE)
def qclose(session: Session) -> Outcome:
    """Close the open queue space.

    The current queue and the criteria are forgotten.

        qclose
    """
    return _told(session.close_space(), "closed")


def missing_error_queue(session: Session) -> list[Notice]:
    """Return warnings if the open queue space, or one of its queues, names an error queue that does not exist.

    At a terminal each comes once while the queue space is open.
    """
    space = session.opened()
    queues = space.queues()
    named = [(f"queue space '{space.name}'", space.definition.error_queue)]
    named += [(f"queue '{queue.name}'", queue.definition.error_queue) for queue in queues]
    there = {queue.name for queue in queues}
    usual = space.definition.error_queue
    then = f"'{usual}' is used instead" if usual in there else "messages out of retries will be lost"
    found = [
        Notice.warning(f"error queue '{name}' of {whose} does not exist: {then}", f"Create it: qcreate {name}")
        for whose, name in named
        if name and name not in there
    ]
    return session.not_told(found)


def _destruction(session: Session, given: Given) -> str:
    name = given["queue_space_name"]
    missing = session.device.missing_volume_of(name)
    if missing is not None:
        # Whether the option fits is refused elsewhere.
        return f"Give up queue space '{name}' with all that it held, because {missing.reason}"
    left = session.device.left_messages(name)
    if left is not None:
        return f"Destroy what is left of queue space '{name}' with {counted(left, 'message')}"
    try:
        usage = session.device.space_usage(name)
    except BadResourceError:
        # A queue space that an interrupted creation has listed but not created can be destroyed too.
        if not any(row.name.rpartition(".")[0] == name for row in session.device.table_of_contents()):
            raise
        return f"Destroy queue space '{name}'"
    if not usage.queues:
        return f"Destroy queue space '{name}'"
    return (
        f"Destroy queue space '{name}' with {counted(usage.queues, 'queue')} and {counted(usage.messages, 'message')}"
    )


@SPACES.command(
    "qspacedestroy",
    Option("-f", "force", "Destroy it even if other processes have it open or it holds messages."),
    Option(
        "-L",
        "lost",
        "Give it up, because its file or schema is lost: it is missing, or something else is in its place.",
        extension=True,
    ),
    Positional("queue_space_name", SpaceName(), "The queue space to destroy.", "Queue space name: "),
    short="qspds",
    confirm=Confirmation(
        _destruction,
        "Queue space '{queue_space_name}' not destroyed",
        lambda session, given: session.device.destroy_space(
            given["queue_space_name"], force=given["force"], lost=given["lost"], dry_run=True
        ),
    ),
    failure=no_table("Destroy queue space"),
)
def qspacedestroy(session: Session, queue_space_name: str, force: bool, lost: bool) -> Outcome:
    """Destroy a queue space with its queues.

    It is closed first if it is open. Without -f it is refused while other processes have the queue space open, a queue
    of it holds messages, or a transaction on it is prepared.

    If its file or schema is missing, it is refused, with -f too, because a forgotten mount must not cost a queue space.
    With -L the device forgets such a queue space, and dsdl can then remove the entry of the file. If the file comes
    back, qspacedestroy without -L destroys what it still has of the queue space.

        qspacedestroy -n QSPACE
        qspacedestroy -f -y QSPACE
        qspacedestroy -L QSPACE
    """
    if session.space is not None and session.space.name == queue_space_name:
        session.close_space()
    missing = session.device.missing_volume_of(queue_space_name) if lost else None
    session.device.destroy_space(queue_space_name, force=force, lost=lost)
    if missing is None:
        return _told(queue_space_name, "destroyed")
    return [*_entries_of(session, missing), _told(queue_space_name, "given up")]


def _entries_of(session: Session, lost: MissingVolume) -> Iterator[Notice]:
    """Return the entries of the device list that still name a lost volume on which no queue space is left."""
    if len(lost.spaces) > 1:
        return
    for entry in session.device.entries():
        if entry.path == lost.path:
            advice = f"If it will never come back, remove the entry: dsdl {entry.index}"
            yield Notice.info(f"entry {entry.index} of the device list still names {lost.path!r}", advice)


def _told(name: str, done: str) -> Line:
    return Line(f"Queue space '{name}' {done}", {"queue_space": name, "state": done})
