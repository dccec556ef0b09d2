"""Making and opening volumes on PostgreSQL."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg

from qmcore.device import RELAXED, DeviceEntry, DeviceInfo
from qmcore.errors import BadResourceError, InvalidArgumentError, OperatingSystemError
from qmcore.probe import Probe
from qmstorage import versions
from qmstorage.postgres import connection_timeouts, database_identity, functions, translate
from qmstorage.postgres.sessions import our_types
from qmstorage.postgres.tables import DIALECT, memory_schema, quoted
from qmstorage.postgres.unit import PostgresUnit
from qmstorage.postgres.volume import PostgresVolume
from qmstorage.statements import Texts

if TYPE_CHECKING:
    from qmcore.times import Clock
    from qmcore.volume_record import Accept
    from qmstorage.postgres.address import Address
    from qmstorage.postgres.clock import ServerClock

logger = logging.getLogger("qmadmin.storage")

T = TypeVar("T")


_WRITERS: Final = """
SELECT pg_get_userbyid(grantee) FROM pg_namespace, aclexplode(nspacl)
WHERE nspname = %s AND privilege_type = 'USAGE' AND grantee NOT IN (0, nspowner)
AND has_table_privilege(grantee, %s, 'INSERT')
"""
"""The roles that a device is for, besides its owner."""

_HAS_MEMORY: Final = """
SELECT EXISTS (SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = %s AND relname = 'residence')
"""
"""Asks for a table by names, for which no right is needed."""

_OWNER: Final = """
SELECT pg_get_userbyid(nspowner), pg_has_role(nspowner, %s) FROM pg_namespace WHERE nspname = %s
"""
_TELLS_WHO_MAY_SET_ROLE: Final = 160000


def open_volume(
    address: Address, server: ServerClock, probe: Probe, clock: Clock | None = None, accept: Accept | None = None
) -> PostgresVolume:
    """Open the device or volume in a schema; for reading only on a standby, or where this user may not write.

    The schema for non-persistent messages is created again where it is missing and this user may act as the owner, and
    so are functions that are missing or have been changed. What the volume says of itself is given to `accept`, which
    may refuse it; nothing is written to it before.
    Raises BadResourceError where there is no device, ReleaseError for a newer one or a server that is too old,
    OperatingSystemError where the server cannot be reached or refuses.
    """
    with connected(address, server) as connection:
        versions.refuse_other(version_of(connection, address), address.shown)
        _check_encoding(connection, address, new=False)
        durability = database_identity.look(connection, address, accept)
        readonly = bool(_scalar(connection, "SELECT pg_is_in_recovery()")) or not _may_write(connection, address)
        if not readonly:
            _make_memory_again(connection, address)
            _make_functions_again(connection, address)
        home = "" if readonly else database_identity.settle(connection, address)
    return PostgresVolume(
        address, server, probe, durable=durability != RELAXED, readonly=readonly, home=home, clock=clock, accept=accept
    )


def create_volume(
    address: Address,
    server: ServerClock,
    info: DeviceInfo,
    probe: Probe,
    *,
    first: DeviceEntry | None,
    group: str = "",
    clock: Clock | None = None,
) -> PostgresVolume:
    """Make a schema a volume of the device `info`: the one that QMCONFIG names, with the `first` entry of its list.

    `group` is a role that gets the rights to use it. Raises BadResourceError where the schema exists and is not empty.
    """
    from qmstorage.postgres import table_creation

    with connected(address, server) as connection:
        translate.refuse_old_server(connection.info.server_version, address.shown)
        _check_encoding(connection, address, new=True)
        with connection.transaction():
            _make_schemas(connection, address)
            # In one round trip; so many statements have no plan worth keeping either.
            made = *table_creation.creation(address.schema, info.partitions), *functions.creation(address.schema)
            connection.execute(";\n".join(made), prepare=False)
            unit = PostgresUnit(
                connection.cursor(binary=True), Texts(DIALECT, quoted(address.schema)), schema=address.schema, slot=0
            )
            unit.device.record(info, first=first)
            home = database_identity.settle(connection, address)
            if group:
                _refuse_unknown_role(connection, group)
                _grant(connection, _both(address), group)
    return PostgresVolume(address, server, probe, durable=info.durability != RELAXED, home=home, clock=clock)


def has_schema(address: Address, clock: ServerClock) -> bool:
    """Return whether the schema exists, whatever is in it."""
    with connected(address, clock) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [address.schema])
        return found.fetchone() is not None


def is_empty(address: Address, clock: ServerClock) -> bool:
    """Return whether the schema exists, and there is nothing in it."""
    question = "SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid) FROM pg_namespace"
    with connected(address, clock) as connection:
        found = connection.execute(f"{question} WHERE nspname = %s", [address.schema]).fetchone()
        return found is not None and not found[0]


def read_clock(address: Address, clock: ServerClock) -> None:
    """Set a clock by that of the server."""
    with connected(address, clock):
        return


# ---- steps ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(address: Address, clock: ServerClock) -> Iterator[psycopg.Connection[Any]]:
    """Connect to the database of a device; errors of the driver become errors of the queue manager."""
    if refused := address.refused_file:
        logger.warning("%s", refused)
    try:
        with contextlib.closing(connection_timeouts.connected(address)) as connection:
            clock.learn(connection.reading)
            our_types(connection.adapters)
            connection.execute("SET client_min_messages = warning")
            yield connection
    except psycopg.Error as error:
        raise translate.from_psycopg(error, address.shown) from error


def version_of(connection: psycopg.Connection[Any], address: Address) -> int:
    """Return the schema version of a volume; refuse what is not a volume, and a server that is too old."""
    translate.refuse_old_server(connection.info.server_version, address.shown)
    table = f"{quoted(address.schema)}.alembic_version"
    both = f"SELECT to_regclass('{table}') IS NOT NULL AND to_regclass('{quoted(address.schema)}.device') IS NOT NULL"
    if not _scalar(connection, both):
        raise translate.not_a_device(address.shown)
    found = _scalar(connection, f"SELECT version_num FROM {table}")  # noqa: S608 - names of ours
    return int(found)


def _check_encoding(connection: psycopg.Connection[Any], address: Address, *, new: bool) -> None:
    """Refuse a new device in a database that cannot store all texts, and any where texts are only bytes."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding == "SQL_ASCII" or (new and encoding != "UTF8"):
        raise BadResourceError(
            f"the database of device {address.shown!r} has the encoding {encoding}, in which names and headers are not"
            " kept as they are",
            hint="Use a database that was made with CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8'.",
            path=address.shown,
        )


