"""Upgrading the schemas of a device to the schema version of this release, in one transaction."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from qmcore.errors import BadResourceError, InUseError, OperatingSystemError
from qmcore.records import Owner
from qmcore.upgrade import UpgradePlan
from qmstorage import migrating, schema
from qmstorage.auditing import COLUMNS, values_of
from qmstorage.device import new_volume_id
from qmstorage.postgres import functions, keys, liveness_queries, opening, table_creation
from qmstorage.postgres.clock import ServerClock
from qmstorage.postgres.tables import memory_schema, quoted

if TYPE_CHECKING:
    from qmcore.audit import AuditEntry
    from qmstorage.postgres.address import Address

_LOCK_SECONDS: Final = 5
"""How long others that are at work on the device may take to finish."""

_ENTRIES: Final = "SELECT path FROM {}.entry WHERE dlindex > 0 ORDER BY dlindex"
_OWNERS: Final = "SELECT id, space_id, process, pid, host, boot, lock, role, since FROM {}.owner ORDER BY since"
_OF_OWNER: Final = tuple(field.name for field in dataclasses.fields(Owner))
_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::int8 FROM pg_class
WHERE relkind = 'r' AND relnamespace::regnamespace::text = ANY(%s)
"""
_IDENTIFY: Final = "UPDATE {}.device SET volume = %s WHERE volume = ''"
_ENTER: Final = """
UPDATE {}.entry SET volume = device.volume FROM {}.device AS device WHERE dlindex = 0 AND %s OR path = %s
"""
_RECORD: Final = f"INSERT INTO {{}}.audit ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"  # noqa: S608
_COLUMNS: Final = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
_INDEXES: Final = "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND tablename = %s"
_GRANTED: Final = """
SELECT DISTINCT pg_get_userbyid(grantee) FROM pg_class, aclexplode(relacl)
WHERE oid = %s::regclass AND privilege_type = 'INSERT' AND grantee NOT IN (0, relowner)
"""
"""The roles that may write a table, besides its owner."""


def plan(address: Address) -> UpgradePlan:
    """Return what an upgrade of the device in a schema would do. Nothing is changed."""
    with opening.connected(address, ServerClock()) as connection:
        version = opening.version_of(connection, address)
        schemas = _schemas(connection, address)
        return UpgradePlan(
            path=address.shown,
            version=version,
            target=schema.VERSION,
            volumes=tuple((name, _size(connection, name)) for name in schemas),
            attached=_attached(connection, schemas),
            backup_command=_shown(_dump_command(schemas, Path("FILE"), ["'URL of the database'"])),
        )


def can_dump() -> bool:
    """Return whether pg_dump is installed; nothing else can save a device on PostgreSQL."""
    return shutil.which("pg_dump") is not None


def dump(address: Address, wanted: UpgradePlan, target: Path) -> None:
    """Save the schemas of a device with pg_dump as the file `target`, which must not exist.

    Raises OperatingSystemError where pg_dump refuses, as one that is older than the server does.
    """
    parameters: dict[str, Any] = conninfo_to_dict(address.conninfo)
    password = parameters.pop("password", None)
    environment = os.environ | ({} if password is None else {"PGPASSWORD": str(password)})
    command = _dump_command([name for name, _ in wanted.volumes], target, [f"--dbname={make_conninfo(**parameters)}"])
    _begin(target)
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    if done.returncode:
        target.unlink(missing_ok=True)
        said = done.stderr.strip().splitlines() or ["it gave no reason"]
        raise OperatingSystemError(
            f"pg_dump failed to save device {address.shown!r}: {said[-1]}",
            hint="Save it in another way, and say so with --backed-up.",
            path=address.shown,
        )


def _begin(target: Path) -> None:
    """Create the file that pg_dump writes, so that nobody else can ever read it."""
    try:
        target.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise BadResourceError(
            f"{str(target)!r} exists already, and a backup never overwrites anything",
            hint="Name another.",
            path=str(target),
        ) from None
    except OSError as error:
        raise OperatingSystemError(
            f"making the backup {str(target)!r} failed: {error.strerror}", path=str(target)
        ) from error


def upgrade(address: Address, wanted: UpgradePlan, record: AuditEntry) -> None:
    """Upgrade all schemas of a device in one transaction, in which its `record` is kept too.

    Roles that may write it have the same rights afterwards.

    Raises InUseError where processes are attached or others are at work for long, OperatingSystemError where this
    role does not own the schemas.
    """
    schemas = [name for name, _ in wanted.volumes]
    with opening.connected(address, ServerClock()) as connection, connection.transaction():
        owners = {name: _owner(connection, address, name) for name in schemas}
        _take_alone(connection, address, schemas)
        dataclasses.replace(wanted, attached=_attached(connection, schemas)).refuse_attached()
        for name, owner in owners.items():
            # What is created belongs to the owner, whoever creates it.
            connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner)))
            for text in _statements(connection, address.sibling(name), name):
                connection.execute(text, prepare=False)
            connection.execute(_IDENTIFY.format(quoted(name)), [new_volume_id()])
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owners[address.schema])))
        for name in schemas:
            is_main = name == address.schema
            entered = _ENTER.format(quoted(address.schema), quoted(name))
            connection.execute(entered, [is_main, address.shown if is_main else name])
        connection.execute(_RECORD.format(quoted(address.schema)), values_of(record))


