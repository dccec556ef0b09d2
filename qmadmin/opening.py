"""Opening a device: the one place that puts storage under the engine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin import audit
from qmadmin.defaults import DEVICE_PAGES
from qmadmin.device import Device
from qmadmin.paths import absolute
from qmadmin.volume_makers import MEMORY, FileMaker, SchemaMaker, VolumeMaker, address_of, group_id, maker_of, path_of
from qmcore.audit import AuditEntry, kept_text
from qmcore.device import FULL, PAGE_SIZE, DeviceEntry, DeviceInfo, checked_entry
from qmcore.errors import BadResourceError, InvalidArgumentError, QueueError
from qmcore.times import Clock, SystemClock

if TYPE_CHECKING:
    from qmadmin.connections import DatabaseConnection
    from qmcore.application_database import ApplicationDatabase
    from qmcore.backup import BackupReport
    from qmcore.upgrade import UpgradePlan
    from qmstorage.participating_session import ParticipatingSession


def open_device(path_or_url: str | os.PathLike[str], *, create: bool = False, clock: Clock | None = None) -> Device:
    """Open an existing device; with `create`, make it where there is none, as `create_device` does without a size.

    `path_or_url` is written as in QMCONFIG: the path of an SQLite file, or `sqlite:///path`, or the URL of a schema in
    a PostgreSQL database, `postgresql://[user[:password]@]host[:port]/database[?schema=qmadmin&...]`, whose other
    parameters are those of libpq. For a user who may only read it, `readonly` of the device is true. `clock` is for
    tests.

    Raises BadResourceError if there is no device, ReleaseError if another release wrote it, and OperatingSystemError if
    it cannot be read.
    """
    if create:
        return _opened_or_created(path_or_url, clock)
    return _opened(path_of(path_or_url), maker_of(path_or_url, clock))


def _opened_or_created(path_or_url: str | os.PathLike[str], clock: Clock | None) -> Device:
    """Open a device or make it; where several processes do that at the same time, one makes it and the others open it.

    What the file of another process that is just making it says may be any error, and is asked for again after that.
    """
    try:
        return open_device(path_or_url, clock=clock)
    except QueueError:
        try:
            return create_device(path_or_url, clock=clock)
        except QueueError as refusal:
            if can_become_device(path_or_url):
                # What keeps a database of the application from becoming one says more than that it is none.
                raise refusal from None
        return open_device(path_or_url, clock=clock)


def open_to_administer(path_or_url: str | os.PathLike[str]) -> Device:
    """Open a device as the shell does: a device of another user for reading only, even as root."""
    if not other_owner(path_or_url):
        return open_device(path_or_url)
    return _opened(path_of(path_or_url), FileMaker(readonly=True))


def _opened(path: str, maker: VolumeMaker) -> Device:
    if path == MEMORY:
        raise BadResourceError("a device in memory cannot be opened, only created", hint="Use create_device().")
    main = maker.open(path)
    return Device(path, main, maker, maker.clock(), open_device)


def database_of(connection: object) -> ApplicationDatabase:
    """Return the database of an application, to which a connection leads, as a participant in transactions.

    Raises InvalidArgumentError for what is no connection, or not of a kind that can take part.
    """
    from qmstorage.participating_connections import found

    its, driver = found(connection)
    if driver == "sqlite3":
        from qmstorage.sqlite import participating as of_files

        return of_files.Participant(connection, its)
    if driver == "psycopg":
        from qmstorage.postgres import participating as of_servers

        return of_servers.Participant(connection, its)
    from qmstorage import participating_drivers as of_drivers

    return of_drivers.Participant(connection, its)


def participating_session(session: object) -> ParticipatingSession:
    """Return a session of SQLAlchemy in the transaction that others commit.

    Raises InvalidArgumentError for what is none.
    """
    from qmstorage.participating_session import ParticipatingSession

    return ParticipatingSession(session)


def create_decision_table(connection: DatabaseConnection) -> None:
    """Make the table in which a database of the application keeps decisions on transactions, where it is not there yet.

    A database needs it that cannot prepare a transaction, to take part in `qmadmin.transaction`, or that is its
    `decider`, and one of which no more is known than PEP 249 says. It is made in the transaction that the connection
    has open, else in one of its own; in that alone by a driver of which no more is known. The statement stands on the
    page qmadmin-queue(7), for tools that migrate databases; SQLAlchemy makes it with the types of a database of which
    no more is known.

    Raises InvalidArgumentError for what is no connection, and AbortedError where the database refuses.
    """
    database_of(connection).create_table()


def other_owner(path_or_url: str | os.PathLike[str]) -> str:
    """Return the owner of the file of a device, such as `user 'tux'`; empty if that is the present user."""
    from qmstorage.sqlite.translate import other_owner

    return other_owner(path_of(path_or_url))


def can_become_device(path_or_url: str | os.PathLike[str]) -> bool:
    """Return whether a path names an SQLite database that is no device yet, so that `create_device` may make it one."""
    from qmstorage.sqlite.files import can_become_device

    return can_become_device(path_of(path_or_url))


def create_device(
    path_or_url: str | os.PathLike[str],
    pages: int = DEVICE_PAGES,
    *,
    offset: int = 0,
    group: str | None = None,
    durability: str = FULL,
    partitions: int = 0,
    clock: Clock | None = None,
) -> Device:
    """Create a device whose device list has one entry: `pages` pages of 4096 bytes of the file, from page `offset`.

    Pages are only counted, and take disk when messages need it; without a number there are enough for 1 TiB. The owner
    can read and write the file, and with `group` that group of users too. `:memory:` creates a device that is
    gone when it is closed. On PostgreSQL a schema is created; its owner can use it, and with `group` that role too.
    An existing SQLite database of an application becomes a device beside its tables; it keeps its rights, and its
    journal becomes a write-ahead log (WAL).

    `durability` is "full": everything that a call has stored when it returns survives a power failure; or "relaxed": a
    power failure may lose the last fraction of a second, but the end of a process loses nothing. `partitions`, 2 to
    256, splits the message tables on PostgreSQL by a hash of the message; 0 does not.

    Raises BadResourceError if something else exists there, or the database has tables or indexes of the same names as
    a device, which are named; InvalidArgumentError for a number that is out of range, OperatingSystemError if the file
    cannot be created; the disk is left as it was.
    """
    path = path_of(path_or_url)
    maker = maker_of(path_or_url, clock)
    first = checked_entry(DeviceEntry(0, path, offset, pages), [])
    clock = maker.clock()
    info = DeviceInfo(
        id=os.urandom(16).hex(),
        page_size=PAGE_SIZE,
        durability=durability,
        group=group or "",
        created_at=clock.now(),
        partitions=partitions,
    )
    return Device(path, maker.create(path, info, first=first), maker, clock, open_device)


def restore_device(
    backup: str | os.PathLike[str],
    path_or_url: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> BackupReport:
    """Create a device from a backup; return what it contains, with the paths of its files.

    The device must not exist. With `force` an existing one is replaced, if no process has it open; its messages are
    lost. The other files of the device get the same places relative to the new path as they had relative to the old
    one, under names that are free. The backup is checked first, and the new device is checked before it is put in
    place; until then, and if anything fails, everything is as it was.

    Transactions that were open when the backup was made roll back when their queue space is first used, which does not
    count as a try. New messages get identifiers that were never used before, not even after the backup was made.
    `progress` is called with the percentage done.

    Raises BadResourceError if there is no backup, or a device exists and `force` is not given; InUseError if the device
    is open; SystemFailureError if the backup is damaged; OperatingSystemError if the disk is full.
    """
    from qmstorage.sqlite.restoring import restore

    refuse_to_restore(path_or_url)
    path, told = path_of(path_or_url), progress or (lambda _percent: None)
    arguments = {"backup": os.fspath(backup), "path_or_url": path, "force": force}
    record = audit.new_entry(f"device {path}", "restore_device", arguments, SystemClock().now())
    with _recorded_in_replaced(path if force else None, record):
        report, record = restore(Path(backup), Path(path), group_id, told, record, force=force)
    # The device is restored, even if its record cannot be completed.
    with contextlib.suppress(QueueError), open_device(path) as made:
        made.audit_outcome(record, f"restored from the backup made at {report.made_at.isoformat(timespec='seconds')}")
    return report


@contextlib.contextmanager
def _recorded_in_replaced(path: str | None, record: AuditEntry) -> Iterator[None]:
    """Record it on the device to be replaced, too, which keeps the record if it is not replaced after all."""
    found = None
    # A damaged one keeps no record; replacing it is what a backup is for.
    with contextlib.suppress(QueueError):
        if path is not None and os.path.lexists(path):
            with open_device(path) as old:
                found = old.audit(record.command, record.target)
    try:
        yield
    except BaseException as error:
        if found is not None and path is not None:
            with contextlib.suppress(QueueError), open_device(path) as old:
                old.audit_outcome(found, audit.failure(error))
        raise


def refuse_to_restore(path_or_url: str | os.PathLike[str]) -> None:
    """Refuse a target to which no backup can be restored: a device in memory, or on PostgreSQL."""
    path = path_of(path_or_url)
    if address_of(path_or_url) is not None:
        raise InvalidArgumentError(
            f"device {path!r} is on PostgreSQL, and a backup of files is not restored there",
            hint="What pg_dump saved is restored by pg_restore.",
        )
    if path == MEMORY:
        raise InvalidArgumentError("a device in memory cannot be restored", hint="Name a file.")


def read_backup(backup: str | os.PathLike[str]) -> BackupReport:
    """Return the report of a backup; BadResourceError if it is not one. Its files are not checked."""
    from qmstorage.sqlite.backups import read_list

    return read_list(Path(backup))


def commands_in_backup(backup: str | os.PathLike[str]) -> list[str]:
    """Return the capacity commands of the queues of a backup; BadResourceError if it is not one."""
    from qmstorage.sqlite.backups import commands_of

    return commands_of(Path(backup))


def plan_upgrade(path_or_url: str | os.PathLike[str]) -> UpgradePlan:
    """Return what an upgrade of a device to the schema version of this release would do; nothing is changed.

    Raises BadResourceError if there is no device or a file of it is missing, ReleaseError for a newer one.
    """
    address = address_of(path_or_url)
    if address is not None:
        SchemaMaker.require_driver()
        from qmstorage.postgres import upgrading as of_schemas

        return of_schemas.plan(address)
    from qmstorage.sqlite import upgrading as of_files

    return of_files.plan(path_of(path_or_url))


def upgrade_device(
    path_or_url: str | os.PathLike[str],
    plan: UpgradePlan,
    backup: str | os.PathLike[str] | None,
    *,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Upgrade a device to the schema version of this release: all its volumes together, or none.

    `backup` is the path of the backup, which must not exist: a directory for qrestore, or for a device on PostgreSQL a
    file for pg_restore; None if it was saved in another way. `progress` is called with the percentage done.

    Raises InUseError if processes are attached, and for a file if any program has it open; BadResourceError if the
    backup exists; SystemFailureError if a file is damaged; OperatingSystemError if the disk is full or a permission is
    missing. The device is then as it was.
    """
    plan.refuse_attached()
    told = progress or (lambda _percent: None)
    target = None if backup is None else Path(absolute(backup))
    address, clock = address_of(path_or_url), maker_of(path_or_url).clock()
    if address is None:
        from qmstorage.sqlite import upgrading as of_files

        of_files.upgrade(plan, target, _record_of_upgrade(plan, target, clock), told)
    else:
        from qmstorage.postgres import upgrading as of_schemas

        if target is not None:
            of_schemas.dump(address, plan, target)
        of_schemas.upgrade(address, plan, _record_of_upgrade(plan, target, clock))
    told(100)


def _record_of_upgrade(plan: UpgradePlan, backup: Path | None, clock: Clock) -> AuditEntry:
    """Return the record that the upgrade itself stores: a device of an earlier release cannot keep one before."""
    otherwise = "saved before it began" if plan.under_way else "saved in another way"
    saved = f"saved as {backup}" if backup else otherwise
    record = audit.new_entry(f"device {plan.path}", "upgrade_device", {"path_or_url": plan.path}, clock.now())
    outcome = kept_text(f"upgraded from schema version {plan.version} to {plan.target}, {saved}")
    return dataclasses.replace(record, outcome=outcome)


def can_back_up(path_or_url: str | os.PathLike[str]) -> bool:
    """Return whether an upgrade can make the backup itself: on PostgreSQL that requires pg_dump."""
    if address_of(path_or_url) is None:
        return True
    from qmstorage.postgres import upgrading as of_schemas

    return of_schemas.can_dump()
