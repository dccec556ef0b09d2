"""Commands that export queue spaces to archives and import them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmadmin.console import counted
from qmadmin.console.process import let_through
from qmadmin.console.results import Line, Outcome, remedied
from qmadmin.shell.declare import Confirmation, Group, Option, Positional
from qmadmin.shell.kinds import Choice, FileName, Given, QueueName, SpaceName
from qmadmin.shell.listing import ConditionText
from qmcore.errors import Alternative

if TYPE_CHECKING:
    from qmadmin.shell.session import Session
    from qmadmin.transfer.comparing import Verified
    from qmadmin.transfer.import_planning import ImportOptions
    from qmadmin.transfer.importing import Imported
    from qmadmin.transfer.selecting import ArchiveSelection
    from qmcore.condition import Condition

ARCHIVES = Group("Archives", extension=True)

_OPTIONS = {
    Alternative.EXISTING: "The options are -e, and -r for another name of the queue space.",
    Alternative.AGAIN: "The option is -a.",
    Alternative.ABANDON: "qmspark import --abandon gives it up.",
    Alternative.RESUME: "qmspark export --resume begins again in this one.",
    Alternative.KEY: "The option is -k.",
    Alternative.LEAVE_OUT: "The option is -L.",
}
"""The options that lift refusals of the engine."""

_SPACE = Option("-s queue_space_name", "space", "Only this queue space.", SpaceName())
_QUEUE = Option("-q queue_name", "queue", "Only the queue of this name.", QueueName())
_DEFINITIONS = Option("-d", "definitions", "Only definitions of queue spaces and queues, no messages.")
_KEY = Option("-k file", "key", "The file of the key that signs the archive.", FileName())


@ARCHIVES.command(
    "qexport",
    Option(
        "-s queue_space_name",
        "space",
        "Only this queue space; by default the open one, or all if none is open.",
        SpaceName(),
    ),
    _QUEUE,
    Option("-w condition", "condition", "Only messages for which a condition is true.", ConditionText()),
    Option(
        "-o transactions",
        "outstanding",
        "What to do with messages that open transactions hold: export nothing (refuse, the default), leave them out"
        " (leave-out), or export them in their places as if the transactions had rolled back (as-rolled-back), those of"
        " prepared ones only if that is said (in-doubt-too).",
        Choice("choice", ("refuse", "leave-out", "as-rolled-back", "in-doubt-too")),
        "refuse",
    ),
    Option("-L", "leave_out", "Leave out queue spaces whose files or schemas are missing; otherwise it is refused."),
    _DEFINITIONS,
    _KEY,
    Positional("directory", FileName(), "The archive, a directory that must be empty or not exist.", "Archive: "),
)
def qexport(
    session: Session,
    *,
    directory: str,
    space: str | None,
    queue: str | None,
    condition: Condition | None,
    outstanding: str,
    leave_out: bool,
    definitions: bool,
    key: str | None,
) -> Outcome:
    """Write queue spaces into an archive, all as they are at one moment.

    Others go on working meanwhile, and nothing is changed on the device. An archive can be read on any machine and
    imported into any device, by qimport or by qmspark(1), which has more options; qmadmin-archive(5) describes its
    format. The directory is not an archive until all of it is written. It requires the package pyarrow.

        qexport /archives/monday
        qexport -s QSPACE -q orders -w "priority > 50" /archives/orders
    """
    from qmadmin.console import archives
    from qmadmin.transfer.exporting import ExportOptions, export
    from qmadmin.transfer.selecting import Outstanding

    opened = session.space.name if session.space is not None else None
    asked = ExportOptions(
        selection=_selected(space or opened, queue, definitions=definitions, condition=str(condition or "")),
        outstanding=Outstanding(outstanding),
        key=_key_in(key),
        leave_out_missing=leave_out,
    )
    with remedied(_OPTIONS), let_through(), session.progress("Exporting", 100) as reached:
        done = export(
            session.device.config,
            _directory(directory),
            asked,
            progress=lambda _step, count, total: reached(100 * count // max(total, 1)),
        )
    return archives.written(done).shown(session.modes.format)


def _importing(session: Session, given: Given) -> str:
    from qmadmin.transfer.comparing import Verified

    session.verified = Verified()
    done = _import(session, given, verified=session.verified, dry_run=True)
    stopped = "" if given["start"] or not done.stops else ", with the queues stopped for dequeuing until qstart"
    messages = counted(done.messages, "message")
    return f"Import {messages} of archive {done.archive} {'; '.join(_sentences(done))}{stopped}{_commands(done)}"


def _commands(done: Imported) -> str:
    """Return the capacity commands of the imported queues, which the confirmation shows."""
    commands = dict.fromkeys(repr(command) for space in done.spaces for _, command in space.commands)
    return f", with capacity commands of the archive: {', '.join(commands)}" if commands else ""


def _sentences(done: Imported) -> Sequence[str]:
    from qmadmin.console.archives import MODES
    from qmcore.imports import Mode

    told = []
    for space in done.spaces:
        modes = [mode for _, mode in space.queues.values()]
        what = [f"{counted(modes.count(mode), 'queue')} {MODES[mode]}" for mode in Mode if mode in modes]
        what += [f"{counted(len(space.skipped), 'queue')} skipped"] if space.skipped else []
        new = "the new " if space.created else ""
        told.append(f"into {new}queue space '{space.name}' ({', '.join(what) or 'no queue'})")
    return told


@ARCHIVES.command(
    "qimport",
    _SPACE,
    _QUEUE,
    Option(
        "-e {refuse|skip|replace|append}",
        "existing",
        "What to do with a queue that exists already: import nothing (refuse, the default), leave it as it is (skip),"
        " put the imported one in its place (replace), or add the messages to it (append).",
        Choice("choice", ("refuse", "skip", "replace", "append")),
        "refuse",
    ),
    Option("-r new_name", "name", "The new name of the queue space that -s selects.", SpaceName()),
    Option("-t", "start", "Start the queues that were started when they were exported.", long="--start"),
    Option("-a", "again", "Import queues of this archive again that were imported before."),
    _DEFINITIONS,
    _KEY,
    Positional("directory", FileName(), "The directory of the archive.", "Archive: "),
    confirm=Confirmation(_importing, "Archive '{directory}' not imported"),
)
def qimport(session: Session, *, directory: str, start: bool, **given: Any) -> Outcome:
    """Load an archive into the device.

    The archive is verified, and all limits are checked, before anything is changed. The queues of a queue space appear
    together, when all of their messages are loaded. An interrupted import is not visible, and the same command resumes
    it. With -e append queues then get the messages in batches, each message once, so that the
    command as a whole is not atomic. Message identifiers stay valid. Imported queues are stopped for dequeuing unless
    --start is given. To give up an interrupted import use qmspark import --abandon, or --abandon-all if the archive is
    gone. It requires the package pyarrow.

        qimport /archives/monday
        qimport -s QSPACE -r COPY /archives/monday
    """
    from qmadmin.console import archives

    verified, session.verified = session.verified, None
    asked = {"directory": directory, "start": start, **given}
    done = _import(session, asked, verified=verified, dry_run=False)
    return [
        *archives.brought(done, dry_run=False, started=start).shown(session.modes.format),
        Line(f"Archive '{directory}' imported"),
    ]


def _import(session: Session, given: Given, *, verified: Verified | None, dry_run: bool) -> Imported:
    from qmadmin.transfer.importing import load_archive

    # It opens the device itself, as any application does.
    session.device.refuse_readonly()
    with remedied(_OPTIONS), let_through(), session.progress("Importing", 100) as reached:
        return load_archive(
            _directory(given["directory"]),
            session.device.config,
            _asked(given),
            progress=lambda _step, count, total: reached(100 * count // max(total, 1)),
            verified=verified,
            dry_run=dry_run,
        )


def _asked(given: Given) -> ImportOptions:
    from qmadmin.archive.reading import open_archive
    from qmadmin.shell.notices import UsageError
    from qmadmin.transfer.import_planning import Existing, ImportOptions

    key, space = _key_in(given["key"]), given["space"]
    if given["name"] and space is None:
        found = open_archive(_directory(given["directory"]), key).manifest.spaces
        if len(found) != 1:
            raise UsageError("-r names one queue space, and the archive has several", hint="Say with -s which one.")
        space = found[0].definition.name
    return ImportOptions(
        selection=_selected(space, given["queue"], definitions=given["definitions"]),
        existing=Existing(given["existing"]),
        spaces={space: given["name"]} if given["name"] else {},
        start=given["start"],
        again=given["again"],
        key=key,
    )


def _selected(space: str | None, queue: str | None, *, definitions: bool, condition: str = "") -> ArchiveSelection:
    import glob

    from qmadmin.archive.manifest import Content
    from qmadmin.transfer.selecting import ArchiveSelection

    return ArchiveSelection(
        spaces=("*",) if space is None else (glob.escape(space),),
        queues=("*",) if queue is None else (glob.escape(queue),),
        condition=condition,
        content=Content.DEFINITIONS if definitions else Content.ALL,
    )


def _directory(named: str) -> Path:
    """Return the directory of an archive, which is on this machine."""
    from qmadmin.shell.notices import UsageError

    if "://" in named:
        raise UsageError(
            f"{named!r} is an address, which qmspark(1) takes; here an archive is a directory of this machine",
            hint="Give it to qmspark export or qmspark import.",
        )
    return Path(named)


def _key_in(file: str | None) -> bytes | None:
    from qmadmin.archive.manifest_file import key_of

    return None if file is None else key_of(Path(file))