# ---- steps -----------------------------------------------------------------------------------------------------------


def _schemas(connection: psycopg.Connection[Any], address: Address) -> list[str]:
    rows = connection.execute(_ENTRIES.format(quoted(address.schema))).fetchall()
    found = list(dict.fromkeys([address.schema, *(path for (path,) in rows if path != address.shown)]))
    for name in found:
        if opening.owner_of(connection, name) is None:
            raise BadResourceError(
                f"schema {name!r} of device {address.shown!r} is missing, and all are upgraded together or none",
                hint="Restore it, or tell the device of its new name with chdl of the release that made it.",
                path=address.shown,
            )
    return found


def _size(connection: psycopg.Connection[Any], name: str) -> int:
    ((size,),) = connection.execute(_SIZE, [[name, memory_schema(name)]]).fetchall()
    return int(size)


def _attached(connection: psycopg.Connection[Any], schemas: Iterable[str]) -> tuple[str, ...]:
    """Return the live processes that are attached to queue spaces in the schemas, the longest first."""
    owners = [
        Owner(**dict(zip(_OF_OWNER, row, strict=True)))
        for name in schemas
        for row in connection.execute(_OWNERS.format(quoted(name))).fetchall()
    ]
    return tuple(map(str, liveness_queries.alive(owners, connection))) if owners else ()


def _owner(connection: psycopg.Connection[Any], address: Address, name: str) -> str:
    """Return the role that owns a schema; refuse if this one may not act as it."""
    found = opening.owner_of(connection, name)
    owner, is_ours = found or ("nobody", False)
    if not is_ours:
        raise OperatingSystemError(
            f"schema {name!r} of device {address.shown!r} belongs to {owner}, which alone can upgrade it",
            hint=f"Connect as {owner}.",
            path=address.shown,
        )
    return owner


def _take_alone(connection: psycopg.Connection[Any], address: Address, schemas: Sequence[str]) -> None:
    """Lock everybody out of the schemas until the transaction ends."""
    connection.execute(f"SET LOCAL lock_timeout = {_LOCK_SECONDS * 1000}")
    try:
        for name in schemas:
            for kind in (keys.Kind.JOINED, keys.Kind.VOLUME):
                connection.execute("SELECT pg_advisory_xact_lock(%s)", [keys.key(name, kind, 0)])
            connection.execute(f"LOCK TABLE {quoted(name)}.owner IN ACCESS EXCLUSIVE MODE")
    except psycopg.errors.LockNotAvailable as error:
        raise InUseError(
            f"device {address.shown!r} is in use: others have been at work on it for {_LOCK_SECONDS} seconds",
            hint="End them first; pg_stat_activity names them.",
            path=address.shown,
        ) from error


def _statements(connection: psycopg.Connection[Any], address: Address, name: str) -> Iterator[str]:
    """Yield the statements that upgrade one volume to the version of this release."""
    found = opening.version_of(connection, address)
    if found == schema.VERSION:
        return
    yield from migrating.statements("postgresql", found, schema=name)
    memory = memory_schema(name)
    for table in schema.IN_MEMORY:
        present = {column for (column,) in connection.execute(_COLUMNS, [memory, table.name]).fetchall()}
        if not present:
            # A restore has left the tables out: the next opening creates them.
            continue
        for column in table.columns:
            if column.name not in present:
                yield table_creation.adding(column, memory)
        indexed = {index for (index,) in connection.execute(_INDEXES, [memory, table.name]).fetchall()}
        for index, statement in table_creation.indexes_of(table.name, memory).items():
            if index not in indexed:
                yield statement
    yield from functions.replacement(connection, name)
    # What the steps have created is for those who may write the tables.
    for (role,) in connection.execute(_GRANTED, [f"{quoted(name)}.message"]).fetchall():
        for kind in ("TABLES", "FUNCTIONS"):
            yield (
                sql.SQL("GRANT ALL ON ALL {} IN SCHEMA {} TO {}")
                .format(sql.SQL(kind), sql.Identifier(name), sql.Identifier(role))
                .as_string(connection)
            )


def _dump_command(schemas: Sequence[str], target: Path, where: Sequence[str]) -> list[str]:
    named = [f"--schema={each}" for name in schemas for each in (name, memory_schema(name))]
    return ["pg_dump", "--format=custom", *named, f"--file={target}", *where]


def _shown(command: Sequence[str]) -> str:
    return " ".join(command)
