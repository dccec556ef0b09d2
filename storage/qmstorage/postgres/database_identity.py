"""The database that a volume is in, and what is done where it is not the one that the volume was last written in.

Then it was restored from a dump or to a point in time, or a standby has taken over: what was done after that moment is
gone, and its numbers would be given out again. So each queue space gets a new incarnation. Message ids of the old one
stay valid, also those that were reserved for open transactions and not used yet. Processes that were attached count as
lost to a restart, so that nothing counts as a try; those that still run record themselves again.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

from qmcore import numbers
from qmcore.bulk_rows import Adopted
from qmcore.volume_record import VolumeMissingError, VolumeRecord
from qmstorage.postgres import keys, translate
from qmstorage.postgres.sessions import WAIT_SECONDS
from qmstorage.postgres.tables import DIALECT, quoted
from qmstorage.postgres.unit import PostgresUnit
from qmstorage.statements import Texts

if TYPE_CHECKING:
    import psycopg

    from qmcore.space import Space
    from qmcore.volume_record import Accept
    from qmstorage.postgres.address import Address
    from qmstorage.postgres.volume import PostgresVolume

logger = logging.getLogger("qmadmin.storage")

_RESERVED: Final = 2**20
"""Sequence numbers beyond the last known one that may have been reserved for open transactions."""

_ELSEWHERE: Final = "elsewhere"
"""The run of a server that attached processes are said to have seen: their end does not count as a try."""

_MAY_ASK: Final = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
_SYSTEM: Final = "(SELECT system_identifier FROM pg_control_system())"
_INSTANCE: Final = (
    "SELECT concat_ws('.', (SELECT volume FROM {device}), {system},"
    " (SELECT oid FROM pg_database WHERE datname = current_database()), '{device}'::regclass::oid)"
)
_HERE: Final = (
    "concat_ws('.', {system},"
    # The timeline of what is written now: that of the last checkpoint may be an older one.
    " left(pg_walfile_name(pg_current_wal_lsn()), 8), (SELECT oid FROM pg_database WHERE datname = current_database()),"
    # A restored table is another one, also in the same database.
    " '{device}'::regclass::oid)"
)


def here(connection: psycopg.Connection[Any], address: Address) -> str:
    """Return what distinguishes the database, and the schema in it, from all others and from restored copies of it."""
    may_ask = _scalar(connection, _MAY_ASK)
    device = f"{quoted(address.schema)}.device"
    return str(_scalar(connection, f"SELECT {_HERE.format(system=_SYSTEM if may_ask else 'NULL', device=device)}"))


def instance(connection: psycopg.Connection[Any], address: Address) -> str:
    """Return what distinguishes the schema from restored copies of it, and not from what a standby goes on with."""
    may_ask = _scalar(connection, _MAY_ASK)
    device = f"{quoted(address.schema)}.device"
    return str(_scalar(connection, _INSTANCE.format(system=_SYSTEM if may_ask else "NULL", device=device)))


def look(connection: psycopg.Connection[Any], address: Address, accept: Accept | None) -> str:
    """Have what a volume says of itself accepted; return its durability."""
    row = connection.execute(
        f"SELECT durability, id, volume, main, opened FROM {quoted(address.schema)}.device"  # noqa: S608 - a name of ours
    ).fetchone()
    if row is None:
        raise translate.not_a_device(address.shown)
    if accept is not None:
        accept(VolumeRecord(device=row[1], volume=row[2], main=row[3], opened=row[4]))
    return str(row[0])


def settle(connection: psycopg.Connection[Any], address: Address) -> str:
    """Record the database of a connection, not a standby, as the one that the volume is written in; return its id."""
    now = here(connection, address)
    if _home(connection, address) == now:
        return now
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {WAIT_SECONDS * 1000}")
        for kind in (keys.Kind.JOINED, keys.Kind.VOLUME):
            connection.execute(f"SELECT pg_advisory_xact_lock({keys.key(address.schema, kind, 0)})")
        before = _home(connection, address)
        if before not in (None, now):
            _succeed(connection, address)
        if before != now:
            connection.execute(f"UPDATE {quoted(address.schema)}.device SET home = %s", [now])  # noqa: S608 - ours
    return now


class Home:
    """The database, and the schema in it, that an open volume was found in, and what is there later."""

    def __init__(self, volume: PostgresVolume, home: str, accept: Accept | None) -> None:
        """Take the identity that was found, "" for a volume that is only read, and who may refuse another one."""
        self._volume = volume
        self._found = home
        self._accept = accept

    def settle(self, connection: psycopg.Connection[Any]) -> None:
        """Go on with what is in the place of the volume now, if it is the same, or accepted; else it has vanished."""
        address = self._volume.address
        if here(connection, address) == self._found:
            return
        try:
            look(connection, address, self._accept)
        except VolumeMissingError:
            self._volume.has_vanished = True
            raise
        self._found = settle(connection, address)

    def has(self, table: int) -> bool:
        """Return whether the table of devices has still that number; a schema that took the place has another one."""
        return not self._found or self._found.endswith(f".{table}")


def _home(connection: psycopg.Connection[Any], address: Address) -> str | None:
    found: str | None = _scalar(connection, f"SELECT home FROM {quoted(address.schema)}.device")  # noqa: S608 - ours
    return found


def _succeed(connection: psycopg.Connection[Any], address: Address) -> None:
    schema = address.schema
    unit = PostgresUnit(connection.cursor(binary=True), Texts(DIALECT, quoted(schema)), schema=schema, slot=0)
    spaces = unit.spaces.listed()
    for space in spaces:
        last = min(
            max(unit.counters.last_sequence(space.id), unit.soundness.last_number(space)) + _RESERVED,
            numbers.SEQUENCE_MAX,
        )
        _replace(unit, space, last)
        connection.execute("SELECT setval(%s, %s)", [unit.counters.sequence_name(space.id), last])
    connection.execute(f"UPDATE {quoted(schema)}.owner SET boot = '{_ELSEWHERE}'")  # noqa: S608 - ours
    if spaces:
        logger.warning(
            "device %r is in another database than it was last written in: it was restored, or a standby took over;"
            " its queue spaces give new message ids from now on",
            address.shown,
        )


def _replace(unit: PostgresUnit, space: Space, last: int) -> None:
    """Set a new incarnation of a queue space; its message ids up to a number stay valid."""
    for piece in space.pieces(1, last):
        if piece.incarnation == space.incarnation and not piece.shift and piece not in space.adopted:
            unit.spaces.adopt(space.id, Adopted(space.incarnation, piece.first, piece.last, 0))
    unit.spaces.succeed(space.id, secrets.token_hex(8))


def _scalar(connection: psycopg.Connection[Any], statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    return None if row is None else row[0]
