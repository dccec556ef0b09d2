"""Commands that maintain a device: its check, backups, and the record of destructive acts."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from qmadmin.console import counted
from qmadmin.console.formats import Format
from qmadmin.console.results import (
    Column,
    Field,
    Line,
    Moment,
    Notice,
    Outcome,
    Prose,
    Record,
    Shown,
    Table,
    Term,
    field,
    hidden,
    remedied,
    table_of,
)
from qmadmin.shell.declare import Confirmation, Group, Option, Positional
from qmadmin.shell.kinds import FileName, Given, Number, SpaceName
from qmcore.errors import Alternative, QueueError

if TYPE_CHECKING:
    from qmadmin.device import Device
    from qmadmin.shell.session import Session
    from qmcore.backup import BackupReport
    from qmcore.findings import Finding

MAINTENANCE = Group("Maintenance", extension=True)


@MAINTENANCE.command(
    "qcheck",
    Positional("queue_space_name", SpaceName(), "Only this queue space; without it, the whole device."),
    shows_only=True,
)
def qcheck(session: Session, queue_space_name: str | None) -> Outcome:
    """Check the device or a queue space for problems, and say what to do about them.

    Quick checks come first: missing error queues, capacity limits that can never be reached and commands that cannot
    run, limits that are nearly reached, stopped queues, messages that have waited for a long time, processes that died,
    transactions that have been open for a long time, the clock, the permissions of the files, the free disk space; on
    PostgreSQL dead rows and what keeps vacuum from removing them, settings of the server and of the tables, indexes,
    owners, privileges, and connections that are running out. Then everything that is stored is read and checked, while
    others go on working. Nothing is changed. In verbose mode, and in formats for programs, checks that found nothing
    are listed too. If an error is found, the exit status is 1.

        qcheck
        qcheck QSPACE
    """
    if queue_space_name is not None and session.device.missing_volume_of(queue_space_name) is None:
        session.device.space(queue_space_name)
    with session.progress("Checking the device", 100) as reached:
        findings = list(session.device.check(queue_space_name, progress=reached))
    worst = [found for found in findings if found.severity.value == "error"]
    warnings = [found for found in findings if found.severity.value == "warning"]
    told = findings if session.detailed else [found for found in findings if found.severity.value != "ok"]
    summary = f"{counted(len(worst), 'error')}, {counted(len(warnings), 'warning')}"
    if not worst and not warnings:
        summary = "No problems found"
    shown: list[Shown] = []
    if told or session.modes.format.is_for_programs:
        shown.append(_as_text(told) if session.modes.format is Format.TABLE else _as_table(told))
    shown.append(Line(summary))
    if worst:
        shown.append(Notice.error(f"qcheck has found {counted(len(worst), 'error')}"))
    return shown


def _as_table(findings: list[Finding]) -> Table:
    columns = (
        Column("severity", "Severity"),
        Column("check", "Check"),
        Column("object", "Object", of="target"),
        Column("finding", "Finding", of="sentence"),
        Column("advice", "What to do", of=lambda found: found.advice or None),
    )
    return table_of(findings, columns)


def _as_text(findings: list[Finding]) -> Prose:
    return Prose(
        tuple(
            Term(f"{found.severity.value}: {found.target}", f"{_sentence(found.sentence)} {found.advice}".strip())
            for found in findings
        )
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


@MAINTENANCE.command(
    "qbackup",
    Option("-L", "leave_out", "Leave out files that are missing, or in whose place something else is."),
    Positional("directory", FileName(), "The backup, a directory that must not exist yet.", "Backup directory: "),
)
def qbackup(session: Session, directory: str, leave_out: bool) -> Outcome:
    """Make a backup of the device while it is in use.

    It contains all persistent messages as they were at one moment, and each transaction whole or not at all.
    Non-persistent messages are not in it. The backup is checked before it gets its name: if anything fails, nothing of
    that name is left, and nothing is ever overwritten. Use pg_dump to back up a device on PostgreSQL.

    If a file of the device is missing, nothing is done; with -L all else is backed up, and a warning says what is not.

        qbackup /backups/monday
    """
    with remedied({Alternative.LEAVE_OUT: "The option is -L."}), session.progress("Making the backup", 100) as reached:
        report = session.device.backup(directory, leave_out_missing=leave_out, progress=reached)
    return [*_faults(report), _described(f"Backup '{report.path}'", report)]


def _restoring(_session: Session, given: Given) -> str | Notice:
    from qmadmin.opening import commands_in_backup, read_backup, refuse_to_restore

    path = given["device"]
    refuse_to_restore(path)
    report = read_backup(given["backup"])
    commands = ", ".join(map(repr, commands_in_backup(given["backup"])))
    brought = f", and with the capacity commands {commands}" if commands else ""
    what = f"the backup of '{report.device}' at {_when(report)}, with {_holds(report)}{brought}"
    if not os.path.lexists(path):
        return f"Make device '{path}' of {what}"
    if not given["force"]:
        return Notice.error(f"Device '{path}' exists already", "Name another, or give -f to replace it.")
    return f"Replace device '{path}' by {what}"


@MAINTENANCE.command(
    "qrestore",
    Option("-f", "force", "Replace an existing device; its messages are lost."),
    Positional("backup", FileName(), "The directory that qbackup made.", "Backup directory: "),
    Positional(
        "device",
        FileName(),
        "The device to create; by default the one of this session.",
        "Device name [default={default}]: ",
        default=lambda session, _given: session.path,
    ),
    confirm=Confirmation(_restoring, "Device '{device}' not restored"),
)
def qrestore(session: Session, backup: str, device: str, force: bool) -> Outcome:
    """Create a device from a backup.

    The backup is checked first, and the new device is checked before it is put in place; until then an existing device
    stays as it was. With -f an existing device is replaced, if no other program has it open; the one of this session is
    closed first. Transactions that were open when the backup was made roll back, which does not count as a try. New
    messages get identifiers that were never used before.

        qrestore -y /backups/monday /queues/QUE
    """
    from qmadmin.opening import open_device, restore_device

    if os.path.realpath(device) == os.path.realpath(session.path):
        session.close()
    with session.progress("Restoring the device", 100) as reached:
        report = restore_device(backup, device, force=force, progress=reached)
    with open_device(report.path) as made:
        commands = [*_commands(made)]
    return [*_faults(report), *commands, _described(f"Device '{report.path}'", report)]


def _described(title: str, report: BackupReport) -> Record:
    files = [volume.path for volume in report.volumes]
    return Record(
        title,
        (
            hidden(path=report.path, device=report.device),
            field("moment", "As it was at", Moment(report.made_us)),
            Field("Of device", report.device, {}),
            Field("Files", ", ".join(files), {"files": len(files)}),
            Field("Size", f"{report.size} bytes on disk", {"bytes": report.size}),
            field("queue_spaces", "Queue spaces", report.spaces),
            field("messages", "Persistent messages", report.messages),
            Field("Non-persistent messages", "not in it", {}),
            field("transactions", "Open transactions", report.transactions),
        ),
    )


def _commands(device: Device) -> Iterator[Notice]:
    """Yield a warning for each capacity command of the queues: another user may have made the backup."""
    # The faults of the report, and qcheck, describe damage.
    with contextlib.suppress(QueueError):
        for space in device.spaces():
            for queue in device.queues(space.name):
                for command in queue.definition.commands:
                    yield Notice.warning(
                        f"Queue '{queue.name}' of queue space '{space.name}' has the capacity command {command!r}",
                        "It runs as the user whose process enqueues; qchange removes it, qcommands off suspends all.",
                    )


def _faults(report: BackupReport) -> list[Notice]:
    return [Notice.warning(fault, "Check the device with qcheck.") for fault in report.faults]


def _when(report: BackupReport) -> str:
    return report.made_at.astimezone().strftime("%Y-%m-%dT%H:%M:%S%z")


def _holds(report: BackupReport) -> str:
    return f"{counted(report.spaces, 'queue space')} and {counted(report.messages, 'message')}"


@MAINTENANCE.command(
    "qaudit",
    Positional("count", Number("number of commands", 1), "How many of the newest to list; without it, all."),
    shows_only=True,
)
def qaudit(session: Session, count: int | None) -> Outcome:
    """List what was destroyed or changed on the device by commands and programs, the newest first.

    It shows when, by whom and where, the command line or the call of the program, what it was about, and its outcome.
    One without an outcome was cut off or is still running. The device keeps the newest 10,000 records.

        qaudit 20
    """
    entries = iter(session.device.audited(count))
    first = next(entries, None)
    if first is None:
        return session.nothing(f"No destructive acts are recorded on device {session.path!r}", _AUDIT)
    return table_of(itertools.chain([first], entries), _AUDIT)


_AUDIT = (
    Column("at", "At", of="at_us"),
    Column("user", "User"),
    Column("uid", "Uid", right=True),
    Column("host", "Host"),
    Column("pid", "Process", right=True),
    Column("command", "Command"),
    Column("object", "What", of="target"),
    Column("outcome", "Outcome"),
)
