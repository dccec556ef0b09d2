"""Opening a device: the one place that puts storage under the engine."""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import os
import secrets
import select
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qmadmin import audit
from qmadmin.device import Device
from qmadmin.maintenance import MEMORY
from qmadmin.paths import absolute
from qmcore.audit import AuditEntry, kept_text
from qmcore.device import FULL, PAGE_SIZE, DeviceEntry, DeviceInfo, checked_entry
from qmcore.errors import BadResourceError, InvalidArgumentError, OperatingSystemError, QueueError
from qmcore.probe import Probe
from qmcore.times import Clock, SystemClock

if TYPE_CHECKING:
    from qmadmin.volume_factory import VolumeMaker
    from qmcore.backup import BackupReport
    from qmcore.port import Volume
    from qmcore.upgrade import UpgradePlan
    from qmstorage.postgres.address import Address


def open_device(path_or_url: str | os.PathLike[str], *, clock: Clock | None = None) -> Device:
    """Open an existing device.

    `path_or_url` is written as in QMCONFIG: the path of an SQLite file, or `sqlite:///path`, or the URL of a schema in
    a PostgreSQL database, `postgresql://[user[:password]@]host[:port]/database[?schema=qmadmin&...]`, whose other
    parameters are those of libpq. For a user who may only read it, `readonly` of the device is true. `clock` is for
    tests.

    Raises BadResourceError if there is no device, ReleaseError if another release wrote it, and OperatingSystemError if
    it cannot be read.
    """
    return _opened(path_of(path_or_url), _maker(path_or_url), clock)


def open_to_administer(path_or_url: str | os.PathLike[str]) -> Device:
    """Open a device as the shell does: one that belongs to another user for reading only, whoever we are."""
    if not other_owner(path_or_url):
        return open_device(path_or_url)
    return _opened(path_of(path_or_url), _FileMaker(readonly=True))


def _opened(path: str, maker: VolumeMaker, clock: Clock | None = None) -> Device:
    if path == MEMORY:
        raise BadResourceError("a device in memory cannot be opened, only created", hint="Use create_device().")
    main = maker.open(path)
    return Device(path, main, maker, clock or maker.clock())


def other_owner(path_or_url: str | os.PathLike[str]) -> str:
    """Return the user whom the file of a device belongs to, such as `user 'tux'`; empty where that is us."""
    from qmstorage.sqlite.translate import other_owner

    return other_owner(path_of(path_or_url))


def create_device(
    path_or_url: str | os.PathLike[str],
    pages: int,
    *,
    offset: int = 0,
    group: str | None = None,
    durability: str = FULL,
    partitions: int = 0,
    clock: Clock | None = None,
) -> Device:
    """Create a device whose device list has one entry: `pages` pages of 4096 bytes of the file, from page `offset`.

    The owner can read and write the file, and with `group` that group of users too. `:memory:` creates a device that is
    gone when it is closed. On PostgreSQL a schema is created; its owner can use it, and with `group` that role too.

    `durability` is "full": everything that a call has stored when it returns survives a power failure; or "relaxed": a
    power failure may lose the last fraction of a second, but the end of a process loses nothing. `partitions`, 2 to
    256, splits the message tables on PostgreSQL by a hash of the message; 0 does not.

    Raises BadResourceError if something else exists there, InvalidArgumentError for a number that is out of range,
    OperatingSystemError if the file cannot be created; the disk is left as it was.
    """
    path = path_of(path_or_url)
    maker = _maker(path_or_url)
    checked_entry(DeviceEntry(0, path, offset, pages), [])
    clock = clock or maker.clock()
    info = DeviceInfo(
        id=secrets.token_hex(16),
        page_size=PAGE_SIZE,
        durability=durability,
        group=group or "",
        created_at=clock.now(),
        partitions=partitions,
    )
    device = Device(path, maker.create(path, info, main=True), maker, clock)
    device.create_entry(path, offset, pages)
    return device


