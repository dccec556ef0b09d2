"""What makes and opens the volumes of a device: files of SQLite, or schemas of a database of PostgreSQL."""

from __future__ import annotations

import grp
import os
import select
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qmadmin.paths import absolute
from qmcore.device import DeviceEntry, DeviceInfo
from qmcore.errors import BadResourceError, InvalidArgumentError, OperatingSystemError
from qmcore.probe import Probe
from qmcore.times import Clock, SystemClock
from qmcore.volume_record import VolumeMissingError

if TYPE_CHECKING:
    from qmcore.backup import BackupReport
    from qmcore.port import Volume
    from qmcore.volume_record import Accept
    from qmstorage.postgres.address import Address


MEMORY = ":memory:"
"""The path of a device in the memory of this process."""


class VolumeMaker(Protocol):
    """Makes and opens the volumes of a device; a path is what the device list calls a volume.

    `kind` is what they are made of: "sqlite" or "postgresql". All of them tell one `probe`.
    """

    kind: str
    probe: Probe

    def path_of(self, name: str | os.PathLike[str]) -> str:
        """Return the path of what a caller calls so; QueueError where this device can have no such volume."""

    def config_of(self, path: str) -> str:
        """Return what QMCONFIG says for another process to open the device; nobody else is to see it."""

    def clock(self) -> Clock:
        """Return the clock that all who share the device go by; it may have to be asked for first."""

    def other_writers(self, path: str) -> str:
        """Return why others than this user may write a volume, as a sentence without end; empty where nobody may."""

    def open(self, path: str, accept: Accept | None = None, *, patience: float | None = None) -> Volume:
        """Open a volume that `accept`, which gets what it says of itself, does not refuse.

        Nothing is written to it before. `patience` limits for how many seconds those are waited for who are just
        opening or closing it.
        """

    def is_there(self, path: str) -> bool:
        """Return whether there is anything at the path of a volume."""

    def is_empty(self, path: str) -> bool:
        """Return whether there is an empty file or schema at the path of a volume."""

    def are_same(self, path: str, other: str) -> bool:
        """Return whether two paths lead to the same thing, which is there."""

    def create(self, path: str, info: DeviceInfo, *, first: DeviceEntry | None) -> Volume:
        """Make a volume of a device."""

    def open_or_create(self, path: str, info: DeviceInfo, accept: Accept) -> Volume:
        """Open a volume that is not refused, made before where there is none."""

    def back_up(
        self, volumes: Mapping[str, Volume], target: str, now: Callable[[], int], progress: Callable[[int], None]
    ) -> BackupReport:
        """Make a backup of volumes by their paths in the device list, the main one first."""


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


def hurried(path_or_url: str, seconds: int) -> str:
    """Return what leads to the same device, and on PostgreSQL gives up when no connection is made within the seconds.

    What the URL or PGCONNECT_TIMEOUT says holds where that is sooner.
    """
    if address_of(path_or_url) is None:
        return path_or_url
    base, _, query = path_or_url.partition("?")
    items = [item.partition("=") for item in query.split("&") if item]
    own = next((value for name, _, value in items if name == "connect_timeout"), os.environ.get("PGCONNECT_TIMEOUT"))
    if own is not None and own.isdigit() and 0 < int(own) <= seconds:
        return path_or_url
    others = ["".join(item) for item in items if item[0] != "connect_timeout"]
    return f"{base}?{'&'.join([*others, f'connect_timeout={seconds}'])}"


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


def maker_of(path_or_url: str | os.PathLike[str], clock: Clock | None = None) -> VolumeMaker:
    """Return what makes and opens the volumes of a device; they go by the clock, or by that of their store."""
    _refuse_eventlet()
    address = address_of(path_or_url)
    return FileMaker(clock) if address is None else SchemaMaker(address, os.fspath(path_or_url), clock)


def _refuse_eventlet() -> None:
    """Refuse a process in which nobody could wait for messages: eventlet takes away what it does not replace."""
    if not hasattr(select, "poll"):
        raise OperatingSystemError(
            "no device can be opened in this process: select.poll() is missing, as under eventlet.monkey_patch()",
            hint="Use gevent or threads; or eventlet.monkey_patch(select=False), with which a wait blocks all others.",
        )


