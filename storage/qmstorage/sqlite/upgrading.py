"""Upgrading the files of a device to the schema version of this release: all of them together, or none.

SQLite commits a transaction over several attached files as a whole where each of them has a rollback journal; in WAL
mode it commits in each file separately. So the files leave WAL mode for the time of the upgrade, which succeeds only
where nobody else has them open, and a kill at any point leaves journals with which the next process that opens a file
undoes it.

As many files as fit on one connection, eleven, are a group. With several groups the device is first marked, in a commit
of its own, as being upgraded, which every release refuses, and last, together with its group, as done; a kill in
between leaves a device that cannot be used until the next upgrade has finished it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from qmcore.audit import AuditEntry
from qmcore.backup import BackupReport, BackupVolume
from qmcore.errors import BadResourceError, InUseError, OperatingSystemError, QueueError, SystemFailureError
from qmcore.upgrade import UpgradePlan
from qmstorage import schema, versions
from qmstorage.auditing import COLUMNS, values_of
from qmstorage.device import new_volume_id
from qmstorage.sqlite import aliases, attached_to, backups, files, parts, snapshot, translate

_SECONDS = 1.0
"""How long to wait for processes that are just closing it."""


def plan(path: str) -> UpgradePlan:
    """Return what an upgrade of the device in a file would do. Nothing is changed."""
    files.refuse_unusable(path)
    path = os.path.realpath(path)
    _undo_what_was_cut_short(path)
    with files.reading(path, older=True) as connection:
        said = files.version_of(connection, path)
        (device_id,) = connection.execute("SELECT id FROM device").fetchone()
        rows = connection.execute("SELECT path FROM entry WHERE dlindex > 0 ORDER BY dlindex").fetchall()
    others = dict.fromkeys(os.path.realpath(row[0]) for row in rows)
    volumes = [path, *(other for other in others if other != path)]
    for volume in volumes:
        if not Path(volume).is_file():
            raise BadResourceError(
                f"file {volume!r} of device {path!r} is missing, and its files are upgraded together or not at all",
                hint="Bring it back, or set its new path with chdl of the release that made it. If it is lost for good,"
                " make an empty one there with crdl of that release, destroy its queue spaces with qspacedestroy -f,"
                " and remove its entries with dsdl.",
                path=volume,
            )
        _undo_what_was_cut_short(volume)
        with files.reading(volume, older=True) as connection:
            if connection.execute("SELECT id FROM device").fetchone() != (device_id,):
                raise BadResourceError(f"{volume!r} belongs to another device than {path!r}", path=volume)
    return UpgradePlan(
        path=path,
        version=versions.reached(said),
        under_way=said > versions.UNDER_WAY,
        target=schema.VERSION,
        volumes=tuple((volume, _size(volume)) for volume in volumes),
        groups=len([*_groups(volumes)]),
        attached=tuple(
            str(owner) for volume in volumes for _, owners in attached_to.living(volume, older=True) for owner in owners
        ),
    )


def upgrade(wanted: UpgradePlan, backup: Path | None, record: AuditEntry, progress: Callable[[int], None]) -> None:
    """Save all files of a device as the directory `backup`, unless it is None, and upgrade them.

    The device has the `record` of this from the same moment on. `progress` gets percent. Raises InUseError where the
    device is open elsewhere, BadResourceError where the backup exists, SystemFailureError where a file is damaged,
    OperatingSystemError where the disk is full; the device is then as it was, unless the error says that the upgrade
    has to be finished.
    """
    wanted.refuse_attached()
    if not all(os.access(volume, os.W_OK) for volume, _ in wanted.volumes):
        raise OperatingSystemError(f"device {wanted.path!r} cannot be written by this user", path=wanted.path)
    if backup is not None:
        backups.refuse_existing(backup)
    for volume, _ in wanted.volumes:
        aliases.refuse_others(volume)
    try:
        with contextlib.ExitStack() as stack:
            groups = [
                stack.enter_context(_taken_alone(group)) for group in _groups([path for path, _ in wanted.volumes])
            ]
            if backup is not None:
                with translate.os_errors("making the backup", str(backup)):
                    _back_up(wanted, groups, backup, record.at_us, progress)
            _upgrade(groups, wanted, record)
    except OSError as error:
        raise translate.from_os(error, "upgrading device", wanted.path) from error


def _upgrade(groups: Sequence[_Group], wanted: UpgradePlan, record: AuditEntry) -> None:
    first, *others = groups
    if not others:
        first.enter(first.upgrade())
        first.record(record)
        first.commit()
        return
    volumes: dict[str, str] = {}
    for group in others:
        volumes |= group.upgrade()
    first.say(versions.UNDER_WAY + wanted.version)
    try:
        first.begin()
        for group in others:
            group.commit()
        first.enter(first.upgrade() | volumes)
        first.record(record)
        first.commit()
    except QueueError as error:
        raise OperatingSystemError(
            f"the upgrade of device {wanted.path!r} is not finished: {error.message}",
            hint="Upgrade it again once that is fixed, which goes on from here. Until then no release opens it.",
            path=wanted.path,
        ) from error


def upgrade_copy(path: Path) -> None:
    """Upgrade a file that nobody else has, such as one restored from a backup."""
    with contextlib.closing(files.connect(str(path), "rw")) as connection:
        found = files.version_of(connection, str(path))
        connection.execute("BEGIN IMMEDIATE")
        for text in _steps(found):
            connection.execute(text)
        connection.execute("COMMIT")


def _undo_what_was_cut_short(path: str) -> None:
    """Make SQLite roll a file back to before an upgrade that was killed, if there was one."""
    if Path(f"{path}-journal").exists() and os.access(path, os.W_OK):
        with contextlib.closing(files.connect(path, "rw")) as connection, _refusing(path):
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _steps(found: int, name: str | None = None) -> list[str]:
    if found == schema.VERSION:
        return []
    # Alembic takes a tenth of a second to load, and a restore of a backup of this release does not need it.
    from qmstorage import migrating

    return migrating.statements("sqlite", found, schema=name)


class _Group:
    """Files that are upgraded in one transaction of a connection to which they are attached."""

    def __init__(self, paths: Sequence[str], connection: sqlite3.Connection) -> None:
        self.paths = dict(zip(("main", *(f"volume_{at}" for at in range(1, len(paths)))), paths, strict=True))
        self.connection = connection

    def take(self) -> None:
        """Lock writers out of the files, or refuse; others may read them until the commit."""
        self.connection.execute(f"PRAGMA busy_timeout = {round(_SECONDS * 1000)}")
        for name, path in self.paths.items():
            with _refusing(path):
                if name != "main":
                    self.connection.execute(f"ATTACH ? AS {name}", (path,))
                # This succeeds only where nobody else has the file open.
                self.connection.execute(f"PRAGMA {name}.journal_mode = DELETE")
                # The removal of a journal is the commit, which has to be on the disk before the log can begin.
                self.connection.execute(f"PRAGMA {name}.synchronous = EXTRA")
        self.begin()

    def begin(self) -> None:
        """Begin a transaction, in which nobody else writes to a file of the group."""
        # It reads at first, because SQLite cannot back up what it is writing; in this mode a reader keeps writers out.
        self.connection.execute("BEGIN")
        for name, path in self.paths.items():
            with _refusing(path):
                self.connection.execute(f"SELECT id FROM {name}.device").fetchone()  # noqa: S608 - a name of ours
            if self.connection.execute(f"PRAGMA {name}.journal_mode").fetchone() != ("delete",):
                raise _in_use(path)

    def say(self, version: int) -> None:
        """Write a version to the device, the first of the files, durably; `begin` goes on."""
        with _refusing(self.paths["main"]):
            self.connection.execute("UPDATE main.alembic_version SET version_num = ?", (f"{version:04d}",))
        self.commit()

    def upgrade(self) -> dict[str, str]:
        """Bring the tables of all files to the version of this release, in the transaction that is open.

        Return the identifiers of the volumes by their paths; they get them here, unless they have some.
        """
        steps = []
        for name in self.paths:
            (said,) = self.connection.execute(f"SELECT version_num FROM {name}.alembic_version").fetchone()  # noqa: S608 - ours
            found = versions.reached(int(said))
            if found != int(said):
                steps.append(f"UPDATE {name}.alembic_version SET version_num = '{found:04d}'")  # noqa: S608 - ours
            steps += _steps(found, name)
        with _refusing(self.paths["main"]):
            for text in steps:
                self.connection.execute(text)
            return {path: self._identified(name) for name, path in self.paths.items()}

    def _identified(self, name: str) -> str:
        self.connection.execute(f"UPDATE {name}.device SET volume = ? WHERE volume = ''", (new_volume_id(),))  # noqa: S608 - ours
        (volume,) = self.connection.execute(f"SELECT volume FROM {name}.device").fetchone()  # noqa: S608 - ours
        return str(volume)

    def enter(self, volumes: Mapping[str, str]) -> None:
        """Enter the identifiers of volumes, by their paths, in the device list, which is in the first of the files."""
        with _refusing(self.paths["main"]):
            for index, path in self.connection.execute("SELECT dlindex, path FROM main.entry").fetchall():
                volume = volumes[self.paths["main"] if index == 0 else os.path.realpath(path)]
                self.connection.execute("UPDATE main.entry SET volume = ? WHERE dlindex = ?", (volume, index))

    def record(self, entry: AuditEntry) -> None:
        """Write a record to the device, the first of the files."""
        columns, places = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
        with _refusing(self.paths["main"]):
            self.connection.execute(
                f"INSERT INTO main.audit ({columns}) VALUES ({places})",  # noqa: S608 - names of ours
                values_of(entry),
            )

    def commit(self) -> None:
        """Commit all files, durably."""
        with _refusing(self.paths["main"]):
            self.connection.execute("COMMIT")

    def close(self) -> None:
        """Release the files, back in WAL mode; what was not committed is undone."""
        with contextlib.suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            for name in self.paths:
                # Otherwise the next opening does it.
                self.connection.execute(f"PRAGMA {name}.journal_mode = WAL")
        self.connection.close()
        for path in self.paths.values():
            files.share_beside(path)


@contextlib.contextmanager
def _taken_alone(paths: Sequence[str]) -> Iterator[_Group]:
    with _refusing(paths[0]):
        group = _Group(paths, files.connect(paths[0], "rw"))
    with contextlib.closing(group):
        group.take()
        yield group


@contextlib.contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if not translate.is_blocked(error):
            raise translate.from_sqlite(error, path) from error
        raise _in_use(path) from error


def _in_use(path: str) -> InUseError:
    return InUseError(
        f"device {path!r} is open in another program{_holders(path)}", hint="Close it there first.", path=path
    )


def _groups(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield groups of files that fit on one connection, the device in the first."""
    with contextlib.closing(sqlite3.connect(files.MEMORY)) as connection:
        most = 1 + connection.getlimit(sqlite3.SQLITE_LIMIT_ATTACHED)
    for start in range(0, len(paths), most):
        yield paths[start : start + most]