def restore_device(
    backup: str | os.PathLike[str],
    path_or_url: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> BackupReport:
    """Create a device from a backup; return what it contains, with the paths of its files.

    The device must not exist. With `force` an existing one is replaced, if nobody has it open; its messages are lost.
    The other files of the device get the same places relative to the new path as they had relative to the old one,
    under names that are free. The backup is checked first, and the new device is checked before it is put in place;
    until then, and if anything fails, everything is as it was.

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
        report, record = restore(Path(backup), Path(path), _group_id, told, record, force=force)
    # The device is there, whatever goes wrong with what its record says.
    with contextlib.suppress(QueueError), open_device(path) as made:
        made.audit_outcome(record, f"restored from the backup made at {report.made_at.isoformat(timespec='seconds')}")
    return report


@contextlib.contextmanager
def _recorded_in_replaced(path: str | None, record: AuditEntry) -> Iterator[None]:
    """Have the device that is to be replaced keep the record, which goes with it, and says why where it stays."""
    found = None
    # One that is damaged keeps no record, and is what a backup is for.
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
    """Refuse what no backup can be restored to: a device in memory, or on PostgreSQL."""
    path = path_of(path_or_url)
    if address_of(path_or_url) is not None:
        raise InvalidArgumentError(
            f"device {path!r} is on PostgreSQL, and a backup of files is not restored there",
            hint="What pg_dump saved is restored by pg_restore.",
        )
    if path == MEMORY:
        raise InvalidArgumentError("a device in memory cannot be restored", hint="Name a file.")


def read_backup(backup: str | os.PathLike[str]) -> BackupReport:
    """Return what a backup says of itself; BadResourceError where it is none. Its files are not looked at."""
    from qmstorage.sqlite.backups import read_list

    return read_list(Path(backup))


def commands_in_backup(backup: str | os.PathLike[str]) -> list[str]:
    """Return the capacity commands that the queues of a backup have; BadResourceError where it is none."""
    from qmstorage.sqlite.backups import commands_of

    return commands_of(Path(backup))


def plan_upgrade(path_or_url: str | os.PathLike[str]) -> UpgradePlan:
    """Return what an upgrade of a device to the schema version of this release would do; nothing is changed.

    Raises BadResourceError where there is no device or a file of it is missing, ReleaseError for a newer one.
    """
    address = address_of(path_or_url)
    if address is not None:
        _SchemaMaker.require_driver()
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
    clock: Clock | None = None,
) -> None:
    """Bring a device to the schema version of this release: all its volumes together, or none.

    `backup` is where it is saved before, which must not exist: a directory that qrestore takes, and for a device on
    PostgreSQL a file that pg_restore takes; None where it was saved otherwise. `progress` gets percent.

    Raises InUseError where processes are attached, and for a file where any program has it open; BadResourceError
    where the backup exists; SystemFailureError where a file is damaged; OperatingSystemError where the disk is full or
    the rights are missing. The device is then as it was.
    """
    plan.refuse_attached()
    told = progress or (lambda _percent: None)
    target = None if backup is None else Path(absolute(backup))
    address = address_of(path_or_url)
    if address is None:
        from qmstorage.sqlite import upgrading as of_files

        of_files.upgrade(plan, target, _record_of_upgrade(plan, target, clock or SystemClock()), told)
    else:
        from qmstorage.postgres import upgrading as of_schemas

        if target is not None:
            of_schemas.dump(address, plan, target)
        of_schemas.upgrade(address, plan, _record_of_upgrade(plan, target, clock or _maker(path_or_url).clock()))
    told(100)


def _record_of_upgrade(plan: UpgradePlan, backup: Path | None, clock: Clock) -> AuditEntry:
    """Return the record that an upgrade brings with it: an earlier release's device keeps none of ours before."""
    otherwise = "saved before it began" if plan.under_way else "saved in another way"
    saved = f"saved as {backup}" if backup else otherwise
    record = audit.new_entry(f"device {plan.path}", "upgrade_device", {"path_or_url": plan.path}, clock.now())
    outcome = kept_text(f"upgraded from schema version {plan.version} to {plan.target}, {saved}")
    return dataclasses.replace(record, outcome=outcome)


def can_back_up(path_or_url: str | os.PathLike[str]) -> bool:
    """Return whether an upgrade can save the device itself: for one on PostgreSQL that takes pg_dump."""
    if address_of(path_or_url) is None:
        return True
    from qmstorage.postgres import upgrading as of_schemas

    return of_schemas.can_dump()


def path_of(path_or_url: str | os.PathLike[str]) -> str:
    """Return what a device is called: the absolute path of its file, `:memory:`, or a URL without user and password.

    Raises BadResourceError for the URL of a kind of database that is not supported, and InvalidArgumentError for one
    that is malformed.
    """
    address = address_of(path_or_url)
    return address.shown if address is not None else _file_of(os.fspath(path_or_url))


def address_of(path_or_url: str | os.PathLike[str]) -> Address | None:
    """Return the address of a device on PostgreSQL; None for what is no URL of PostgreSQL."""
    text = os.fspath(path_or_url)
    if not text.lower().startswith("postgres") or "://" not in text:
        return None
    from qmstorage.postgres.address import Address, is_postgres

    return Address.parse(text) if is_postgres(text) else None


def _file_of(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text if text == MEMORY else absolute(text)
    if scheme in ("sqlite", "sqlite+pysqlite"):
        return absolute(rest.removeprefix("/")) if rest.strip("/") not in ("", MEMORY) else MEMORY
    raise BadResourceError(
        f"devices of the kind {scheme!r} are not supported by this release",
        hint="Give the path of a file, or a URL that begins with postgresql://.",
        scheme=scheme,
    )


def _maker(path_or_url: str | os.PathLike[str]) -> VolumeMaker:
    _refuse_eventlet()
    address = address_of(path_or_url)
    return _FileMaker() if address is None else _SchemaMaker(address, os.fspath(path_or_url))


def _refuse_eventlet() -> None:
    """Refuse a process in which nobody could wait for messages: eventlet takes away what it does not replace."""
    if not hasattr(select, "poll"):
        raise OperatingSystemError(
            "no device can be opened in this process: select.poll() is missing, as under eventlet.monkey_patch()",
            hint="Use gevent or threads; or eventlet.monkey_patch(select=False), with which a wait blocks all others.",
        )


class _FileMaker:
    """Makes and opens the volumes of a device on SQLite: files."""

    kind = "sqlite"

    def __init__(self, *, readonly: bool = False) -> None:
        self.probe = Probe()
        self._readonly = readonly

    def path_of(self, name: str | os.PathLike[str]) -> str:
        """Return the absolute path of a file."""
        if address_of(name) is not None:
            raise InvalidArgumentError(
                "a device that is a file has no volumes in a database", hint="Name a file, or make another device."
            )
        return path_of(name)

    def config_of(self, path: str) -> str:
        """Return the path."""
        return path

    def clock(self) -> Clock:
        """Return the clock of the machine: a file is never shared with another one."""
        return SystemClock()

    def other_writers(self, path: str) -> str:
        """Return whom the files of a volume belong to, or which of them others may write."""
        from qmstorage.sqlite import writers

        return "" if path == MEMORY else writers.others(path)

    def open(self, path: str) -> Volume:
        """Open the volume in a file."""
        from qmstorage.sqlite.opening import open_volume

        return open_volume(path, self.probe, readonly=self._readonly)

    def is_there(self, path: str) -> bool:
        """Return whether there is anything of that name; a symbolic link that leads nowhere is nothing."""
        return os.path.exists(path)  # noqa: PTH110 - where nobody may look, nothing is seen either

    def are_same(self, path: str, other: str) -> bool:
        """Return whether two names lead to the same file."""
        return Path(path).samefile(other)

    def create(self, path: str, info: DeviceInfo, *, main: bool) -> Volume:
        """Make a volume of a device, for the group that the device is for."""
        from qmstorage.sqlite.opening import create_volume

        return create_volume(path, info, self.probe, main=main, group_id=_group_id(info.group))

    def open_or_create(self, path: str, info: DeviceInfo) -> Volume:
        """Open the volume in a file; one that is absent or empty becomes one."""
        if Path(path).exists() and Path(path).stat().st_size:
            return self.open(path)
        return self.create(path, info, main=False)

    def back_up(
        self, volumes: Mapping[str, Volume], target: str, now: Callable[[], int], progress: Callable[[int], None]
    ) -> BackupReport:
        """Make a backup of volumes by their paths in the device list, the main one first."""
        from qmstorage.sqlite.backups import back_up

        return back_up(volumes, Path(target), now, progress)


class _SchemaMaker:
    """Makes and opens the volumes of a device on PostgreSQL: schemas of one database.

    In the device list the device is the URL that may be shown, and other volumes are the bare names of their schemas.
    """

    kind = "postgresql"

    def __init__(self, address: Address, url: str) -> None:
        from qmstorage.postgres.clock import ServerClock

        self.probe = Probe()
        self._address = address
        self._url = url
        self._clock = ServerClock()

    def path_of(self, name: str | os.PathLike[str]) -> str:
        """Return what the device list calls a schema, which is given by its name or by a URL of the same database."""
        given = address_of(name)
        if given is not None and not self._address.is_beside(given):
            raise InvalidArgumentError(
                f"all volumes of a device are in one database, and {given.shown!r} is not in that of"
                f" {self._address.shown!r}",
                hint="Give the name of a schema.",
            )
        schema = os.fspath(name) if given is None else given.schema
        found = self._address.sibling(schema)
        return found.shown if found == self._address else found.schema

    def config_of(self, path: str) -> str:  # noqa: ARG002 - there is one device
        """Return the URL as it was given, with all that it takes to connect."""
        return self._url

    def clock(self) -> Clock:
        """Return the clock of the server."""
        if not self._clock.is_set:
            self.require_driver()
            from qmstorage.postgres.opening import read_clock

            read_clock(self._address, self._clock)
        return self._clock

    def other_writers(self, path: str) -> str:
        """Say that nobody can know: superusers, and members of the owner's role."""
        return f"{path!r} is in a database that others may write"

    def open(self, path: str) -> Volume:
        """Open the volume in a schema."""
        self.require_driver()
        from qmstorage.postgres.opening import open_volume

        return open_volume(self._at(path), self._clock, self.probe)

    def is_there(self, path: str) -> bool:
        """Return whether there is a schema of that name."""
        self.require_driver()
        from qmstorage.postgres.opening import has_schema

        return has_schema(self._at(path), self._clock)

    def are_same(self, path: str, other: str) -> bool:
        """Return whether two names are those of one schema."""
        return self._at(path) == self._at(other)

    def create(self, path: str, info: DeviceInfo, *, main: bool) -> Volume:
        """Make a volume of a device, for the role that the device is for."""
        self.require_driver()
        from qmstorage.postgres.opening import create_volume

        return create_volume(self._at(path), self._clock, info, self.probe, main=main, group=info.group)

    def open_or_create(self, path: str, info: DeviceInfo) -> Volume:
        """Open the volume in a schema; one that is absent is made."""
        try:
            return self.open(path)
        except BadResourceError:
            # Where something else is in the way, that is what creating it says.
            return self.create(path, info, main=False)

    def back_up(
        self,
        volumes: Mapping[str, Volume],
        target: str,  # noqa: ARG002 - nothing is made
        now: Callable[[], int],  # noqa: ARG002
        progress: Callable[[int], None],  # noqa: ARG002
    ) -> BackupReport:
        """Refuse: the database has better ways."""
        from qmstorage.postgres.tables import memory_schema

        of_volumes = [self._at(path).schema for path in volumes]
        schemas = " ".join(f"--schema={name} --schema={memory_schema(name)}" for name in of_volumes)
        raise BadResourceError(
            f"a backup of device {self._address.shown!r} is made with PostgreSQL's own programs",
            hint=f"pg_dump {schemas} saves all persistent messages as they were at one moment; pg_restore restores"
            f" them.",
            path=self._address.shown,
        )

    @staticmethod
    def require_driver() -> None:
        """Refuse with a sentence where the driver is missing, before anything imports it."""
        from qmstorage.postgres.address import require_driver

        require_driver()

    def _at(self, path: str) -> Address:
        return self._address if path == self._address.shown else self._address.sibling(path)


def _group_id(group: str) -> int | None:
    if not group:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise InvalidArgumentError(f"there is no group {group!r} on this machine", group=group) from None
