"""The program qmspark: its commands, and its exit status.

Each command passes its options to a job of `qmadmin.transfer`, and shows the result. The jobs import Arrow, but only
after the command line was checked.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qmadmin.audit import recorded_as
from qmadmin.console.process import Exit, flush_quietly, prepare_process, refuse, say
from qmadmin.console.render import OutputLostError
from qmadmin.options import Documented, with_options
from qmadmin.spark import options
from qmadmin.spark.call import Call, UnusableError, listen, look_at
from qmadmin.spark.kinds import ArchivePath
from qmadmin.version import __version__

if TYPE_CHECKING:
    from qmadmin.archive.file_systems import Place
    from qmadmin.archive.reading import Archive
    from qmadmin.transfer.exporting import ExportOptions
    from qmadmin.transfer.import_planning import ImportOptions

_command = functools.partial(click.command, cls=Documented, add_help_option=False)


@_command("export", short_help="Write queue spaces of a device into an archive.")
@with_options(*options.EXPORT, *options.WORKERS, *options.OUTPUT)
@options.device_and_archive
def export(device: str | None, archive: Path | str, **given: Any) -> int:
    """Write queue spaces of a device into an archive.

    The archive contains them as they were at one moment, while other processes go on working. Without options it
    contains everything. ARCHIVE is a directory that does not exist or is empty, or the address of one, such as
    hdfs://host/directory; it is not an archive until everything is written.
    Without DEVICE the environment variable QMCONFIG names the device. Nothing on it is changed unless --remove or
    --move is given.
    """
    call = Call("export", given, archive)
    source = call.device(device)
    call.refuse_together("--remove", "remove", "--move", "destination")
    if given["start"] and not given["destination"]:
        raise UnusableError("--start is for --move")
    with call.refusals():
        asked = _export_options(call, given)
        look_at(source)
        if given["destination"]:
            look_at(given["destination"])
        with call.place(archive) as place:
            if given["destination"] and not call.dry_run:
                _move(call, source, given["destination"], place, asked, start=given["start"])
            elif given["remove"] and not call.dry_run:
                _export_and_remove(call, source, place, asked)
            else:
                _export(call, source, place, asked, given)
    return call.status


def _export_options(call: Call, given: dict[str, Any]) -> ExportOptions:
    from qmadmin.transfer.exporting import ExportOptions
    from qmadmin.transfer.selecting import Outstanding

    return ExportOptions(
        selection=call.selection(),
        outstanding=Outstanding(given["outstanding"]),
        key=call.key(),
        rate=given["rate"],
        again=given["again"],
        leave_out_missing=given["leave_out_missing"],
    )


def _export(call: Call, source: str, place: Place, asked: ExportOptions, given: dict[str, Any]) -> None:
    from qmadmin.console import archives
    from qmadmin.transfer import exporting

    with call.working() as (executor, progress):
        done = exporting.export(
            source, place, asked, executor=executor, progress=progress, dry_run=call.dry_run, sized=True
        )
    told = archives.written(done)
    if given["remove"] or given["destination"]:
        told = archives.with_removal_planned(told, done, given["destination"])
    call.show(told)


def _export_and_remove(call: Call, source: str, place: Place, asked: ExportOptions) -> None:
    from qmadmin.archive.reading import holds_archive, open_archive
    from qmadmin.console import archives
    from qmadmin.transfer import exporting, moving

    with call.working() as (executor, progress):
        exported = None
        # A complete export is not repeated if only the removal was interrupted.
        if not (asked.again and holds_archive(place)):
            exported = exporting.export(source, place, asked, executor=executor, progress=progress)
        removed = moving.remove_exported(place, source, key=asked.key, executor=executor, progress=progress)
    if exported is not None:
        told = archives.written(exported)
    else:
        told = archives.content(place, open_archive(place, asked.key).manifest)
    call.show(archives.with_removed(told, removed, resumed=exported is None))


def _move(call: Call, source: str, destination: str, place: Place, asked: ExportOptions, *, start: bool) -> None:
    from qmadmin.console import archives
    from qmadmin.transfer import moving
    from qmadmin.transfer.import_planning import ImportOptions

    landing = ImportOptions(start=start, key=asked.key, rate=asked.rate)
    with call.working() as (executor, progress):
        done = moving.move(
            source, destination, place, exporting=asked, importing=landing, executor=executor, progress=progress
        )
    call.show(archives.moved(done))


@_command("import", short_help="Load an archive into a device.")
@with_options(*options.IMPORT, *options.WORKERS, *options.OUTPUT)
@options.archive_and_device
def load(archive: Path | str | None, device: str | None, **given: Any) -> int:
    """Load an archive into a device.

    The archive is verified, and all limits of the device are checked, before anything is changed. The queues of a queue
    space appear together, when all of their messages are loaded. An interrupted import is not visible, and the same
    command resumes it. Message identifiers stay valid. Imported queues are stopped for
    dequeuing unless --start is given. Without DEVICE the environment variable QMCONFIG names the device.
    """
    call = Call("import", given, archive)
    destination = call.device(device)
    call.refuse_together("--resume", "resume", "--abandon", "abandon")
    call.refuse_together("--resume", "resume", "--abandon-all", "abandon_all")
    call.refuse_together("--abandon", "abandon", "--abandon-all", "abandon_all")
    if given["shift_by"] is not None and given["times"] != "shift":
        raise UnusableError("--shift-by is for --times shift")
    with call.refusals(), contextlib.ExitStack() as stack:
        place = None if archive is None else stack.enter_context(call.place(archive))
        if place is None or given["abandon"]:
            _abandon(call, destination, place)
        else:
            _load(call, destination, place, given)
    return call.status


def _load(call: Call, destination: str, place: Place, given: dict[str, Any]) -> None:
    from qmadmin.console import archives
    from qmadmin.transfer import importing

    asked = _import_options(call, place, given)
    look_at(destination)
    if not (asked.start or call.dry_run):
        call.report.note(archives.WILL_BE_STOPPED)
    with _reporting_interrupts(destination, place, asked), call.working() as (executor, progress):
        done = importing.load_archive(
            place, destination, asked, executor=executor, progress=progress, dry_run=call.dry_run
        )
    call.show(archives.brought(done, dry_run=call.dry_run, started=asked.start))


@contextlib.contextmanager
def _reporting_interrupts(destination: str, place: Place, asked: ImportOptions) -> Iterator[None]:
    """Report an interrupt of a published import, which can no longer be abandoned."""
    from qmadmin.archive.reading import open_archive
    from qmadmin.transfer import importing
    from qmcore.errors import QueueError

    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        with contextlib.suppress(QueueError):
            if importing.merging(destination, open_archive(place, asked.key).manifest.archive):
                error.add_note("The import is published already and cannot be given up; the same command resumes it.")
        raise


def _import_options(call: Call, place: Place, given: dict[str, Any]) -> ImportOptions:
    from qmadmin.archive.reading import open_archive
    from qmadmin.transfer.import_planning import Existing, ImportOptions

    key = call.key()
    return ImportOptions(
        selection=call.selection(),
        existing=Existing(given["existing"]),
        spaces=call.new_names("--rename", "space_names"),
        queues=call.new_names("--rename-queue", "queue_names"),
        start=given["start"],
        times=call.times(open_archive(place, key).manifest.source.snapshot_us),
        again=given["again"],
        resume=given["resume"],
        key=key,
        rate=given["rate"],
    )


def _abandon(call: Call, destination: str, place: Place | None) -> None:
    """Abandon the imports of an archive, or of all archives."""
    from qmadmin.archive.reading import open_archive
    from qmadmin.console import archives
    from qmadmin.opening import open_device
    from qmadmin.transfer import importing

    identifier = None if place is None else open_archive(place, call.key()).manifest.archive
    with open_device(destination) as device:
        names = call.selection().spaces_of(device)
    call.changes()
    counts = {name: importing.abandon(destination, name, identifier, dry_run=call.dry_run) for name in names}
    published = [name for name in importing.merging(destination, identifier) if name in names]
    call.show(archives.abandoned(identifier, counts, published, dry_run=call.dry_run))


@_command("verify", short_help="Verify an archive, and compare it with a device.")
@with_options(*options.VERIFY, *options.WORKERS, *options.OUTPUT)
@options.archive_argument
@options.device_argument
def verify(archive: Path | str, device: str | None, **given: Any) -> int:
    """Verify an archive, and compare it with a device if one is named.

    Everything in the archive is read and checked. The digest of a queue's messages depends neither on the device they
    are on nor on the parts they were written in. Each queue of the archive must be on the device with the same
    messages and no others, equal in every attribute and in the same order; messages that transactions hold there are
    not compared. If there is a difference, the exit status is 1.
    """
    call = Call("verify", given, archive)
    with call.refusals():
        from qmadmin.console import archives
        from qmadmin.transfer import comparing

        if device is not None:
            look_at(device)
        key = call.key()
        spaces = call.new_names("--rename", "space_names")
        queues = call.new_names("--rename-queue", "queue_names")
        with call.place(archive) as place, call.working() as (executor, progress):
            found = comparing.compare(
                place, device, key=key, spaces=spaces, queues=queues, alone=True, executor=executor, progress=progress
            )
        call.show(archives.compared(found, with_device=device is not None))
    return call.status


@_command("show", short_help="Show what is in an archive.")
@with_options(*options.SHOW, *options.OUTPUT)
@options.archive_argument
def show(archive: Path | str, **given: Any) -> int:
    """Show what is in an archive.

    The manifest of the archive is checked and shown; verify reads and checks the messages too.
    """
    call = Call("show", given, archive)
    with call.refusals():
        from qmadmin.archive.reading import open_archive
        from qmadmin.console import archives

        with call.place(archive) as place:
            told = archives.content(place, open_archive(place, call.key()).manifest)
        call.show(told)
    return call.status


@_command("query", short_help="Query a device or an archive in SQL.")
@with_options(*options.QUERY, *options.SPARK, *options.OUTPUT)
@options.place_and_query
def query(place: str | None, sql: str, **given: Any) -> int:
    """Query a device or an archive in SQL.

    The views are messages (not yet consumed), history (consumed and retained), queues and spaces. A statement that
    would change something is refused. Spark runs the query, on this machine unless --master says otherwise.
    """
    archive = ArchivePath.found(place)
    call = Call("query", given, archive, needs_spark=True)
    with call.refusals(), contextlib.ExitStack() as stack:
        # A missing device or archive is reported before Spark is started, which takes long.
        found: Archive | str
        if archive is None:
            found = call.device(place)
            look_at(found)
        else:
            from qmadmin.archive.reading import open_archive

            found = open_archive(stack.enter_context(call.place(archive)), call.key())
        with call.asking() as session:
            from qmadmin.spark import register, views

            register(session)
            with views.shown(session, found, payload=not given["bare"], partitions=given["partitions"]):
                answer = views.ask(session, sql, given["limit"])
        call.show(answer)
    return call.status


# ---- the program -----------------------------------------------------------------------------------------------------


logger = logging.getLogger("qmadmin.spark")

_PROGRAM = "qmspark"


class _InOrder(Documented, click.Group):
    """Commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.commands)