def _holders(path: str) -> str:
    """Return which processes have a file open, as far as the system shows."""
    wanted, found = files.identity(path), []
    for directory in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            pid = int(directory.parent.name)
            if pid != os.getpid() and any(_leads_to(link, wanted) for link in directory.iterdir()):
                found.append(pid)
    return f": process {', '.join(map(str, sorted(found)))}" if found else ""


def _leads_to(link: Path, wanted: tuple[int, int] | None) -> bool:
    with contextlib.suppress(OSError):
        return files.identity(str(link)) == wanted
    return False


def _size(path: str) -> int:
    return sum(Path(path + end).stat().st_size for end in ("", "-wal") if Path(path + end).exists())


# ---- backup ----------------------------------------------------------------------------------------------------------


def _back_up(
    wanted: UpgradePlan, groups: Sequence[_Group], target: Path, now_us: int, progress: Callable[[int], None]
) -> None:
    """Save the files, which cannot change meanwhile, as qbackup does."""
    sources = [(group.connection, name, path) for group in groups for name, path in group.paths.items()]
    listed: list[BackupVolume] = []
    total, share = backups.Contents(), 95 // len(sources)
    with parts.part_beside(target) as part:
        directory = part / "files"
        directory.mkdir(mode=0o700)
        for at, (connection, name, path) in enumerate(sources):
            copy = directory / ("device" if at == 0 else f"volume-{at}")
            copy.touch(mode=files.PRIVATE_MODE)
            try:
                snapshot.copy(connection, str(copy), lambda *_: None, name=name)
            except sqlite3.Error as error:
                raise translate.from_copying(error, str(target)) from error
            total += _contents(copy)
            listed.append(BackupVolume(file=copy.name, path=path, size=_size(str(copy)), sha256=parts.digest_of(copy)))
            progress((at + 1) * share)
        (device_id,) = sources[0][0].execute("SELECT id FROM main.device").fetchone()
        report = BackupReport(
            path=str(target),
            device=wanted.path,
            device_id=device_id,
            made_us=now_us,
            volumes=tuple(listed),
            spaces=total.spaces,
            messages=total.messages,
            transactions=total.transactions,
        )
        backups.finish(part, report, target)


def _contents(copy: Path) -> backups.Contents:
    """Return what a copy has, which may be of an older version; refuse one that is damaged."""
    with contextlib.closing(files.connect(str(copy), "immutable")) as connection:
        for damage in snapshot.integrity(connection, lambda _percent: None):
            raise SystemFailureError(
                f"the store is damaged: {damage}", hint="Check the device with qcheck.", path=str(copy)
            )
        counted = (
            "SELECT (SELECT count(*) FROM space), coalesce((SELECT sum(messages) FROM counter"
            " WHERE queue_id = 0 AND space_id > 0), 0), (SELECT count(*) FROM trans)"
        )
        return backups.Contents(*connection.execute(counted).fetchone())