class FileMaker:
    """Makes and opens the volumes of a device on SQLite: files."""

    kind = "sqlite"

    def __init__(self, clock: Clock | None = None, *, readonly: bool = False) -> None:
        self.probe = Probe()
        self._readonly = readonly
        self._clock = clock or SystemClock()

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
        return self._clock

    def other_writers(self, path: str) -> str:
        """Return whom the files of a volume belong to, or which of them others may write."""
        from qmstorage.sqlite import writers

        return "" if path == MEMORY else writers.others(path)

    def open(self, path: str, accept: Accept | None = None, *, patience: float | None = None) -> Volume:
        """Open the volume in a file."""
        from qmstorage.sqlite.opening import open_volume

        waits = {} if patience is None else {"patience": patience}
        return open_volume(path, self.probe, self._clock, accept, readonly=self._readonly, **waits)

    def is_there(self, path: str) -> bool:
        """Return whether there is anything of that name; a symbolic link that leads nowhere is nothing."""
        return os.path.exists(path)  # noqa: PTH110 - where nobody may look, nothing is seen either

    def is_empty(self, path: str) -> bool:
        """Return whether there is an empty file of that name."""
        return Path(path).is_file() and not Path(path).stat().st_size

    def are_same(self, path: str, other: str) -> bool:
        """Return whether two names lead to the same file."""
        return Path(path).samefile(other)

    def create(self, path: str, info: DeviceInfo, *, first: DeviceEntry | None) -> Volume:
        """Make a volume of a device, for the group that the device is for."""
        from qmstorage.sqlite.opening import create_volume

        return create_volume(path, info, self.probe, self._clock, first=first, group_id=group_id(info.group))

    def open_or_create(self, path: str, info: DeviceInfo, accept: Accept) -> Volume:
        """Open the volume in a file; one that is absent or empty becomes one."""
        if Path(path).exists() and Path(path).stat().st_size:
            return self.open(path, accept)
        return self.create(path, info, first=None)

    def back_up(
        self, volumes: Mapping[str, Volume], target: str, now: Callable[[], int], progress: Callable[[int], None]
    ) -> BackupReport:
        """Make a backup of volumes by their paths in the device list, the main one first."""
        from qmstorage.sqlite.backups import back_up

        return back_up(volumes, Path(target), now, progress)


class SchemaMaker:
    """Makes and opens the volumes of a device on PostgreSQL: schemas of one database.

    In the device list the device is the URL that may be shown, and other volumes are the bare names of their schemas.
    """

    kind = "postgresql"

    def __init__(self, address: Address, url: str, clock: Clock | None = None) -> None:
        from qmstorage.postgres.clock import ServerClock

        self.probe = Probe()
        self._address = address
        self._url = url
        self._server_clock = ServerClock()
        self._clock = clock

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
        if self._clock is not None:
            return self._clock
        if not self._server_clock.is_set:
            self.require_driver()
            from qmstorage.postgres.opening import read_clock

            read_clock(self._address, self._server_clock)
        return self._server_clock

    def other_writers(self, path: str) -> str:
        """Return that nobody can know: superusers, and members of the owner's role."""
        return f"{path!r} is in a database that others may write"

    def open(self, path: str, accept: Accept | None = None, *, patience: float | None = None) -> Volume:
        """Open the volume in a schema; there is nobody to wait for."""
        del patience
        self.require_driver()
        from qmstorage.postgres.opening import open_volume

        return open_volume(self._at(path), self._server_clock, self.probe, self._clock, accept)

    def is_there(self, path: str) -> bool:
        """Return whether there is a schema of that name."""
        self.require_driver()
        from qmstorage.postgres.opening import has_schema

        return has_schema(self._at(path), self._server_clock)

    def is_empty(self, path: str) -> bool:
        """Return whether there is an empty schema of that name."""
        self.require_driver()
        from qmstorage.postgres.opening import is_empty

        return is_empty(self._at(path), self._server_clock)

    def are_same(self, path: str, other: str) -> bool:
        """Return whether two names are those of one schema."""
        return self._at(path) == self._at(other)

    def create(self, path: str, info: DeviceInfo, *, first: DeviceEntry | None) -> Volume:
        """Make a volume of a device, for the role that the device is for."""
        self.require_driver()
        from qmstorage.postgres.opening import create_volume

        its = self._at(path), self._server_clock, info, self.probe
        return create_volume(*its, first=first, group=info.group, clock=self._clock)

    def open_or_create(self, path: str, info: DeviceInfo, accept: Accept) -> Volume:
        """Open the volume in a schema; one that is absent is made."""
        try:
            return self.open(path, accept)
        except VolumeMissingError:
            raise
        except BadResourceError:
            # Where something else is in the way, that is what creating it says.
            return self.create(path, info, first=None)

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


def group_id(group: str) -> int | None:
    """Return the number of a group of the machine; None where none is named."""
    if not group:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise InvalidArgumentError(f"there is no group {group!r} on this machine", group=group) from None
