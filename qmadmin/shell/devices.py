"""Commands on the universal device list and the table of contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmadmin.console.results import Column, Datum, Line, Notice, Outcome, Verbatim, of_missing, table_of
from qmadmin.shell.declare import Confirmation, Group, Option, Positional
from qmadmin.shell.kinds import Choice, DeviceIndex, FileName, Number, Words
from qmadmin.shell.notices import UsageError
from qmcore import device
from qmcore.device import FULL, DeviceEntry
from qmcore.errors import InvalidArgumentError
from qmcore.volume_record import state_of

if TYPE_CHECKING:
    from qmadmin.shell.kinds import Given
    from qmadmin.shell.session import Session

DEVICES = Group("Devices")


@DEVICES.command(
    "crdl",
    Option(
        "-g group",
        "group",
        "Let the members of this group of the operating system use the device that this creates: its files get the"
        " mode 0660 in place of 0600. On PostgreSQL the group is a role, which is granted what it needs.",
        Words(),
        extension=True,
    ),
    Option(
        "-s full|relaxed",
        "durability",
        "How durable the device that this creates is: with full, everything is on the disk when a call returns; with"
        " relaxed, which is faster, a power failure or a crash of the machine may lose the last fraction of a second.",
        Choice("durability", device.DURABILITIES),
        extension=True,
    ),
    Option(
        "-H partitions",
        "partitions",
        "Split the message tables of the device that this creates on PostgreSQL into this many partitions, by a hash"
        " of the message.",
        Number("number of partitions", least=2, most=device.PARTITIONS_MAX),
        extension=True,
    ),
    Positional("device", FileName(), "The file or the schema that holds the pages.", "Device name: "),
    Positional(
        "offset",
        Number("offset", most=device.PAGES_MAX),
        "The first page of the entry; 0 for the first entry.",
        "Device offset in disk pages: ",
    ),
    Positional(
        "size", Number("size", least=1, most=device.PAGES_MAX), "The number of pages.", "Device size in disk pages: "
    ),
)
def crdl(
    session: Session,
    device: str,
    offset: int,
    size: int,
    group: str | None,
    durability: str | None,
    partitions: int | None,
) -> Outcome:
    """Create an entry in the universal device list.

    The first entry creates the device: its name must be the one in QMCONFIG, and its offset 0. Some of its pages hold
    the device list and the table of contents. Further entries may name other pages of the same file, or other files;
    all pages of a queue space are in the same file. There are at most 25 entries. On PostgreSQL further entries name
    other schemas of the same database; the first entry is named by the URL or the schema of the device.

        crdl /var/qm/QUE 0 2000
        crdl -s relaxed /var/qm/FAST 0 2000
    """
    if session.has_device:
        for flag, given in (("-g", group), ("-s", durability), ("-H", partitions)):
            if given is not None:
                raise UsageError(f"Option {flag} is only for the first entry, which creates the device")
        entry = session.device.create_entry(device, offset, size)
    else:
        if not session.is_named(device):
            raise InvalidArgumentError(
                f"the first entry of the device list must be the device itself, {session.path!r}, got {device!r}"
            )
        how = {"group": group, "durability": durability or FULL, "partitions": partitions or 0}
        entry = session.create_device(device, offset, size, **how).entries()[0]
    return _told(session, "Created", entry)


def _told(session: Session, done: str, entry: DeviceEntry) -> Line:
    text = f"{done} device {entry.path}, offset {entry.offset}, size {entry.pages} on {session.device.path}"
    return Line(text, _data(entry))


def _data(entry: DeviceEntry) -> dict[str, Datum]:
    """Return the data of an entry for commands other than lidl."""
    return {"index": entry.index, "name": entry.path, "start": entry.offset, "size": entry.pages}


@DEVICES.command(
    "lidl", Positional("dlindex", DeviceIndex(), "The entry to list; without it, all are listed."), shows_only=True
)
def lidl(session: Session, dlindex: int | None) -> Outcome:
    """List the universal device list.

    It shows the index, name, first page and number of pages of each entry, whether its file or schema is present or why
    it is not, whether the durability of the device is full or relaxed, the number of partitions if its messages are
    split, and the version of its schema. In verbose mode it also shows the free space map: the size and the first page
    of each free range. If a file or schema is missing, the exit status is 1.

        lidl
        lidl 0
    """
    entries = session.device.entries() if dlindex is None else [_entry(session, dlindex)]
    info, paths = session.device.info, {entry.path for entry in entries}
    missing = [volume for volume in session.device.missing_volumes() if volume.path in paths]
    if session.modes.verbose and not session.modes.format.is_for_programs:
        shown = tuple(line for entry in entries for line in _in_full(session, entry, state_of(entry.path, missing)))
        return [*session.not_told(of_missing(missing)), Verbatim(shown)]
    columns = (
        Column("index", "Index", right=True),
        Column("name", "Name", of="path"),
        Column("start", "Start", right=True, of="offset"),
        Column("size", "Size", right=True, of="pages"),
        Column("state", "State", of=lambda entry: state_of(entry.path, missing)),
        Column("durability", "Durability", of=lambda _entry: info.durability),
        Column("partitions", "Partitions", right=True, of=lambda _entry: info.partitions or None),
        Column("schema_version", "Schema", right=True, of=lambda _entry: info.schema_version),
    )
    every = info.partitions or session.modes.format.is_for_programs
    table = table_of(entries, tuple(column for column in columns if every or column.key != "partitions"))
    return [*session.not_told(of_missing(missing)), table]


def _in_full(session: Session, entry: DeviceEntry, state: str) -> list[str]:
    free, info = session.device.free_ranges(entry.index), session.device.info
    # Each extent can cut one free stretch in two.
    possible = device.EXTENTS_MAX + 1
    return [
        f"universal device index. {entry.index}:",
        f"      name: {entry.path}",
        f"      start:  {entry.offset}",
        f"      size:   {entry.pages}",
        f"      state:  {state}",
        f"      durability: {info.durability}",
        f"      schema:     {info.schema_version}",
        *([f"      partitions: {info.partitions}"] if info.partitions else []),
        (
            f"      free space map({len(free)} {'entry' if len(free) == 1 else 'entries'} used"
            f" {possible - len(free)} available):"
        ),
        *(
            f"           size[{number}]:  {run.pages} addr[{number}]:  {run.first}"
            for number, run in enumerate(free, start=1)
        ),
    ]


def _renaming(session: Session, given: Given) -> str:
    index, path = given["dlindex"], given["newdevice"]
    means = session.device.loss_by_rename(index, path) if given["force"] else ""
    return f"Rename device list entry {index}, {_entry(session, index).path}, to {path}{f', and {means}' * bool(means)}"


@DEVICES.command(
    "chdl",
    Option(
        "-f",
        "force",
        "Take what is at the new path in place of the file of the entry: an older copy, an empty file, another volume,"
        " or one of another device.",
        extension=True,
    ),
    Positional("dlindex", DeviceIndex(), "The entry to rename.", "Device list index: "),
    Positional(
        "newdevice",
        FileName(),
        "The new path of the file.",
        "New device name (now {present}): ",
        facts=lambda session, given: {"present": _entry(session, given["dlindex"]).path},
    ),
    confirm=Confirmation(_renaming, "Device list entry {dlindex} not renamed", option="force"),
)
def chdl(session: Session, dlindex: int, newdevice: str, force: bool) -> Outcome:
    """Change the name of an entry in the universal device list.

    This is needed after a file has been moved, because its pages can no longer be reached under the old name. The file
    itself is not touched. The file at the new path must be the one that was moved, or a newer copy of it; if there is
    none yet, a warning says so. With -f something else is taken too, after a question that says what that means.

        chdl 1 /var/qm/moved
    """
    before = _entry(session, dlindex)
    entry = session.device.rename_entry(dlindex, newdevice, force=force)
    text = f"Renamed device {before.path} to {entry.path}, entry {entry.index} on {session.device.path}"
    if session.device.is_there(entry.path):
        return Line(text, _data(entry))
    absent = Notice.warning(f"nothing is at {entry.path!r} yet", "Move the file there.")
    return [absent, Line(text, _data(entry))]


@DEVICES.command(
    "dsdl",
    Positional("dlindex", DeviceIndex(), "The entry to destroy.", "Device list index: "),
    confirm=Confirmation(
        lambda session, given: (
            "Destroy device list entry {0.index}, {0.path}, offset {0.offset}, size {0.pages}".format(
                _entry(session, given["dlindex"])
            )
        ),
        "Device list entry {dlindex} not destroyed",
        lambda session, given: session.device.remove_entry(given["dlindex"], dry_run=True),
    ),
)
def dsdl(session: Session, dlindex: int) -> Outcome:
    """Destroy an entry in the universal device list.

    It is refused while a queue space has pages of the entry. The first entry can only be destroyed last.

        dsdl -y 1
    """
    entry = session.device.remove_entry(dlindex)
    return _told(session, "Destroyed", entry)


@DEVICES.command("livtoc", shows_only=True)
def livtoc(session: Session) -> Outcome:
    """List the volume table of contents.

    It shows the name, device list entry, file, first page and number of pages of each table, and whether the file is
    present or why it is not. The first two tables are the device's own; each other one is an extent of a queue space,
    named by the queue space and a number. If a file or schema is missing, the exit status is 1.

        livtoc
    """
    paths = {entry.index: entry.path for entry in session.device.entries()}
    missing = session.device.missing_volumes()
    columns = (
        Column("table", "Table", of="name"),
        Column("entry", "Entry", right=True),
        Column("device", "Device", of=lambda row: paths.get(row.entry)),
        Column("offset", "Offset", right=True, of="first"),
        Column("pages", "Pages", right=True),
        Column("state", "State", of=lambda row: state_of(paths[row.entry], missing) if row.entry in paths else None),
    )
    return [*session.not_told(of_missing(missing)), table_of(session.device.table_of_contents(), columns)]


def _entry(session: Session, index: int) -> DeviceEntry:
    for entry in session.device.entries():
        if entry.index == index:
            return entry
    raise InvalidArgumentError(f"the device list of {session.path!r} has no entry {index}", hint="List them with lidl.")


@DEVICES.command(
    "qcommands",
    Positional(
        "state",
        Choice("mode", ("off", "on")),
        "The new state; without it, the present state is shown.",
        metavar="{off|on}",
    ),
    extension=True,
)
def qcommands(session: Session, state: str | None) -> Outcome:
    """Switch the capacity commands of all queues of the device, or show whether they are on.

    While they are off, a limit that is reached is logged, and its command is not run, then or later.

        qcommands off
    """
    if state is not None:
        session.device.set_commands(enabled=state == "on")
    on = session.device.runs_commands()
    return Line(f"Capacity commands are {'on' if on else 'off'}", {"commands": on})