def _may_write(connection: psycopg.Connection[Any], address: Address) -> bool:
    table = f"'{quoted(address.schema)}.message'"
    rights = " AND ".join(f"has_table_privilege({table}, '{right}')" for right in ("INSERT", "UPDATE", "DELETE"))
    return bool(_scalar(connection, f"SELECT {rights}"))


def _make_memory_again(connection: psycopg.Connection[Any], address: Address) -> None:
    """Create the tables for non-persistent messages where a restore has left them out: empty, as a crash leaves them.

    They belong to the owner of the device, whoever creates them.
    """
    name = memory_schema(address.schema)
    if _scalar(connection, _HAS_MEMORY, [name]):
        return
    from qmstorage.postgres import table_creation

    role = _owner_here(connection, address, f"its schema {name!r}, for non-persistent messages", "that schema")
    with connection.transaction():
        connection.execute(f"LOCK TABLE {quoted(address.schema)}.device IN SHARE ROW EXCLUSIVE MODE")
        if _scalar(connection, _HAS_MEMORY, [name]):
            return
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(name)} AUTHORIZATION {role}; SET LOCAL ROLE {role}")
        connection.execute(";\n".join(table_creation.creation_of_memory(address.schema)), prepare=False)
        for writer in _writers(connection, address):
            _grant(connection, quoted(name), writer)