@click.group(
    cls=_InOrder, subcommand_metavar="COMMAND [OPTIONS] [ARGUMENTS]", options_metavar="", no_args_is_help=False
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version.")
@click.help_option("-h", "--help", help="Print a summary of the commands, or after a command of its options.")
def qmspark() -> None:
    """Move whole queue spaces between devices, and query them.

    An archive is a directory that holds queue spaces as they were at one moment, in a form that does not depend on a
    machine or a database. The work is done by processes on this machine, or on Spark with --master. The manual page
    qmspark(1) describes the commands.
    """


for _command in (export, load, verify, show, query):
    qmspark.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status. The console command `qmspark` calls this."""
    prepare_process()
    listen()
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with recorded_as(shlex.join([_PROGRAM, *words])):
            return Exit(qmspark.main(words, prog_name=_PROGRAM, standalone_mode=False) or Exit.OK)
    except UnusableError as error:
        return refuse(str(error), error.hint)
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        return refuse(error.format_message().rstrip("."), f"Try {where.command_path} --help." if where else "")
    except (KeyboardInterrupt, click.Abort):
        return Exit.INTERRUPTED
    except OutputLostError as error:
        if not error.quiet:
            say(f"ERROR: {error}")
        return Exit.FAILED
    except Exception as error:
        logger.exception("qmspark failed")
        say(f"ERROR: qmspark failed: {type(error).__name__}: {error}", "The log says more.")
        return Exit.FAILED
    finally:
        flush_quietly()


if __name__ == "__main__":
    sys.exit(main())