def _make_functions_again(connection: psycopg.Connection[Any], address: Address) -> None:
    """Make the functions again that are missing, or are not those of this release.

    They name the schema, so that this is what gives one that got another name its functions back.
    """
    found = functions.differing(connection, address.schema)
    if not found:
        return
    role = _owner_here(connection, address, f"its function {', '.join(found)} as it has to be", "it")
    with connection.transaction():
        connection.execute(f"LOCK TABLE {quoted(address.schema)}.device IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(f"SET LOCAL ROLE {role}")
        for statement in functions.replacement(connection, address.schema):
            connection.execute(statement, prepare=False)
        for writer in _writers(connection, address):
            _grant(connection, quoted(address.schema), writer, ("FUNCTIONS",))


def _owner_here(connection: psycopg.Connection[Any], address: Address, what: str, makes: str) -> str:
    """Return the role that owns a device, as it stands in a statement; refuse where we may not act as it."""
    found = owner_of(connection, address.schema)
    if found is None:
        raise translate.not_a_device(address.shown)
    owner, may_be_owner = found
    if not may_be_owner:
        raise OperatingSystemError(
            f"device {address.shown!r} lacks {what}",
            hint=f"Open it once as {owner}, the role that owns it, which creates {makes} again.",
            path=address.shown,
        )
    return psycopg.sql.Identifier(owner).as_string(connection)


def _writers(connection: psycopg.Connection[Any], address: Address) -> list[str]:
    rows = connection.execute(_WRITERS, [address.schema, f"{quoted(address.schema)}.message"]).fetchall()
    return [writer for (writer,) in rows]


def owner_of(connection: psycopg.Connection[Any], schema: str) -> tuple[str, bool] | None:
    """Return the role that owns a schema, and whether we may act as it; None where there is no such schema."""
    # Who may take on another role: servers before 16 only tell who is a member of it.
    right = "SET" if connection.info.server_version >= _TELLS_WHO_MAY_SET_ROLE else "MEMBER"
    return connection.execute(_OWNER, [right, schema]).fetchone()


def _make_schemas(connection: psycopg.Connection[Any], address: Address) -> None:
    for name in (address.schema, memory_schema(address.schema)):
        found = _scalar(
            connection, "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(%s)", [quoted(name)]
        )
        if found:
            raise BadResourceError(
                f"schema {name!r} of {address.shown!r} exists and is not empty",
                hint="Name another schema, or drop it if nothing in it is needed.",
                path=address.shown,
            )
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(name)}")


def _refuse_unknown_role(connection: psycopg.Connection[Any], role: str) -> None:
    if not _scalar(connection, "SELECT count(*) FROM pg_roles WHERE rolname = %s", [role]):
        raise InvalidArgumentError(
            f"there is no role {role!r} in the database", hint="Create it with CREATE ROLE.", group=role
        )


def _grant(
    connection: psycopg.Connection[Any],
    schemas: str,
    role: str,
    kinds: Iterable[str] = ("TABLES", "SEQUENCES", "FUNCTIONS"),
) -> None:
    """Grant a role the use of schemas; only the owner can create and destroy queue spaces."""
    to = psycopg.sql.Identifier(role).as_string(connection)
    connection.execute(f"GRANT USAGE ON SCHEMA {schemas} TO {to}")
    for what in kinds:
        connection.execute(f"GRANT ALL ON ALL {what} IN SCHEMA {schemas} TO {to}")
        connection.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA {schemas} GRANT ALL ON {what} TO {to}")


def _both(address: Address) -> str:
    return f"{quoted(address.schema)}, {quoted(memory_schema(address.schema))}"


def _scalar(connection: psycopg.Connection[Any], statement: str, values: list[Any] | None = None) -> Any:
    row = connection.execute(statement, values).fetchone()
    return None if row is None else row[0]
